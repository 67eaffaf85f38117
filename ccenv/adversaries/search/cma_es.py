"""CMA-ES over periodic patterns (Hansen: The CMA Evolution Strategy: A Tutorial, arXiv 1604.00772), with the library ``cma``.

Restarts go through the periods of 1 to 4 Rm; each begins at the worst constant corner, pulled a little to the middle, because the
landscape is flat around most patterns. Unlike the cross-entropy method it learns how the moves of a pattern depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.adversaries.search.corners import constants
from ccenv.adversaries.search.game import Found, Game, generator
from ccenv.adversaries.search.patterns import affordable, periods_rtts
from ccenv.adversary import RecordedAdversary
from ccenv.errors import require_extra
from ccenv.parameters import number

FIRST_DEVIATION = 0.35
PULL = 0.3  # from the corner to the middle
RESTARTS_PER_PERIOD = 2


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
        best, best_values, period = float(outcome[worst]), start[worst], 0
        corner = start[worst][0]
        periods = periods_rtts(game)
        rounds = RESTARTS_PER_PERIOD * len(periods)
        restarts = 0
        while left > 1:
            length = periods[restarts % len(periods)] * game.scene.steps_per_rtt
            allowed = max(2, left // max(1, rounds - restarts))
            population = min(self.population, allowed)
            if population < 2 or length * len(corner) < 2:
                break
            options = self._options(draw, population)
            first = np.tile(corner + PULL * (0.5 - corner), length)
            strategy = cma.CMAEvolutionStrategy(first, FIRST_DEVIATION, options)
            used = 0
            while used + population <= allowed and not strategy.stop():
                points = strategy.ask()
                values = np.clip(np.array(points), 0.0, 1.0).reshape(population, length, len(corner))
                outcome = game.play(game.moves(values))
                strategy.tell(points, outcome.tolist())
                used += population
                worst = int(np.argmin(outcome))
                if outcome[worst] < best:
                    best, best_values, period = float(outcome[worst]), values[worst].copy(), length // game.scene.steps_per_rtt
            left -= used
            restarts += 1
            if used == 0:
                break
        details = {"period_rtts": period, "restarts": restarts, "population": self.population}
        return Found(RecordedAdversary("cma_es", game.moves(best_values[None])[0]), details=details)

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
