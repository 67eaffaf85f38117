"""Runs of ccac as traces: the packet log and the tokens of the emulator."""

from __future__ import annotations

import math

import numpy as np

from ccenv.engine.packet.layout import EVENTS
from ccenv.live.scenario import LiveScenario
from ccenv.network.path import FlowPath, Path, RateChange, grid_of
from ccenv.network.trace import Trace, TraceHeader
from ccenv.simulation.packet_trace import OF_PACKETS

ON_TIME = 1e-9  # of a step: what happens at its end has happened by then


def token_trace(scenario: LiveScenario, log: np.ndarray, tokens: np.ndarray) -> Trace:
    """Return a run of ccac as a trace.

    Args:
        scenario: what was run.
        log: its packet log, records of ``ccenv.engine.packet.log.LOG_DTYPE``.
        tokens: (steps + 1,) G.

    Raises:
        PathError: if the delays are no multiples of a step.
    """
    link = scenario.links[0]
    path = Path(
        link_rate_Bps=link.rate_Bps,
        buffer_bytes=link.buffer_bytes,
        mss_bytes=scenario.mss_bytes,
        red=None,
        link_rate_min_Bps=None,
        link_rate_max_Bps=None,
        rate_changes=tuple(RateChange(time_s=step.time_s, link_rate_Bps=step.rate_Bps) for step in link.rate_steps),
        flows=tuple(
            FlowPath(rtt_s=flow.rtt_s, jitter_s=flow.jitter.max_s, stop_s=math.inf, loss_budget=0.0) for flow in scenario.flows
        ),
    )
    dt_s = grid_of(path, scenario.steps_per_rtt).dt_s
    times_s = np.arange(len(tokens)) * dt_s
    rate = np.full(len(times_s), link.rate_Bps)
    for step in link.rate_steps:
        rate[1:][times_s[:-1] >= step.time_s - ON_TIME * dt_s] = step.rate_Bps
    rate[0] = rate[min(1, len(rate) - 1)]

    def counted(event: str, on_link: bool | None = None) -> np.ndarray:
        columns = []
        for flow in range(len(scenario.flows)):
            rows = (log["event"] == EVENTS.index(event)) & (log["flow"] == flow)
            if on_link is not None:
                rows &= (log["link"] >= 0) == on_link
            found = np.searchsorted(log["time_s"][rows], times_s + ON_TIME * dt_s, "right").astype(np.float64)
            found[0] = 0.0
            columns.append(found * scenario.mss_bytes)
        return np.stack(columns, axis=1)

    free, lost = counted("drop", on_link=False), counted("drop", on_link=True)
    nothing = np.full_like(free, np.inf)
    return Trace(
        header=TraceHeader(
            path=path,
            model="ccac",
            steps_per_rtt=scenario.steps_per_rtt,
            dt_s=dt_s,
            senders=tuple(flow.sender for flow in scenario.flows),
            adversary=scenario.flows[0].jitter.adversary,
            seed=scenario.seed,
            notes=f"{OF_PACKETS} {scenario.mss_bytes:g} bytes, as they reach the bottleneck",
        ),
        A=counted("enqueue") + lost + free,
        L=lost + free,
        L_free=free,
        S=counted("deliver"),
        G=tokens,
        link_rate_Bps=rate,
        rate_Bps=nothing,
        cwnd_bytes=nothing,
    )
