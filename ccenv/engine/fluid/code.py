"""CUBIC and BBRv2 as the published simulator of [BBR-fluid] computes them, where that differs from print.

Reference: the simulator that [BBR-fluid] cites as its reference 50. Its BBRv1 and Reno follow the printed equations.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.engine.fluid.senders import bdp_bytes, general_window_bytes, update_max_delivery, update_min_rtt
from ccenv.engine.fluid.bbr2 import HEADROOM
from ccenv.engine.fluid.cubic import cubic_window_packets
from ccenv.engine.fluid.laws import sigmoid
from ccenv.base.kernels.decorator import kernel

FULL_GAIN = 499.0 / 400.0  # inflight that ends the probing, in estimated BDP (print: 5/4)


@kernel(forceinline=True)
def step_cubic_code(flow: Any, cfg: Any) -> float:
    """Advance one CUBIC flow by a step and return its sending rate in bytes/s.

    While any loss above the floor is seen, the time since the last loss and w_max relax with the code's time constant
    (1 ms): the first to 0, the second to the window of two propagation RTTs ago. Two seconds are added to the time.
    """
    if flow.p_seen >= cfg.cubic_loss_floor:
        flow.w_max_bytes += cfg.code_part * (flow.cwnd_old_bytes - flow.w_max_bytes)
        flow.since_loss_s -= cfg.code_part * flow.since_loss_s
    flow.since_loss_s += cfg.step_s
    time_s = flow.since_loss_s + cfg.cubic_offset_s
    window = cubic_window_packets(time_s, flow.w_max_bytes / cfg.mss_bytes, cfg.cubic_c, cfg.cubic_b)
    flow.cwnd_bytes = max(window, 1.0) * cfg.mss_bytes
    flow.window_bytes = flow.cwnd_bytes
    return flow.cwnd_bytes / flow.tau_s


@kernel(forceinline=True)
def step_bbr2_code(flow: Any, cfg: Any) -> float:
    """Advance one BBRv2 flow by a step and return its sending rate in bytes/s.

    Unlike print: the volume in flight is a variable of its own, which relaxes to the drain target in cruise and to the
    window in ProbeRTT; a drain ends after ``down_limit_rtts`` RTT at the latest; w_hi grows by 2^(t/tau_min) packets per
    ms while that volume is above it, also during a drain, and is never below ``hi_floor_bdp`` estimated BDP; w_lo is w_hi
    outside cruise; only cruise leaves headroom; x_btl takes the new maximum at once. The loss of these tests is eq. 4's.
    """
    bdp = bdp_bytes(flow)
    cruising = flow.m_crs > 0.0
    headroom = HEADROOM if cruising else 0.0
    window = min(general_window_bytes(flow, cfg), flow.w_lo_bytes, (1.0 - headroom) * flow.w_hi_bytes)
    flow.window_bytes = 0.5 * bdp if flow.m_prt > 0.0 else window
    target = min(bdp, (1.0 - HEADROOM) * flow.w_hi_bytes)
    if flow.m_prt > 0.0:
        flow.v_bytes += cfg.code_part * (flow.window_bytes - flow.v_bytes)
    elif cruising:
        flow.v_bytes += cfg.code_part * (target - flow.v_bytes)
    else:
        flow.v_bytes = max(flow.v_bytes + (flow.x_Bps - flow.x_dlv_Bps) * cfg.step_s, 0.0)
    past_first_rtt = flow.t_pbw_s >= flow.tau_min_s
    excess = flow.p_signal >= cfg.loss_threshold
    update_max_delivery(flow, cfg)
    if flow.m_dwn > 0.0:
        if flow.m_prt == 0.0:
            flow.x_btl_Bps = max(flow.x_max_Bps, flow.x_last_Bps)
        if flow.v_bytes <= target or flow.t_pbw_s >= cfg.down_limit_rtts * flow.tau_min_s:
            flow.m_dwn = 0.0
            flow.m_crs = 1.0
            flow.x_next_Bps = flow.x_max_Bps
    elif not cruising and past_first_rtt and (flow.v_bytes >= FULL_GAIN * bdp or excess):
        flow.m_dwn = 1.0
    probing = 0.25 if past_first_rtt and flow.m_dwn == 0.0 and flow.m_crs == 0.0 else 0.0
    pacing = flow.x_btl_Bps * (1.0 + probing - 0.25 * flow.m_dwn)
    rate = flow.v_bytes / flow.tau_s if flow.m_prt > 0.0 else min(window / flow.tau_s, pacing)
    _update_bounds(flow, cfg, cruising, past_first_rtt, excess)
    update_min_rtt(flow, cfg)
    flow.t_pbw_s += cfg.step_s
    if flow.t_pbw_s >= min(cfg.period_rtts * flow.tau_min_s, flow.period_s):
        flow.t_pbw_s = 0.0
        flow.m_crs = 0.0
        flow.x_last_Bps = flow.x_next_Bps
    return rate


@kernel(forceinline=True)
def _update_bounds(flow: Any, cfg: Any, cruising: bool, past_first_rtt: bool, excess: bool) -> None:
    if cruising:
        if excess:
            flow.w_lo_bytes -= cfg.lo_decrease / flow.rtt_prop_s * flow.w_lo_bytes * cfg.step_s
        flow.w_hi_bytes = max(flow.w_hi_bytes, cfg.hi_floor_bdp * bdp_bytes(flow))
        return
    change = 0.0
    if past_first_rtt:
        above = sigmoid(cfg.k_pulse * 1e-3 * (flow.v_bytes - flow.w_hi_bytes) / cfg.mss_bytes)
        if above > 0.0:
            change = above * math.exp2(flow.t_pbw_s / flow.tau_min_s) * cfg.mss_bytes / cfg.hi_growth_interval_s
    if excess:
        change -= cfg.hi_decrease / flow.rtt_prop_s * flow.w_hi_bytes
    flow.w_hi_bytes = max(flow.w_hi_bytes + change * cfg.step_s, cfg.hi_floor_bdp * bdp_bytes(flow))
    flow.w_lo_bytes = flow.w_hi_bytes
