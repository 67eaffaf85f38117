"""Learning from a data set: behaviour cloning, and implicit Q-learning with online fine-tuning.

Implicit Q-learning (Kostrikov, Nair, Levine: ICLR 2022, arXiv:2110.06169): the value of a state is an expectile of the values of
the actions that the data have there (equation 5), the critics learn rewards plus the value of the next state (equation 6), and
the policy imitates the data's actions with weights exp(temperature * advantage) (equation 7). Different: the advantage is divided
by its standard deviation in the minibatch, so that the temperature does not depend on the reward's unit; the policy is
deterministic with tanh, as of TD3, and its loss is the weighted squared error.

Networks, target critics and the buffer of what it plays itself are those of TD3 in Stable-Baselines3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.torch_layers import create_mlp
from stable_baselines3.common.type_aliases import RolloutReturn
from stable_baselines3.common.utils import polyak_update
from torch.nn import functional

from ccenv.training.offline.dataset import Data
from ccenv.training.settings import OfflineSettings

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class OfflineTD3(TD3):
    """A policy that learns from a data set, and later also from what it plays itself.

    Before ``offline.online_from_step`` no environment is stepped: an iteration's steps are counted, and its gradient steps made.
    """

    def __init__(self, env: Any, *, offline: OfflineSettings, data: Data, **settings: Any) -> None:
        super().__init__("MlpPolicy", env, **settings)
        self._offline, self._data = offline, data
        width, hidden = data.observations.shape[1], settings["policy_kwargs"]["net_arch"]
        self._value_net = torch.nn.Sequential(*create_mlp(width, 1, hidden, torch.nn.Tanh))
        self.policy.add_module("value_net", self._value_net)  # so that checkpoints have its weights
        self.value_optimizer = torch.optim.Adam(self._value_net.parameters(), lr=settings["learning_rate"])

    @property
    def is_online(self) -> bool:
        """Whether it plays itself."""
        return 0 < self._offline.online_from_step <= self.num_timesteps

    def collect_rollouts(
        self, env: Any, callback: Any, train_freq: Any, replay_buffer: ReplayBuffer, *args: Any, **more: Any
    ) -> RolloutReturn:
        """Play, or only count the steps of an iteration."""
        if self.is_online:
            return super().collect_rollouts(env, callback, train_freq, replay_buffer, *args, **more)
        callback.on_rollout_start()
        rewards = np.array([self._data.rewards.mean()])
        for _ in range(train_freq.frequency):
            self.num_timesteps += env.num_envs
            callback.update_locals({"self": self, "rewards": rewards, "dones": [], "infos": []})
            if not callback.on_step():
                return RolloutReturn(env.num_envs, 0, continue_training=False)
        callback.on_rollout_end()
        return RolloutReturn(train_freq.frequency * env.num_envs, 0, continue_training=True)

    def _sample(self, n: int) -> Batch:
        """Return observations, actions, rewards and next observations, (n, ...); half of them are its own if it plays."""
        n_played = n // 2 if self.is_online and self.replay_buffer is not None and self.replay_buffer.size() else 0
        rows = np.random.randint(len(self._data.rewards), size=n - n_played)
        data = self._data
        parts = [(data.observations[rows], data.actions[rows], data.rewards[rows, None], data.next_observations[rows])]
        batch = [torch.as_tensor(part) for part in parts[0]]
        if n_played and self.replay_buffer is not None:
            played = self.replay_buffer.sample(n_played)
            mine = (played.observations, played.actions, played.rewards, played.next_observations)
            batch = [torch.cat(pair) for pair in zip(batch, mine, strict=True)]
        return batch[0], batch[1], batch[2], batch[3]

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Take the gradient steps of an iteration."""
        self.policy.set_training_mode(True)
        actor_total = critic_total = 0.0
        for _ in range(gradient_steps):
            seen, actions, rewards, after = self._sample(batch_size)
            weights: torch.Tensor | float = 1.0
            if self._offline.method == "iql":
                weights, critic_loss = self._judge(seen, actions, rewards, after)
                critic_total += critic_loss
            loss = (weights * (self.actor(seen) - actions) ** 2).mean()
            _step(self.actor.optimizer, loss)
            actor_total += float(loss.detach())
        self._n_updates += gradient_steps
        self.logger.record("train/actor_loss", actor_total / gradient_steps)
        self.logger.record("train/critic_loss", critic_total / gradient_steps)

    def _judge(
        self, seen: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor, after: torch.Tensor
    ) -> tuple[torch.Tensor, float]:
        """Move value and critics; return the weights of the actions, (n, 1), and the critics' loss."""
        offline, value_net = self._offline, self._value_net
        with torch.no_grad():
            target = torch.min(*self.critic_target(seen, actions))
            # Episodes end by limits of time only: something always follows.
            returns = rewards + self.gamma * value_net(after)
        advantage = target - value_net(seen)
        side = torch.abs(offline.expectile - (advantage.detach() < 0).float())
        _step(self.value_optimizer, (side * advantage**2).mean())
        critic_loss = torch.stack([functional.mse_loss(q, returns) for q in self.critic(seen, actions)]).sum()
        _step(self.critic.optimizer, critic_loss)
        polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
        scaled = advantage.detach() / (advantage.detach().std() + 1e-6)
        weights = torch.exp(offline.temperature * scaled).clamp(max=offline.most_weight)
        return weights, float(critic_loss.detach())


def _step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
