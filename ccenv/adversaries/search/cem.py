"""Cross-entropy method over periodic patterns of moves (Rubinstein, Kroese: The Cross-Entropy Method, 2004, algorithm 4.2).

A pattern is a point of [0, 1]^n: one number per step and open choice, repeated with a period of 1 to 4 Rm. Each generation is
drawn from independent normal distributions, clipped; the next mean and deviation are those of the elite. The first generation
contains the constants, because a free search per step misses them, and patterns of zeros and ones. All periods get a short start;
the rest of the budget goes to the two that came out worst for the sender.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.adversaries.search.corners import constants
from ccenv.adversaries.search.game import Found, Game, generator
from ccenv.adversaries.search.patterns import affordable, periods_rtts
from ccenv.adversary import RecordedAdversary
from ccenv.parameters import number

START_GENERATIONS = 6  # of each period, before the budget is concentrated
START_SHARE = 0.4  # at most so much of the budget goes into the starts
FIRST_DEVIATION = 0.5
SMALLEST_DEVIATION = 0.02  # keeps exploring
SMOOTHING = 0.8  # weight of the new elite in mean and deviation


class _Distribution:
    """The normal distributions of one period."""

    def __init__(self, game: Game, period_rtts: int) -> None:
        shape = (period_rtts * game.scene.steps_per_rtt, len(game.open_moves))
        self.period_rtts = period_rtts
        self.mean = np.full(shape, 0.5)
        self.deviation = np.full(shape, FIRST_DEVIATION)
        self.best_values = np.ones(shape)
        self.best = np.inf
        self.constants = np.repeat(constants(game), shape[0], axis=1)

    def generation(self, game: Game, population: int, elite: int, draw: np.random.Generator) -> None:
        """Draw, play, and move towards the elite."""
        noise = draw.standard_normal((population, *self.mean.shape))
        values = np.clip(self.mean + self.deviation * noise, 0.0, 1.0)
        if np.isinf(self.best):
            values[::2] = np.round(values[::2])
            kept = self.constants[:population]
        else:
            kept = self.best_values[None]
        values[: len(kept)] = kept
        utilisation = game.play(game.moves(values))
        order = np.argsort(utilisation, kind="stable")
        if utilisation[order[0]] < self.best:
            self.best, self.best_values = float(utilisation[order[0]]), values[order[0]].copy()
        chosen = values[order[:elite]]
        self.mean = (1 - SMOOTHING) * self.mean + SMOOTHING * chosen.mean(axis=0)
        self.deviation = np.maximum(SMALLEST_DEVIATION, (1 - SMOOTHING) * self.deviation + SMOOTHING * chosen.std(axis=0))


@dataclass(frozen=True)
class Cem:
    """The search.

    Attributes:
        population: patterns per generation.
        elite_share: share of a generation that the next one is fitted to.
    """

    population: int = 256
    elite_share: float = 0.1
    weight: float = 4.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst pattern."""
        draw = generator(seed, "cem")
        runs = affordable(game, budget_flow_steps, "cem")
        population = min(self.population, runs)
        elite = max(2, round(self.elite_share * population)) if population > 1 else 1
        generations = runs // population
        lengths = [_Distribution(game, period) for period in periods_rtts(game)]
        done = 0
        for _ in range(START_GENERATIONS):
            for one in lengths:
                if done == 0 or done + 1 <= START_SHARE * generations:
                    one.generation(game, population, elite, draw)
                    done += 1
        finalists = sorted((d for d in lengths if d.best < np.inf), key=lambda d: d.best)[:2]
        while done < generations:
            finalists[done % len(finalists)].generation(game, population, elite, draw)
            done += 1
        worst = min(lengths, key=lambda d: d.best)
        details = {"period_rtts": worst.period_rtts, "generations": done, "population": population}
        return Found(RecordedAdversary("cem", game.moves(worst.best_values[None])[0]), details=details)


def search(population: int = 256, elite_share: float = 0.1) -> Cem:
    """Build the search.

    Args:
        population: patterns per generation, 4 to 4096.
        elite_share: share of a generation that the next one is fitted to, in (0, 0.5].
    """
    return Cem(
        int(number("cem", "population", population, low=4, high=4096, whole=True)),
        number("cem", "elite_share", elite_share, above=0, high=0.5),
    )
