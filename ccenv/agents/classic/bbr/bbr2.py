"""BBR version 2 ([BBR-draft-02]: draft-cardwell-iccrg-bbr-congestion-control-02, March 2022). Section numbers are its own.

Code shared with version 3 is in ``common``.

Deviations: the signals carry neither the bytes in flight when a packet was sent nor the bytes lost since: both are taken
from the start of the round, so that a loss rate is that of one round (4.5.10.1), and the long-term bound falls to what was
in flight then (no search for the packet that passed the threshold); bytes delivered in a sample are its rate times its RTT;
STARTUP ends by loss when a round loses more than 2 % and so many segments, whatever their ranges (4.3.1.3); no ECN, no
restart from idle (4.4.3), no undo of spurious loss; before the first RTT sample no pacing; conservation of packets for one
round of recovery as in bbr1; the filter of aggregation is the three-sample estimator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.agents.classic.bbr import common as bbr
from ccenv.agents.classic.common import UNLIMITED_BYTES, Cca, in_recovery, initial_window
from ccenv.base.kernels.decorator import kernel

NO_FEEDBACK, PROBE_STARTING, PROBE_FEEDBACK, PROBE_STOPPING = 0.0, 1.0, 2.0, 3.0  # 4.3.3.6: ack_phase

QUANTUM_SMALL_Bps = 150_000.0  # 4.6.3: 1.2 Mbit/s; below, a quantum may be one segment
QUANTUM_MSS = 2.0  # 4.6.3

sender = Cca(
    "bbr2",
    __name__,
    parameters=(initial_window(),),
    fields=(
        *bbr.FIELDS,
        "round_started",  # 1 during the call that begins a round
        "round_start_lost_bytes",
        "round_inflight_bytes",  # in flight when the round began
        "lost_total_bytes",
        "loss_in_round",
        "slope_doublings",  # of the growth of high_inflight_bytes
        "full_now",  # the bandwidth has stopped growing, or too much was lost
        "phase_start_s",
        "in_recovery",
        "conserving",
    ),
    startup_pacing_gain=2.89,  # BBRv2 at IETF 104 to 112 and in its Linux code: 2/ln 2, rounded
    startup_cwnd_gain=2.89,  # as above
    drain_pacing_gain=1.0 / 2.89,  # 4.3.2: the inverse of STARTUP's gain
    down_pacing_gain=0.75,  # 4.3.3.1
    up_cwnd_gain=2.0,  # 2.5: as in the other phases
    full_loss_mss=8.0,  # BBRv2's Linux code: loss events of a round that may end STARTUP
    up_until_plateau=0.0,  # nothing reads it: boards know the sender by a hash that has it
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
    bbr.take_bandwidth(state, ack.delivery_rate_Bps, is_limited(state, ack))
    if state.round_started > 0.0:
        if state.loss_in_round > 0.0 and state.mode not in (bbr.STARTUP, bbr.REFILL, bbr.UP):
            bbr.adapt_lower_bounds(state)
        state.loss_in_round = 0.0
    bbr.update_extra(state, ack, bbr.EXTRA_ACKED_ROUNDS)


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
    return bool(lost_this_round(state) > bbr.LOSS_THRESHOLD * state.round_inflight_bytes)


@kernel
def budget_bytes(state: Any, inflight_bytes: float) -> float:
    """Return at least three send quanta and four segments (4.6.3, 4.6.4.2)."""
    return bbr.quantised_bytes(state, inflight_bytes, 1.0 if state.pacing_rate_Bps < QUANTUM_SMALL_Bps else QUANTUM_MSS)


@kernel
def lower_high_inflight(state: Any, limited: bool) -> None:
    """Set the long-term bound to what was in flight, or BETA of the target (4.5.10.1: BBRHandleInflightTooHigh)."""
    state.samples_probe = 0.0
    if not limited:
        target_bytes = min(bbr.bdp_bytes(state, state.bandwidth_Bps, 1.0), state.cwnd_bytes)
        bound_bytes = max(state.round_inflight_bytes, bbr.BETA * target_bytes)
        state.high_inflight_bytes = max(bound_bytes, bbr.MIN_CWND_MSS * state.mss_bytes)


@kernel
def raise_high_inflight(state: Any, ack: Any) -> None:
    """Follow what got through; in UP grow by 1, 2, 4, ... segments per round while the bound binds (4.3.3.6)."""
    if state.high_inflight_bytes == UNLIMITED_BYTES:
        return
    if not is_inflight_too_high(state):
        state.high_inflight_bytes = max(state.high_inflight_bytes, state.round_inflight_bytes)
    before_bytes = ack.inflight_bytes + ack.acked_bytes
    if state.mode != bbr.UP or before_bytes + state.mss_bytes < state.cwnd_bytes or state.cwnd_bytes < state.high_inflight_bytes:
        return
    growth_bytes = state.mss_bytes * 2.0**state.slope_doublings
    share = min(1.0, ack.acked_bytes / state.cwnd_bytes)
    # At most a segment per acknowledged segment (probe_up_cnt is at least 1).
    state.high_inflight_bytes += min(growth_bytes * share, ack.acked_bytes)
    if state.round_started > 0.0:
        state.slope_doublings = min(state.slope_doublings + 1.0, bbr.MAX_SLOPE_DOUBLINGS)


def init(state: Any) -> None:
    """Start in STARTUP (4.3.1.1); all other fields are zero."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    bbr.enter(state, bbr.STARTUP, state.startup_pacing_gain, state.startup_cwnd_gain)
    state.round_inflight_bytes = state.cwnd_bytes
    state.high_inflight_bytes = UNLIMITED_BYTES
    bbr.reset_lower_bounds(state)


