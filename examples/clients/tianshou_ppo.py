"""Tianshou: PPO over its own vector of single environments."""

from __future__ import annotations

import gymnasium
import torch
from common import main
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.torch_utils import policy_within_training_step
from torch.distributions import Independent, Normal

import ccenv  # noqa: F401  (registers the environments)

NUM_ENVS, LENGTH = 16, 32


def run(steps: int) -> int:
    """Train for a number of steps, in whole rollouts."""
    torch.set_num_threads(1)
    envs = DummyVectorEnv([lambda: gymnasium.make("ccenv/Sender-v0") for _ in range(NUM_ENVS)])
    probe = gymnasium.make("ccenv/Sender-v0")
    shape = probe.observation_space.shape
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=shape, hidden_sizes=[64, 64]), action_shape=probe.action_space.shape, unbounded=True
    )
    critic = ContinuousCritic(preprocess_net=Net(state_shape=shape, hidden_sizes=[64, 64]))
    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=lambda loc_scale: Independent(Normal(*loc_scale), 1),
        action_space=probe.action_space,
        action_scaling=False,
        action_bound_method="clip",
    )
    algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3), gamma=0.95, gae_lambda=0.9)
    collector = Collector(algorithm, envs, VectorReplayBuffer(NUM_ENVS * LENGTH, NUM_ENVS))
    collector.reset()
    taken = 0
    while taken < steps:
        with torch.no_grad():
            taken += int(collector.collect(n_step=NUM_ENVS * LENGTH).n_collected_steps)
        with policy_within_training_step(policy):
            algorithm.update(collector.buffer, batch_size=256, repeat=4)
        collector.reset_buffer(keep_statistics=True)
    return taken


if __name__ == "__main__":
    main("PPO on 16 single environments", "tianshou", run, 8_000)
