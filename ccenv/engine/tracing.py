"""Traces from the curve engine's logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ccenv.trace import Trace, TraceHeader

if TYPE_CHECKING:
    from ccenv.engine.curve import CurveEngine

_BELIEFS = ("C_L", "C_U", "C_L_lambda", "q_U", "qdel_L", "qdel_U", "rtt_s")


def build_trace(engine: CurveEngine, env: int, flow_log: np.ndarray, env_log: np.ndarray, steps: int) -> Trace:
    """Return the trace of one environment.

    Args:
        engine: the engine that ran.
        env: index of the environment.
        flow_log: (capacity, N) log of the environment.
        env_log: (capacity,) log of the environment.
        steps: steps taken since the reset.
    """
    rows = slice(0, steps + 1)
    rate = env_log["link_rate_Bps"][rows].copy()
    if steps:
        rate[0] = rate[1]
    beliefs = {name: flow_log[name][rows].copy() for name in _BELIEFS}
    for i in range(engine.n_flows):  # before a flow's first row its beliefs are those of its second
        first = int(engine.flow("start_step")[env, i])
        for name in _BELIEFS:
            beliefs[name][: min(first + 1, steps + 1), i] = beliefs[name][min(first + 1, steps), i]
    asked = {name: flow_log[name][rows].copy() for name in ("rate_Bps", "cwnd_bytes")}
    for values in asked.values():
        values[0] = values[1] if steps else 0.0
    header = TraceHeader(
        path=engine.path(env),
        model=engine.model.name,
        timing=engine.timing,  # type: ignore[arg-type]
        steps_per_rtt=engine.steps_per_rtt,
        dt_s=float(engine.env("dt_s")[env]),
        history="empty",
        senders=tuple(sender.name for sender in engine.senders[env]),
        adversary=engine.adversaries[env].name,
        seed=engine.seed,
    )
    return Trace(
        header=header,
        A=flow_log["A"][rows],
        L=flow_log["L"][rows],
        L_free=flow_log["L_free"][rows],
        S=flow_log["S"][rows],
        G=env_log["G"][rows],
        link_rate_Bps=rate,
        beliefs=beliefs,
        **asked,
    )