def on_ack(state: Any, ack: Any) -> None:
    """Update model and state machine, then pacing rate and window (4.2.2)."""
    update_model(state, ack)
    _check_full_pipe(state, ack)
    _check_drain(state, ack)
    _update_probe_cycle(state, ack)
    expired = bbr.update_min_rtt(state, ack)
    _check_probe_rtt(state, ack, expired)
    end_of_update(state, ack)
    if state.in_recovery > 0.0 and not in_recovery(state, ack):
        state.in_recovery = 0.0
        state.conserving = 0.0
        state.cwnd_bytes = max(state.cwnd_bytes, state.saved_cwnd_bytes)
    _set_pacing_rate(state, ack)
    _set_cwnd(state, ack)


@kernel
def _check_full_pipe(state: Any, ack: Any) -> None:
    """Notice that the bandwidth no longer grows (4.3.1.2), or in STARTUP that too much is lost (4.3.1.3)."""
    if state.round_started == 0.0:
        return
    if state.full_now == 0.0 and not is_limited(state, ack):
        if state.max_bandwidth_Bps >= bbr.FULL_PIPE_GROWTH * state.full_bandwidth_Bps:
            state.full_bandwidth_Bps = state.max_bandwidth_Bps
            state.full_rounds = 0.0
        else:
            state.full_rounds += 1.0
            if state.full_rounds >= bbr.FULL_PIPE_ROUNDS:
                state.full_now = 1.0
    lost_bytes = lost_this_round(state)
    round_bytes = lost_bytes + state.latest_inflight_bytes
    much_lost = lost_bytes > bbr.LOSS_THRESHOLD * round_bytes and lost_bytes >= state.full_loss_mss * state.mss_bytes
    if state.mode == bbr.STARTUP and state.full_pipe == 0.0 and much_lost:
        state.full_now = 1.0
        bdp = bbr.bdp_bytes(state, state.max_bandwidth_Bps, 1.0)
        state.high_inflight_bytes = max(bdp, state.latest_inflight_bytes)
    if state.mode == bbr.STARTUP and state.full_now > 0.0:
        state.full_pipe = 1.0


@kernel
def _check_drain(state: Any, ack: Any) -> None:
    """Leave STARTUP when the pipe is full, and DRAIN when the queue is gone (4.3.2)."""
    if state.mode == bbr.STARTUP and state.full_pipe > 0.0:
        bbr.enter(state, bbr.DRAIN, state.drain_pacing_gain, state.startup_cwnd_gain)
    if state.mode == bbr.DRAIN and ack.inflight_bytes <= budget_bytes(state, bbr.bdp_bytes(state, state.max_bandwidth_Bps, 1.0)):
        _enter_down(state, ack)


@kernel
def _enter_down(state: Any, ack: Any) -> None:
    """Drain what the probe has queued; draw the time of the next one (4.3.3.1, 4.3.3.5)."""
    state.loss_in_round = 0.0
    state.latest_bandwidth_Bps = 0.0
    state.latest_inflight_bytes = 0.0
    bbr.draw_probe_wait(state)
    state.phase_start_s = ack.now_s
    state.ack_phase = PROBE_STOPPING
    start_round(state, ack.delivered_bytes, ack.inflight_bytes)
    bbr.enter(state, bbr.DOWN, state.down_pacing_gain, bbr.CWND_GAIN)


