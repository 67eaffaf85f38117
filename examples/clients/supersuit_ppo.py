"""PettingZoo and SuperSuit: flows that share a policy, and a padded duel, through Stable-Baselines3's PPO."""

from __future__ import annotations

import supersuit
import torch
from common import main
from stable_baselines3 import PPO

from ccenv.envs.curve.duel import DuelEnv, FlowsEnv

COPIES, LENGTH = 8, 32


def run(steps: int) -> int:
    """Train both, each for half of the steps."""
    torch.set_num_threads(1)
    flows = FlowsEnv(senders=["external", "external"], models=["cbr_delay"])
    duel = supersuit.pad_action_space_v0(supersuit.pad_observations_v0(DuelEnv()))
    taken = 0
    for env in (flows, duel):
        rows = supersuit.pettingzoo_env_to_vec_env_v1(env)
        batch = supersuit.concat_vec_envs_v1(rows, COPIES, num_cpus=0, base_class="stable_baselines3")
        model = PPO("MlpPolicy", batch, n_steps=LENGTH, batch_size=256, n_epochs=4, gamma=0.95, device="cpu")
        model.learn(steps // 2)
        taken += int(model.num_timesteps)
        batch.close()
    return taken


if __name__ == "__main__":
    main("PPO on flows, then on a padded duel, 8 single environments", "supersuit", run, 8_192)
