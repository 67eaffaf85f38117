"""Searches over policies on the observation of ``ccenv/Network-v0``: cross-entropy, CMA-ES and PPO.

A policy reacts to the sender, so that a few dozen parameters describe attacks beyond periodic patterns. It is played in the
kernel. The last part of the budget mutates the moves of the worst policy (``ccenv.attacks.searches.mutation``).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.adversaries.observation import BDP_SEGMENTS, BUFFER, LARGEST_JITTER, N_FLOW, N_PATH, fill_network_observation
from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.mutation import mutate
from ccenv.attacks.searches.patterns import affordable
from ccenv.attacks.searches.population import Normal, choose_elite, choose_population, halve, restart_cma
from ccenv.base.errors import InputError, require_extra
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number
from ccenv.network.adversary import ExternalAdversary, MlpAdversary, RecordedAdversary

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

MIDDLE = 0.5  # an output of zero is the middle of a move's range
# Typical range of each input in a run, so that equal weights have equal effects.
PATH_SCALE = (4.0, 1.0, 1.0, 4.0, 1.0, 6.0, 1.0)
FLOW_SCALE = (2.0, 2.0, 2.0, 0.2, 1.0, 1.0, 2.0, 4.0, 1.0, 4.0, 1.0, 1.0)
CONSTANT = (BUFFER, LARGEST_JITTER, BDP_SEGMENTS)  # inputs that are equal in all runs of an attack scenario
MUTATION_SHARE = 0.5  # of the budget, for attacks beyond policies of this size


@dataclass(frozen=True)
class PolicyShape:
    """The size and pace of a policy."""

    hidden: int  # units of its one hidden layer (tanh); 0: its moves are linear in the inputs
    decision_steps: int  # engine steps per decision

    def n_values(self, game: Game) -> int:
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
    """Cross-entropy method over several sizes and paces, by successive halving, each from a narrow and a wide beginning."""

    population: int  # most policies per generation
    # share of the budget for mutations of the worst policy's moves; 0: the policy itself is the result
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
        require_playable(game, "policy_cma_es")
        draw = generator(seed, "cma_policy")
        runs = max(1, int((1 - MUTATION_SHARE) * affordable(game, budget_flow_steps, "policy_cma_es")))
        before = game.flow_steps
        best, shape, point, restarts = restart_cma(
            policy_shapes(game),
            runs,
            self.population,
            first=lambda shape: np.zeros(shape.n_values(game)),
            deviation=FIRST_DEVIATION,
            play=lambda shape, points: shape.play(game, points),
            draw=draw,
            options={},
        )
        if np.isinf(best):
            return Found(RecordedAdversary("policy_cma_es", game.moves_of(shape.adversary(game, point))))
        rest = budget_flow_steps - (game.flow_steps - before)
        return finish(game, "policy_cma_es", shape, point, best, rest, draw, restarts=restarts)


def search_policy_cma_es(population: int = 32) -> PolicyCmaEs:
    """Build the search with 4 to 1024 policies per generation."""
    return PolicyCmaEs(int(number("policy_cma_es", "population", population, low=4, high=1024, whole=True)))


GAMMA, GAE_LAMBDA, LEARNING_RATE, EPOCHS = 0.98, 0.9, 1e-3, 5
DECISIONS_PER_UPDATE, BATCH = 30, 480
REWARD_SCALE = 20.0
SHARE_BEFORE = 0.1  # weight of rewards before the measured window, which only lead there
HALF_RANGE = 0.5  # an action of 1 is the end of a move's range


@kernel
def _observe(env, flow, n_flows, share_over, out):  # type: ignore[no-untyped-def]
    """Write the network's observation of every environment into out, (B, N_PATH + N * N_FLOW)."""
    for b in range(env.shape[0]):
        fill_network_observation(env[b], flow, b * n_flows, n_flows, share_over, out[b])


def vector_env(game: Game, n_envs: int) -> VecEnv:
    """Return copies of the game in which each step is one Rm and each episode one run."""
    from gymnasium import spaces
    from stable_baselines3.common.vec_env import VecEnv

    n_flows, K = game.scene.path.n_flows, game.scene.steps_per_rtt
    width = N_PATH + n_flows * N_FLOW

    class GameEnv(VecEnv):
        """The game as a vector environment of Stable-Baselines3."""

        def __init__(self) -> None:
            box = spaces.Box(-32.0, 32.0, (width,), np.float32)
            super().__init__(n_envs, box, spaces.Box(-1.0, 1.0, (len(game.open_moves),), np.float32))
            self._engine = game.engine(ExternalAdversary(), n_envs)
            self._fresh = self._engine.snapshot()
            self._moves = np.tile(game.kind, (n_envs, 1))
            self._seen = np.zeros((n_envs, width))
            self._step = 0

        def reset(self) -> np.ndarray:
            self._engine.restore(self._fresh)
            self._step = 0
            self._moves[:] = game.kind
            if game.calm_steps:
                self._advance(game.calm_steps)
            self._begin_count()
            return self._observation()

        def _advance(self, steps: int) -> None:
            self._engine.advance(steps, moves=self._moves)
            game.count(self._engine, steps)
            self._step += steps

        def _begin_count(self) -> None:
            self._counts, self._counted, self._first = self._engine.totals(), np.zeros(n_envs), self._step

        def _observation(self) -> np.ndarray:
            state = self._engine.snapshot().arrays
            _observe(state["_env"], state["_flow"], n_flows, self._step / game.n_steps, self._seen)
            return self._seen.astype(np.float32)

        def step_async(self, actions: np.ndarray) -> None:
            self._moves[:, game.open_moves] = np.clip(MIDDLE + HALF_RANGE * actions, 0.0, 1.0)

        def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
            self._advance(min(K, game.n_steps - self._step))
            after = self._engine.totals()
            outcome = game.outcome({name: after[name] - self._counts[name] for name in after})
            counted = outcome * (self._step - self._first) / game.n_steps
            share = 1.0 if self._step > game.first_row else SHARE_BEFORE
            reward, self._counted = REWARD_SCALE * share * (self._counted - counted), counted
            over = self._step >= game.n_steps
            seen = self._observation()
            infos: list[dict[str, Any]] = [{} for _ in range(n_envs)]
            if over:
                for info, row in zip(infos, seen, strict=True):
                    info["terminal_observation"] = row
                seen = self.reset()
            elif self._step <= game.first_row:
                self._begin_count()
            return seen, reward.astype(np.float32), np.full(n_envs, over), infos

        def close(self) -> None:
            pass

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [None] * n_envs

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError(attr_name)

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            raise NotImplementedError(method_name)

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * n_envs

    return GameEnv()