@kernel
def _enter_refill(state: Any, ack: Any) -> None:
    """Fill the pipe for a round before probing (4.3.3.3)."""
    bbr.reset_lower_bounds(state)
    state.slope_doublings = 0.0
    state.ack_phase = NO_FEEDBACK
    start_round(state, ack.delivered_bytes, ack.inflight_bytes)
    bbr.enter(state, bbr.REFILL, 1.0, bbr.CWND_GAIN)


@kernel
def _enter_up(state: Any, ack: Any) -> None:
    """Probe for bandwidth (4.3.3.4)."""
    state.samples_probe = 1.0
    state.ack_phase = PROBE_STARTING
    start_round(state, ack.delivered_bytes, ack.inflight_bytes)
    state.phase_start_s = ack.now_s
    bbr.enter(state, bbr.UP, bbr.UP_PACING_GAIN, state.up_cwnd_gain)


@kernel
def _update_probe_cycle(state: Any, ack: Any) -> None:
    """Adapt the long-term bound and go through DOWN, CRUISE, REFILL, UP (4.3.3.6)."""
    if state.full_pipe == 0.0:
        return
    _adapt_upper_bound(state, ack)
    if state.mode == bbr.DOWN:
        if _is_time_to_probe(state, ack):
            _enter_refill(state, ack)
        elif ack.inflight_bytes <= bbr.inflight_with_headroom(state) and ack.inflight_bytes <= budget_bytes(
            state, bbr.bdp_bytes(state, state.max_bandwidth_Bps, 1.0)
        ):
            bbr.enter_cruise(state)
    elif state.mode == bbr.CRUISE:
        if _is_time_to_probe(state, ack):
            _enter_refill(state, ack)
    elif state.mode == bbr.REFILL:
        if state.round_started > 0.0:
            _enter_up(state, ack)
    elif state.mode == bbr.UP and _is_probe_over(state, ack):
        _enter_down(state, ack)


@kernel
def _is_probe_over(state: Any, ack: Any) -> bool:
    """End UP once there have been 1.25 BDP in flight, after an RTT at the earliest (4.3.3.6)."""
    target_bytes = budget_bytes(state, bbr.bdp_bytes(state, state.max_bandwidth_Bps, bbr.UP_PACING_GAIN))
    return bool(ack.now_s - state.phase_start_s > state.min_rtt_s and ack.inflight_bytes + ack.acked_bytes >= target_bytes)


@kernel
def _is_time_to_probe(state: Any, ack: Any) -> bool:
    """Probe after 2 to 3 s, or as soon as Reno with this BDP would have recovered (4.3.3.5)."""
    target_mss = min(bbr.bdp_bytes(state, state.bandwidth_Bps, 1.0), state.cwnd_bytes) / state.mss_bytes
    due = state.rounds_since_probe >= min(target_mss, bbr.MAX_RENO_ROUNDS)
    return bool(due or ack.now_s - state.phase_start_s > state.probe_wait_s)


@kernel
def _adapt_upper_bound(state: Any, ack: Any) -> None:
    """Lower the long-term bound if the probe has lost too much, else raise it (4.3.3.6: BBRAdaptUpperBounds)."""
    if state.round_started > 0.0:
        if state.ack_phase == PROBE_STARTING:
            state.ack_phase = PROBE_FEEDBACK
        elif state.ack_phase == PROBE_STOPPING:
            state.samples_probe = 0.0
            state.ack_phase = NO_FEEDBACK
            if state.mode != bbr.PROBE_RTT and not is_limited(state, ack):
                bbr.advance_bandwidth_filter(state)
    if is_inflight_too_high(state):
        if state.samples_probe > 0.0:
            lower_high_inflight(state, is_limited(state, ack))
            if state.mode == bbr.UP:
                _enter_down(state, ack)
    else:
        raise_high_inflight(state, ack)


