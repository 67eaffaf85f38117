"""From exact solver traces to ``ccenv.Trace`` files."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.network.path import DEFAULT_MSS_BYTES, Path
from ccenv.network.trace import Trace, TraceHeader
from ccenv.proofs.formulas.view import View

RTT_S = 0.04
"""Rm of exported traces; the solver's unit of time."""


def as_trace(view: View, sender: str, notes: str = "") -> Trace:
    """Turn a view in exact numbers into a trace in seconds and bytes.

    The unit C*Rm becomes MSS/alpha bytes with an MSS of 1500 bytes; Rm becomes 40 ms. Which of several flows a full buffer hits
    is the network's choice in the model, so their losses are written as non-congestive ones, with the smallest loss budget that
    allows them.
    """
    bdp_bytes = DEFAULT_MSS_BYTES / float(view.alpha)
    link_rate_Bps = bdp_bytes / RTT_S
    times = view.setting.times
    origin = Fraction(view.delivered(times[0]))
    lost = _columns(view, lambda flow: np.cumsum(_bytes(_lost(flow), bdp_bytes)))
    A = _columns(view, lambda flow: _bytes([flow.enqueued(t) - origin for t in times], bdp_bytes)) + lost
    share = np.divide(lost, A, out=np.zeros_like(lost), where=lost > 0).max(axis=0)
    budgets = [{"loss_budget": min(float(most) * (1 + 1e-12), 1 - 1e-12)} if view.flows else {} for most in share]
    delays = {"rtt_s": RTT_S, "jitter_s": RTT_S * float(view.setting.jitter)}
    path = Path.from_dict(
        {
            "link_rate_Bps": link_rate_Bps,
            "buffer_bytes": math.inf if view.beta is None else float(view.beta) * bdp_bytes,
            "flows": [delays | budget for budget in budgets],
        }
    )
    header = TraceHeader(
        path=path,
        model=view.setting.model,
        timing="smt",
        steps_per_rtt=view.setting.steps_per_rtt,
        dt_s=RTT_S / view.setting.steps_per_rtt,
        history="empty" if view.setting.past_start == "empty" else "free",
        past_rows=view.setting.past_steps,
        senders=(sender,) * len(view.each),
        adversary="solver",
        notes=notes,
    )
    return Trace(
        header=header,
        A=A,
        L=lost,
        L_free=lost if view.flows else np.zeros_like(lost),
        S=_columns(view, lambda flow: _bytes([flow.delivered(t) - origin for t in times], bdp_bytes)),
        G=_bytes([view.admitted(t) - origin for t in times], bdp_bytes),
        link_rate_Bps=np.full(len(times), link_rate_Bps),
        rate_Bps=_columns(view, lambda flow: _bytes(_rates(flow), link_rate_Bps)),
        cwnd_bytes=_columns(view, lambda flow: _windows(flow, bdp_bytes)),
        beliefs=_beliefs(view, link_rate_Bps, bdp_bytes),
    )


def _columns(view: View, column: Callable[[View], np.ndarray]) -> np.ndarray:
    """Return one column per flow, (T, N)."""
    return np.column_stack([column(flow) for flow in view.each])


def _lost(flow: View) -> list[Fraction]:
    """Return what is lost in each step of the known past and the trace."""
    times = flow.setting.times
    return [Fraction(0), *(past_lost(flow, t) for t in times[1 : flow.setting.past_steps + 1]), *flow.lost[1:]]


def _rates(flow: View) -> list[Fraction]:
    """Return the rate of each step: before the trace what was sent, in the first known step no more than in the next one."""
    steps = flow.setting.past_steps
    if not steps:
        return flow.rate
    step = flow.setting.step
    sent = [(flow.enqueued(t) - flow.enqueued(t - 1) + past_lost(flow, t)) / step for t in flow.setting.times[1 : steps + 1]]
    return [*sent[:1], *sent, *flow.rate[1:]]


def _windows(flow: View, bdp_bytes: float) -> np.ndarray:
    windows = np.full(len(flow.setting.times), np.inf)
    if flow.cwnd is not None:
        # What was sent before sample 0 is not what the window of sample 0 allowed.
        first = 1 if flow.setting.past_steps else 0
        windows[flow.setting.past_steps + first :] = _bytes(flow.cwnd[first:], bdp_bytes)
    return windows


def past_lost(view: View, t: int) -> Fraction:
    """Return bytes lost in the step that ended at sample t <= 0 of the known past.

    The solver says only whether each of the last steps lost bytes. What is written is one MSS, or less where the sender's
    largest rate allows no more.
    """
    if -t not in view.setting.losses_before or not view.lost_in_past(-t):
        return Fraction(0)
    limit = view.setting.sent_before_at_most
    if limit is None:
        return Fraction(view.alpha)
    most = (limit[0] + limit[1] * Fraction(view.alpha)) * view.setting.step
    room = most - Fraction(view.enqueued(t) - view.enqueued(t - 1))
    return min(Fraction(view.alpha), room)


def _beliefs(view: View, link_rate_Bps: float, bdp_bytes: float) -> dict[str, np.ndarray]:
    out = {}
    for name, unit in (("C_L", link_rate_Bps), ("C_U", link_rate_Bps), ("C_L_lambda", link_rate_Bps), ("q_U", bdp_bytes)):
        if getattr(view.each[0], name) is not None:
            # Of the past no belief is known: the bounds that are always true.
            nothing = [np.inf if name in ("C_U", "q_U") else 0.0] * view.setting.past_steps
            out[name] = np.column_stack([[*nothing, *_bytes(getattr(flow, name), unit)] for flow in view.each])
    return out


def _bytes(series: list[Any], unit: float) -> np.ndarray:
    return np.array([float(Fraction(x)) * unit for x in series])
