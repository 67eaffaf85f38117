"""TorchRL: GymEnv by id, a collector over the native batch, and updates with its PPO loss."""

from __future__ import annotations

import gymnasium
import torch
from common import main
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, GymWrapper
from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import ccenv  # noqa: F401  (registers the environments)

NUM_ENVS, LENGTH, EPOCHS = 64, 32, 4


def run(steps: int) -> int:
    """Train for a number of steps, in whole batches."""
    torch.set_num_threads(1)
    single = GymEnv("ccenv/Sender-v0")
    assert single.rollout(20).shape[0] == 20
    env = GymWrapper(gymnasium.make_vec("ccenv/Sender-v0", num_envs=NUM_ENVS, autoreset_mode="SAME_STEP"))
    n_seen, n_actions = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    net = nn.Sequential(MLP(n_seen, 2 * n_actions, num_cells=[64, 64], activation_class=nn.Tanh), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(net, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(MLP(n_seen, 1, num_cells=[64, 64], activation_class=nn.Tanh), in_keys=["observation"])
    loss = ClipPPOLoss(actor, critic)
    advantage = GAE(gamma=0.95, lmbda=0.9, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    frames = NUM_ENVS * LENGTH
    collector = Collector(env, actor, frames_per_batch=frames, total_frames=frames * max(1, steps // frames))
    taken = 0
    for batch in collector:
        for _ in range(EPOCHS):
            with torch.no_grad():
                advantage(batch)
            terms = loss(batch.reshape(-1))
            (terms["loss_objective"] + terms["loss_critic"] + terms["loss_entropy"]).backward()
            optimizer.step()
            optimizer.zero_grad()
        taken += batch.numel()
    collector.shutdown()
    return taken


if __name__ == "__main__":
    main("PPO on the native batch, collector and GAE", "torchrl", run, 40_000)
