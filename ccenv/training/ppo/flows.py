"""PPO for flows that decide at their own times: samples are decisions, and the critic may have signals that no sender has.

A step of the batch lasts until some flow of each network decides. A flow's sample lasts from one decision to the next; decisions
whose interval is cut by the end of a rollout or episode are dropped.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import RolloutBufferSamples
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from ccenv.envs.common.episodes import episode_metrics


class SplitExtractor(nn.Module):
    """Hidden layers of actor and critic; the actor reads only the first ``n_seen`` inputs."""

    def __init__(self, n_inputs: int, n_seen: int, hidden: list[int], activation: type[nn.Module]) -> None:
        super().__init__()
        self._n_seen = n_seen
        self.policy_net, self.value_net = (_layers([first, *hidden], activation) for first in (n_seen, n_inputs))
        self.latent_dim_pi = self.latent_dim_vf = hidden[-1]

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the inputs of both last layers."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        """Return the input of the actor's last layer."""
        latent: torch.Tensor = self.policy_net(features[:, : self._n_seen])
        return latent

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        """Return the input of the critic's last layer."""
        latent: torch.Tensor = self.value_net(features)
        return latent


def _layers(widths: list[int], activation: type[nn.Module]) -> nn.Sequential:
    pairs = [(nn.Linear(a, b), activation()) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*(module for pair in pairs for module in pair))


class CriticPolicy(ActorCriticPolicy):
    """``MlpPolicy`` whose actor sees the first ``n_seen`` numbers of an observation, and whose critic sees all."""

    def __init__(self, *args: Any, n_seen: int, **kwargs: Any) -> None:
        self._n_seen = n_seen
        super().__init__(*args, **kwargs)

    def _build_mlp_extractor(self) -> None:
        widths: Any = self.net_arch
        extractor: Any = SplitExtractor(self.features_dim, self._n_seen, list(widths), self.activation_fn)
        self.mlp_extractor = extractor


class DecisionBuffer(RolloutBuffer):
    """A rollout of T steps in which only some rows decide at each step."""

    def reset(self) -> None:
        super().reset()
        shape = (self.buffer_size, self.n_envs)
        self.decides, self.closes, self.dones = (np.zeros(shape, np.bool_) for _ in range(3))
        self.final_values = np.zeros(shape, np.float32)

    def finish(self, last_values: np.ndarray) -> None:
        """Compute advantages and returns of the decisions whose interval has ended, and drop the others.

        ``closes`` marks steps that end a row's interval and ``rewards`` holds its reward; ``dones`` and ``final_values`` mark
        steps that end an episode and hold the value of its last state. ``last_values`` are those of the rollout's last states.
        """
        rows = self.n_envs
        value, advantage, reward, closed = last_values.copy(), np.zeros(rows), np.zeros(rows), np.zeros(rows, np.bool_)
        self.advantages[:] = 0.0
        for t in range(self.buffer_size - 1, -1, -1):
            done = self.dones[t]
            value = np.where(done, self.final_values[t], value)
            advantage, reward, closed = np.where(done, 0.0, advantage), np.where(done, 0.0, reward), closed & ~done
            reward = reward + self.rewards[t]
            closed = closed | self.closes[t]
            decided = self.decides[t].copy()
            self.decides[t] &= closed
            complete = self.decides[t]
            step_advantage = reward + self.gamma * value - self.values[t] + self.gamma * self.gae_lambda * advantage
            advantage = np.where(complete, step_advantage, np.where(decided, 0.0, advantage))
            value = np.where(decided, self.values[t], value)
            reward, closed = np.where(decided, 0.0, reward), closed & ~decided
            self.advantages[t] = np.where(complete, step_advantage, 0.0)
            self.values[t] = np.where(complete, self.values[t], 0.0)
        self.returns = self.advantages + self.values

    def get(self, batch_size: int | None = None) -> Generator[RolloutBufferSamples, None, None]:
        if not self.generator_ready:
            for name in ("observations", "actions", "values", "log_probs", "advantages", "returns"):
                setattr(self, name, self.swap_and_flatten(getattr(self, name)))
            self.generator_ready = True
        chosen = np.random.permutation(np.flatnonzero(self.decides.swapaxes(0, 1).reshape(-1)))
        size = batch_size or len(chosen)
        for first in range(0, len(chosen), size):
            yield self._get_samples(chosen[first : first + size])


