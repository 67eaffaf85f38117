"""Stable-Baselines3: PPO with rollouts from ccenv's kernel."""

from __future__ import annotations

import torch
from common import main

from ccenv.envs.clients.sb3 import make_sb3
from ccenv.training.ppo.ppo import KernelPPO


def run(steps: int) -> int:
    """Train for a number of steps, in whole rollouts."""
    torch.set_num_threads(1)
    env = make_sb3("ccenv/Sender-v0", 128)
    model = KernelPPO(env, n_steps=32, batch_size=2048, n_epochs=3, gamma=0.95, gae_lambda=0.9, seed=0)
    model.learn(steps)
    return int(model.num_timesteps)


if __name__ == "__main__":
    main("PPO with rollouts from the kernel", "stable-baselines3", run, 400_000)
