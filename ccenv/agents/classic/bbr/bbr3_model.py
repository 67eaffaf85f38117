"""The path model of BBRv3: rounds, losses packet by packet, the plateau of the bandwidth, the long-term bound.

Section numbers are those of draft-ietf-ccwg-bbr-06 (July 2026); names in brackets are its own; what version 2 does alike is in
``bbr_model``. Deviations: see ``bbr3``.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.bbr.common import (CRUISE, DOWN, EXTRA_ACKED_ROUNDS, FULL_PIPE_GROWTH, FULL_PIPE_ROUNDS, LOSS_THRESHOLD, MAX_SLOPE_DOUBLINGS, MIN_CWND_MSS, PACING_MARGIN, PROBE_RTT, REFILL, STARTUP, UP, adapt_lower_bounds, inflight_with_headroom, quantised_bytes, take_bandwidth, update_extra)
from ccenv.agents.classic.common import UNLIMITED_BYTES
from ccenv.agents.callbacks import state_record
from ccenv.base.kernels.decorator import kernel

ACKS_INIT, ACKS_REFILLING, ACKS_STARTING, ACKS_FEEDBACK, ACKS_STOPPING = 0.0, 1.0, 2.0, 3.0, 4.0  # s.2.14: ack_phase

QUANTUM_MSS = 2.0  # s.5.6.3
IDLE = -1.0

STATE = state_record(
    "initial_window_mss",  # parameter
    "startup_pacing_gain",  # parameter
    "startup_cwnd_gain",  # parameter
    "drain_pacing_gain",  # parameter
    "down_pacing_gain",  # parameter
    "up_cwnd_gain",  # parameter
    "full_loss_mss",  # parameter: ranges lost in a round that end STARTUP
    "up_until_plateau",  # parameter that nothing reads: boards know the sender by a hash that has it
    "mode",
    "pacing_gain",
    "cwnd_gain",
    "rounds",
    "round_end_bytes",  # next_round_delivered
    "loss_round_end_bytes",  # loss_round_delivered
    "loss_ranges",  # found lost in this loss round; above 0: is_loss_in_round
    "max_bandwidth_Bps",
    "cycle_bandwidth_Bps",  # largest of this cycle and of the one before (MaxBwFilterLen = 2)
    "last_cycle_bandwidth_Bps",
    "latest_bandwidth_Bps",  # bw_latest
    "latest_inflight_bytes",  # inflight_latest
    "bandwidth_Bps",  # bw
    "low_bandwidth_Bps",  # bw_shortterm
    "low_inflight_bytes",  # inflight_shortterm
    "high_inflight_bytes",  # inflight_longterm
    "up_rounds",  # bw_probe_up_rounds
    "up_acked_bytes",  # bw_probe_up_acked
    "up_step_bytes",  # probe_up_acked_per_inc
    "ack_phase",
    "samples_probe",  # is_bw_probe_sample
    "probe_too_high",  # prev_probe_too_high
    "probe_cautious",  # prev_probe_precautionary
    "min_rtt_s",
    "min_rtt_at_s",
    "probe_min_rtt_s",  # probe_rtt_min_delay
    "probe_min_rtt_at_s",
    "probe_rtt_done_s",  # 0: in flight not yet down to half a BDP; outside PROBE_RTT IDLE: idle_restart
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
    "full_pipe",  # full_bw_reached
    "full_bandwidth_Bps",
    "full_rounds",  # full_bw_count; FULL_PIPE_ROUNDS: full_bw_now
    "cycle_start_s",  # cycle_stamp
    "probe_wait_s",  # bw_probe_wait
    "rounds_since_probe",
    "drain_start_round",
    "saved_cwnd_bytes",  # prior_cwnd
    "limited_from_bytes",  # samples of data sent while so much to limited_until_bytes was delivered are limited: PROBE_RTT
    "limited_until_bytes",
    "recover_bytes",
    "recovery_rounds",  # 0: not in loss recovery; else 1 + the rounds that began in it
)


@kernel
def is_limited(state: Any, app_limited: float, prior_delivered_bytes: float) -> bool:
    """Return whether a packet was limited when it was sent: by the application, or by PROBE_RTT (MarkConnectionAppLimited)."""
    held = state.limited_until_bytes > 0.0 and state.limited_from_bytes <= prior_delivered_bytes <= state.limited_until_bytes
    return bool(app_limited > 0.0 or held)


@kernel
def update_model(state: Any, ack: Any) -> tuple[bool, bool, float]:
    """Update rounds, bandwidth, short-term bounds and aggregation (s.5.2.3, in its order).

    Returns:
        tuple: whether a round begins, whether a loss round begins, and the ranges lost in the loss round that has ended.
    """
    sample_bytes = ack.delivered_bytes - ack.prior_delivered_bytes
    state.latest_bandwidth_Bps = max(state.latest_bandwidth_Bps, ack.delivery_rate_Bps)
    state.latest_inflight_bytes = max(state.latest_inflight_bytes, sample_bytes)
    loss_round_started = ack.prior_delivered_bytes >= state.loss_round_end_bytes
    if loss_round_started:
        state.loss_round_end_bytes = ack.delivered_bytes
    round_started = _update_bandwidth(state, ack)
    ranges = 0.0
    if loss_round_started:
        ranges = state.loss_ranges
        if ranges > 0.0 and state.mode not in (STARTUP, REFILL, UP):
            adapt_lower_bounds(state)
        state.loss_ranges = 0.0
    update_extra(state, ack, EXTRA_ACKED_ROUNDS if state.full_pipe > 0.0 else 1.0)  # s.5.5.9: one round in STARTUP
    return round_started, loss_round_started, ranges


@kernel
def _update_bandwidth(state: Any, ack: Any) -> bool:
    """Count rounds (s.5.5.1: UpdateRound) and take the bandwidth sample (s.5.5.5); return whether a round begins."""
    round_started = ack.prior_delivered_bytes >= state.round_end_bytes
    if round_started:
        state.round_end_bytes = ack.delivered_bytes
        state.rounds += 1.0
        state.rounds_since_probe += 1.0
        if state.recovery_rounds > 0.0:
            state.recovery_rounds += 1.0
    take_bandwidth(state, ack.delivery_rate_Bps, is_limited(state, ack.app_limited, ack.prior_delivered_bytes))
    return bool(round_started)


@kernel
def end_of_update(state: Any, ack: Any, loss_round_started: bool) -> None:
    """Begin the next loss round's signals and bound the bandwidth in use (s.5.5.10.3)."""
    if loss_round_started:
        state.latest_bandwidth_Bps = ack.delivery_rate_Bps
        state.latest_inflight_bytes = ack.delivered_bytes - ack.prior_delivered_bytes
    state.bandwidth_Bps = min(state.max_bandwidth_Bps, state.low_bandwidth_Bps)


