"""What BBRv1 and BBRv2 have in common: min-RTT estimate, ProbeRTT, maximum delivery rate ([BBR-fluid] section 3.2)."""

from __future__ import annotations

import math
from typing import Any

from ccenv.engine.fluid.laws import sigmoid, smooth_relu
from ccenv.base.kernels.decorator import kernel


@kernel(forceinline=True)
def bdp_bytes(flow: Any) -> float:
    """Return the estimated BDP, x_btl tau_min (w-bar of [BBR-fluid] eq. 24)."""
    return flow.x_btl_Bps * flow.tau_min_s


@kernel(forceinline=True)
def general_window_bytes(flow: Any, cfg: Any) -> float:
    """Return BBR's general window of ``window_gain`` (two) estimated BDP, in whole packets per BDP.

    Reference: [BBR-fluid] eqs. 24 and 32.
    Deviation: 2 ceil(BDP) instead of 2 BDP: a window holds whole packets.
    """
    return cfg.window_gain * math.ceil(bdp_bytes(flow) / cfg.mss_bytes) * cfg.mss_bytes


@kernel(forceinline=True)
def update_min_rtt(flow: Any, cfg: Any) -> None:
    """Advance the min-RTT estimate and the ProbeRTT mode by one step.

    Reference: [BBR-fluid] eqs. 9-14.
    Deviation: the relaxation of eq. 9 has an explicit time constant (without a unit it is 1 s, longer than ProbeRTT
    lasts); the RTT seen is that of the bytes acknowledged now, queueing included (eqs. 9 and 14 look back by the
    propagation delay; the d_l of eq. 14 is the flow's); the timer of eq. 14, whose left side
    is meant as a derivative, counts down and is reset at once; a lower RTT counts from a tolerance on, because the
    relaxation approaches the minimum without reaching it.
    """
    gap = flow.tau_min_s - flow.rtt_seen_s
    if gap > cfg.rtt_tolerance_s:
        flow.t_prt_s = cfg.probe_rtt_duration_s if flow.m_prt > 0.0 else flow.prt_interval_s
    flow.tau_min_s -= cfg.tau_part * smooth_relu(gap, cfg.k_time)
    flow.t_prt_s -= cfg.step_s
    if flow.t_prt_s <= 0.0:
        flow.m_prt = 1.0 - flow.m_prt
        flow.t_prt_s += cfg.probe_rtt_duration_s if flow.m_prt > 0.0 else flow.prt_interval_s


@kernel(forceinline=True)
def update_max_delivery(flow: Any, cfg: Any) -> None:
    """Advance the maximum delivery rate of the period by one step.

    Reference: [BBR-fluid] eq. 19.
    Deviation: grows towards the delivery rate (the print has the sending rate), with an explicit time constant, and is
    frozen in ProbeRTT, where the delivery rate says nothing about the bottleneck.
    """
    if flow.m_prt > 0.0:
        return
    growth = cfg.max_growth_part * smooth_relu(flow.x_dlv_Bps - flow.x_max_Bps, cfg.k_rate)
    reset = cfg.max_reset_part * sigmoid(cfg.k_time * (cfg.reset_window_s - flow.t_pbw_s)) * flow.x_max_Bps
    flow.x_max_Bps += growth - reset


@kernel(forceinline=True)
def sending_rate_Bps(flow: Any, probe_rtt_window_bytes: float, window_bytes: float, pacing_Bps: float) -> float:
    """Return the sending rate, and keep the window in force.

    Reference: [BBR-fluid] eqs. 15 and 16.
    Deviation: plus instead of minus in eq. 15.
    """
    flow.window_bytes = probe_rtt_window_bytes if flow.m_prt > 0.0 else window_bytes
    if flow.m_prt > 0.0:
        return probe_rtt_window_bytes / flow.tau_s
    return min(window_bytes / flow.tau_s, pacing_Bps)