class FlowsPPO(PPO):
    """PPO over flows that share a policy and decide at their own times; ``**settings`` are of ``stable_baselines3.PPO``.

    ``env`` is a ``CcenvVecEnv`` over ``SharedPacketTask`` or ``FlowMixture``, whose steps count once per network; the actor sees
    the first ``n_seen`` entries of an observation. What is learned from are rewards times ``reward_scale``. With
    ``max_critic_grad_norm`` the gradients of actor and critic are clipped apart.
    """

    def __init__(
        self,
        env: Any,
        *,
        n_seen: int,
        policy_kwargs: dict[str, Any],
        reward_scale: float = 1.0,
        max_critic_grad_norm: float | None = None,
        **settings: Any,
    ) -> None:
        policy_args = {**policy_kwargs, "n_seen": n_seen}
        self._reward_scale = np.float32(reward_scale)
        most_actor = settings["max_grad_norm"]
        if max_critic_grad_norm is not None:
            settings["max_grad_norm"] = np.inf
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of minibatches that are not full: a rollout's decisions are any number
            super().__init__(
                CriticPolicy, env, policy_kwargs=policy_args, rollout_buffer_class=DecisionBuffer, device="cpu", **settings
            )

        if max_critic_grad_norm is not None:
            sides: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
            for name, parameter in self.policy.named_parameters():
                sides["value_net" in name].append(parameter)

            def clip(*_: object) -> None:
                for side, most in zip(sides, (most_actor, max_critic_grad_norm), strict=True):
                    nn.utils.clip_grad_norm_(side, most)

            self.policy.optimizer.register_step_pre_hook(clip)

    def collect_rollouts(self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int) -> bool:
        """Fill the buffer with a rollout; return False if a callback ended the training."""
        buffer: Any = rollout_buffer
        task: Any = env.task  # type: ignore[attr-defined]
        core, flows = task.core, task.rows_per_env
        networks = getattr(core, "networks", core.num_envs)
        self.policy.set_training_mode(False)
        buffer.reset()
        callback.on_rollout_start()
        seen: Any = self._last_obs
        for step in range(n_rollout_steps):
            decides = core.decides.reshape(-1)
            deciding = np.flatnonzero(decides)
            with torch.no_grad():
                actions, values, log_probs = self.policy(torch.as_tensor(seen[deciding]))
            buffer.observations[step], buffer.decides[step] = seen, decides
            buffer.actions[step, deciding], buffer.values[step, deciding] = actions.numpy(), values.numpy().reshape(-1)
            buffer.log_probs[step, deciding] = log_probs.numpy()
            buffer.rewards[step] = task.step(buffer.actions[step])
            buffer.closes[step] = core.decides.reshape(-1)
            over = core.truncated()
            buffer.dones[step] = np.repeat(over, flows)
            infos: list[dict[str, Any]] = []
            seen = task.observe()
            if over.any():
                infos = self._restart(task, over, seen, buffer, step)
            self.num_timesteps += networks
            rewards = buffer.rewards[step][buffer.closes[step]] if buffer.closes[step].any() else np.zeros(1)
            callback.update_locals({"self": self, "rewards": rewards, "dones": buffer.dones[step], "infos": infos})
            if not callback.on_step():
                return False
        self._last_obs = seen
        buffer.pos, buffer.full = buffer.buffer_size, True
        with torch.no_grad():
            last = self.policy.predict_values(torch.as_tensor(seen)).numpy().reshape(-1)
        buffer.rewards *= self._reward_scale
        buffer.finish(last.astype(np.float64))
        callback.on_rollout_end()
        return True

    def _restart(self, task: Any, over: np.ndarray, seen: np.ndarray, buffer: Any, step: int) -> list[dict[str, Any]]:
        """Start new episodes where one has ended, put their observations into ``seen``; return the infos of ended rows."""
        flows = task.rows_per_env
        rows = np.repeat(over, flows)
        metrics = episode_metrics(task.core, over, flows)
        with torch.no_grad():
            buffer.final_values[step, rows] = self.policy.predict_values(torch.as_tensor(seen[rows])).numpy().reshape(-1)
        infos = [
            {**{name: float(values[i]) for name, values in metrics.items()}, "terminal_observation": seen[row].copy()}
            for i, row in enumerate(np.flatnonzero(rows).tolist())
        ]
        task.core.reset(over)
        seen[rows] = task.observe()[rows]
        return infos