@dataclass(frozen=True)
class PolicyPpo:
    """A policy trained by PPO (Schulman et al., arXiv 1707.06347) with Stable-Baselines3.

    One decision per Rm; a run of the game is an episode. The reward of a decision is its contribution to the goal's outcome: of
    its Rm before the measured window, of the window so far inside it. The policy's means are then played without noise.
    """

    environments: int  # parallel runs
    hidden: int  # units of each of the two hidden layers
    weight: float = 15.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst sequence of moves that the policy made, or that came of it."""
        require_extra("stable_baselines3", "train")
        import torch
        from stable_baselines3 import PPO

        require_playable(game, "policy_ppo")
        runs = affordable(game, budget_flow_steps, "policy_ppo")
        before = game.flow_steps
        n_envs = max(1, min(self.environments, runs // 4))
        while n_envs > 1 and self._least(game, n_envs) > budget_flow_steps:
            n_envs -= 1
        of_update = n_envs * DECISIONS_PER_UPDATE
        updates = self._updates(game, budget_flow_steps, n_envs)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # results must not depend on the number of threads
        try:
            model = PPO(
                "MlpPolicy", vector_env(game, n_envs), n_steps=DECISIONS_PER_UPDATE, batch_size=min(BATCH, of_update),
                n_epochs=EPOCHS, learning_rate=LEARNING_RATE, gamma=GAMMA, gae_lambda=GAE_LAMBDA, seed=seed % 2**32,
                device="cpu", policy_kwargs={"net_arch": [self.hidden, self.hidden], "log_std_init": -0.5},
            )  # fmt: skip
            model.learn(updates * of_update)
        finally:
            torch.set_num_threads(threads)
        policy = _extract_policy(game, model)
        best = float(game.play_adversaries([policy])[0])
        left = budget_flow_steps - (game.flow_steps - before)
        result = mutate_policy(game, "policy_ppo", policy, best, left, generator(seed, "ppo_policy"))
        result.details = {"hidden": self.hidden, "updates": updates, **result.details}
        return result

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost of one update in one environment, and as much again for mutations."""
        return self._least(game, 1)

    def _least(self, game: Game, n_envs: int) -> int:
        first, update = self._costs(game, n_envs)
        return math.ceil((first + update) / (1 - MUTATION_SHARE))

    @staticmethod
    def _costs(game: Game, n_envs: int) -> tuple[int, int]:
        """Return the flow-steps of the final run with the benign beginnings of episodes, and those of an update."""
        n_flows, of_update = game.scene.path.n_flows, n_envs * DECISIONS_PER_UPDATE
        update = math.ceil(of_update * game.scene.steps_per_rtt * game.n_steps / (game.n_steps - game.calm_steps)) * n_flows
        return game.run_flow_steps + n_envs * game.calm_steps * n_flows, update

    def _updates(self, game: Game, budget_flow_steps: int, n_envs: int) -> int:
        """Return the number of updates within the training's part of a budget. Raises InputError for less than one."""
        first, update = self._costs(game, n_envs)
        updates = (int((1 - MUTATION_SHARE) * budget_flow_steps) - first) // update
        if updates < 1:
            raise InputError(
                f"adversary 'policy_ppo' has a budget of {budget_flow_steps} flow-steps, less than an update: raise the budget"
            )
        return int(updates)


def _extract_policy(game: Game, model: Any) -> MlpAdversary:
    linear = [*[layer for layer in model.policy.mlp_extractor.policy_net if hasattr(layer, "weight")], model.policy.action_net]
    weights = [layer.weight.detach().numpy().T.astype(np.float64) for layer in linear]
    biases = [layer.bias.detach().numpy().astype(np.float64) for layer in linear]
    weights[-1], biases[-1] = HALF_RANGE * weights[-1], MIDDLE + HALF_RANGE * biases[-1]
    episode_rtts = game.scene.warmup_rtts + game.scene.window_rtts
    return MlpAdversary("policy", tuple(weights), tuple(biases), "tanh", OBSERVATION_VERSION, game.open_moves, 0, episode_rtts)


def search_policy_ppo(environments: int = 64, hidden: int = 16) -> PolicyPpo:
    """Build the search: 1 to 256 parallel runs, 1 to 128 units in each of the two hidden layers."""
    return PolicyPpo(
        int(number("policy_ppo", "environments", environments, low=1, high=256, whole=True)),
        int(number("policy_ppo", "hidden", hidden, low=1, high=128, whole=True)),
    )
