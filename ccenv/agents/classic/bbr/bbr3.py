"""BBR version 3, packet by packet (draft-ietf-ccwg-bbr-06, July 2026; section numbers are its own).

Every lost packet is judged by what was in flight when it was sent and what was lost since (s.5.5.10.2); rounds, losses and
rate samples are those of the packet that an ACK covers. Code shared with version 2 is in ``common``; names in brackets are the
draft's.

Deviations: no undo of spurious losses (s.5.5.11): the engines do not signal them; a restart from idle (s.5.4.1) is noticed at
the next tick, 10 ms at most; a packet limited by the window is one before whose ACK there was no room for a segment; loss
recovery lasts until as much was delivered as was in flight at its start; no reaction to ECN, of which the draft specifies none
(s.3.7). The curve engine knows no packets: there what was in flight and lost is that since the start of the round, and the
losses of a step are one packet.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.agents.classic.bbr import common as bbr
from ccenv.agents.classic.common import UNLIMITED_BYTES, Cca, in_recovery, initial_window
from ccenv.base.kernels.decorator import kernel

ACKS_INIT, ACKS_REFILLING, ACKS_STARTING, ACKS_FEEDBACK, ACKS_STOPPING = 0.0, 1.0, 2.0, 3.0, 4.0  # s.2.14: ack_phase

QUANTUM_MSS = 2.0  # s.5.6.3
IDLE = -1.0
PER_PACKET = True  # the engines tell of each lost packet
DRAIN_ROUNDS = 3.0  # s.5.3.2
FIRST_RTT_S = 0.001  # s.5.6.2: InitPacingRate, before the first RTT

sender = Cca(
    "bbr3",
    __name__,
    parameters=(initial_window(),),
    fields=(
        *bbr.FIELDS,
        "loss_round_end_bytes",  # loss_round_delivered
        "loss_ranges",  # found lost in this loss round; above 0: is_loss_in_round
        "up_rounds",  # bw_probe_up_rounds
        "up_acked_bytes",  # bw_probe_up_acked
        "up_step_bytes",  # probe_up_acked_per_inc
        "probe_too_high",  # prev_probe_too_high
        "probe_cautious",  # prev_probe_precautionary
        "cycle_start_s",  # cycle_stamp
        "drain_start_round",
        "limited_from_bytes",  # samples of data sent while so much to limited_until_bytes was delivered are limited: PROBE_RTT
        "recovery_rounds",  # 0: not in loss recovery; else 1 + the rounds that began in it
    ),
    startup_pacing_gain=4.0 * math.log(2.0),  # s.2.5: 2.77
    startup_cwnd_gain=2.0,  # s.2.6: DefaultCwndGain
    drain_pacing_gain=0.5,  # s.2.5
    down_pacing_gain=0.9,  # s.5.3.3.1
    up_cwnd_gain=2.25,  # s.5.3.3.5
    full_loss_mss=6.0,  # s.5.3.1.3: BBRStartupFullLossCnt
    up_until_plateau=1.0,  # nothing reads it: boards know the sender by a hash that has it
)


@kernel
def is_limited(state: Any, app_limited: float, prior_delivered_bytes: float) -> bool:
    """Return whether a packet was limited when it was sent: by the application, or by PROBE_RTT (MarkConnectionAppLimited)."""
    held = state.limited_until_bytes > 0.0 and state.limited_from_bytes <= prior_delivered_bytes <= state.limited_until_bytes
    return bool(app_limited > 0.0 or held)


@kernel
def update_model(state: Any, ack: Any) -> tuple[bool, bool, float]:
    """Update rounds, bandwidth, short-term bounds and aggregation (s.5.2.3, in its order).

    Return whether a round begins, whether a loss round begins, and the ranges lost in the loss round that has ended.
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
        if ranges > 0.0 and state.mode not in (bbr.STARTUP, bbr.REFILL, bbr.UP):
            bbr.adapt_lower_bounds(state)
        state.loss_ranges = 0.0
    bbr.update_extra(state, ack, bbr.EXTRA_ACKED_ROUNDS if state.full_pipe > 0.0 else 1.0)  # s.5.5.9: one round in STARTUP
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
    bbr.take_bandwidth(state, ack.delivery_rate_Bps, is_limited(state, ack.app_limited, ack.prior_delivered_bytes))
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
    if state.full_rounds >= bbr.FULL_PIPE_ROUNDS or not round_started or limited:
        return
    if ack.delivery_rate_Bps >= bbr.FULL_PIPE_GROWTH * state.full_bandwidth_Bps:
        reset_full_bandwidth(state, ack.delivery_rate_Bps)
        return
    state.full_rounds += 1.0
    if state.full_rounds >= bbr.FULL_PIPE_ROUNDS:
        state.full_pipe = 1.0


