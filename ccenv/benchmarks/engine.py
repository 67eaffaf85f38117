"""Speed of the curve engine: flow-steps per second with belief bounds on."""

from __future__ import annotations

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.benchmarks.timing import rates
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.path import make_path

STEPS = 8  # per call, one propagation RTT
PATH = {"link_rate_mbps": 48.0, "rtt_ms": 40.0, "jitter_ms": 40.0, "buffer_bdp": 8.0}

# name -> environments, flows, threads, adversary (None: kind, without a call per step)
CASES: dict[str, tuple[int, int, int, str | None]] = {
    "curve_64x2_k8": (64, 2, 1, None),
    "curve_64x2_k8_uniform": (64, 2, 1, "uniform"),
    "curve_64x2_k8_2cores": (64, 2, 2, None),
    "curve_4096x1_k8": (4096, 1, 1, None),
    "curve_4096x1_k8_2cores": (4096, 1, 2, None),
    "curve_64x8_k8": (64, 8, 1, None),
    "curve_64x8_k8_2cores": (64, 8, 2, None),
}


def build(n_envs: int, n_flows: int, threads: int, adversary: str | None) -> CurveEngine:
    """Build the engine that is timed: cc_qdel on CCAC with D = Rm and a buffer of 8 BDP, past its warm-up."""
    path = make_path(**PATH, n_flows=n_flows)
    senders = [make_sender("cc_qdel")] * n_flows
    player = make_adversary(adversary) if adversary else None
    engine = CurveEngine([path] * n_envs, model="ccac", senders=senders, adversary=player, steps_per_rtt=STEPS, threads=threads)
    engine.advance(100 * STEPS)
    return engine


def measure() -> dict[str, float]:
    """Return ``..._flow_steps_per_s`` (median) and ``..._best`` per case, and ``bytes_per_env`` of a single-flow environment."""
    out: dict[str, float] = {}
    for name, (n_envs, n_flows, threads, adversary) in CASES.items():
        engine = build(n_envs, n_flows, threads, adversary)
        median, best = rates(lambda e=engine: e.advance(STEPS), n_envs * n_flows * STEPS)  # type: ignore[misc]
        out[f"{name}_flow_steps_per_s"], out[f"{name}_flow_steps_per_s_best"] = round(median), round(best)
        if n_flows == 1:
            out["bytes_per_env"] = round(engine.bytes_per_env)
    return out
