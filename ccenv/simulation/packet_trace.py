"""Packet logs as files and as traces, and the check of such traces: the laws with a slack of packets, link rates over windows.

A law over one step cannot distinguish link rates once it allows for whole packets, since a step of a packet trace carries about
one. Over windows of many steps the slack stays constant, while the excess bytes of a wrong rate grow.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ccenv.base.errors import InputError, PathError
from ccenv.base.files import write_atomic
from ccenv.base.provenance import VERSION
from ccenv.engine.packet.layout import EVENTS
from ccenv.engine.packet.spec import FlowSpec
from ccenv.network.laws import DEFAULT_TOLERANCE, Violation, check_trace
from ccenv.network.path import FlowPath, Path, RateChange, Workload, make_grid
from ccenv.network.trace import Trace, TraceHeader
from ccenv.simulation.scenario import Scenario

LOG_FORMAT, LOG_VERSION = "ccenv-packet-log", 1
FINEST = 64  # steps per smallest Rm
ROUNDING = 1e-9  # of a step: an event at a grid time counts as before it
OF_PACKETS = "whole packets of"  # in the notes of a trace
NO_BUDGET = 0.999  # of loss: random losses have no budget


def save_packet_log(path: str | os.PathLike[str], scenario: Scenario, names: Sequence[str], log: np.ndarray) -> None:
    """Write a packet log (LOG_DTYPE of ``ccenv.engine.packet.layout``, in order of time) as one .npz with a JSON header."""
    header = {
        "format": LOG_FORMAT,
        "version": LOG_VERSION,
        "ccenv_version": VERSION,
        "events": EVENTS,
        "size_bytes": scenario.mss_bytes,
        "flows": list(names),
        "links": [link.name for link in scenario.links],
        "scenario": scenario.model_dump(mode="json", exclude_defaults=True),
    }
    buffer = io.BytesIO()
    columns: dict[str, Any] = {name: np.ascontiguousarray(log[name]) for name in log.dtype.names or ()}
    np.savez_compressed(buffer, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **columns)
    write_atomic(path, buffer.getvalue())


def packet_trace(
    scenario: Scenario, log: np.ndarray, *, least_rate_share: float | None = None, moves: Sequence[tuple[float, float]] = ()
) -> Trace:
    """Return a run as a trace of the CBR-delay model, as the bottleneck saw it: A is what arrived there.

    Raises InputError for other networks, or if no grid fits the RTTs.

    Args:
        scenario: with one drop-tail link.
        log: its packet log.
        least_rate_share: smallest legal link rate, as a share of the scenario's, in a run of the strong model.
        moves: (time in s, link rate in bytes/s) in order of time, for such a run. A row of the trace has its step's mean rate.
    """
    if len(scenario.links) > 1 or scenario.links[0].discipline != "drop_tail":
        raise InputError(f"{scenario.name}: a trace is of one drop-tail link; packets of other networks have a packet log only")
    link = scenario.links[0]
    if any(flow.arrivals for flow in scenario.flows):
        raise InputError(f"{scenario.name}: a trace is of flows that stay; this run has a packet log only")
    mixed_sizes = any(scenario.mss_of(index) != scenario.mss_bytes for index in range(len(scenario.flows)))
    if mixed_sizes or any(flow.reordering or flow.ack_path for flow in scenario.flows):
        raise InputError(
            f"{scenario.name}: a trace is of packets of one size in their order, and of ACKs that only take time; this run has a "
            "packet log only"
        )
    if link.trace or link.generator is not None or any(step.rate_Bps == 0 for step in link.rate_steps):
        raise InputError(
            f"{scenario.name}: a trace is of a link whose rate is above 0 and changes in steps; this run has a packet log only"
        )
    path, steps_per_rtt = _fit_grid(scenario)
    dt_s = make_grid(path, steps_per_rtt).dt_s
    known_s = scenario.duration_s - link.delay_s  # until then all deliveries are known
    times_s = np.arange(max(1, math.floor(known_s / dt_s + ROUNDING)) + 1) * dt_s
    rate = np.full(len(times_s), link.rate_Bps)
    for step in link.rate_steps:
        rate[1:][times_s[:-1] >= step.time_s - ROUNDING * dt_s] = step.rate_Bps
    if moves:
        rate[1:] = _mean_rates(link.rate_Bps, moves, times_s)
    rate[0] = rate[min(1, len(rate) - 1)]
    if least_rate_share is not None:
        low_Bps, high_Bps = least_rate_share * link.rate_Bps, link.rate_Bps
        path = path.model_copy(update={"link_rate_min_Bps": low_Bps, "link_rate_max_Bps": high_Bps})

    def count_bytes(event: str, flow: int, delay_s: float = 0.0, on_link: bool | None = None) -> np.ndarray:
        rows = (log["event"] == EVENTS.index(event)) & (log["flow"] == flow)
        if on_link is not None:
            rows &= (log["link"] >= 0) == on_link
        counts: np.ndarray = np.searchsorted(log["time_s"][rows] - delay_s, times_s + ROUNDING * dt_s, "right")
        counts[0] = 0  # nothing has happened before row 0: what happens at 0 s belongs to the first step
        return counts * scenario.mss_bytes

    def per_flow(event: str, on_link: bool | None = None) -> np.ndarray:
        return np.stack([count_bytes(event, i, 0.0, on_link) for i in range(len(scenario.flows))], axis=1)

    free = per_flow("drop", on_link=False)
    lost = per_flow("drop", on_link=True)
    # An adversary's delay element comes before the link's propagation delay, others after it.
    delays_s = [0.0 if flow.jitter.kind == "adversary" else link.delay_s for flow in scenario.flows]
    nothing = np.full_like(free, np.inf)
    return Trace(
        header=TraceHeader(
            path=path,
            model="cbr_delay" if least_rate_share is None else "strong",
            steps_per_rtt=steps_per_rtt,
            dt_s=dt_s,
            senders=tuple(flow.sender for flow in scenario.flows),
            adversary=", ".join(sorted({flow.jitter.adversary or flow.jitter.kind for flow in scenario.flows})),
            seed=scenario.seed,
            notes=f"{OF_PACKETS} {scenario.mss_bytes:g} bytes, as they reach the bottleneck",
        ),
        A=per_flow("enqueue") + lost + free,
        L=lost + free,
        L_free=free,
        S=np.stack([count_bytes("deliver", i, delay_s) for i, delay_s in enumerate(delays_s)], axis=1),
        G=_tokens(log, scenario, times_s, ROUNDING * dt_s),
        link_rate_Bps=rate,
        rate_Bps=nothing,
        cwnd_bytes=nothing,
    )


def _mean_rates(first_Bps: float, moves: Sequence[tuple[float, float]], times_s: np.ndarray) -> np.ndarray:
    """Return the mean link rate between each two times, for the moves (time, rate)."""
    set_s = np.array([0.0, *(time_s for time_s, _ in moves)])
    rates = np.array([first_Bps, *(rate_Bps for _, rate_Bps in moves)])
    carried = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(set_s))])
    before = np.searchsorted(set_s, times_s, "right") - 1
    at_times = carried[before] + rates[before] * (times_s - set_s[before])
    means: np.ndarray = np.clip(np.diff(at_times) / np.diff(times_s), rates.min(), rates.max())  # without what rounding adds
    return means


def is_of_packets(trace: Trace) -> bool:
    return OF_PACKETS in trace.header.notes


def packet_slack_bytes(trace: Trace) -> float:
    """Return by how many bytes a trace of whole packets may deviate from the fluid laws.

    That is a packet in service, what the link carries in a step (at least a packet), and with several flows what the others
    bring in one step: a trace does not show the order of packets within it.
    """
    mss_bytes = trace.header.path.mss_bytes
    carried = max(mss_bytes, float(trace.link_rate_Bps.max()) * trace.header.dt_s)
    arrived = np.diff(trace.A - trace.L_free, axis=0)
    cross_bytes = float((arrived.sum(axis=1) - arrived.max(axis=1)).max())
    return mss_bytes + carried + cross_bytes


def _tokens(log: np.ndarray, scenario: Scenario, times_s: np.ndarray, rounding_s: float) -> np.ndarray:
    """Return the bytes that the link has served by each time, including the elapsed share of the packet in service."""
    finish_s = log["time_s"][log["event"] == EVENTS.index("depart")]
    arrive_s = log["time_s"][log["event"] == EVENTS.index("enqueue")]
    done = np.searchsorted(finish_s, times_s + rounding_s, "right")
    out = done.astype(np.float64)
    serving = done < len(finish_s)
    index = done[serving]
    begin_s = np.maximum(arrive_s[index], np.where(index > 0, finish_s[index - 1], 0.0))
    share = (times_s[serving] - begin_s) / np.maximum(finish_s[index] - begin_s, np.finfo(float).tiny)
    out[serving] += np.clip(share, 0.0, 1.0)
    out[0] = 0.0
    tokens: np.ndarray = out * scenario.mss_bytes
    return tokens


def _fit_grid(scenario: Scenario) -> tuple[Path, int]:
    """Return the path of a one-link scenario, and the finest grid on which a step carries at least a packet."""
    link = scenario.links[0]
    shortest_s = min(flow.rtt_s for flow in scenario.flows)
    finest = max(1, min(FINEST, math.floor(shortest_s * link.rate_Bps / scenario.mss_bytes)))
    refused: PathError | None = None
    for steps_per_rtt in range(finest, 0, -1):
        path = one_link_path(scenario, [_make_flow_path(flow, shortest_s / steps_per_rtt) for flow in scenario.flows])
        try:
            make_grid(path, steps_per_rtt)
        except PathError as error:
            refused = refused or error
        else:
            return path, steps_per_rtt
    raise InputError(f"{scenario.name}: no grid of up to {finest} steps per Rm fits its RTTs: {refused}")


def one_link_path(scenario: Scenario, flows: Sequence[FlowPath]) -> Path:
    """Return the first link of a scenario, with the steps of its rate, as the path of some flows."""
    link = scenario.links[0]
    return Path(
        link_rate_Bps=link.rate_Bps,
        buffer_bytes=link.buffer_bytes,
        mss_bytes=scenario.mss_bytes,
        red=None,
        link_rate_min_Bps=None,
        link_rate_max_Bps=None,
        rate_changes=tuple(RateChange(time_s=step.time_s, link_rate_Bps=step.rate_Bps) for step in link.rate_steps),
        flows=tuple(flows),
    )


def _make_flow_path(flow: FlowSpec, dt_s: float) -> FlowPath:
    work = flow.workload
    fields = {"rate": {"rate_Bps": work.rate_Bps}, "finite": {"size_bytes": work.size_bytes}}
    return FlowPath(
        rtt_s=flow.rtt_s,
        start_s=0.0,  # times of sending are left open, like rate and window
        stop_s=math.inf,
        jitter_s=math.ceil(flow.jitter.max_s / dt_s - ROUNDING) * dt_s,
        loss_budget=NO_BUDGET if flow.loss_rate > 0 or flow.loss_bursts else 0.0,
        workload=Workload.model_validate({"kind": work.kind, **fields[work.kind]} if work.kind in fields else {}),
    )


CARRIED = "carried_over_windows"
WASTED = "wasted_over_windows"
_FORMULAS = {
    CARRIED: "G(k) - G(j) <= sum of C dt from j to k, for all j < k",
    WASTED: "no token is wasted from j to k where more bytes than the slack wait at all rows in between",
}


def check_packet_trace(trace: Trace, tolerance: float = DEFAULT_TOLERANCE) -> list[Violation]:
    """Check a trace of :func:`packet_trace` against every law of its model, and its link rates over all windows.

    Returns and raises as ``check_trace``: the first violation of each broken law, earliest first.
    """
    slack_bytes = packet_slack_bytes(trace)
    violations = check_trace(trace, tolerance, slack_bytes)
    changes_s = np.array([change.time_s for change in trace.header.path.rate_changes])
    # A packet in service keeps its initial rate through a rate step of the path.
    kept_bytes = trace.header.path.mss_bytes * np.searchsorted(np.sort(changes_s), trace.times_s, "right")
    wasted = trace.W
    carried_too_much = np.maximum.accumulate(wasted) - wasted
    busy = trace.E.sum(axis=1) - trace.G > slack_bytes
    begins = busy & ~np.concatenate(([False], busy[:-1]))
    since = np.maximum.accumulate(np.where(begins, np.arange(len(busy)), 0))
    wasted_while_busy = np.where(busy, wasted - wasted[since], 0.0)
    for law, amount in ((CARRIED, carried_too_much), (WASTED, wasted_while_busy)):
        broken = amount > slack_bytes + kept_bytes + tolerance * float(np.abs(trace.G).max())
        if broken.any():
            row = int(np.argmax(broken))
            time_s, worst = row * trace.header.dt_s, float(amount[row])
            message = f"{law}: step {row} (t = {time_s:g} s): {_FORMULAS[law]} is broken by {worst:.6g} bytes"
            violations.append(Violation(law, None, row, time_s, worst, int(broken.sum()), message))
    return sorted(violations, key=lambda violation: violation.step)
