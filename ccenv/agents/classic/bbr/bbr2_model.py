"""The path model of BBRv2: rounds, losses round by round, the long-term bound of the data in flight.

Section numbers are those of [BBR-draft-02]; what version 3 does alike is in ``bbr_model``. Deviations: see ``bbr2``.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.bbr.common import (BETA, EXTRA_ACKED_ROUNDS, LOSS_THRESHOLD, MAX_SLOPE_DOUBLINGS, MIN_CWND_MSS, REFILL, STARTUP, UP, adapt_lower_bounds, bdp_bytes, quantised_bytes, take_bandwidth, update_extra)
from ccenv.agents.classic.common import UNLIMITED_BYTES
from ccenv.agents.callbacks import state_record
from ccenv.base.kernels.decorator import kernel

NO_FEEDBACK, PROBE_STARTING, PROBE_FEEDBACK, PROBE_STOPPING = 0.0, 1.0, 2.0, 3.0  # 4.3.3.6: ack_phase

QUANTUM_SMALL_Bps = 150_000.0  # 4.6.3: 1.2 Mbit/s; below, a quantum may be one segment
QUANTUM_MSS = 2.0  # 4.6.3

STATE = state_record(
    "initial_window_mss",  # parameter
    "startup_pacing_gain",  # parameter
    "startup_cwnd_gain",  # parameter
    "drain_pacing_gain",  # parameter
    "down_pacing_gain",  # parameter
    "up_cwnd_gain",  # parameter
    "full_loss_mss",  # parameter: segments lost in a round that may end STARTUP
    "up_until_plateau",  # parameter that nothing reads: boards know the sender by a hash that has it
    "mode",
    "pacing_gain",
    "cwnd_gain",
    "rounds",
    "round_end_bytes",  # the round ends when so many bytes are delivered
    "round_started",  # 1 during the call that begins a round
    "round_start_lost_bytes",
    "round_inflight_bytes",  # in flight when the round began
    "lost_total_bytes",
    "loss_in_round",
    "max_bandwidth_Bps",
    "cycle_bandwidth_Bps",  # largest of this and of the cycle before (2.10: MaxBwFilterLen = 2)
    "last_cycle_bandwidth_Bps",
    "latest_bandwidth_Bps",  # largest of this round
    "latest_inflight_bytes",  # largest delivered in a round trip, this round
    "bandwidth_Bps",  # in use
    "low_bandwidth_Bps",
    "low_inflight_bytes",
    "high_inflight_bytes",
    "slope_doublings",  # of the growth of high_inflight_bytes
    "ack_phase",
    "samples_probe",  # losses may lower high_inflight_bytes
    "min_rtt_s",
    "min_rtt_at_s",
    "probe_min_rtt_s",
    "probe_min_rtt_at_s",
    "probe_rtt_done_s",  # 0: in flight not yet down to the minimum
    "probe_rtt_round_done",
    "extra_start_s",
    "extra_bytes",  # delivered since extra_start_s
    # maximum of the extra bytes acknowledged over 10 rounds, stored negated
    "extra_a",
    "extra_a_at",
    "extra_b",
    "extra_b_at",
    "extra_c",
    "extra_c_at",
    "full_pipe",
    "full_now",  # the bandwidth has stopped growing, or too much was lost
    "full_bandwidth_Bps",
    "full_rounds",
    "phase_start_s",
    "probe_wait_s",
    "rounds_since_probe",
    "saved_cwnd_bytes",
    "limited_until_bytes",  # samples of data sent in PROBE_RTT count as application-limited
    "recover_bytes",
    "in_recovery",
    "conserving",
)


@kernel
def start_round(state: Any, delivered_bytes: float, inflight_bytes: float) -> None:
    """Begin a round: it lasts until what is in flight now is delivered or lost (4.5.1)."""
    state.round_end_bytes = delivered_bytes + inflight_bytes
    state.round_start_lost_bytes = state.lost_total_bytes
    state.round_inflight_bytes = inflight_bytes


@kernel
def is_limited(state: Any, ack: Any) -> bool:
    """Return whether a rate sample was limited by the application or by PROBE_RTT."""
    return bool(ack.app_limited > 0.0 or ack.delivered_bytes <= state.limited_until_bytes)


@kernel
def update_model(state: Any, ack: Any) -> None:
    """Update rounds, bandwidth, lower bounds and ACK aggregation (4.5)."""
    state.round_started = 0.0
    if ack.delivered_bytes >= state.round_end_bytes:
        state.round_started = 1.0
        state.rounds += 1.0
        state.rounds_since_probe += 1.0
        state.conserving = 0.0
    # The bytes delivered within the sample's interval, about one RTT.
    round_bytes = ack.delivery_rate_Bps * ack.rtt_s
    state.latest_bandwidth_Bps = max(state.latest_bandwidth_Bps, ack.delivery_rate_Bps)
    state.latest_inflight_bytes = max(state.latest_inflight_bytes, round_bytes)
    take_bandwidth(state, ack.delivery_rate_Bps, is_limited(state, ack))
    if state.round_started > 0.0:
        if state.loss_in_round > 0.0 and state.mode not in (STARTUP, REFILL, UP):
            adapt_lower_bounds(state)
        state.loss_in_round = 0.0
    update_extra(state, ack, EXTRA_ACKED_ROUNDS)


@kernel
def end_of_update(state: Any, ack: Any) -> None:
    """Begin the next round if one has ended, and bound the bandwidth in use (4.5.10.4)."""
    if state.round_started > 0.0 and ack.delivered_bytes >= state.round_end_bytes:
        state.latest_bandwidth_Bps = ack.delivery_rate_Bps
        state.latest_inflight_bytes = ack.delivery_rate_Bps * ack.rtt_s
        start_round(state, ack.delivered_bytes, ack.inflight_bytes)
    state.bandwidth_Bps = min(state.max_bandwidth_Bps, state.low_bandwidth_Bps)


@kernel
def lost_this_round(state: Any) -> float:
    """Return the bytes found lost since the round began."""
    return float(state.lost_total_bytes - state.round_start_lost_bytes)


@kernel
def is_inflight_too_high(state: Any) -> bool:
    """Return whether more than LOSS_THRESHOLD of what was in flight when the round began has been lost (4.5.10.1)."""
    return bool(lost_this_round(state) > LOSS_THRESHOLD * state.round_inflight_bytes)


@kernel
def budget_bytes(state: Any, inflight_bytes: float) -> float:
    """Return at least three send quanta and four segments (4.6.3, 4.6.4.2)."""
    return quantised_bytes(state, inflight_bytes, 1.0 if state.pacing_rate_Bps < QUANTUM_SMALL_Bps else QUANTUM_MSS)


@kernel
def lower_high_inflight(state: Any, limited: bool) -> None:
    """Set the long-term bound to what was in flight, or BETA of the target (4.5.10.1: BBRHandleInflightTooHigh)."""
    state.samples_probe = 0.0
    if not limited:
        target_bytes = min(bdp_bytes(state, state.bandwidth_Bps, 1.0), state.cwnd_bytes)
        bound_bytes = max(state.round_inflight_bytes, BETA * target_bytes)
        state.high_inflight_bytes = max(bound_bytes, MIN_CWND_MSS * state.mss_bytes)


@kernel
def raise_high_inflight(state: Any, ack: Any) -> None:
    """Follow what got through; in UP grow by 1, 2, 4, ... segments per round while the bound binds (4.3.3.6)."""
    if state.high_inflight_bytes == UNLIMITED_BYTES:
        return
    if not is_inflight_too_high(state):
        state.high_inflight_bytes = max(state.high_inflight_bytes, state.round_inflight_bytes)
    before_bytes = ack.inflight_bytes + ack.acked_bytes
    if state.mode != UP or before_bytes + state.mss_bytes < state.cwnd_bytes or state.cwnd_bytes < state.high_inflight_bytes:
        return
    growth_bytes = state.mss_bytes * 2.0**state.slope_doublings
    share = min(1.0, ack.acked_bytes / state.cwnd_bytes)
    # At most a segment per acknowledged segment (probe_up_cnt is at least 1).
    state.high_inflight_bytes += min(growth_bytes * share, ack.acked_bytes)
    if state.round_started > 0.0:
        state.slope_doublings = min(state.slope_doublings + 1.0, MAX_SLOPE_DOUBLINGS)
