"""Speed of Packet-v0: decisions per second on one core with 64 networks, one decision per propagation RTT of 40 ms.

Rates move by up to a tenth of what an action may change, around the fair share, so that the link is full and its queue short: the
second half of the actions takes back what the first half has done, or rates would drift apart, to many times the link's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.benchmarks.timing import rates

N_ENVS, RTT_MS, BUFFER_BDP = 64, 40.0, 1.0
N_ACTIONS, LARGEST_ACTION = 16, 0.1
CALLS = 4  # steps per piece of work
# name -> controlled flows, link rate in Mbit/s
CASES: dict[str, tuple[int, float]] = {
    "packet_env_64x1_12mbps": (1, 12.0),
    "packet_env_64x1_100mbps": (1, 100.0),
    "packet_env_64x4_48mbps": (4, 48.0),
}


def build(flows: int, rate_mbps: float) -> Any:
    """Return the batch that is timed, past its start."""
    from ccenv.envs.packet.sender import PacketVectorEnv

    scenario = {
        "duration_s": 1e6,
        "links": [{"rate_mbps": rate_mbps, "buffer_bdp": BUFFER_BDP}],
        "flows": [{"sender": "external", "rtt_ms": RTT_MS} for _ in range(flows)],
    }
    env = PacketVectorEnv(
        num_envs=N_ENVS, scenario=scenario, signals="aurora", action="rate_delta",
        clock={"every": "rtt", "common": True}, start_rate_share=(1.0 / flows, 1.0 / flows), episode_decisions=1_000_000,
    )  # fmt: skip
    env.reset(seed=0)
    return env


def measure() -> dict[str, float]:
    """Return flow decisions per second and per case, median and best, and the memory of a network at 100 Mbit/s."""
    generator = np.random.Generator(np.random.Philox(0))
    out: dict[str, float] = {}
    for name, (flows, rate_mbps) in CASES.items():
        env = build(flows, rate_mbps)
        half = generator.uniform(-LARGEST_ACTION, LARGEST_ACTION, (N_ACTIONS // 2, N_ENVS, flows)).astype(np.float32)
        given = np.concatenate([half, -half])
        turn = iter(range(10**9))

        def work(env: Any = env, given: np.ndarray = given, turn: Any = turn) -> None:
            for _ in range(CALLS):
                env.step(given[next(turn) % N_ACTIONS])

        median, best = rates(work, CALLS * N_ENVS * flows)
        out[f"{name}_decisions_per_s"], out[f"{name}_decisions_per_s_best"] = round(median), round(best)
        if name == "packet_env_64x1_100mbps":
            out["packet_env_100mbps_bytes_per_env"] = round(env.unwrapped.task.core.bytes_per_env)
        env.close()
    return out
