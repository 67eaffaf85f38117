"""Stable-Baselines3: DQN with discrete actions on the native batch."""

from __future__ import annotations

import torch
from common import main
from stable_baselines3 import DQN

from ccenv.envs.clients.sb3 import make_sb3

NUM_ENVS = 32


def run(steps: int) -> int:
    """Train for a number of steps."""
    torch.set_num_threads(1)
    env = make_sb3("ccenv/Sender-v0", NUM_ENVS, action="discrete", n_actions=9)
    model = DQN("MlpPolicy", env, learning_starts=256, train_freq=4, gradient_steps=4, batch_size=256, gamma=0.95, device="cpu")
    model.learn(steps)
    return int(model.num_timesteps)


if __name__ == "__main__":
    main("DQN on the native batch, discrete actions", "stable-baselines3", run, 40_000)
