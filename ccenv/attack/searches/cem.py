"""Cross-entropy method over periodic patterns of moves (Rubinstein, Kroese: The Cross-Entropy Method, 2004, algorithm 4.2).

A pattern is a point of [0, 1]^n: one number per open choice and step, or part of an Rm, repeated with a period of 1 to 4 Rm. Each
generation is drawn from independent normal distributions, clipped; the next mean and deviation are those of the elite. The first
generation contains the constants, because a free search per step misses them, and patterns of zeros and ones. The budget goes
through the shapes by successive halving: all play an equal part of it, the worse half is dropped, and so on down to two.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from ccenv.attack.game import Found, Game, generator
from ccenv.attack.patterns import Shape, affordable, shapes
from ccenv.attack.searches.corners import constants
from ccenv.network.adversary import RecordedAdversary
from ccenv.parameters import number

LEAST_GENERATIONS = 64  # with fewer, populations are smaller
SMALLEST_POPULATION = 32
LAST_SHAPES = 2  # shapes that are not dropped
FIRST_DEVIATION = 0.5
SMALLEST_DEVIATION = 0.02  # keeps exploring
SMOOTHING = 0.8  # weight of the new elite in mean and deviation


class _Distribution:
    """The normal distributions of one shape."""

    def __init__(self, game: Game, shape: Shape) -> None:
        size = (shape.n_values, len(game.open_moves))
        self.shape = shape
        self.mean = np.full(size, 0.5)
        self.deviation = np.full(size, FIRST_DEVIATION)
        self.best_values = np.ones(size)
        self.best = np.inf
        self.constants = np.repeat(constants(game), shape.n_values, axis=1)

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
        utilisation = game.play(self.shape.moves(game, values))
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
        population: most patterns per generation.
        elite_share: share of a generation that the next one is fitted to.
    """

    population: int = 256
    elite_share: float = 0.1
    weight: float = 4.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst pattern."""
        draw = generator(seed, "cem")
        runs = affordable(game, budget_flow_steps, "cem")
        population = min(self.population, runs, max(SMALLEST_POPULATION, runs // LEAST_GENERATIONS))
        elite = max(2, round(self.elite_share * population)) if population > 1 else 1
        left = generations = runs // population
        alive = everyone = [_Distribution(game, shape) for shape in shapes(game)]
        rounds = _rounds(len(everyone))
        while left > 0:
            of_round = max(1, generations // rounds // len(alive)) * len(alive) if len(alive) > LAST_SHAPES else left
            for number_played in range(min(of_round, left)):
                alive[number_played % len(alive)].generation(game, population, elite, draw)
            left -= min(of_round, left)
            alive = sorted(alive, key=lambda d: d.best)[: max(LAST_SHAPES, len(alive) // 2)]
        worst = min(everyone, key=lambda d: d.best)
        details = {**asdict(worst.shape), "generations": generations, "population": population}
        return Found(RecordedAdversary("cem", worst.shape.moves(game, worst.best_values[None])[0]), details=details)


def _rounds(n_shapes: int) -> int:
    """Return how often the worse half is dropped until the last shapes are left, and their own round."""
    return 1 + max(0, math.ceil(math.log2(n_shapes / LAST_SHAPES)))


def search(population: int = 256, elite_share: float = 0.1) -> Cem:
    """Build the search.

    Args:
        population: most patterns per generation, 4 to 4096.
        elite_share: share of a generation that the next one is fitted to, in (0, 0.5].
    """
    return Cem(
        int(number("cem", "population", population, low=4, high=4096, whole=True)),
        number("cem", "elite_share", elite_share, above=0, high=0.5),
    )
