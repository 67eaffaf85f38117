"""Senders of the fluid model and the laws that they share: Reno, CUBIC, BBRv1 and BBRv2, printed, as published code, and fitted.

References: [BBR-fluid] section 3.2 (what both BBRs have in common: min-RTT estimate, ProbeRTT, maximum delivery rate), 3.3
(BBRv1), 3.4 (BBRv2), appendix B.1 (Reno) and B.2 (CUBIC); for CUBIC and BBRv2 where the code differs from print, the simulator
that it cites as its reference 50, whose BBRv1 and Reno follow the printed equations. In the parameter set `calibrated` senders
react to loss once per round trip, as Linux does.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.fluid.parameters import ROUNDS


@kernel(forceinline=True)
def cubic_window_packets(since_loss_s: float, w_max_packets: float, c: float, b: float) -> float:
    """Return CUBIC's window in packets, for a growth constant c in packets/s^3 and a share b that a loss takes away.

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


# Beyond this argument exp(-z) is below half an ulp of 1, so that 1/(1 + exp(-z)) is 1 to the last digit.
_SATURATED = 37.5


@kernel(forceinline=True)
def sigmoid(z: float) -> float:
    """Return 1/(1 + exp(-z)).

    Reference: [BBR-fluid] eq. 5 with z = K v.
    Deviation: 0 below z = -37.5, where the printed form is under 6e-17.
    """
    if z > _SATURATED:
        return 1.0
    if z < -_SATURATED:
        return 0.0
    return 1.0 / (1.0 + math.exp(-z))


@kernel(forceinline=True)
def smooth_relu(v: float, sharpness: float) -> float:
    """Return v sigmoid(sharpness v), a differentiable max(0, v).

    Reference: [BBR-fluid] eq. 10.
    """
    return v * sigmoid(sharpness * v)


@kernel(forceinline=True)
def drop_tail_loss(arrival: float, capacity: float, queue: float, buffer: float, exponent: float, sharpness: float) -> float:
    """Return the loss probability of a drop-tail queue, before overflow, in bytes/s and bytes; the sharpness is in s/byte.

    Reference: [BBR-fluid] eq. 4.
    Deviation: zero unless y > C. As printed the factor 1 - C/y is negative below C, a probability below 0.
    """
    if arrival <= capacity:
        return 0.0
    return sigmoid(sharpness * (arrival - capacity)) * (1.0 - capacity / arrival) * (queue / buffer) ** exponent


@kernel(forceinline=True)
def red_loss(queue: float, q0: float, q1: float, p1: float) -> float:
    """Return the RED drop probability: 0 up to q0, linear to p1 at q1, 1 above.

    Reference: [BBR-fluid] section 2 (text before eq. 6); eq. 6 is q0 = 0, q1 = B, p1 = 1.
    """
    if queue <= q0:
        return 0.0
    if queue > q1:
        return 1.0
    return p1 * (queue - q0) / (q1 - q0)


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


PERIOD_PHASES = 8.0
PROBE_RTT_PACKETS = 4.0


@kernel(forceinline=True)
def pulse(t_s: float, phase: float, tau_min_s: float, sharpness: float) -> float:
    """Return 1 in the given phase of the period and 0 outside, with smooth flanks.

    Reference: [BBR-fluid] eq. 22.
    """
    return sigmoid(sharpness * (t_s - phase * tau_min_s)) * sigmoid(sharpness * ((phase + 1.0) * tau_min_s - t_s))


@kernel(forceinline=True)
def step_bbr1(flow: Any, cfg: Any) -> float:
    """Advance one BBRv1 flow by a step and return its sending rate in bytes/s.

    Reference: [BBR-fluid] eqs. 21-24.
    Deviation: the relaxation of eq. 21 has an explicit time constant; eq. 17's timer is reset at once.
    """
    probing = pulse(flow.t_pbw_s, flow.phase, flow.tau_min_s, cfg.k_pulse)
    draining = pulse(flow.t_pbw_s, flow.phase + 1.0, flow.tau_min_s, cfg.k_pulse)
    pacing = flow.x_btl_Bps * (1.0 + 0.25 * probing - 0.25 * draining) * (1.0 - cfg.pacing_margin)
    rate = sending_rate_Bps(flow, PROBE_RTT_PACKETS * cfg.mss_bytes, general_window_bytes(flow, cfg), pacing)

    period_s = PERIOD_PHASES * flow.tau_min_s
    closing = sigmoid(cfg.k_time * (flow.t_pbw_s - period_s + cfg.update_window_s))
    flow.x_btl_Bps += cfg.btl_part * closing * (flow.x_max_Bps - flow.x_btl_Bps)
    update_max_delivery(flow, cfg)
    update_min_rtt(flow, cfg)
    flow.t_pbw_s += cfg.step_s
    if flow.t_pbw_s >= period_s:
        flow.t_pbw_s -= period_s
    return rate


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
    _update_code_bounds(flow, cfg, cruising, past_first_rtt, excess)
    update_min_rtt(flow, cfg)
    flow.t_pbw_s += cfg.step_s
    if flow.t_pbw_s >= min(cfg.period_rtts * flow.tau_min_s, flow.period_s):
        flow.t_pbw_s = 0.0
        flow.m_crs = 0.0
        flow.x_last_Bps = flow.x_next_Bps
    return rate


