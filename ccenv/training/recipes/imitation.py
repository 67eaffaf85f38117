"""Imitation of an oracle that knows the path: DAgger (Ross, Gordon, Bagnell: AISTATS 2011) towards the best window.

The oracle's window is the flow's share of the link rate times the propagation RTT, which the simulator knows and no sender does.
The policy learns the action that comes closest to it, in the states that the policy itself visits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from ccenv.training.recipes.settings import ImitationSettings

Floats = np.ndarray


def oracle_actions(measures: np.ndarray, step: float, window_bdp: float) -> Floats:
    """Return the actions of ``cwnd_exp2``, in [-1, 1], that come closest to the best window; NaN before anything was measured.

    ``measures`` are MEASURES of the decisions, of any shape; ``step`` is log2 of the largest factor on a window; ``window_bdp``
    is the best window, in units of the fair share of the link rate times the propagation RTT.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        best_bytes = window_bdp * measures["true_link_Bps"] * measures["true_rtt_s"] / measures["true_flows"]
        actions: Floats = np.clip(np.log2(best_bytes / measures["cwnd_bytes"]) / step, -1.0, 1.0)
    actions[~(best_bytes > 0.0)] = np.nan
    return actions


class Examples:
    """A ring buffer of the newest observations and the oracle's actions."""

    def __init__(self, keep: int, width: int) -> None:
        self.seen, self.actions = np.zeros((keep, width), np.float32), np.zeros(keep, np.float32)
        self.added = np.zeros(1, np.int64)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the buffer by name; not copies."""
        return {"seen": self.seen, "actions": self.actions, "added": self.added}

    def __len__(self) -> int:
        return int(min(self.added[0], len(self.actions)))

    def add(self, seen: np.ndarray, actions: np.ndarray) -> None:
        """Add examples in place of the oldest ones."""
        rows = (self.added[0] + np.arange(len(actions))) % len(self.actions)
        self.seen[rows], self.actions[rows] = seen, actions
        self.added[0] += len(actions)


class ImitationPPO(PPO):
    """PPO's Gaussian policy, which imitates an oracle instead of maximising a reward; ``env`` is over ``SharedPacketTask``.

    Of ``**settings`` of ``stable_baselines3.PPO`` only ``batch_size`` and ``learning_rate`` have an effect on the loss.
    """

    def __init__(self, env: Any, *, imitation: ImitationSettings, step: float, **settings: Any) -> None:
        super().__init__("MlpPolicy", env, device="cpu", **settings)
        self._imitation, self._step = imitation, step
        self.examples = Examples(imitation.keep, env.observation_space.shape[0])

    def collect_rollouts(self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int) -> bool:
        """Play, and ask the oracle at each decision; return False if a callback ended the training."""
        task: Any = env.task  # type: ignore[attr-defined]
        settings = self._imitation
        iteration = self.num_timesteps // (env.num_envs * n_rollout_steps)
        share = settings.teacher_share * settings.teacher_decay**iteration
        self.policy.set_training_mode(False)
        callback.on_rollout_start()
        seen: Any = self._last_obs
        for _ in range(n_rollout_steps):
            oracle = oracle_actions(task.core.measures, self._step, settings.window_bdp).reshape(-1)
            has_oracle = np.isfinite(oracle)
            self.examples.add(seen[has_oracle], oracle[has_oracle])
            with torch.no_grad():
                policy_actions = self._means(torch.as_tensor(seen)).numpy()
            is_oracle = has_oracle & (torch.rand(len(oracle)).numpy() < share)
            actions = np.where(is_oracle, oracle, policy_actions).reshape(-1, 1)
            seen, rewards, dones, infos = env.step(actions)
            self.num_timesteps += env.num_envs
            callback.update_locals({"self": self, "rewards": rewards, "dones": dones, "infos": infos})
            if not callback.on_step():
                return False
        self._last_obs = seen
        callback.on_rollout_end()
        return True

    def _means(self, seen: torch.Tensor) -> torch.Tensor:
        policy: Any = self.policy
        means: torch.Tensor = policy.action_net(policy.mlp_extractor.forward_actor(seen))[:, 0]
        return means

    def train(self) -> None:
        """Take the gradient steps of an iteration on the examples in the buffer."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        total = 0.0
        for _ in range(self._imitation.gradient_steps):
            chosen = np.random.randint(len(self.examples), size=self.batch_size)
            means = self._means(torch.as_tensor(self.examples.seen[chosen]))
            loss = torch.mean((means - torch.as_tensor(self.examples.actions[chosen])) ** 2)
            self.policy.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            total += float(loss.detach())
        self._n_updates += self._imitation.gradient_steps
        self.logger.record("train/policy_gradient_loss", total / self._imitation.gradient_steps)
        self.logger.record("train/value_loss", 0.0)