@kernel
def _check_probe_rtt(state: Any, ack: Any, expired: bool) -> None:
    """Enter, stay in and leave PROBE_RTT (4.3.4)."""
    if state.mode != bbr.PROBE_RTT:
        if not expired:
            return
        bbr.enter(state, bbr.PROBE_RTT, 1.0, bbr.PROBE_RTT_CWND_GAIN)
        bbr.save_cwnd(state, state.in_recovery > 0.0)
        state.probe_rtt_done_s = 0.0
        state.ack_phase = PROBE_STOPPING
        start_round(state, ack.delivered_bytes, ack.inflight_bytes)
    state.limited_until_bytes = ack.delivered_bytes + ack.inflight_bytes
    if state.probe_rtt_done_s == 0.0:
        if ack.inflight_bytes <= bbr.probe_rtt_cwnd_bytes(state):
            state.probe_rtt_done_s = ack.now_s + bbr.PROBE_RTT_S
            state.probe_rtt_round_done = 0.0
            start_round(state, ack.delivered_bytes, ack.inflight_bytes)
        return
    if state.round_started > 0.0:
        state.probe_rtt_round_done = 1.0
    if state.probe_rtt_round_done == 0.0 or ack.now_s <= state.probe_rtt_done_s:
        return
    state.probe_min_rtt_at_s = ack.now_s
    state.cwnd_bytes = max(state.cwnd_bytes, state.saved_cwnd_bytes)
    bbr.reset_lower_bounds(state)
    if state.full_pipe > 0.0:
        _enter_down(state, ack)
        bbr.enter_cruise(state)
    else:
        bbr.enter(state, bbr.STARTUP, state.startup_pacing_gain, state.startup_cwnd_gain)


@kernel
def _set_pacing_rate(state: Any, ack: Any) -> None:
    """Pace at the gain times the bandwidth less 1 % (4.6.2); before the pipe is full never slower than before."""
    if state.bandwidth_Bps <= 0.0:
        return
    if state.pacing_rate_Bps == np.inf:
        state.pacing_rate_Bps = state.startup_pacing_gain * state.cwnd_bytes / ack.rtt_s
    rate_Bps = state.pacing_gain * state.bandwidth_Bps * (1.0 - bbr.PACING_MARGIN)
    if state.full_pipe > 0.0 or rate_Bps > state.pacing_rate_Bps:
        state.pacing_rate_Bps = rate_Bps


@kernel
def _set_cwnd(state: Any, ack: Any) -> None:
    """Move the window towards the gain times BDP plus aggregation, within the bounds of the model (4.6.4)."""
    minimum_bytes = bbr.MIN_CWND_MSS * state.mss_bytes
    target_bytes = budget_bytes(state, bbr.bdp_bytes(state, state.bandwidth_Bps, state.cwnd_gain) - state.extra_a)
    if state.conserving > 0.0:  # 4.6.4.5
        state.cwnd_bytes = max(state.cwnd_bytes, ack.inflight_bytes + ack.acked_bytes)
    elif state.full_pipe > 0.0:  # 4.6.4.3
        state.cwnd_bytes = min(state.cwnd_bytes + ack.acked_bytes, target_bytes)
    elif state.cwnd_bytes < target_bytes or ack.delivered_bytes < state.initial_window_mss * state.mss_bytes:
        state.cwnd_bytes += ack.acked_bytes
    bound_bytes = UNLIMITED_BYTES  # 4.6.4.6
    if state.mode == bbr.PROBE_RTT:
        bound_bytes = min(bbr.inflight_with_headroom(state), bbr.probe_rtt_cwnd_bytes(state))
    elif state.mode == bbr.CRUISE:
        bound_bytes = bbr.inflight_with_headroom(state)
    elif state.mode not in (bbr.STARTUP, bbr.DRAIN):
        bound_bytes = state.high_inflight_bytes
    state.cwnd_bytes = max(min(state.cwnd_bytes, bound_bytes, state.low_inflight_bytes), minimum_bytes)


def on_loss(state: Any, loss: Any) -> None:
    """Count the loss; conserve packets for a round; one segment after a time-out (4.6.4.5)."""
    state.lost_total_bytes += loss.lost_bytes
    state.loss_in_round = 1.0
    state.round_end_bytes = max(0.0, state.round_end_bytes - loss.lost_bytes)  # these bytes will not arrive
    if loss.timeout > 0.0:
        bbr.save_cwnd(state, state.in_recovery > 0.0)
        state.cwnd_bytes = state.mss_bytes
        state.in_recovery = 1.0
        state.conserving = 0.0
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
    elif loss.new_episode > 0.0:
        bbr.save_cwnd(state, state.in_recovery > 0.0)
        state.cwnd_bytes = loss.inflight_bytes + state.mss_bytes
        state.in_recovery = 1.0
        state.conserving = 1.0
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
    else:
        state.cwnd_bytes = max(state.cwnd_bytes - loss.lost_bytes, state.mss_bytes)
        state.recover_bytes = max(0.0, state.recover_bytes - loss.lost_bytes)
