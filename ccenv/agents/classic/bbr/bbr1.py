"""BBR version 1 (Cardwell et al.: BBR: congestion-based congestion control, ACM Queue 14(5), 2016; [BBR-draft-00]).

[BBR-draft-00] is draft-cardwell-iccrg-bbr-congestion-control-00 (July 2017); section numbers below are its own.

Deviations: the pacing rate before the first RTT sample is unlimited (the initial window is one burst) and is then set from
that sample; no restart from idle (4.3.4.4: the engines give no signal for it); no long-term sampling against policers
(Linux only); the bandwidth filter is the three-sample estimator; the round of PROBE_RTT ends when what was in flight at its
start is delivered; bytes instead of packets.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ccenv.agents.classic.bbr import common as bbr
from ccenv.agents.classic.common import Cca, Parameter, in_recovery, initial_window, switch, windowed_min
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform

PROBE_BW = 7.0  # beside the modes of ``common``: the gain cycle
HIGH_GAIN = 2.0 / math.log(2.0)  # 4.3.2.1: smallest gain that doubles the rate per round
PROBE_BW_CWND_GAIN = 2.0  # 4.3.4.1
N_PHASES = 8  # 4.3.4.1: gains 5/4, 3/4 and six times 1
UP_GAIN = 1.25
DOWN_GAIN = 0.75
BANDWIDTH_WINDOW_ROUNDS = 10.0  # 4.1.1.2
RTPROP_WINDOW_S = 10.0  # 4.1.2.2
PROBE_RTT_S = 0.2  # 4.3.5
MIN_CWND_MSS = 4.0  # 4.2.3.3
FULL_PIPE_GROWTH = 1.25  # 4.3.2.2
FULL_PIPE_ROUNDS = 3.0  # 4.3.2.2
QUANTUM_SMALL_Bps = 150_000.0  # 1.2 Mbit/s, 4.2.2
QUANTUM_MEDIUM_Bps = 3_000_000.0  # 24 Mbit/s, 4.2.2
QUANTUM_MAX_BYTES = 65_536.0  # 4.2.2
QUANTUM_S = 0.001  # 4.2.2
QUANTA = 3.0  # 4.2.3.2: send quanta on top of the BDP
EXTRA_WINDOW_ROUNDS = 5.0  # Linux: bbr_extra_acked_win_rtts, of two windows
EXTRA_LIMIT_S = 0.1  # Linux: bbr_extra_acked_max_us, at the bandwidth

sender = Cca(
    "bbr1",
    __name__,
    parameters=(
        initial_window(),
        # share by which it paces below its estimate of the bandwidth; Linux (tcp_bbr) has 0.01
        Parameter("pacing_margin", 0.0, low=0, high=0.5, optional=True),
        switch("extra_acked", optional=True),  # the window grows by what aggregated ACKs deliver at once, as in Linux since 5.1
        switch("even_windows", optional=True),  # even targets in segments, two more while it probes, as in Linux
        switch(
            "departure_time", optional=True
        ),  # phases end by what is in flight when the next packet leaves, as in Linux since 5.1
        switch("no_conservation", optional=True),  # keep the window after a loss, as the fluid model of [BBR-fluid] does
    ),
    fields=(
        "mode",
        "pacing_gain",
        "cwnd_gain",
        "phase",  # of PROBE_BW, 0..7
        "phase_start_s",
        "rounds",
        "bandwidth_Bps",  # BtlBw
        # maximum bandwidth over 10 rounds, stored negated
        "band_a",
        "band_a_at",
        "band_b",
        "band_b_at",
        "band_c",
        "band_c_at",
        "rtprop_s",
        "rtprop_at_s",
        "full_pipe",
        "full_bandwidth_Bps",
        "full_rounds",
        "probe_rtt_done_s",  # 0: in flight not yet down to the minimum
        "probe_rtt_round_bytes",  # the round of PROBE_RTT ends when so many bytes are delivered
        "saved_cwnd_bytes",
        "limited_until_bytes",  # samples of data sent in PROBE_RTT count as application-limited
        "lost_bytes",  # found since the last ACK
        "recover_bytes",  # fast recovery lasts until so many bytes are delivered
        "in_recovery",
        "conserving",  # first round of fast recovery
        # aggregation of ACKs: what is acknowledged beyond the bandwidth, largest in this and the last window of rounds
        "epoch_s",
        "epoch_acked_bytes",
        "extra_bytes",
        "last_extra_bytes",
        "extra_rounds",  # of this window
    ),
)


def init(state: Any) -> None:
    """Start in STARTUP (4.3.2.1)."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    bbr.enter(state, bbr.STARTUP, HIGH_GAIN, HIGH_GAIN)


