"""skrl: PPO on the native batch."""

from __future__ import annotations

import gymnasium
import torch
from common import main
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import nn

import ccenv  # noqa: F401  (registers the environments)

NUM_ENVS, LENGTH = 64, 32


def layers(n_in: int, n_out: int) -> nn.Sequential:
    """Return two hidden layers and a linear one."""
    return nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out))


class Actor(GaussianMixin, Model):
    """The policy."""

    def __init__(self, **spaces):
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_actions=True)
        self.net = layers(self.num_observations, self.num_actions)
        self.log_std = nn.Parameter(torch.full((self.num_actions,), -0.7))

    def compute(self, inputs, role):
        """Return means and deviations."""
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Critic(DeterministicMixin, Model):
    """The value network."""

    def __init__(self, **spaces):
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = layers(self.num_observations, 1)

    def compute(self, inputs, role):
        """Return values."""
        return self.net(inputs["observations"]), {}


def run(steps: int) -> int:
    """Train for a number of steps, in whole rollouts."""
    torch.set_num_threads(1)
    env = wrap_env(gymnasium.make_vec("ccenv/Sender-v0", num_envs=NUM_ENVS), wrapper="gymnasium")
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": env.device}
    models = {"policy": Actor(**spaces), "value": Critic(**spaces)}
    config = PPO_CFG(rollouts=LENGTH, learning_epochs=4, mini_batches=2, discount_factor=0.95, learning_rate=1e-3)
    config.experiment.write_interval = config.experiment.checkpoint_interval = 0
    agent = PPO(
        models=models,
        memory=RandomMemory(memory_size=LENGTH, num_envs=NUM_ENVS, device=env.device),
        cfg=config,
        **spaces,
    )
    length = max(1, steps // (NUM_ENVS * LENGTH)) * LENGTH
    SequentialTrainer(cfg={"timesteps": length, "headless": True, "disable_progressbar": True}, env=env, agents=agent).train()
    return length * NUM_ENVS


if __name__ == "__main__":
    main("PPO on the native batch", "skrl", run, 40_000)
