"""A trace as few numbers: what the page draws, made once when the trace is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.document import json_bytes
from ccenv.network.trace import Trace

POINTS = 240


def view_of(trace: Trace) -> dict[str, Any]:
    """Return rates, queue and loss over time, averaged over at most POINTS equal intervals.

    Args:
        trace: of any length and number of flows.

    Returns:
        dict: ``time_s`` (end of each interval), ``link_mbps``, ``queue_ms`` (backlog at the end of the interval, as time at the
        mean link rate), ``lost_mbps``, and per flow ``sent_mbps`` and ``delivered_mbps``; rounded to four significant digits.
    """
    n_steps = len(trace.times_s) - 1
    edges = np.unique(np.linspace(0, n_steps, min(POINTS, n_steps) + 1).round().astype(int))
    spans_s = np.diff(trace.times_s[edges])
    link_Bps = np.add.reduceat(trace.link_rate_Bps[1:], edges[:-1]) / np.diff(edges)

    def rates(curve: np.ndarray) -> np.ndarray:
        return np.asarray(np.diff(curve[edges], axis=0).T / spans_s)

    flows = [
        {"sender": name, "sent_mbps": _mbps(sent), "delivered_mbps": _mbps(delivered)}
        for name, sent, delivered in zip(trace.header.senders, rates(trace.A), rates(trace.S), strict=True)
    ]
    mean_Bps = float(trace.link_rate_Bps[1:].mean())
    return {
        "time_s": _short(trace.times_s[edges[1:]]),
        "link_mbps": _mbps(link_Bps),
        "queue_ms": _short(trace.queue_bytes[edges[1:]] / mean_Bps * 1e3),
        "lost_mbps": _mbps(rates(trace.L).sum(axis=0)),
        "flows": flows,
    }


def view_json(trace: Trace) -> bytes:
    """Return the view of a trace as one line of JSON."""
    return json_bytes(view_of(trace), indent=None)


def _mbps(values_Bps: np.ndarray) -> list[float]:
    return _short(values_Bps * 8e-6)


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
