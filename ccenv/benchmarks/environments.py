"""Speed of the environments through their batched adapters, with random actions and autoreset.

``measure`` is the default part; ``measure_clients`` has what ``--envs`` adds. Each environment is one function and one line of
CLIENTS, so that another one takes one of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from ccenv.benchmarks.timing import rates

N_ENVS = 1024
N_ACTIONS = 16  # batches of actions, drawn beforehand


def measure() -> dict[str, float]:
    """Return environment-steps per second (K = 8 engine steps each, one flow, one thread), and the same per best run."""
    import gymnasium

    from ccenv.envs.clients.sb3 import make_sb3

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


DUELS = 64


def duel() -> dict[str, float]:
    """Return decisions per second (of sender and network together) of DUELS batched ``ccenv/Duel-v0``, one flow each."""
    from ccenv.envs.curve.duel import make_duels

    generator = np.random.Generator(np.random.Philox(0))
    batch = make_duels(DUELS)
    batch.reset(seed=0)
    actions = [
        {name: generator.uniform(s.low, s.high, (DUELS, *s.shape)).astype(np.float32) for name, s in batch.action_spaces.items()}
        for _ in range(N_ACTIONS)
    ]
    given = itertools.cycle(actions)
    median, best = rates(lambda: batch.step(next(given)) and None, DUELS * len(batch.agents))
    return {"duel_64_steps_per_s": round(median), "duel_64_steps_per_s_best": round(best)}


def shared() -> dict[str, float]:
    """Return decisions per second of DUELS networks with two flows that share a policy, for Stable-Baselines3."""
    from ccenv.envs.clients.sb3 import make_sb3

    generator = np.random.Generator(np.random.Philox(0))
    env = make_sb3("ccenv/Sender-v0", DUELS, shared_policy=True, senders=["external", "external"])
    env.seed(0)
    env.reset()
    given = itertools.cycle(generator.uniform(-1, 1, (N_ACTIONS, env.num_envs, 1)).astype(np.float32))
    median, best = rates(lambda: env.step(next(given)) and None, env.num_envs)
    env.close()
    return {"shared_64x2_steps_per_s": round(median), "shared_64x2_steps_per_s_best": round(best)}


CLIENTS: tuple[Callable[[], dict[str, float]], ...] = (duel, shared)


def measure_clients() -> dict[str, float]:
    """Return what each of CLIENTS measures, in one dictionary."""
    return {key: value for client in CLIENTS for key, value in client().items()}
