"""CMA-ES over small policies (Hansen: The CMA Evolution Strategy: A Tutorial, arXiv 1604.00772), with the library ``cma``.

Restarts go through the shapes of ``ccenv.attacks.searches.policies``. Unlike the cross-entropy method it learns how the
weights of a policy depend on each other. The last part of the budget changes the moves of the worst policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.patterns import affordable
from ccenv.attacks.searches.policies import MUTATION_SHARE, finish, policy_shapes, require_playable
from ccenv.base.errors import require_extra
from ccenv.network.adversary import RecordedAdversary
from ccenv.base.parameters import number

FIRST_DEVIATION = 0.5


@dataclass(frozen=True)
class PolicyCmaEs:
    """The search.

    Attributes:
        population: policies per generation.
    """

    population: int
    weight: float = 15.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst sequence of moves that a policy made, or that came of it."""
        require_extra("cma", "attack")
        import cma

        require_playable(game, "policy_cma_es")
        draw = generator(seed, "cma_policy")
        left = max(1, int((1 - MUTATION_SHARE) * affordable(game, budget_flow_steps, "policy_cma_es")))
        before = game.flow_steps
        shapes = policy_shapes(game)
        best, worst_shape, worst_values, restarts = np.inf, shapes[0], np.zeros(shapes[0].n_values(game)), 0
        while left > 1:
            shape = shapes[restarts % len(shapes)]
            allowed = max(2, left // max(1, len(shapes) - restarts))
            population = min(self.population, allowed)
            options = {
                "popsize": population,
                "verbose": -9,
                "seed": np.nan,
                "randn": lambda n, m: draw.standard_normal((n, m)),
            }
            strategy = cma.CMAEvolutionStrategy(np.zeros(shape.n_values(game)), FIRST_DEVIATION, options)
            used = 0
            while used + population <= allowed and not strategy.stop():
                points = strategy.ask()
                values = np.array(points)
                outcome = shape.play(game, values)
                strategy.tell(points, outcome.tolist())
                used += population
                lowest = int(np.argmin(outcome))
                if outcome[lowest] < best:
                    best, worst_shape, worst_values = float(outcome[lowest]), shape, values[lowest].copy()
            left -= used
            restarts += 1
        if np.isinf(best):
            return Found(RecordedAdversary("policy_cma_es", game.moves_of(worst_shape.adversary(game, worst_values))))
        rest = budget_flow_steps - (game.flow_steps - before)
        return finish(game, "policy_cma_es", worst_shape, worst_values, best, rest, draw, restarts=restarts)


def search(population: int = 32) -> PolicyCmaEs:
    """Build the search.

    Args:
        population: policies per generation, 4 to 1024.
    """
    return PolicyCmaEs(int(number("policy_cma_es", "population", population, low=4, high=1024, whole=True)))
