"""RLlib (new API stack): PPO on the native batch, and flows that share a policy as agents."""

from __future__ import annotations

import ray
from common import main
from ray.rllib.algorithms.ppo import PPOConfig

from ccenv.envs.clients.rllib import FLOWS, register_rllib

TWO_FLOWS = {"senders": ["external", "external"], "models": ["cbr_delay"]}


def run(steps: int) -> int:
    """Train both, each for half of the steps."""
    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_rllib()
    single = PPOConfig().environment("ccenv/Sender-v0")
    single.env_runners(num_env_runners=0, num_envs_per_env_runner=64, gym_env_vectorize_mode="vector_entry_point")
    flows = PPOConfig().environment(FLOWS, env_config=TWO_FLOWS).env_runners(num_env_runners=0, num_envs_per_env_runner=8)
    flows.multi_agent(policies={"sender"}, policy_mapping_fn=lambda agent, episode, **_: "sender")
    taken = 0
    for config in (single, flows):
        config.learners(num_learners=0)
        config.training(train_batch_size_per_learner=2048, minibatch_size=512, num_epochs=4, gamma=0.95)
        algorithm = config.build_algo()
        own = 0
        while own < steps // 2:
            own = int(algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"])
        algorithm.stop()
        taken += own
    return taken


if __name__ == "__main__":
    main("PPO on the native batch, then shared policy of two flows, start included", "ray", run, 8_192)