def on_ack(state: Any, ack: Any) -> None:
    """Update the model of the path, the state machine, then pacing rate and window (4.1 to 4.3)."""
    _update_bandwidth(state, ack)
    if state.extra_acked > 0.0:
        _update_extra(state, ack)
    if state.mode == PROBE_BW:
        _check_phase(state, ack)
    _check_full_pipe(state, ack)
    _check_drain(state, ack)
    _update_rtprop_and_probe(state, ack)
    _end_recovery(state, ack)
    _set_pacing_rate(state, ack)
    _set_cwnd(state, ack)
    state.lost_bytes = 0.0


@kernel
def _quantum_bytes(state: Any) -> float:
    """Return the send quantum (4.2.2)."""
    if state.pacing_rate_Bps < QUANTUM_SMALL_Bps:
        return float(state.mss_bytes)
    if state.pacing_rate_Bps < QUANTUM_MEDIUM_Bps:
        return 2.0 * state.mss_bytes
    return float(min(state.pacing_rate_Bps * QUANTUM_S, QUANTUM_MAX_BYTES))


@kernel
def _inflight_bytes(state: Any, gain: float) -> float:
    """Return gain * BDP plus three send quanta (4.2.3.2)."""
    quantum_bytes = _quantum_bytes(state)
    if state.even_windows == 0.0:
        return gain * state.bandwidth_Bps * state.rtprop_s + QUANTA * quantum_bytes
    # bbr_bdp, bbr_tso_segs_goal and bbr_quantization_budget of Linux
    segments = math.ceil(gain * state.bandwidth_Bps * state.rtprop_s / state.mss_bytes)
    segments += QUANTA * max(1.0, math.floor(quantum_bytes / state.mss_bytes))
    segments += segments % 2.0
    if state.mode == PROBE_BW and state.phase == 0.0:
        segments += 2.0
    return segments * state.mss_bytes


@kernel
def _inflight_at_departure(state: Any, ack: Any, inflight_bytes: float) -> float:
    """Return what is in flight when pacing lets the next burst go, that burst too while probing (bbr_packets_in_net_at_edt)."""
    if state.departure_time == 0.0:
        return inflight_bytes
    if state.pacing_gain > 1.0:
        inflight_bytes += max(1.0, math.floor(_quantum_bytes(state) / state.mss_bytes)) * state.mss_bytes
    return max(0.0, inflight_bytes - state.bandwidth_Bps * ack.held_s)


@kernel
def _is_limited(state: Any, ack: Any) -> bool:
    return bool(ack.app_limited > 0.0 or ack.delivered_bytes <= state.limited_until_bytes)


@kernel
def _update_bandwidth(state: Any, ack: Any) -> None:
    """Update BtlBw (4.1.1.3 to 4.1.1.5)."""
    if ack.round_start > 0.0:
        state.rounds += 1.0
        state.conserving = 0.0
    if ack.delivery_rate_Bps > 0.0 and (ack.delivery_rate_Bps >= state.bandwidth_Bps or not _is_limited(state, ack)):
        s = state
        largest = (s.band_a, s.band_a_at, s.band_b, s.band_b_at, s.band_c, s.band_c_at)
        largest = windowed_min(largest, s.rounds, -ack.delivery_rate_Bps, BANDWIDTH_WINDOW_ROUNDS)
        s.band_a, s.band_a_at, s.band_b, s.band_b_at, s.band_c, s.band_c_at = largest
        state.bandwidth_Bps = -state.band_a


