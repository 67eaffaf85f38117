"""Cross-entropy method over small policies that see the state of path and sender (``ccenv/Network-v0``), evaluated in the kernel.

A policy answers what the sender does, so that a few dozen numbers describe what no periodic pattern repeats. Several sizes and
paces share the budget by successive halving (``ccenv.attacks.searches.halving``), each from a narrow and a wide beginning; the last part
of the budget changes the moves of the worst policy (``ccenv.attacks.searches.attack_mutation``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.halving import Normal, elite_of, halve, population_of
from ccenv.attacks.searches.patterns import affordable
from ccenv.attacks.searches.policies import MUTATION_SHARE, PolicyShape, finish, policy_shapes, require_playable
from ccenv.base.parameters import number

FIRST_DEVIATIONS = (0.5, 1.5)
SMALLEST_DEVIATION = 0.05
ELITE_SHARE = 0.125
UNLIMITED = (-np.inf, np.inf)


def _distribution(game: Game, shape: PolicyShape, deviation: float) -> Normal:
    def play(values: np.ndarray) -> np.ndarray:
        return shape.play(game, values)

    size = shape.n_values(game)
    return Normal(np.zeros(size), np.full(size, deviation), play, SMALLEST_DEVIATION, UNLIMITED, lambda values: values)


@dataclass(frozen=True)
class PolicyCem:
    """The search.

    Attributes:
        population: most policies per generation.
        changes: share of the budget that changes the moves of the worst policy; 0: the policy itself is what is found.
    """

    population: int
    changes: float = MUTATION_SHARE
    weight: float = 15.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst sequence of moves that a policy made, or that came of it."""
        require_playable(game, "policy_cem")
        draw = generator(seed, "cem_policy")
        runs = max(1, int((1 - self.changes) * affordable(game, budget_flow_steps, "policy_cem")))
        population = population_of(runs, self.population)
        every = [(shape, deviation) for deviation in FIRST_DEVIATIONS for shape in policy_shapes(game)]
        arms = [_distribution(game, shape, deviation) for shape, deviation in every]
        before = game.flow_steps
        which = halve(arms, runs // population, population, elite_of(population, ELITE_SHARE), draw)
        left = budget_flow_steps - (game.flow_steps - before) if self.changes else 0
        return finish(game, "policy_cem", every[which][0], arms[which].best_values, arms[which].best, left, draw)


def search(population: int = 64, changes: float = MUTATION_SHARE) -> PolicyCem:
    """Build the search.

    Args:
        population: most policies per generation, 4 to 4096.
        changes: share of the budget that changes the moves of the worst policy, 0 to 0.9.
    """
    most = int(number("policy_cem", "population", population, low=4, high=4096, whole=True))
    return PolicyCem(most, float(number("policy_cem", "changes", changes, low=0, high=0.9)))