@kernel
def is_inflight_too_high(tx_inflight_bytes: float, lost_bytes: float) -> bool:
    """Return whether more than LOSS_THRESHOLD of what was in flight was lost since a packet was sent (s.5.5.10.2)."""
    return bool(lost_bytes > bbr.LOSS_THRESHOLD * tx_inflight_bytes)


@kernel
def inflight_at_loss(size_bytes: float, tx_inflight_bytes: float, lost_bytes: float) -> float:
    """Return what was in flight where losses crossed LOSS_THRESHOLD, maybe within the packet (s.5.5.10.2: InflightAtLoss)."""
    before_bytes = tx_inflight_bytes - size_bytes
    lost_before_bytes = lost_bytes - size_bytes
    return before_bytes + (bbr.LOSS_THRESHOLD * before_bytes - lost_before_bytes) / (1.0 - bbr.LOSS_THRESHOLD)


@kernel
def budget_bytes(state: Any, inflight_bytes: float) -> float:
    """Return at least three send quanta and four segments (s.5.6.3, s.5.6.4.2: QuantizationBudget)."""
    return bbr.quantised_bytes(state, inflight_bytes, QUANTUM_MSS)


@kernel
def is_cwnd_limited(state: Any, ack: Any) -> bool:
    """Return whether the window left no room for a segment before this ACK (C.is_cwnd_limited)."""
    return bool(ack.inflight_bytes + ack.acked_bytes + state.mss_bytes >= state.cwnd_bytes)


@kernel
def steepen_rise(state: Any) -> None:
    """Double the segments per round by which the long-term bound rises (s.5.3.3.9: RaiseInflightLongtermSlope)."""
    growth = 2.0**state.up_rounds
    state.up_rounds = min(state.up_rounds + 1.0, bbr.MAX_SLOPE_DOUBLINGS)
    state.up_step_bytes = max(state.cwnd_bytes / growth, state.mss_bytes)


@kernel
def raise_high_inflight(state: Any, ack: Any, round_started: bool) -> None:
    """Follow what got through; in UP, while the bound binds, grow by 1, 2, 4, ... segments per round (s.5.3.3.9)."""
    if state.high_inflight_bytes == UNLIMITED_BYTES:
        return
    state.high_inflight_bytes = max(state.high_inflight_bytes, ack.tx_inflight_bytes)
    if state.mode != bbr.UP or not is_cwnd_limited(state, ack) or state.cwnd_bytes < state.high_inflight_bytes:
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
    rate_Bps = gain * state.bandwidth_Bps * (1.0 - bbr.PACING_MARGIN)
    if rate_Bps > state.pacing_rate_Bps or (state.full_pipe > 0.0 and rate_Bps > 0.0):
        state.pacing_rate_Bps = rate_Bps


@kernel
def bound_cwnd(state: Any) -> None:
    """Keep the window within the bounds of the model (s.5.6.4.7: BoundCwndForModel)."""
    bound_bytes = UNLIMITED_BYTES
    if state.mode in (bbr.DOWN, bbr.REFILL, bbr.UP):
        bound_bytes = state.high_inflight_bytes
    elif state.mode in (bbr.PROBE_RTT, bbr.CRUISE):
        bound_bytes = bbr.inflight_with_headroom(state)
    bound_bytes = max(min(bound_bytes, state.low_inflight_bytes), bbr.MIN_CWND_MSS * state.mss_bytes)
    state.cwnd_bytes = min(state.cwnd_bytes, bound_bytes)


