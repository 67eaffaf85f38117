"""CUBIC as a fluid ([BBR-fluid] appendix B.2)."""

from __future__ import annotations

import math
from typing import Any

from ccenv.base.kernels.decorator import kernel


@kernel(forceinline=True)
def cubic_window_packets(since_loss_s: float, w_max_packets: float, c: float, b: float) -> float:
    """Return CUBIC's window in packets.

    Args:
        since_loss_s: time since the last loss, s.
        w_max_packets: window at that loss, packets.
        c: growth constant, packets/s^3.
        b: share of the window that a loss takes away.

    Reference: [BBR-fluid] eq. 54. RFC 8312 section 4.1 has the same form with b = 1 - beta_cubic = 0.3.
    """
    offset = since_loss_s - (w_max_packets * b / c) ** (1.0 / 3.0)
    return c * offset * offset * offset + w_max_packets


@kernel(forceinline=True)
def step_cubic(flow: Any, cfg: Any) -> float:
    """Advance one CUBIC flow by a step and return its sending rate in bytes/s.

    Reference: [BBR-fluid] eqs. 8, 53 and 54.
    Deviation: the left side of eq. 53b is a derivative; lost packets are counted when the sender learns of them,
    queueing delay included. The window never falls below one packet.
    """
    window = cubic_window_packets(flow.since_loss_s, flow.w_max_bytes / cfg.mss_bytes, cfg.cubic_c, cfg.cubic_b)
    flow.cwnd_bytes = max(window, 1.0) * cfg.mss_bytes
    flow.window_bytes = flow.cwnd_bytes
    kept = math.exp(-flow.x_lost_Bps / cfg.mss_bytes * cfg.step_s)
    flow.w_max_bytes = flow.cwnd_bytes + (flow.w_max_bytes - flow.cwnd_bytes) * kept
    flow.since_loss_s = flow.since_loss_s * kept + cfg.step_s
    return flow.cwnd_bytes / flow.tau_s
