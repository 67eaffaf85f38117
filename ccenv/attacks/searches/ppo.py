"""A policy trained by PPO (Schulman et al., arXiv 1707.06347) on the observation of ``ccenv/Network-v0``, with Stable-Baselines3.

One decision per Rm; a run of the game is an episode. The reward of a decision is its contribution to the goal's outcome: of its
Rm before the measured window, of the window so far inside it. The policy's means are then played without noise in the kernel;
the last part of the budget mutates its moves (``ccenv.attacks.searches.mutation``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.adversaries.observation import N_FLOW, N_PATH, fill_network_observation
from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.patterns import affordable
from ccenv.attacks.searches.policies import MIDDLE, MUTATION_SHARE, mutate_policy, require_playable
from ccenv.base.errors import InputError, require_extra
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number
from ccenv.network.adversary import ExternalAdversary, MlpAdversary

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

GAMMA, GAE_LAMBDA, LEARNING_RATE, EPOCHS = 0.98, 0.9, 1e-3, 5
DECISIONS_PER_UPDATE, BATCH = 30, 480
REWARD_SCALE = 20.0
SHARE_BEFORE = 0.1  # weight of rewards before the measured window, which only lead there
HALF_RANGE = 0.5  # an action of 1 is the end of a move's range


@kernel
def _observe(env, flow, n_flows, share_over, out):
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
    """The search.

    Attributes:
        environments: parallel runs.
        hidden: units of each of the two hidden layers.
    """

    environments: int
    hidden: int
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
    """Return the means of a trained policy as moves."""
    linear = [*[layer for layer in model.policy.mlp_extractor.policy_net if hasattr(layer, "weight")], model.policy.action_net]
    weights = [layer.weight.detach().numpy().T.astype(np.float64) for layer in linear]
    biases = [layer.bias.detach().numpy().astype(np.float64) for layer in linear]
    weights[-1], biases[-1] = HALF_RANGE * weights[-1], MIDDLE + HALF_RANGE * biases[-1]
    episode_rtts = game.scene.warmup_rtts + game.scene.window_rtts
    return MlpAdversary("policy", tuple(weights), tuple(biases), "tanh", OBSERVATION_VERSION, game.open_moves, 0, episode_rtts)


def search(environments: int = 64, hidden: int = 16) -> PolicyPpo:
    """Build the search: 1 to 256 parallel runs, 1 to 128 units in each of the two hidden layers."""
    return PolicyPpo(
        int(number("policy_ppo", "environments", environments, low=1, high=256, whole=True)),
        int(number("policy_ppo", "hidden", hidden, low=1, high=128, whole=True)),
    )
