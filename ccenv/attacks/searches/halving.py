"""Cross-entropy search over several distributions at once: all play an equal part, the worse half is dropped, and so on.

A distribution is one shape of what is searched for (patterns of a period, policies of a size): independent normal distributions,
one per number (Rubinstein, Kroese: The Cross-Entropy Method, 2004, algorithm 4.2). Successive halving: Karnin, Koren, Somekh,
ICML 2013, algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

LEAST_GENERATIONS = 64  # with fewer, populations are smaller
SMALLEST_POPULATION = 32
LAST = 2  # distributions that are not dropped
SMOOTHING = 0.8  # weight of the new elite in mean and deviation


@dataclass
class Normal:
    """The normal distributions of one shape.

    Attributes:
        mean, deviation: of each number, arrays of one shape.
        play: outcomes of several points, lower is worse for the sender: (n, *shape) to (n,).
        least_deviation: keeps exploring.
        limits: points are clipped to them.
        opening: what the first generation is made of, given its random points.
        best: lowest outcome so far, and the point.
    """

    mean: np.ndarray
    deviation: np.ndarray
    play: Callable[[np.ndarray], np.ndarray]
    least_deviation: float
    limits: tuple[float, float]
    opening: Callable[[np.ndarray], np.ndarray]
    best: float = np.inf
    best_values: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the mean as the best point known."""
        self.best_values = self.mean.copy()

    def generation(self, population: int, elite: int, draw: np.random.Generator) -> None:
        """Draw, play, and move towards the elite."""
        noise = draw.standard_normal((population, *self.mean.shape))
        values = np.clip(self.mean + self.deviation * noise, *self.limits)
        if np.isinf(self.best):
            values = self.opening(values)
        else:
            values[0] = self.best_values
        outcome = self.play(values)
        order = np.argsort(outcome, kind="stable")
        if outcome[order[0]] < self.best:
            self.best, self.best_values = float(outcome[order[0]]), values[order[0]].copy()
        chosen = values[order[:elite]]
        self.mean = (1 - SMOOTHING) * self.mean + SMOOTHING * chosen.mean(axis=0)
        self.deviation = np.maximum(self.least_deviation, (1 - SMOOTHING) * self.deviation + SMOOTHING * chosen.std(axis=0))


def population_of(runs: int, most: int) -> int:
    """Return how many points a generation has, given how many runs there are in all."""
    return min(most, runs, max(SMALLEST_POPULATION, runs // LEAST_GENERATIONS))


def elite_of(population: int, share: float) -> int:
    """Return how many points of a generation the next one is fitted to."""
    return max(2, round(share * population)) if population > 1 else 1


def halve(everyone: Sequence[Normal], generations: int, population: int, elite: int, draw: np.random.Generator) -> int:
    """Play generations; return the number of the distribution that has the lowest outcome."""
    alive, left = list(everyone), generations
    rounds = 1 + max(0, math.ceil(math.log2(len(alive) / LAST)))
    while left > 0:
        of_round = max(1, generations // rounds // len(alive)) * len(alive) if len(alive) > LAST else left
        for played in range(min(of_round, left)):
            alive[played % len(alive)].generation(population, elite, draw)
        left -= min(of_round, left)
        alive = sorted(alive, key=lambda one: one.best)[: max(LAST, len(alive) // 2)]
    return min(range(len(everyone)), key=lambda i: everyone[i].best)
