"""Patterns of two phases: first bring the sender into a state, then exploit it.

Two periodic patterns and the time of the switch between them are optimised by cross-entropy over several shapes
(``ccenv.attacks.searches.population``). Half of the budget goes into mutations of the worst sequence
(``ccenv.attacks.searches.mutation``).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.mutation import mutate
from ccenv.attacks.searches.patterns import Shape, affordable
from ccenv.attacks.searches.population import Normal, choose_elite, choose_population, halve
from ccenv.base.registry import number
from ccenv.network.adversary import RecordedAdversary

SHAPES = (Shape(1, 1), Shape(2, 2), Shape(4, 1))
PROOF_SHAPES = (Shape(2, 1), Shape(7, 1), Shape(20, 1))
FIRST_DEVIATION, SMALLEST_DEVIATION = 0.5, 0.02
ELITE_SHARE = 0.125
MUTATION_SHARE = 0.5


@dataclass(frozen=True)
class Phases:
    """The shapes of the patterns before and after the switch."""

    first: Shape
    second: Shape

    def n_values(self, game: Game) -> int:
        """Return the number of parameters: the time of the switch, then the values of both patterns."""
        return 1 + (self.first.n_values + self.second.n_values) * len(game.open_moves)

    def switch_step(self, game: Game, value: float) -> int:
        return game.calm_steps + round(value * (game.n_steps - game.calm_steps))

    def moves(self, game: Game, values: np.ndarray) -> np.ndarray:
        """Return complete moves (B, n_steps, 2 + 2 N) from (B, n_values) numbers."""
        width, split = len(game.open_moves), 1 + self.first.n_values * len(game.open_moves)
        before = self.first.moves(game, values[:, 1:split].reshape(-1, self.first.n_values, width))
        after = self.second.moves(game, values[:, split:].reshape(-1, self.second.n_values, width))
        for row, (value, later) in enumerate(zip(values[:, 0], after, strict=True)):
            switch = self.switch_step(game, float(value))
            before[row, switch:] = later[game.calm_steps : game.calm_steps + game.n_steps - switch]
        return before


def _make_distribution(game: Game, phases: Phases) -> Normal:
    size = phases.n_values(game)

    def opening(values: np.ndarray) -> np.ndarray:
        values[::2, 1:] = np.round(values[::2, 1:])
        return values

    def play(values: np.ndarray) -> np.ndarray:
        return game.play(phases.moves(game, values))

    return Normal(np.full(size, 0.5), np.full(size, FIRST_DEVIATION), play, SMALLEST_DEVIATION, (0.0, 1.0), opening)


@dataclass(frozen=True)
class TwoPhase:
    """The search, with at most ``population`` patterns per generation."""

    population: int
    weight: float = 5.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        draw = generator(seed, "two_phase")
        runs = max(1, int((1 - MUTATION_SHARE) * affordable(game, budget_flow_steps, "two_phase")))
        population = choose_population(runs, self.population)
        phase_shapes = PROOF_SHAPES if game.scene.timing == "smt" else SHAPES
        all_phases = [Phases(first, second) for first, second in itertools.product(phase_shapes, repeat=2)]
        arms = [_make_distribution(game, phases) for phases in all_phases]
        before = game.flow_steps
        winner = halve(arms, runs // population, population, choose_elite(population, ELITE_SHARE), draw)
        phases, best = all_phases[winner], arms[winner]
        moves = phases.moves(game, best.best_values[None])[0]
        moves, outcome = mutate(game, moves, best.best, budget_flow_steps - (game.flow_steps - before), draw)
        details = {
            "first_period_rtts": phases.first.period_rtts,
            "second_period_rtts": phases.second.period_rtts,
            "switch_rtts": phases.switch_step(game, float(best.best_values[0])) / game.scene.steps_per_rtt,
            "before_mutation": best.best,
            "after_mutation": outcome,
        }
        return Found(RecordedAdversary("two_phase", moves), details=details)


def search(population: int = 64) -> TwoPhase:
    """Build the search with at most 4 to 4096 patterns per generation."""
    return TwoPhase(int(number("two_phase", "population", population, low=4, high=4096, whole=True)))