@kernel
def reset_full_bandwidth(state: Any, baseline_Bps: float) -> None:
    """Look for a plateau of the bandwidth afresh (s.5.3.1.2: ResetFullBW)."""
    state.full_bandwidth_Bps = baseline_Bps
    state.full_rounds = 0.0


@kernel
def check_full_bandwidth(state: Any, ack: Any, round_started: bool) -> None:
    """Count rounds in which the delivery rate has not grown by a quarter (s.5.3.1.2: CheckFullBWReached)."""
    limited = is_limited(state, ack.app_limited, ack.prior_delivered_bytes)
    if state.full_rounds >= FULL_PIPE_ROUNDS or not round_started or limited:
        return
    if ack.delivery_rate_Bps >= FULL_PIPE_GROWTH * state.full_bandwidth_Bps:
        reset_full_bandwidth(state, ack.delivery_rate_Bps)
        return
    state.full_rounds += 1.0
    if state.full_rounds >= FULL_PIPE_ROUNDS:
        state.full_pipe = 1.0


@kernel
def is_inflight_too_high(tx_inflight_bytes: float, lost_bytes: float) -> bool:
    """Return whether more than LOSS_THRESHOLD of what was in flight was lost since a packet was sent (s.5.5.10.2)."""
    return bool(lost_bytes > LOSS_THRESHOLD * tx_inflight_bytes)


