"""From exact solver traces to ``ccenv.Trace`` files."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.path import DEFAULT_MSS_BYTES, Path
from ccenv.smt.view import View
from ccenv.trace import Trace, TraceHeader

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
    n = view.setting.samples
    lost = np.concatenate(([0.0], np.cumsum([float(x) for x in view.lost[1:]]))) * bdp_bytes
    enqueued = _bytes(view.E, bdp_bytes)
    windows = np.full((n, 1), np.inf) if view.cwnd is None else _bytes(view.cwnd, bdp_bytes)[:, None]
    header = TraceHeader(
        path=path,
        model=view.setting.model,
        timing="smt",
        steps_per_rtt=1,
        dt_s=RTT_S,
        history="free",
        senders=(sender,),
        adversary="solver",
        notes=notes,
    )
    return Trace(
        header=header,
        A=(enqueued + lost)[:, None],
        L=lost[:, None],
        L_free=np.zeros((n, 1)),
        S=_bytes(view.S, bdp_bytes)[:, None],
        G=_bytes(view.G, bdp_bytes),
        link_rate_Bps=np.full(n, link_rate_Bps),
        rate_Bps=_bytes(view.rate, link_rate_Bps)[:, None],
        cwnd_bytes=windows,
        beliefs=_beliefs(view, link_rate_Bps, bdp_bytes),
    )


def _beliefs(view: View, link_rate_Bps: float, bdp_bytes: float) -> dict[str, np.ndarray]:
    out = {}
    for name, unit in (("C_L", link_rate_Bps), ("C_U", link_rate_Bps), ("C_L_lambda", link_rate_Bps), ("q_U", bdp_bytes)):
        series = getattr(view, name)
        if series is not None:
            out[name] = _bytes(series, unit)[:, None]
    return out


def _bytes(series: list[Any], unit: float) -> np.ndarray:
    return np.array([float(Fraction(x)) * unit for x in series])
