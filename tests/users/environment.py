"""The environment with an observation of one's own."""

from typing import Any

import gymnasium as gym

import ccenv

view = ccenv.Observation("bounds_ratio", "rate_ratio", "queue")
env: gym.Env[Any, Any] = view.wrap(gym.make("ccenv/Sender-v0", episode_rtts=16))
observation, _ = env.reset(seed=1)
total = 0.0
done = False
while not done:
    observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    total += float(reward)
    done = terminated or truncated
print(observation.shape, total)