@kernel(forceinline=True)
def _update_code_bounds(flow: Any, cfg: Any, cruising: bool, past_first_rtt: bool, excess: bool) -> None:
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


FAST_CONVERGENCE = 0.5  # RFC 9438 section 4.7: w_max = (1 + beta)/2 of the window when it was lower than the last
FRIENDLY = 3.0  # RFC 9438 section 4.3: 3 (1 - beta)/(1 + beta) packets per round


@kernel(forceinline=True)
def reacts(flow: Any, cfg: Any) -> bool:
    """Tell whether the sender reacts to loss in this step: enough packets are lost, and the last reaction is a round ago.

    A flow reacts when ``reaction_packets`` of its packets are lost, counted from ``reaction_rtts`` RTT after its last reaction.

    Reference: RFC 5681 section 3.2 and RFC 6582: one reduction for the losses of one window of data.
    """
    flow.quiet_s -= cfg.step_s
    if flow.quiet_s > 0.0:
        return False
    flow.lost_packets += flow.x_lost_Bps / cfg.mss_bytes * cfg.step_s
    if flow.lost_packets < cfg.reaction_packets:
        return False
    flow.lost_packets = 0.0
    flow.quiet_s = cfg.reaction_rtts * flow.rtt_seen_s
    return True


@kernel(forceinline=True)
def step_reno_rounds(flow: Any, cfg: Any) -> float:
    """Advance one Reno flow by a step and return its sending rate in bytes/s. Reference: RFC 5681 sections 3.1 and 3.2."""
    flow.window_bytes = flow.cwnd_bytes
    rate = flow.cwnd_bytes / flow.tau_s
    flow.cwnd_bytes += flow.x_dlv_Bps * cfg.mss_bytes / flow.cwnd_bytes * cfg.step_s
    if reacts(flow, cfg):
        flow.cwnd_bytes = max((1.0 - cfg.reno_decrease) * flow.cwnd_bytes, cfg.mss_bytes)
    return rate


@kernel(forceinline=True)
def step_cubic_rounds(flow: Any, cfg: Any) -> float:
    """Advance one CUBIC flow by a step and return its sending rate in bytes/s.

    ``since_loss_s`` counts from the plateau on: it starts at -K, K^3 = (w_max - w)/c.

    Reference: RFC 9438 sections 4.2 to 4.7.
    """
    flow.window_bytes = flow.cwnd_bytes
    rate = flow.cwnd_bytes / flow.tau_s
    if reacts(flow, cfg):
        kept = 1.0 - cfg.cubic_b
        lower = flow.cwnd_bytes < flow.w_max_bytes
        flow.w_max_bytes = flow.cwnd_bytes * (FAST_CONVERGENCE * (1.0 + kept) if lower else 1.0)
        flow.cwnd_bytes = max(kept * flow.cwnd_bytes, cfg.mss_bytes)
        flow.w_est_bytes = flow.cwnd_bytes
        below = max(flow.w_max_bytes - flow.cwnd_bytes, 0.0) / cfg.mss_bytes
        flow.since_loss_s = -((below / cfg.cubic_c) ** (1.0 / 3.0))
    friendly = FRIENDLY * cfg.cubic_b / (2.0 - cfg.cubic_b)
    flow.w_est_bytes += friendly * flow.x_dlv_Bps * cfg.mss_bytes / flow.cwnd_bytes * cfg.step_s
    flow.since_loss_s += cfg.step_s
    t = flow.since_loss_s
    flow.cwnd_bytes = max(flow.w_max_bytes + cfg.cubic_c * t * t * t * cfg.mss_bytes, flow.w_est_bytes, cfg.mss_bytes)
    return rate


@kernel(forceinline=True)
def step_bbr1_rounds(flow: Any, cfg: Any) -> float:
    """Advance one BBRv1 flow by a step and return its sending rate in bytes/s.

    After a reaction it sends what is delivered for ``conserve_rtts`` RTT.

    Reference: draft-cardwell-iccrg-bbr-congestion-control-00 section 4.2.3.4 (packet conservation).
    """
    rate = step_bbr1(flow, cfg)
    if reacts(flow, cfg):
        flow.conserve_s = cfg.conserve_rtts * flow.rtt_seen_s
    flow.conserve_s -= cfg.step_s
    return min(rate, flow.x_dlv_Bps) if flow.conserve_s > 0.0 and flow.m_prt == 0.0 else rate


@kernel(forceinline=True)
def step_bbr2_rounds(flow: Any, cfg: Any) -> float:
    """Advance one BBRv2 flow by a step and return its sending rate in bytes/s.

    On loss above the threshold w_lo (in cruise) or w_hi (outside) falls by its whole share, once per round.

    Reference: draft-cardwell-iccrg-bbr-congestion-control-02 sections 4.5.10.3 and 4.6.4.2.
    """
    rate = step_bbr2(flow, cfg)
    flow.quiet_s -= cfg.step_s
    if flow.p_seen >= cfg.loss_threshold and flow.quiet_s <= 0.0:
        flow.quiet_s = cfg.reaction_rtts * flow.rtt_seen_s
        if flow.m_crs > 0.0:
            flow.w_lo_bytes *= 1.0 - cfg.lo_decrease
        else:
            flow.w_hi_bytes *= 1.0 - cfg.hi_decrease
    return rate
