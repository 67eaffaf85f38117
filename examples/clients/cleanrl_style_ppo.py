"""A single-file PPO loop as CleanRL's: Gymnasium's vector interface, NEXT_STEP autoreset, everything in sight.

CleanRL's scripts are copied and edited, not imported; this one shows what such a loop needs of the environment.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from common import main
from torch import nn
from torch.distributions import Normal

import ccenv  # noqa: F401  (registers the environments)

NUM_ENVS, LENGTH, EPOCHS, MINIBATCH = 128, 32, 5, 1024
GAMMA, LAMBDA, CLIP = 0.95, 0.9, 0.2


def network(n_in: int, n_out: int) -> nn.Sequential:
    """Return two hidden layers and a linear one."""
    return nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out))


def run(steps: int) -> int:
    """Train for a number of steps, in whole rollouts."""
    torch.set_num_threads(1)
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.make_vec("ccenv/Sender-v0", num_envs=NUM_ENVS))
    n_seen, n_actions = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    actor, critic = network(n_seen, n_actions), network(n_seen, 1)
    log_std = nn.Parameter(torch.full((n_actions,), -0.7))
    parameters = [*actor.parameters(), *critic.parameters(), log_std]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, eps=1e-5)
    shape = (LENGTH, NUM_ENVS)
    seen, acted = torch.zeros((*shape, n_seen)), torch.zeros((*shape, n_actions))
    log_probs, rewards, values, starts = (torch.zeros(shape) for _ in range(4))
    observation = torch.as_tensor(envs.reset(seed=0)[0])
    start = torch.zeros(NUM_ENVS)
    taken = 0
    while taken < steps:
        for t in range(LENGTH):
            seen[t], starts[t] = observation, start
            with torch.no_grad():
                normal = Normal(actor(observation), log_std.exp())
                acted[t] = normal.sample()
                log_probs[t], values[t] = normal.log_prob(acted[t]).sum(1), critic(observation).flatten()
            following, reward, terminated, truncated, _ = envs.step(acted[t].numpy())
            rewards[t] = torch.as_tensor(reward)
            observation, start = torch.as_tensor(following), torch.as_tensor(terminated | truncated, dtype=torch.float32)
        taken += LENGTH * NUM_ENVS
        advantages, last, following_value = torch.zeros(shape), torch.zeros(NUM_ENVS), critic(observation).detach().flatten()
        for t in reversed(range(LENGTH)):
            going_on = 1.0 - (start if t == LENGTH - 1 else starts[t + 1])
            after = following_value if t == LENGTH - 1 else values[t + 1]
            last = rewards[t] + GAMMA * after * going_on - values[t] + GAMMA * LAMBDA * going_on * last
            advantages[t] = last
        flat = [x.reshape(LENGTH * NUM_ENVS, -1) for x in (seen, acted, log_probs, advantages, advantages + values)]
        order = np.arange(LENGTH * NUM_ENVS)
        for _ in range(EPOCHS):
            np.random.default_rng(taken).shuffle(order)
            for first in range(0, len(order), MINIBATCH):
                s, a, old, advantage, target = (x[order[first : first + MINIBATCH]] for x in flat)
                normal = Normal(actor(s), log_std.exp())
                ratio = (normal.log_prob(a).sum(1, keepdim=True) - old).exp()
                scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                objective = torch.min(ratio * scaled, ratio.clamp(1 - CLIP, 1 + CLIP) * scaled).mean()
                loss = -objective + 0.5 * (critic(s) - target).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()
    return taken


if __name__ == "__main__":
    main("a loop in CleanRL's style on the native batch", "gymnasium", run, 80_000)
