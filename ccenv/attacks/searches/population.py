"""Cross-entropy method over periodic patterns of moves (Rubinstein, Kroese: The Cross-Entropy Method, 2004, algorithm 4.2).

A pattern is a point of [0, 1]^n: one number per open choice and step, or part of an Rm, repeated with a period of 1 to 4 Rm. Each
generation is drawn from independent normal distributions, clipped; the next mean and deviation are those of the elite. The first
generation contains the constants, because a free search per step misses them, and patterns of zeros and ones. The budget goes
through the shapes by successive halving: all play an equal part of it, the worse half is dropped, and so on down to two.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.halving import Normal, elite_of, halve, population_of
from ccenv.attacks.searches.patterns import Shape, affordable, shapes
from ccenv.attacks.searches.corners import constants
from ccenv.network.adversary import RecordedAdversary
from ccenv.base.parameters import number

FIRST_DEVIATION = 0.5
SMALLEST_DEVIATION = 0.02


def _distribution(game: Game, shape: Shape) -> Normal:
    size = (shape.n_values, len(game.open_moves))

    def opening(values: np.ndarray) -> np.ndarray:
        values[::2] = np.round(values[::2])
        kept = np.repeat(constants(game), shape.n_values, axis=1)[: len(values)]
        values[: len(kept)] = kept
        return values

    def play(values: np.ndarray) -> np.ndarray:
        return game.play(shape.moves(game, values))

    return Normal(np.full(size, 0.5), np.full(size, FIRST_DEVIATION), play, SMALLEST_DEVIATION, (0.0, 1.0), opening)


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
        population = population_of(runs, self.population)
        every = shapes(game)
        arms = [_distribution(game, shape) for shape in every]
        generations = runs // population
        which = halve(arms, generations, population, elite_of(population, self.elite_share), draw)
        details = {**asdict(every[which]), "generations": generations, "population": population}
        moves = every[which].moves(game, arms[which].best_values[None])[0]
        return Found(RecordedAdversary("cem", moves), details=details)


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
