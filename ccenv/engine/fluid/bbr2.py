"""BBRv2 as a fluid ([BBR-fluid] section 3.4)."""

from __future__ import annotations

import math
from typing import Any

from ccenv.engine.fluid.layout import ROUNDS
from ccenv.engine.fluid.senders import (bdp_bytes, general_window_bytes, sending_rate_Bps, update_max_delivery, update_min_rtt)
from ccenv.engine.fluid.laws import sigmoid
from ccenv.base.kernels.decorator import kernel

HEADROOM = 0.15
PROBE_GAIN = 1.25


@kernel(forceinline=True)
def step_bbr2(flow: Any, cfg: Any) -> float:
    """Advance one BBRv2 flow by a step and return its sending rate in bytes/s.

    Reference: [BBR-fluid] eqs. 25-33.
    Deviation:
        eq. 26: the probing term gets the factor (1 - m_crs), without which BBRv2 probes all through cruise.
        eqs. 27, 28: switch at once; m_crs rises only when m_dwn ends; a new period ends m_dwn as well as m_crs.
        eq. 29: x_max(t - T) is the maximum kept at the end of the last period; the relaxation has a time constant.
        eq. 30: the growth is 2^(t/tau_min) packets per tau_min (the print has no unit); it acts while w_hi is what limits
            the rate, as the text says (the print's v >= w_hi cannot hold while w_hi grows, since v follows an RTT later);
            the decrease acts outside cruise only.
        eq. 31: outside cruise w_lo follows the window in force, which is where it starts when loss comes; it falls only on
            loss above 2 % (the print: on any loss).
        eq. 32: min(2 ceil(BDP), (1 - 0.15 m) w_hi) and, in cruise, w_lo; the headroom m applies from the drain on, so
            that the drain target of 0.85 w_hi can be reached when w_hi is below the BDP.
    """
    bdp = bdp_bytes(flow)
    cruising = flow.m_crs > 0.0
    past_first_rtt = sigmoid(cfg.k_time * (flow.t_pbw_s - flow.tau_min_s))
    gain = 1.0 + 0.25 * past_first_rtt * (1.0 - flow.m_dwn) * (1.0 - flow.m_crs) - 0.25 * flow.m_dwn
    pacing = flow.x_btl_Bps * gain * (1.0 - cfg.pacing_margin)
    open_window = min(general_window_bytes(flow, cfg), (1.0 - HEADROOM * max(flow.m_crs, flow.m_dwn)) * flow.w_hi_bytes)
    window = min(open_window, flow.w_lo_bytes) if cruising else open_window
    rate = sending_rate_Bps(flow, 0.5 * bdp, window, pacing)

    excess = 0.0 if cfg.form == ROUNDS else sigmoid(cfg.k_loss * (flow.p_seen - cfg.loss_threshold))
    _update_bounds(flow, cfg, open_window, pacing, past_first_rtt, excess)
    if flow.m_dwn > 0.0:
        target = max(flow.x_max_Bps, flow.x_last_Bps)
        flow.x_btl_Bps += cfg.btl_part * (target - flow.x_btl_Bps)
    update_max_delivery(flow, cfg)
    update_min_rtt(flow, cfg)
    _update_modes(flow, cfg, bdp)
    return rate


@kernel(forceinline=True)
def _update_bounds(flow: Any, cfg: Any, open_window: float, pacing: float, past_first_rtt: float, excess: float) -> None:
    if flow.m_crs > 0.0:
        flow.w_lo_bytes -= excess * cfg.lo_decrease / flow.tau_min_s * flow.w_lo_bytes * cfg.step_s
        return
    flow.w_lo_bytes += cfg.lo_part * (open_window - flow.w_lo_bytes)
    binding = sigmoid(cfg.k_rate * (pacing - flow.w_hi_bytes / flow.tau_s)) if flow.w_hi_bytes <= open_window else 0.0
    at_bound = past_first_rtt * (1.0 - flow.m_dwn) * binding
    if at_bound > 0.0:
        packets_per_rtt = math.exp2(flow.t_pbw_s / flow.tau_min_s)
        flow.w_hi_bytes += at_bound * packets_per_rtt * cfg.mss_bytes / flow.tau_min_s * cfg.step_s
    flow.w_hi_bytes -= excess * cfg.hi_decrease / flow.tau_min_s * flow.w_hi_bytes * cfg.step_s


@kernel(forceinline=True)
def _update_modes(flow: Any, cfg: Any, bdp: float) -> None:
    if flow.m_dwn > 0.0:
        if flow.inflight_bytes <= min(bdp, (1.0 - HEADROOM) * flow.w_hi_bytes) + cfg.drain_tolerance_bytes:
            flow.m_dwn = 0.0
            flow.m_crs = 1.0
    elif flow.m_crs == 0.0 and flow.t_pbw_s >= flow.tau_min_s:
        full = flow.inflight_bytes >= PROBE_GAIN * bdp or flow.p_seen >= cfg.loss_threshold
        flow.m_dwn = 1.0 if full else 0.0
    flow.t_pbw_s += cfg.step_s
    period_s = min(cfg.period_rtts * flow.tau_min_s, flow.period_s)
    if flow.t_pbw_s >= period_s:
        flow.t_pbw_s -= period_s
        flow.x_last_Bps = flow.x_max_Bps
        flow.m_crs = flow.m_dwn = 0.0
