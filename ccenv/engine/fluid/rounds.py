"""Senders that react to loss once per round trip, as Linux does: the fluid models of the parameter set `calibrated`."""

from __future__ import annotations

from typing import Any

from ccenv.engine.fluid.bbr1 import step_bbr1
from ccenv.engine.fluid.bbr2 import step_bbr2
from ccenv.base.kernels.decorator import kernel

FAST_CONVERGENCE = 0.5  # RFC 9438 section 4.7: w_max = (1 + beta)/2 of the window when it was lower than the last
FRIENDLY = 3.0  # RFC 9438 section 4.3: 3 (1 - beta)/(1 + beta) packets per round


@kernel(forceinline=True)
def reacts(flow: Any, cfg: Any) -> bool:
    """Tell whether the sender reacts to loss in this step: enough packets are lost, and the last reaction is a round ago.

    Packets are whole, a fluid is not:
    a flow reacts when ``reaction_packets`` of its packets are lost, counted from ``reaction_rtts`` RTT after its last reaction.

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