@kernel
def _update_extra(state: Any, ack: Any) -> None:
    """Update by how much ACKs run ahead of the bandwidth (bbr_update_ack_aggregation of Linux): largest of 5 to 10 rounds."""
    if ack.round_start > 0.0:
        state.extra_rounds += 1.0
        if state.extra_rounds >= EXTRA_WINDOW_ROUNDS:
            state.extra_rounds = 0.0
            state.last_extra_bytes = state.extra_bytes
            state.extra_bytes = 0.0
    expected_bytes = state.bandwidth_Bps * (ack.now_s - state.epoch_s)
    if state.epoch_acked_bytes <= expected_bytes:
        state.epoch_s = ack.now_s
        state.epoch_acked_bytes = 0.0
        expected_bytes = 0.0
    state.epoch_acked_bytes += ack.acked_bytes
    state.extra_bytes = max(state.extra_bytes, min(state.epoch_acked_bytes - expected_bytes, state.cwnd_bytes))


@kernel
def _check_phase(state: Any, ack: Any) -> None:
    """Advance the gain cycle (4.3.4.3)."""
    long_enough = ack.now_s - state.phase_start_s > state.rtprop_s
    before_bytes = _inflight_at_departure(state, ack, ack.inflight_bytes + ack.acked_bytes + state.lost_bytes)
    if state.pacing_gain > 1.0:
        advance = long_enough and (state.lost_bytes > 0.0 or before_bytes >= _inflight_bytes(state, state.pacing_gain))
    elif state.pacing_gain < 1.0:
        advance = long_enough or before_bytes <= _inflight_bytes(state, 1.0)
    else:
        advance = long_enough
    if advance:
        _enter_phase(state, (state.phase + 1.0) % N_PHASES, ack.now_s)


@kernel
def _enter_phase(state: Any, phase: float, now_s: float) -> None:
    state.phase = phase
    state.phase_start_s = now_s
    state.pacing_gain = UP_GAIN if phase == 0.0 else (DOWN_GAIN if phase == 1.0 else 1.0)


@kernel
def _enter_probe_bw(state: Any, now_s: float) -> None:
    """Enter PROBE_BW in a random phase other than the draining one (4.3.4.2)."""
    state.mode = PROBE_BW
    state.cwnd_gain = PROBE_BW_CWND_GAIN
    draw = int(uniform(state.seed, state.env, state.flow, state.draws) * (N_PHASES - 1))
    state.draws += 1.0
    _enter_phase(state, 0.0 if draw == 0 else draw + 1.0, now_s)


@kernel
def _check_full_pipe(state: Any, ack: Any) -> None:
    """Notice that the bandwidth no longer grows by a quarter per round (4.3.2.2)."""
    if state.full_pipe > 0.0 or ack.round_start == 0.0 or _is_limited(state, ack):
        return
    if state.bandwidth_Bps >= FULL_PIPE_GROWTH * state.full_bandwidth_Bps:
        state.full_bandwidth_Bps = state.bandwidth_Bps
        state.full_rounds = 0.0
        return
    state.full_rounds += 1.0
    if state.full_rounds >= FULL_PIPE_ROUNDS:
        state.full_pipe = 1.0


@kernel
def _check_drain(state: Any, ack: Any) -> None:
    """Leave STARTUP when the pipe is full, and DRAIN when the queue is gone (4.3.3)."""
    if state.mode == bbr.STARTUP and state.full_pipe > 0.0:
        bbr.enter(state, bbr.DRAIN, 1.0 / HIGH_GAIN, HIGH_GAIN)
    if state.mode == bbr.DRAIN and _inflight_at_departure(state, ack, ack.inflight_bytes) <= _inflight_bytes(state, 1.0):
        _enter_probe_bw(state, ack.now_s)


@kernel
def _update_rtprop_and_probe(state: Any, ack: Any) -> None:
    """Update RTprop (4.1.2.3); enter, stay in and leave PROBE_RTT (4.3.5)."""
    expired = state.rtprop_s > 0.0 and ack.now_s > state.rtprop_at_s + RTPROP_WINDOW_S
    if state.rtprop_s == 0.0 and ack.handshake_s > 0.0:
        state.rtprop_s = ack.handshake_s
        state.rtprop_at_s = ack.now_s
    elif state.rtprop_s == 0.0 or ack.rtt_s <= state.rtprop_s or expired:
        state.rtprop_s = ack.rtt_s
        state.rtprop_at_s = ack.now_s
    if expired and state.mode != bbr.PROBE_RTT:
        bbr.enter(state, bbr.PROBE_RTT, 1.0, 1.0)
        bbr.save_cwnd(state, state.in_recovery > 0.0)
        state.probe_rtt_done_s = 0.0
    if state.mode != bbr.PROBE_RTT:
        return
    state.limited_until_bytes = ack.delivered_bytes + ack.inflight_bytes
    if state.probe_rtt_done_s == 0.0:
        if ack.inflight_bytes <= MIN_CWND_MSS * state.mss_bytes:
            state.probe_rtt_done_s = ack.now_s + PROBE_RTT_S
            state.probe_rtt_round_bytes = ack.delivered_bytes + ack.inflight_bytes
    elif ack.delivered_bytes >= state.probe_rtt_round_bytes and ack.now_s > state.probe_rtt_done_s:
        state.rtprop_at_s = ack.now_s
        state.cwnd_bytes = max(state.cwnd_bytes, state.saved_cwnd_bytes)
        if state.full_pipe > 0.0:
            _enter_probe_bw(state, ack.now_s)
        else:
            bbr.enter(state, bbr.STARTUP, HIGH_GAIN, HIGH_GAIN)


