"""BBRv1 as a fluid ([BBR-fluid] section 3.3)."""

from __future__ import annotations

from typing import Any

from ccenv.engine.fluid.senders import general_window_bytes, sending_rate_Bps, update_max_delivery, update_min_rtt
from ccenv.engine.fluid.laws import sigmoid
from ccenv.base.kernels.decorator import kernel

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
