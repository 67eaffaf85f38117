"""sb3-contrib: TRPO with continuous and QR-DQN with discrete actions, on the native batch."""

from __future__ import annotations

import torch
from common import main
from sb3_contrib import QRDQN, TRPO

from ccenv.envs.clients.sb3 import make_sb3

NUM_ENVS = 64


def run(steps: int) -> int:
    """Train both, each for half of the steps."""
    torch.set_num_threads(1)
    trust = TRPO("MlpPolicy", make_sb3("ccenv/Sender-v0", NUM_ENVS), n_steps=32, gamma=0.95, device="cpu")
    trust.learn(steps // 2)
    quantiles = QRDQN(
        "MlpPolicy",
        make_sb3("ccenv/Sender-v0", NUM_ENVS, action="discrete", n_actions=9),
        learning_starts=256,
        train_freq=4,
        gradient_steps=2,
        batch_size=256,
        device="cpu",
    )
    quantiles.learn(steps // 2)
    return int(trust.num_timesteps + quantiles.num_timesteps)


if __name__ == "__main__":
    main("TRPO, then QR-DQN, on the native batch", "sb3-contrib", run, 40_000)