@kernel
def _end_recovery(state: Any, ack: Any) -> None:
    if state.in_recovery > 0.0 and not in_recovery(state, ack):
        state.in_recovery = 0.0
        state.conserving = 0.0
        state.cwnd_bytes = max(state.cwnd_bytes, state.saved_cwnd_bytes)


@kernel
def _set_pacing_rate(state: Any, ack: Any) -> None:
    """Pace at pacing_gain * BtlBw; before the pipe is full never slower than before (4.2.1)."""
    if state.bandwidth_Bps <= 0.0:
        return
    if state.pacing_rate_Bps == np.inf:
        state.pacing_rate_Bps = HIGH_GAIN * state.cwnd_bytes / ack.rtt_s
    rate_Bps = state.pacing_gain * (1.0 - state.pacing_margin) * state.bandwidth_Bps
    if state.full_pipe > 0.0 or rate_Bps > state.pacing_rate_Bps:
        state.pacing_rate_Bps = rate_Bps


@kernel
def _set_cwnd(state: Any, ack: Any) -> None:
    """Move the window towards cwnd_gain * BDP plus quanta (4.2.3)."""
    target_bytes = _inflight_bytes(state, state.cwnd_gain)
    if state.extra_acked > 0.0 and state.full_pipe > 0.0:
        target_bytes += min(max(state.extra_bytes, state.last_extra_bytes), EXTRA_LIMIT_S * state.bandwidth_Bps)
    minimum_bytes = MIN_CWND_MSS * state.mss_bytes
    if state.conserving > 0.0:  # 4.2.3.4
        state.cwnd_bytes = max(state.cwnd_bytes, ack.inflight_bytes + ack.acked_bytes)
    else:  # 4.2.3.6
        if state.full_pipe > 0.0:
            state.cwnd_bytes = min(state.cwnd_bytes + ack.acked_bytes, target_bytes)
        elif state.cwnd_bytes < target_bytes or ack.delivered_bytes < state.initial_window_mss * state.mss_bytes:
            state.cwnd_bytes += ack.acked_bytes
        state.cwnd_bytes = max(state.cwnd_bytes, minimum_bytes)
    if state.mode == bbr.PROBE_RTT:  # 4.2.3.5
        state.cwnd_bytes = min(state.cwnd_bytes, minimum_bytes)


def on_loss(state: Any, loss: Any) -> None:
    """Conserve packets for a round after a loss; one segment after a time-out (4.2.3.4)."""
    state.lost_bytes += loss.lost_bytes
    if loss.timeout > 0.0:
        bbr.save_cwnd(state, state.in_recovery > 0.0)
        state.cwnd_bytes = state.mss_bytes
        state.in_recovery = 1.0
        state.conserving = 0.0
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes + loss.lost_bytes
    elif state.no_conservation > 0.0:
        return
    elif loss.new_episode > 0.0:
        bbr.save_cwnd(state, state.in_recovery > 0.0)
        state.cwnd_bytes = loss.inflight_bytes + state.mss_bytes
        state.in_recovery = 1.0
        state.conserving = 1.0
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
    else:
        state.cwnd_bytes = max(state.cwnd_bytes - loss.lost_bytes, state.mss_bytes)
        # These bytes were counted as in flight and will not arrive.
        state.recover_bytes = max(0.0, state.recover_bytes - loss.lost_bytes)
