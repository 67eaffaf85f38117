"""From exact solver traces to ``ccenv.Trace`` files."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.network.path import DEFAULT_MSS_BYTES, Path
from ccenv.network.trace import Trace, TraceHeader
from ccenv.smt.network.view import View

RTT_S = 0.04
"""Rm of exported traces; the solver's unit of time."""


def as_trace(view: View, sender: str, notes: str = "") -> Trace:
    """Turn a view in exact numbers into a trace in seconds and bytes.

    The unit C*Rm becomes MSS/alpha bytes with an MSS of 1500 bytes; Rm becomes 40 ms.

    Args:
        view: exact numbers (Fractions).
        sender: name for the header.
        notes: free text for the header.
    """
    bdp_bytes = DEFAULT_MSS_BYTES / float(view.alpha)
    link_rate_Bps = bdp_bytes / RTT_S
    path = Path.from_dict(
        {
            "link_rate_Bps": link_rate_Bps,
            "buffer_bytes": math.inf if view.beta is None else float(view.beta) * bdp_bytes,
            "flows": [{"rtt_s": RTT_S, "jitter_s": RTT_S * view.setting.jitter_steps}],
        }
    )
    times = view.setting.times
    steps = view.setting.past_steps
    n = len(times)
    origin = Fraction(view.delivered(times[0]))
    lost_in = [Fraction(0), *(past_lost(view, t) for t in times[1 : steps + 1]), *view.lost[1:]]
    lost = np.cumsum([float(x) for x in lost_in]) * bdp_bytes
    enqueued = _bytes([view.enqueued(t) - origin for t in times], bdp_bytes)
    # Rates before the trace are those that were sent; of the first known step nothing is known but that nothing exceeds it.
    sent = [view.enqueued(t) - view.enqueued(t - 1) + past_lost(view, t) for t in times[1 : steps + 1]]
    rates = _bytes([*sent[:1], *sent, *view.rate[1:]] if steps else view.rate, link_rate_Bps)
    windows = np.full((n, 1), np.inf)
    if view.cwnd is not None:
        # What was sent before sample 0 is not what the window of sample 0 allowed.
        first = 1 if steps else 0
        windows[steps + first :, 0] = _bytes(view.cwnd[first:], bdp_bytes)
    header = TraceHeader(
        path=path,
        model=view.setting.model,
        timing="smt",
        steps_per_rtt=1,
        dt_s=RTT_S,
        history="empty" if view.setting.past_start == "empty" else "free",
        past_rows=steps,
        senders=(sender,),
        adversary="solver",
        notes=notes,
    )
    return Trace(
        header=header,
        A=(enqueued + lost)[:, None],
        L=lost[:, None],
        L_free=np.zeros((n, 1)),
        S=_bytes([view.delivered(t) - origin for t in times], bdp_bytes)[:, None],
        G=_bytes([view.admitted(t) - origin for t in times], bdp_bytes),
        link_rate_Bps=np.full(n, link_rate_Bps),
        rate_Bps=rates[:, None],
        cwnd_bytes=windows,
        beliefs=_beliefs(view, link_rate_Bps, bdp_bytes),
    )


def past_lost(view: View, t: int) -> Fraction:
    """Return bytes lost in the step that ended at sample t <= 0 of the known past.

    The solver says only whether each of the last two steps lost bytes. What is written is one MSS, or less where the sender's
    largest rate allows no more.
    """
    if not (view.lost_at_0 if t == 0 else t == -1 and view.loss_seen[0]):
        return Fraction(0)
    limit = view.setting.sent_before_at_most
    if limit is None:
        return Fraction(view.alpha)
    entered = view.enqueued(t) - view.enqueued(t - 1)
    return min(Fraction(view.alpha), limit[0] + limit[1] * view.alpha - entered)


def _beliefs(view: View, link_rate_Bps: float, bdp_bytes: float) -> dict[str, np.ndarray]:
    out = {}
    for name, unit in (("C_L", link_rate_Bps), ("C_U", link_rate_Bps), ("C_L_lambda", link_rate_Bps), ("q_U", bdp_bytes)):
        series = getattr(view, name)
        if series is not None:
            # Of the past no belief is known: the bounds that are always true.
            nothing = np.full(view.setting.past_steps, np.inf if name in ("C_U", "q_U") else 0.0)
            out[name] = np.concatenate((nothing, _bytes(series, unit)))[:, None]
    return out


def _bytes(series: list[Any], unit: float) -> np.ndarray:
    return np.array([float(Fraction(x)) * unit for x in series])