def init(state: Any) -> None:
    """Start in STARTUP (s.5.2.1); all other fields are zero."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = state.startup_pacing_gain * state.cwnd_bytes / FIRST_RTT_S
    state.high_inflight_bytes = UNLIMITED_BYTES
    state.up_step_bytes = UNLIMITED_BYTES
    bbr.enter(state, bbr.STARTUP, state.startup_pacing_gain, state.startup_cwnd_gain)
    bbr.reset_lower_bounds(state)


def on_ack(state: Any, ack: Any) -> None:
    """Update model and state machine, then pacing rate and window (s.5.2.3)."""
    if state.min_rtt_s == 0.0:  # the first RTT sample (s.5.6.2)
        state.pacing_rate_Bps = state.startup_pacing_gain * state.initial_window_mss * state.mss_bytes / ack.rtt_s
    round_started, loss_round_started, ranges = update_model(state, ack)
    check_full_bandwidth(state, ack, round_started)
    _check_startup(state, ack, ranges)
    _check_drain(state, ack)
    _update_probe_cycle(state, ack, round_started)
    expired = bbr.update_min_rtt(state, ack)
    _check_probe_rtt(state, ack, expired, round_started)
    end_of_update(state, ack, loss_round_started)
    if state.recovery_rounds > 0.0 and not in_recovery(state, ack):
        state.recovery_rounds = 0.0
        state.cwnd_bytes = max(state.cwnd_bytes, state.saved_cwnd_bytes)
    set_pacing_rate(state, state.pacing_gain)
    _set_cwnd(state, ack)


@kernel
def _check_startup(state: Any, ack: Any, ranges: float) -> None:
    """Leave STARTUP when the pipe is full, or too much was lost in a round of recovery (s.5.3.1.1, s.5.3.1.3)."""
    if state.mode != bbr.STARTUP:
        return
    much_lost = ranges >= state.full_loss_mss and is_inflight_too_high(ack.tx_inflight_bytes, ack.lost_since_bytes)
    if state.full_pipe == 0.0 and much_lost and state.recovery_rounds > 1.0:
        state.full_pipe = 1.0
        state.full_rounds = bbr.FULL_PIPE_ROUNDS
        state.high_inflight_bytes = max(bbr.bdp_bytes(state, state.max_bandwidth_Bps, 1.0), state.latest_inflight_bytes)
    if state.full_pipe > 0.0:
        bbr.enter(state, bbr.DRAIN, state.drain_pacing_gain, state.startup_cwnd_gain)
        state.drain_start_round = state.rounds


@kernel
def _check_drain(state: Any, ack: Any) -> None:
    """Leave DRAIN when the queue is gone, or after three rounds (s.5.3.2)."""
    if state.mode != bbr.DRAIN:
        return
    drained = ack.inflight_bytes <= budget_bytes(state, bbr.bdp_bytes(state, state.max_bandwidth_Bps, 1.0))
    if drained or state.rounds > state.drain_start_round + DRAIN_ROUNDS:
        _enter_down(state, ack.now_s, ack.delivered_bytes)


@kernel
def _enter_down(state: Any, now_s: float, delivered_bytes: float) -> None:
    """Drain what the probe has queued; draw the time of the next one (s.5.3.3.9: StartProbeBW_DOWN, PickProbeWait)."""
    state.loss_ranges = 0.0
    state.latest_bandwidth_Bps = 0.0
    state.latest_inflight_bytes = 0.0
    state.up_step_bytes = UNLIMITED_BYTES
    bbr.draw_probe_wait(state)
    state.cycle_start_s = now_s
    state.ack_phase = ACKS_STOPPING
    state.round_end_bytes = delivered_bytes
    bbr.enter(state, bbr.DOWN, state.down_pacing_gain, bbr.CWND_GAIN)


@kernel
def _enter_refill(state: Any, ack: Any) -> None:
    """Fill the pipe for a round before probing (s.5.3.3.3)."""
    bbr.reset_lower_bounds(state)
    state.up_rounds = 0.0
    state.up_acked_bytes = 0.0
    state.probe_cautious = 0.0
    state.ack_phase = ACKS_REFILLING
    state.round_end_bytes = ack.delivered_bytes
    bbr.enter(state, bbr.REFILL, 1.0, bbr.CWND_GAIN)


@kernel
def _enter_up(state: Any, ack: Any) -> None:
    """Probe for bandwidth (s.5.3.3.5)."""
    state.samples_probe = 1.0
    state.ack_phase = ACKS_STARTING
    state.round_end_bytes = ack.delivered_bytes
    reset_full_bandwidth(state, ack.delivery_rate_Bps)
    bbr.enter(state, bbr.UP, bbr.UP_PACING_GAIN, state.up_cwnd_gain)
    steepen_rise(state)


@kernel
def _update_probe_cycle(state: Any, ack: Any, round_started: bool) -> None:
    """Adapt the long-term bound and go through DOWN, CRUISE, REFILL, UP (s.5.3.3.9: UpdateProbeBWCyclePhase)."""
    if state.full_pipe == 0.0 or _adapt_long_term(state, ack, round_started):
        return
    if state.mode == bbr.DOWN:
        bdp = bbr.bdp_bytes(state, state.max_bandwidth_Bps, 1.0)
        if _is_time_to_probe(state, ack):
            _enter_refill(state, ack)
        elif ack.inflight_bytes <= bbr.inflight_with_headroom(state) and ack.inflight_bytes <= budget_bytes(state, bdp):
            bbr.enter_cruise(state)
    elif state.mode == bbr.CRUISE:
        if _is_time_to_probe(state, ack):
            _enter_refill(state, ack)
    elif state.mode == bbr.REFILL:
        if round_started:
            _enter_up(state, ack)
    elif state.mode == bbr.UP and _is_time_to_go_down(state, ack):
        state.probe_too_high = 0.0
        _enter_down(state, ack.now_s, ack.delivered_bytes)


@kernel
def _is_time_to_go_down(state: Any, ack: Any) -> bool:
    """End UP on a plateau of the bandwidth, or, after a probe with much loss, at the bound that it left (s.5.3.3.7)."""
    if state.probe_too_high > 0.0 and ack.inflight_bytes >= state.high_inflight_bytes:
        state.probe_cautious = 1.0
        return True
    if is_cwnd_limited(state, ack) and state.cwnd_bytes >= state.high_inflight_bytes:
        reset_full_bandwidth(state, ack.delivery_rate_Bps)
        return False
    return bool(state.full_rounds >= bbr.FULL_PIPE_ROUNDS)


@kernel
def _target_bytes(state: Any) -> float:
    """Return how much is wanted in flight (s.5.3.3.8.3: TargetInflight)."""
    return min(bbr.bdp_bytes(state, state.bandwidth_Bps, 1.0), state.cwnd_bytes)


@kernel
def _is_time_to_probe(state: Any, ack: Any) -> bool:
    """Probe after 2 to 3 s, or as soon as Reno with this BDP would have recovered (s.5.3.3.8.3)."""
    due = state.rounds_since_probe >= min(_target_bytes(state) / state.mss_bytes, bbr.MAX_RENO_ROUNDS)
    return bool(due or ack.now_s > state.cycle_start_s + state.probe_wait_s)


@kernel
def _adapt_long_term(state: Any, ack: Any, round_started: bool) -> bool:
    """Follow the meaning of ACKs; raise the long-term bound where losses are few (s.5.3.3.9: AdaptLongTermModel).

    Tell whether the next phase was decided.
    """
    if state.ack_phase == ACKS_STARTING and round_started:
        state.ack_phase = ACKS_FEEDBACK
    if state.ack_phase == ACKS_STOPPING and round_started:
        state.samples_probe = 0.0
        state.ack_phase = ACKS_INIT
        probes_bandwidth = state.mode in (bbr.DOWN, bbr.CRUISE, bbr.REFILL, bbr.UP)
        if probes_bandwidth and not is_limited(state, ack.app_limited, ack.prior_delivered_bytes):
            bbr.advance_bandwidth_filter(state)
        if probes_bandwidth and state.probe_cautious > 0.0 and state.probe_too_high == 0.0:  # s.5.3.3.6: acceleration
            _enter_refill(state, ack)
            return True
    if not is_inflight_too_high(ack.tx_inflight_bytes, ack.lost_since_bytes):
        raise_high_inflight(state, ack, round_started)
    return False


@kernel
def _check_probe_rtt(state: Any, ack: Any, expired: bool, round_started: bool) -> None:
    """Enter, stay in and leave PROBE_RTT (s.5.3.4.3: CheckProbeRTT)."""
    if state.mode != bbr.PROBE_RTT:
        idle = state.probe_rtt_done_s == IDLE
        state.probe_rtt_done_s = 0.0
        if not expired or idle:
            return
        bbr.save_cwnd(state, state.recovery_rounds > 0.0)
        bbr.enter(state, bbr.PROBE_RTT, 1.0, bbr.PROBE_RTT_CWND_GAIN)
        state.ack_phase = ACKS_STOPPING
        state.round_end_bytes = ack.delivered_bytes
        state.limited_from_bytes = ack.delivered_bytes
    state.limited_until_bytes = ack.delivered_bytes + ack.inflight_bytes
    if state.probe_rtt_done_s == 0.0:
        if ack.inflight_bytes <= bbr.probe_rtt_cwnd_bytes(state):
            state.probe_rtt_done_s = ack.now_s + bbr.PROBE_RTT_S
            state.probe_rtt_round_done = 0.0
            state.round_end_bytes = ack.delivered_bytes
        return
    if round_started:
        state.probe_rtt_round_done = 1.0
    if state.probe_rtt_round_done > 0.0:
        _check_probe_rtt_done(state, ack.now_s, ack.delivered_bytes)


@kernel
def _check_probe_rtt_done(state: Any, now_s: float, delivered_bytes: float) -> None:
    """Leave PROBE_RTT after 200 ms (s.5.3.4.3, s.5.3.4.4)."""
    if state.probe_rtt_done_s == 0.0 or now_s <= state.probe_rtt_done_s:
        return
    state.probe_rtt_done_s = 0.0
    state.probe_min_rtt_at_s = now_s
    state.cwnd_bytes = max(state.cwnd_bytes, state.saved_cwnd_bytes)
    bbr.reset_lower_bounds(state)
    if state.full_pipe > 0.0:
        _enter_down(state, now_s, delivered_bytes)
        bbr.enter_cruise(state)
    else:
        bbr.enter(state, bbr.STARTUP, state.startup_pacing_gain, state.startup_cwnd_gain)


@kernel
def _set_cwnd(state: Any, ack: Any) -> None:
    """Move the window towards the gain times BDP plus aggregation, within the bounds of the model (s.5.6.4.6)."""
    target_bytes = budget_bytes(state, bbr.bdp_bytes(state, state.bandwidth_Bps, state.cwnd_gain) - state.extra_a)
    if state.full_pipe > 0.0:
        state.cwnd_bytes = min(state.cwnd_bytes + ack.acked_bytes, target_bytes)
    elif state.cwnd_bytes < target_bytes or ack.delivered_bytes < state.initial_window_mss * state.mss_bytes:
        state.cwnd_bytes += ack.acked_bytes
    state.cwnd_bytes = max(state.cwnd_bytes, bbr.MIN_CWND_MSS * state.mss_bytes)
    if state.mode == bbr.PROBE_RTT:
        state.cwnd_bytes = min(state.cwnd_bytes, bbr.probe_rtt_cwnd_bytes(state))
    bound_cwnd(state)


def on_loss(state: Any, loss: Any) -> None:
    """Judge a lost packet (s.5.5.10.2: HandleLostPacket); after a time-out leave room for one segment (s.5.6.4.4)."""
    if loss.new_episode > 0.0 or loss.timeout > 0.0:
        bbr.save_cwnd(state, state.recovery_rounds > 0.0)
        state.recovery_rounds = max(1.0, state.recovery_rounds)
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes + loss.lost_bytes
    if state.loss_ranges == 0.0:
        state.loss_round_end_bytes = loss.delivered_bytes
    if state.loss_ranges == 0.0 or loss.contiguous == 0.0:
        state.loss_ranges += 1.0
    if state.samples_probe > 0.0 and is_inflight_too_high(loss.tx_inflight_bytes, loss.lost_since_bytes):
        state.probe_too_high = 1.0
        state.samples_probe = 0.0
        if loss.app_limited == 0.0:
            crossed_bytes = inflight_at_loss(loss.lost_bytes, loss.tx_inflight_bytes, loss.lost_since_bytes)
            state.high_inflight_bytes = max(crossed_bytes, bbr.BETA * _target_bytes(state))
        if state.mode == bbr.UP:
            _enter_down(state, loss.now_s, loss.delivered_bytes)
        # Losses are signalled after the ACK that reveals them, but take effect at once.
        set_pacing_rate(state, state.pacing_gain)
        bound_cwnd(state)
    if loss.timeout > 0.0:
        state.cwnd_bytes = loss.inflight_bytes + state.mss_bytes


def on_tick(state: Any, tick: Any) -> None:
    """Notice that the flow is idle (s.5.4.1: HandleRestartFromIdle)."""
    if tick.inflight_bytes > 0.0 or state.min_rtt_s == 0.0:
        return
    state.extra_start_s = tick.now_s
    if state.mode == bbr.PROBE_RTT:
        _check_probe_rtt_done(state, tick.now_s, tick.delivered_bytes)
    else:
        state.probe_rtt_done_s = IDLE
        if state.mode in (bbr.DOWN, bbr.CRUISE, bbr.REFILL, bbr.UP):
            set_pacing_rate(state, 1.0)
