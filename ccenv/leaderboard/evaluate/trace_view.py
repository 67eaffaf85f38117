"""Views of traces: the few numbers that a page draws, computed when the trace is recorded."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from ccenv.base.config import StrictModel, validate
from ccenv.base.files import json_bytes
from ccenv.base.foreign import JsonRules, parse_json
from ccenv.leaderboard.store.records import Positive, Text
from ccenv.network.path import MAX_FLOWS
from ccenv.network.trace import Trace

POINTS = 240
_RULES = JsonRules(max_bytes=4 << 20, max_depth=4)

Series = Annotated[list[Annotated[float, Field(ge=0, le=1e12)]], Field(min_length=1, max_length=POINTS)]


class FlowView(StrictModel):
    """A flow of a view; one of an older version has no RTTs."""

    sender: Text
    sent_mbps: Series
    delivered_mbps: Series
    rtt_ms: Series | None = None


class TraceView(StrictModel):
    """What :func:`make_view` returns, read from a record; one of an older version has neither RTTs nor moves."""

    time_s: Series
    link_mbps: Series
    queue_ms: Series
    lost_mbps: Series
    flows: list[FlowView] = Field(min_length=1, max_length=MAX_FLOWS)
    held_ms: Series | None = None
    wasted_mbps: Series | None = None
    rm_ms: Positive | None = None

    @model_validator(mode="after")
    def _whole(self) -> TraceView:
        moves = [self.held_ms, self.wasted_mbps, *(flow.rtt_ms for flow in self.flows)]
        if len({part is None for part in (*moves, self.rm_ms)}) > 1:
            raise ValueError("held_ms, wasted_mbps, rm_ms and rtt_ms of each flow belong together")
        rates = [series for flow in self.flows for series in (flow.sent_mbps, flow.delivered_mbps)]
        rows = [self.time_s, self.link_mbps, self.queue_ms, self.lost_mbps, *rates, *filter(None, moves)]
        if len({len(series) for series in rows}) > 1:
            raise ValueError("the columns have different lengths")
        if any(a >= b for a, b in pairwise([0.0, *self.time_s])):
            raise ValueError("time_s: times rise, and the first is above 0")
        if not sum(self.link_mbps[len(self.time_s) // 2 :]) > 0:
            raise ValueError("link_mbps: no capacity in the second half")
        return self


def read_view(content: bytes, where: str) -> dict[str, Any]:
    """Parse a stored view. Raises InputError."""
    return validate(TraceView, parse_json(content, where, _RULES), where).model_dump(exclude_none=True)


def make_view(trace: Trace) -> dict[str, Any]:
    """Return the trace averaged over at most POINTS equal intervals, rounded to four significant digits.

    Returns:
        dict: ``time_s`` (end of each interval), ``link_mbps``, ``queue_ms`` (backlog at the end of the interval, as time at the
        mean link rate), ``lost_mbps``; per flow ``sent_mbps``, ``delivered_mbps`` and ``rtt_ms`` (of the newest byte delivered by
        the end of the interval: Rm, queueing and jitter); of the network ``held_ms`` (deliverable bytes that it holds, as time at
        the mean link rate) and ``wasted_mbps`` (capacity wasted or without a byte to send); ``rm_ms``, the smallest Rm.
    """
    n_steps = len(trace.times_s) - 1
    edges = np.unique(np.linspace(0, n_steps, min(POINTS, n_steps) + 1).round().astype(int))
    spans_s = np.diff(trace.times_s[edges])
    link_Bps = np.add.reduceat(trace.link_rate_Bps[1:], edges[:-1]) / np.diff(edges)

    def rates(curve: np.ndarray) -> np.ndarray:
        return np.asarray(np.diff(curve[edges], axis=0).T / spans_s)

    curves = zip(trace.header.senders, rates(trace.A), rates(trace.S), _rtts_s(trace, edges[1:]), strict=True)
    flows = [
        {"sender": name, "sent_mbps": _mbps(sent), "delivered_mbps": _mbps(delivered), "rtt_ms": _short(rtt_s * 1e3)}
        for name, sent, delivered, rtt_s in curves
    ]
    mean_Bps = float(trace.link_rate_Bps[1:].mean())
    held_bytes = np.maximum(0.0, np.minimum(trace.G, trace.E.sum(axis=1)) - trace.S.sum(axis=1))
    wasted_Bps = link_Bps - np.diff(trace.G[edges]) / spans_s
    return {
        "time_s": _short(trace.times_s[edges[1:]]),
        "link_mbps": _mbps(link_Bps),
        "queue_ms": _short(trace.queue_bytes[edges[1:]] / mean_Bps * 1e3),
        "lost_mbps": _mbps(rates(trace.L).sum(axis=0)),
        "flows": flows,
        "held_ms": _short(held_bytes[edges[1:]] / mean_Bps * 1e3),
        "wasted_mbps": _mbps(np.maximum(0.0, wasted_Bps)),
        "rm_ms": float(f"{min(flow.rtt_s for flow in trace.header.path.flows) * 1e3:.4g}"),
    }


def _rtts_s(trace: Trace, rows: np.ndarray) -> list[np.ndarray]:
    """Return per flow the RTT of the newest byte that was delivered by each row: Rm plus the age of the byte at that time."""
    out = []
    for flow, path in enumerate(trace.header.path.flows):
        entered, delivered = trace.E[:, flow], trace.S[:, flow]
        last = np.concatenate(([True], np.diff(entered) > 0))  # the row at which each byte was in, without the pauses
        came_s = np.interp(delivered[rows], entered[last], trace.times_s[last])
        grew = np.concatenate(([False], np.diff(delivered) > 0))
        newest = np.maximum.accumulate(np.where(grew, np.arange(len(delivered)), 0))  # row of the newest delivery
        out.append(path.rtt_s + np.maximum(0.0, trace.times_s[newest[rows]] - came_s))
    return out


def view_json(trace: Trace) -> bytes:
    return json_bytes(make_view(trace), indent=None)


def _mbps(values_Bps: np.ndarray) -> list[float]:
    return _short(values_Bps * 8e-6)


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
