"""Speed of Sender-v0 through its vector adapters: environment-steps per second with random actions."""

from __future__ import annotations

import itertools

import numpy as np

from ccenv.benchmarks.speed.timing import rates

N_ENVS = 1024
N_ACTIONS = 16  # batches of actions, drawn beforehand


def measure() -> dict[str, float]:
    """Return environment-steps per second (K = 8 engine steps each, one flow, one thread), and the same per best run."""
    import gymnasium

    from ccenv.envs.sb3 import make_sb3

    generator = np.random.Generator(np.random.Philox(0))
    actions = generator.uniform(-1, 1, (N_ACTIONS, N_ENVS, 1)).astype(np.float32)
    out: dict[str, float] = {}
    vector = gymnasium.make_vec("ccenv/Sender-v0", num_envs=N_ENVS)
    vector.reset(seed=0)
    given = itertools.cycle(actions)
    median, best = rates(lambda: vector.step(next(given)) and None, N_ENVS)
    out["vector_env_1024_steps_per_s"], out["vector_env_1024_steps_per_s_best"] = round(median), round(best)
    vector.close()
    sb3 = make_sb3("ccenv/Sender-v0", N_ENVS)
    sb3.seed(0)
    sb3.reset()
    median, best = rates(lambda: sb3.step(next(given)) and None, N_ENVS)
    out["sb3_env_1024_steps_per_s"], out["sb3_env_1024_steps_per_s_best"] = round(median), round(best)
    sb3.close()
    return out
