"""Small policies over the observation of ``ccenv/Network-v0``, as a vector of numbers and as what the kernel evaluates.

Cross-entropy method over small policies that see the state of path and sender (``ccenv/Network-v0``), evaluated in the kernel.

A policy answers what the sender does, so that a few dozen numbers describe what no periodic pattern repeats. Several sizes and
paces share the budget by successive halving (``ccenv.attacks.searches.population``), each from a narrow and a wide beginning;
the last part of the budget changes the moves of the worst policy (``ccenv.attacks.searches.mutation``).

CMA-ES over small policies (Hansen: The CMA Evolution Strategy: A Tutorial, arXiv 1604.00772), with the library ``cma``.

Restarts go through the shapes of ``ccenv.attacks.searches.policies``. Unlike the cross-entropy method it learns how the
weights of a policy depend on each other. The last part of the budget changes the moves of the worst policy.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ccenv.adversaries.observation import BDP_SEGMENTS, BUFFER, LARGEST_JITTER, N_FLOW, N_PATH
from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.mutation import mutate
from ccenv.attacks.searches.patterns import affordable
from ccenv.attacks.searches.population import Normal, elite_of, halve, population_of
from ccenv.base.errors import InputError, require_extra
from ccenv.base.registry import number
from ccenv.network.adversary import MlpAdversary, RecordedAdversary

MIDDLE = 0.5  # an output of zero is the middle of a move's range
# How far each input typically moves in a run: weights of one size then mean the same for all of them.
PATH_SCALE = (4.0, 1.0, 1.0, 4.0, 1.0, 6.0, 1.0)
FLOW_SCALE = (2.0, 2.0, 2.0, 0.2, 1.0, 1.0, 2.0, 4.0, 1.0, 4.0, 1.0, 1.0)
CONSTANT = (BUFFER, LARGEST_JITTER, BDP_SEGMENTS)  # inputs that stay the same in all runs of a scene
MUTATION_SHARE = 0.5  # of the budget: for what no policy of this size can do


@dataclass(frozen=True)
class PolicyShape:
    """The size of a policy, and how often it decides.

    Attributes:
        hidden: units of its one hidden layer (tanh); 0: its moves are linear in the inputs.
        decision_steps: engine steps for which moves are kept.
    """

    hidden: int
    decision_steps: int

    def n_values(self, game: Game) -> int:
        """Return how many numbers describe a policy."""
        n_in, n_out = len(_inputs(game)), len(game.open_moves)
        return (n_in + 1) * self.hidden + (self.hidden + 1) * n_out if self.hidden else (n_in + 1) * n_out

    def adversary(self, game: Game, values: np.ndarray) -> MlpAdversary:
        """Return the policy that (n_values,) numbers describe: layer by layer weights, then biases."""
        inputs, scale = _inputs(game), _scale(game)
        widths = [len(inputs), self.hidden, len(game.open_moves)] if self.hidden else [len(inputs), len(game.open_moves)]
        weights, biases, at = [], [], 0
        for n_in, n_out in itertools.pairwise(widths):
            weights.append(values[at : at + n_in * n_out].reshape(n_in, n_out))
            biases.append(values[at + n_in * n_out : at + (n_in + 1) * n_out])
            at += (n_in + 1) * n_out
        first = np.zeros((len(scale), widths[1]))
        first[inputs] = weights[0] / scale[inputs][:, None]
        biases[-1] = biases[-1] + MIDDLE
        return MlpAdversary(
            "policy",
            (first, *weights[1:]),
            tuple(biases),
            "tanh",
            OBSERVATION_VERSION,
            game.open_moves,
            self.decision_steps,
            game.scene.warmup_rtts + game.scene.window_rtts,
        )

    def play(self, game: Game, values: np.ndarray) -> np.ndarray:
        """Return what the goal counts against each of several policies, (B, n_values) to (B,)."""
        return game.play_adversaries([self.adversary(game, row) for row in values])


def policy_shapes(game: Game) -> list[PolicyShape]:
    """Return the shapes that are tried: without and with a hidden layer, deciding every Rm, half Rm and quarter of an Rm."""
    K = game.scene.steps_per_rtt
    steps = sorted({max(1, K // parts) for parts in (1, 2, 4)}, reverse=True)
    return [PolicyShape(hidden, every) for hidden in (0, 4) for every in steps]


def _scale(game: Game) -> np.ndarray:
    return np.array([*PATH_SCALE, *(FLOW_SCALE * game.scene.path.n_flows)])


def _inputs(game: Game) -> np.ndarray:
    n_in = N_PATH + N_FLOW * game.scene.path.n_flows
    return np.array([j for j in range(n_in) if j not in CONSTANT])


def require_playable(game: Game, name: str) -> None:
    """Raise InputError if policies cannot be kept quiet for the calm beginning of a run."""
    if game.calm_steps > game.first_row:
        raise InputError(
            f"adversary {name!r} cannot wait until the measured window has begun: calm_rtts is {game.scene.calm_rtts}, "
            f"warmup_rtts {game.scene.warmup_rtts}"
        )


def finish(
    game: Game, name: str, shape: PolicyShape, values: np.ndarray, best: float, left: int, draw: np.random.Generator, **more: Any
) -> Found:
    """Change what a policy does with what is left of a budget (``changed``); the details describe the policy too."""
    found = changed(game, name, shape.adversary(game, values), best, left, draw)
    found.details = {**asdict(shape), **found.details, **more}
    return found


def changed(game: Game, name: str, policy: MlpAdversary, best: float, left: int, draw: np.random.Generator) -> Found:
    """Write down a policy's moves, change them with what is left of a budget, and return the worst sequence, or the policy."""
    details = {"before_mutation": best, "after_mutation": best}
    of_run = game.run_flow_steps
    if left < 2 * of_run:
        return Found(policy, details=details)
    moves, outcome = mutate(game, game.moves_of(policy), best, left - of_run, draw)
    return Found(RecordedAdversary(name, moves), details=details | {"after_mutation": outcome})


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


def search_policy_cem(population: int = 64, changes: float = MUTATION_SHARE) -> PolicyCem:
    """Build the search.

    Args:
        population: most policies per generation, 4 to 4096.
        changes: share of the budget that changes the moves of the worst policy, 0 to 0.9.
    """
    most = int(number("policy_cem", "population", population, low=4, high=4096, whole=True))
    return PolicyCem(most, float(number("policy_cem", "changes", changes, low=0, high=0.9)))


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


def search_policy_cma_es(population: int = 32) -> PolicyCmaEs:
    """Build the search.

    Args:
        population: policies per generation, 4 to 1024.
    """
    return PolicyCmaEs(int(number("policy_cma_es", "population", population, low=4, high=1024, whole=True)))