@kernel
def inflight_at_loss(size_bytes: float, tx_inflight_bytes: float, lost_bytes: float) -> float:
    """Return what was in flight where losses crossed LOSS_THRESHOLD, maybe within the packet (s.5.5.10.2: InflightAtLoss)."""
    before_bytes = tx_inflight_bytes - size_bytes
    lost_before_bytes = lost_bytes - size_bytes
    return before_bytes + (LOSS_THRESHOLD * before_bytes - lost_before_bytes) / (1.0 - LOSS_THRESHOLD)


@kernel
def budget_bytes(state: Any, inflight_bytes: float) -> float:
    """Return at least three send quanta and four segments (s.5.6.3, s.5.6.4.2: QuantizationBudget)."""
    return quantised_bytes(state, inflight_bytes, QUANTUM_MSS)


@kernel
def is_cwnd_limited(state: Any, ack: Any) -> bool:
    """Return whether the window left no room for a segment before this ACK (C.is_cwnd_limited)."""
    return bool(ack.inflight_bytes + ack.acked_bytes + state.mss_bytes >= state.cwnd_bytes)


@kernel
def steepen_rise(state: Any) -> None:
    """Double the segments per round by which the long-term bound rises (s.5.3.3.9: RaiseInflightLongtermSlope)."""
    growth = 2.0**state.up_rounds
    state.up_rounds = min(state.up_rounds + 1.0, MAX_SLOPE_DOUBLINGS)
    state.up_step_bytes = max(state.cwnd_bytes / growth, state.mss_bytes)


@kernel
def raise_high_inflight(state: Any, ack: Any, round_started: bool) -> None:
    """Follow what got through; in UP, while the bound binds, grow by 1, 2, 4, ... segments per round (s.5.3.3.9)."""
    if state.high_inflight_bytes == UNLIMITED_BYTES:
        return
    state.high_inflight_bytes = max(state.high_inflight_bytes, ack.tx_inflight_bytes)
    if state.mode != UP or not is_cwnd_limited(state, ack) or state.cwnd_bytes < state.high_inflight_bytes:
        return
    state.up_acked_bytes += ack.acked_bytes
    if state.up_acked_bytes >= state.up_step_bytes:
        steps = state.up_acked_bytes // state.up_step_bytes
        state.up_acked_bytes -= steps * state.up_step_bytes
        state.high_inflight_bytes += steps * state.mss_bytes
    if round_started:
        steepen_rise(state)


@kernel
def set_pacing_rate(state: Any, gain: float) -> None:
    """Pace at a gain times the bandwidth less 1 % (s.5.6.2); before the pipe is full never slower than before."""
    rate_Bps = gain * state.bandwidth_Bps * (1.0 - PACING_MARGIN)
    if rate_Bps > state.pacing_rate_Bps or (state.full_pipe > 0.0 and rate_Bps > 0.0):
        state.pacing_rate_Bps = rate_Bps


@kernel
def bound_cwnd(state: Any) -> None:
    """Keep the window within the bounds of the model (s.5.6.4.7: BoundCwndForModel)."""
    bound_bytes = UNLIMITED_BYTES
    if state.mode in (DOWN, REFILL, UP):
        bound_bytes = state.high_inflight_bytes
    elif state.mode in (PROBE_RTT, CRUISE):
        bound_bytes = inflight_with_headroom(state)
    bound_bytes = max(min(bound_bytes, state.low_inflight_bytes), MIN_CWND_MSS * state.mss_bytes)
    state.cwnd_bytes = min(state.cwnd_bytes, bound_bytes)
