"""rl_zoo3: its own training command, with a file of hyperparameters for ``ccenv/Sender-v0``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from common import main

HYPERPARAMETERS = """
ccenv/Sender-v0:
  n_envs: 16
  n_timesteps: 20000
  policy: MlpPolicy
  n_steps: 32
  batch_size: 256
  n_epochs: 4
  gamma: 0.95
  gae_lambda: 0.9
"""


def run(steps: int) -> int:
    """Train for a number of steps, in whole rollouts of 16 environments."""
    taken = max(1, steps // 512) * 512
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ppo.yml"
        file.write_text(HYPERPARAMETERS)
        command = [sys.executable, "-m", "rl_zoo3.train", "--algo", "ppo", "--env", "ccenv/Sender-v0", "--gym-packages", "ccenv"]
        command += [
            "-n",
            str(taken),
            "-conf",
            str(file),
            "-f",
            folder,
            "--eval-freq",
            "-1",
            "--device",
            "cpu",
            "--num-threads",
            "1",
        ]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return taken


if __name__ == "__main__":
    main("PPO by its command, 16 single environments, start included", "rl_zoo3", run, 8_192)
