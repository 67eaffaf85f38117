"""Searches over the moves of delay elements: constants, periodic patterns, patterns of two phases, small policies.

``cem``, ``two_phase`` and ``policy_cem`` apply the cross-entropy method (``ccenv.attacks.searches.population``) to their
parameters; several shapes share the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ccenv.adversaries.load import load_adversary
from ccenv.attacks.boxes.game import BoxGame
from ccenv.attacks.boxes.players import (
    INPUTS,
    MIDDLE,
    PATTERN,
    PATTERN_VALUES,
    PHASE_VALUES,
    PHASES,
    POLICY,
    BoxPlayer,
    BoxPolicy,
    Pattern,
    Stored,
    TwoPhases,
)
from ccenv.attacks.game import Found
from ccenv.attacks.searches.population import Normal, choose_elite
from ccenv.base.errors import InputError
from ccenv.network.adversary import ScriptedAdversary

CONSTANTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
PERIODS_RTTS = (1, 2, 4)
POPULATION, ELITE_SHARE, SMOOTHING, FIRST_STD, LEAST_STD = 32, 0.2, 0.7, 0.4, 0.02
POLICY_STD = (0.5, 1.0, 1.0, 0.3, 0.5, 1.0)  # of the weights of INPUTS at first
UNIT = (0.0, 1.0)


class Shape(NamedTuple):
    """Players of one shape: how they are built from numbers, and the distribution of these at first."""

    build: Callable[[np.ndarray], BoxPlayer]
    mean: np.ndarray
    deviation: np.ndarray
    limits: tuple[float, float] = UNIT


@dataclass(frozen=True)
class BoxSearch:
    """A search: its name, the adversary of its players, and a function that returns the worst of so many runs."""

    name: str
    adversary: ScriptedAdversary
    find: Callable[[BoxGame, int, np.random.Generator], BoxPlayer]
    weight: float = 1.0

    def least_flow_steps(self, game: BoxGame) -> int:
        """Return the cost of a run, and of one that measures it."""
        return 2 * game.run_flow_steps

    def run(self, game: BoxGame, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst player; one run of the budget is left to measure it."""
        return Found(player=self.worst(game, budget_flow_steps // game.run_flow_steps - 1, seed))

    def worst(self, game: BoxGame, runs: int, seed: int) -> BoxPlayer:
        """Return the worst player of so many runs. Raises InputError for less than one run."""
        if runs < 1:
            raise InputError(
                f"adversary {self.name!r} has a budget below one run of {game.run_flow_steps} flow-steps: raise the budget"
            )
        return self.find(game, runs, np.random.Generator(np.random.Philox(key=[seed, 1])))


@dataclass(frozen=True)
class Scripted:
    """One run against a scripted adversary."""

    adversary: ScriptedAdversary
    weight: float = 0.0

    def run(self, game: BoxGame, budget_flow_steps: int, seed: int) -> Found:
        """Return the adversary, which the attack plays."""
        return Found(player=Stored(self.adversary))


def scripted(name: str) -> ScriptedAdversary:
    """Return a scripted adversary. Raises UnknownNameError, or InputError for one of another kind."""
    adversary = load_adversary(name)
    if not isinstance(adversary, ScriptedAdversary):
        raise InputError(
            f"adversary {name!r} is not scripted; jitter boxes are played by {', '.join(SEARCHES)} or a scripted one"
        )
    return adversary


def _corners(game: BoxGame, runs: int, rng: np.random.Generator) -> BoxPlayer:
    patterns = [Pattern((share,)) for share in CONSTANTS][:runs]
    return patterns[int(np.argmin(game.play(patterns)))]


def _cem(game: BoxGame, runs: int, rng: np.random.Generator) -> BoxPlayer:
    """Search patterns that repeat after whole RTTs, as far as ticks allow; the finest last."""

    def shape(n: int, hold_ticks: int) -> Shape:
        return Shape(lambda row: Pattern(tuple(row.tolist()), hold_ticks), np.full(n, 0.5), np.full(n, FIRST_STD))

    shapes = []
    for period in PERIODS_RTTS:
        ticks = period * game.ticks_of_rtt
        hold = -(-ticks // PATTERN_VALUES)
        shapes.append((max(2, round(ticks / hold)), hold))
    return _share(game, runs, rng, [shape(*one) for one in dict.fromkeys(shapes)])


def _two_phase(game: BoxGame, runs: int, rng: np.random.Generator) -> BoxPlayer:
    """Search patterns of whole RTTs, as far as ticks allow, and the time of the switch."""

    def shape(n: int, hold_ticks: int) -> Shape:
        def build(row: np.ndarray) -> BoxPlayer:
            switch = round(float(row[0]) * game.ticks_of_run)
            return TwoPhases(tuple(row[1 : 1 + n].tolist()), tuple(row[1 + n :].tolist()), hold_ticks, switch)

        return Shape(build, np.full(1 + 2 * n, 0.5), np.full(1 + 2 * n, FIRST_STD))

    shapes = []
    for period in PERIODS_RTTS:
        ticks = period * game.ticks_of_rtt
        hold = -(-ticks // PHASE_VALUES)
        shapes.append(shape(max(1, round(ticks / hold)), hold))
    return _share(game, runs, rng, shapes)


def _policy_cem(game: BoxGame, runs: int, rng: np.random.Generator) -> BoxPlayer:
    def shape(hold_ticks: int) -> Shape:
        mean = np.array([MIDDLE, *[0.0] * (len(INPUTS) - 1)])
        limits = (-np.inf, np.inf)
        return Shape(lambda row: BoxPolicy(tuple(row.tolist()), hold_ticks, game.end_s), mean, np.array(POLICY_STD), limits)

    holds = (1, max(1, game.ticks_of_rtt // 2), game.ticks_of_rtt)
    return _share(game, runs, rng, [shape(hold) for hold in dict.fromkeys(holds)])


def _share(game: BoxGame, runs: int, rng: np.random.Generator, shapes: Sequence[Shape]) -> BoxPlayer:
    """Share the runs among shapes and return the worst player of all."""

    def arm(shape: Shape) -> Normal:
        def play(values: np.ndarray) -> np.ndarray:
            return game.play([shape.build(row) for row in values])

        return Normal(shape.mean, shape.deviation, play, LEAST_STD, shape.limits, smoothing=SMOOTHING, keeps_best=False)

    tried = shapes[: max(1, runs // POPULATION)]
    arms = [arm(shape) for shape in tried]
    runs_each = runs // len(arms)
    population = min(POPULATION, max(1, runs_each))
    for one in arms:
        for _ in range(max(1, runs_each // population)):
            one.generation(population, choose_elite(population, ELITE_SHARE), rng)
    worst = min(range(len(arms)), key=lambda place: arms[place].best)
    return tried[worst].build(arms[worst].best_values)


_TABLE = (
    BoxSearch("corners", PATTERN, _corners),
    BoxSearch("cem", PATTERN, _cem),
    BoxSearch("two_phase", PHASES, _two_phase),
    BoxSearch("policy_cem", POLICY, _policy_cem),
)
SEARCHES: Mapping[str, BoxSearch] = {search.name: search for search in _TABLE}
"""All searches by name, in the panel's order."""
PATTERN_SEARCHES = tuple(name for name, search in SEARCHES.items() if search.adversary is PATTERN)
"""Searches for periodic patterns, against which robust rounds train."""
