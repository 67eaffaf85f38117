"""CMA-ES over periodic patterns (Hansen: The CMA Evolution Strategy: A Tutorial, arXiv 1604.00772), with the library ``cma``.

Restarts go through the shapes of patterns, coarse ones first. Each begins at the worst constant corner, pulled a little to the
middle, because the landscape is flat around most patterns. Unlike the cross-entropy method it learns how the moves of a pattern
depend on each other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.patterns import Shape, affordable, shapes
from ccenv.attacks.searches.corners import constants
from ccenv.base.errors import require_extra
from ccenv.network.adversary import RecordedAdversary
from ccenv.base.parameters import number

FIRST_DEVIATION = 0.35
PULL = 0.3  # from the corner to the middle


@dataclass(frozen=True)
class CmaEs:
    """The search.

    Attributes:
        population: patterns per generation.
    """

    population: int
    weight: float = 2.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst pattern."""
        require_extra("cma", "attack")
        import cma

        draw = generator(seed, "cma_es")
        runs = affordable(game, budget_flow_steps, "cma_es")
        corners = constants(game, (0.0, 1.0))
        start = corners[:runs]
        outcome = game.play(game.moves(start))
        left = runs - len(start)
        worst = int(np.argmin(outcome))
        best, best_values, best_shape = float(outcome[worst]), start[worst], Shape(1, 1)
        corner = start[worst][0]
        every = [shape for shape in shapes(game) if shape.n_values * len(corner) > 1]  # the library needs two dimensions
        restarts = 0
        while left > 1:
            shape = every[restarts % len(every)]
            allowed = max(2, left // max(1, len(every) - restarts))
            population = min(self.population, allowed)
            options = self._options(draw, population)
            first = np.tile(corner + PULL * (0.5 - corner), shape.n_values)
            strategy = cma.CMAEvolutionStrategy(first, FIRST_DEVIATION, options)
            used = 0
            while used + population <= allowed and not strategy.stop():
                points = strategy.ask()
                values = np.clip(np.array(points), 0.0, 1.0).reshape(population, shape.n_values, len(corner))
                outcome = game.play(shape.moves(game, values))
                strategy.tell(points, outcome.tolist())
                used += population
                worst = int(np.argmin(outcome))
                if outcome[worst] < best:
                    best, best_values, best_shape = float(outcome[worst]), values[worst].copy(), shape
            left -= used
            restarts += 1
            if used == 0:
                break
        details = {**asdict(best_shape), "restarts": restarts, "population": self.population}
        return Found(RecordedAdversary("cma_es", best_shape.moves(game, best_values[None])[0]), details=details)

    @staticmethod
    def _options(draw: np.random.Generator, population: int) -> dict[str, Any]:
        """Return the library's options: bounds, no output, and random numbers of our own."""
        return {
            "popsize": population,
            "bounds": [0.0, 1.0],
            "verbose": -9,
            "seed": np.nan,
            "randn": lambda n, m: draw.standard_normal((n, m)),
            "CMA_diagonal": False,
        }


def search(population: int = 64) -> CmaEs:
    """Build the search.

    Args:
        population: patterns per generation, 4 to 1024.
    """
    return CmaEs(int(number("cma_es", "population", population, low=4, high=1024, whole=True)))
