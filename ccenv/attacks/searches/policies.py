"""Searches over small policies on the observation of ``ccenv/Network-v0``, evaluated in the kernel: cross-entropy and CMA-ES.

A policy reacts to the sender, so that a few dozen parameters describe attacks beyond periodic patterns. The last part of the
budget mutates the moves of the worst policy (``ccenv.attacks.searches.mutation``).
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
from ccenv.attacks.searches.population import Normal, choose_elite, choose_population, halve
from ccenv.base.errors import InputError, require_extra
from ccenv.base.registry import number
from ccenv.network.adversary import MlpAdversary, RecordedAdversary

MIDDLE = 0.5  # an output of zero is the middle of a move's range
# Typical range of each input in a run, so that equal weights have equal effects.
PATH_SCALE = (4.0, 1.0, 1.0, 4.0, 1.0, 6.0, 1.0)
FLOW_SCALE = (2.0, 2.0, 2.0, 0.2, 1.0, 1.0, 2.0, 4.0, 1.0, 4.0, 1.0, 1.0)
CONSTANT = (BUFFER, LARGEST_JITTER, BDP_SEGMENTS)  # inputs that are equal in all runs of an attack scenario
MUTATION_SHARE = 0.5  # of the budget, for attacks beyond policies of this size


@dataclass(frozen=True)
class PolicyShape:
    """The size and pace of a policy.

    Attributes:
        hidden: units of its one hidden layer (tanh); 0: its moves are linear in the inputs.
        decision_steps: engine steps per decision.
    """

    hidden: int
    decision_steps: int

    def n_values(self, game: Game) -> int:
        """Return the number of parameters of a policy."""
        n_in, n_out = len(_inputs(game)), len(game.open_moves)
        return (n_in + 1) * self.hidden + (self.hidden + 1) * n_out if self.hidden else (n_in + 1) * n_out

    def adversary(self, game: Game, values: np.ndarray) -> MlpAdversary:
        """Return the policy of (n_values,) parameters: layer by layer weights, then biases."""
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
        """Return the goal's outcomes against several policies, (B, n_values) to (B,)."""
        return game.play_adversaries([self.adversary(game, row) for row in values])


def policy_shapes(game: Game) -> list[PolicyShape]:
    """Return the shapes to try: without and with a hidden layer, deciding every Rm, half Rm and quarter of an Rm."""
    K = game.scene.steps_per_rtt
    steps = sorted({max(1, K // parts) for parts in (1, 2, 4)}, reverse=True)
    return [PolicyShape(hidden, every) for hidden in (0, 4) for every in steps]


def _scale(game: Game) -> np.ndarray:
    return np.array([*PATH_SCALE, *(FLOW_SCALE * game.scene.path.n_flows)])


def _inputs(game: Game) -> np.ndarray:
    n_in = N_PATH + N_FLOW * game.scene.path.n_flows
    return np.array([j for j in range(n_in) if j not in CONSTANT])


def require_playable(game: Game, name: str) -> None:
    """Raise InputError if policies cannot be inactive for the benign beginning of a run."""
    if game.calm_steps > game.first_row:
        raise InputError(
            f"adversary {name!r} cannot wait until the measured window has begun: calm_rtts is {game.scene.calm_rtts}, "
            f"warmup_rtts {game.scene.warmup_rtts}"
        )


def finish(
    game: Game, name: str, shape: PolicyShape, values: np.ndarray, best: float, left: int, draw: np.random.Generator, **more: Any
) -> Found:
    """Mutate a policy's moves with the rest of a budget (:func:`mutate_policy`), and add the policy to the details."""
    result = mutate_policy(game, name, shape.adversary(game, values), best, left, draw)
    result.details = {**asdict(shape), **result.details, **more}
    return result


def mutate_policy(game: Game, name: str, policy: MlpAdversary, best: float, left: int, draw: np.random.Generator) -> Found:
    """Record a policy's moves, mutate them with the rest of a budget, and return the worst sequence, or the policy."""
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


def _make_distribution(game: Game, shape: PolicyShape, deviation: float) -> Normal:
    def play(values: np.ndarray) -> np.ndarray:
        return shape.play(game, values)

    size = shape.n_values(game)
    return Normal(np.zeros(size), np.full(size, deviation), play, SMALLEST_DEVIATION, UNLIMITED, lambda values: values)


@dataclass(frozen=True)
class PolicyCem:
    """Cross-entropy method over several sizes and paces, by successive halving, each from a narrow and a wide beginning.

    Attributes:
        population: most policies per generation.
        changes: share of the budget for mutations of the worst policy's moves; 0: the policy itself is the result.
    """

    population: int
    changes: float = MUTATION_SHARE
    weight: float = 15.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst sequence of moves that a policy made, or that came of it."""
        require_playable(game, "policy_cem")
        draw = generator(seed, "cem_policy")
        runs = max(1, int((1 - self.changes) * affordable(game, budget_flow_steps, "policy_cem")))
        population = choose_population(runs, self.population)
        arm_settings = [(shape, deviation) for deviation in FIRST_DEVIATIONS for shape in policy_shapes(game)]
        arms = [_make_distribution(game, shape, deviation) for shape, deviation in arm_settings]
        before = game.flow_steps
        winner = halve(arms, runs // population, population, choose_elite(population, ELITE_SHARE), draw)
        left = budget_flow_steps - (game.flow_steps - before) if self.changes else 0
        return finish(game, "policy_cem", arm_settings[winner][0], arms[winner].best_values, arms[winner].best, left, draw)


def search_policy_cem(population: int = 64, changes: float = MUTATION_SHARE) -> PolicyCem:
    """Build the search: at most 4 to 4096 policies per generation; 0 to 0.9 of the budget mutates the worst policy's moves."""
    most = int(number("policy_cem", "population", population, low=4, high=4096, whole=True))
    return PolicyCem(most, float(number("policy_cem", "changes", changes, low=0, high=0.9)))


FIRST_DEVIATION = 0.5


@dataclass(frozen=True)
class PolicyCmaEs:
    """CMA-ES (Hansen: The CMA Evolution Strategy: A Tutorial, arXiv 1604.00772), with the library ``cma``.

    Restarts go through the policy shapes. Unlike the cross-entropy method it learns how the weights of a policy depend on each
    other. ``population`` counts policies per generation.
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
    """Build the search with 4 to 1024 policies per generation."""
    return PolicyCmaEs(int(number("policy_cma_es", "population", population, low=4, high=1024, whole=True)))
