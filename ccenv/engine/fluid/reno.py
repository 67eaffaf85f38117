"""Reno as a fluid ([BBR-fluid] appendix B.1)."""

from __future__ import annotations

import math
from typing import Any

from ccenv.base.kernels.decorator import kernel


@kernel(forceinline=True)
def step_reno(flow: Any, cfg: Any) -> float:
    """Advance one Reno flow by a step and return its sending rate in bytes/s.

    Reference: [BBR-fluid] eqs. 8 and 52.
    Deviation: the rates of acknowledged and lost packets are those that reach the sender now, queueing delay
    included; the print delays both by the propagation delay. The window never falls below one packet.
    """
    flow.window_bytes = flow.cwnd_bytes
    rate = flow.cwnd_bytes / flow.tau_s
    growth = flow.x_dlv_Bps * cfg.mss_bytes / flow.cwnd_bytes * cfg.step_s
    lost_packets = flow.x_lost_Bps / cfg.mss_bytes * cfg.step_s
    flow.cwnd_bytes = max(flow.cwnd_bytes * math.exp(-cfg.reno_decrease * lost_packets) + growth, cfg.mss_bytes)
    return rate
