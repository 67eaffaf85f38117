"""Prague: a scalable congestion control for L4S (draft-briscoe-iccrg-prague-congestion-control-04).

DCTCP's averaged share of marks, with growth by unmarked bytes only, pacing, and a growth that depends less on the RTT: below a
virtual RTT of 25 ms it grows and averages as a flow with that RTT would. Its packets carry ECT(1) (RFC 9331).

Deviations: no detection of classic ECN bottlenecks (s.3.2); windows are not fractions of a segment below two; the marks of each
ACK are known exactly, as with accurate ECN (RFC 9768) without its overflows; losses act as in Reno (RFC 9331 s.4.3).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ccenv.agents.callbacks import state_record
from ccenv.agents.classic.common import INITIAL_WINDOW_MSS, UNLIMITED_BYTES, classic_sender, initial_window, smoothed_rtt
from ccenv.agents.classic.dctcp import FIRST_ALPHA, GAIN, LOSS_FACTOR, LOSS_WINDOW_MSS, MIN_WINDOW_MSS, average
from ccenv.agents.sender import ClassicSender
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number

VIRTUAL_RTT_MS = 25.0  # draft s.2.4.4
START_PACING, PACING = 2.0, 1.0  # draft s.2.4.2: twice the window per RTT in slow start, then the window

STATE = state_record(
    "initial_window_mss",  # parameters
    "virtual_rtt_s",
    "ssthresh_bytes",
    "recover_bytes",  # fast recovery lasts until so many bytes are delivered
    "srtt_s",
    "alpha",  # share of marked bytes, averaged
    "round_at_s",  # start of this observation window
    "round_bytes",  # acknowledged in it
    "round_marked_bytes",  # of them marked
    "reduced_at_s",
)


def sender(initial_window_mss: float = INITIAL_WINDOW_MSS, virtual_rtt_ms: float = VIRTUAL_RTT_MS) -> ClassicSender:
    """Build a Prague sender.

    Args:
        initial_window_mss: window at the start in segments, >= 1.
        virtual_rtt_ms: RTT as which shorter ones count, in [0, 1000].
    """
    return classic_sender(
        "prague",
        sys.modules[__name__],
        STATE,
        initial_window_mss=initial_window("prague", initial_window_mss),
        virtual_rtt_s=1e-3 * number("prague", "virtual_rtt_ms", virtual_rtt_ms, low=0, high=1000),
    )


def init(state: Any) -> None:
    """Start in slow start; the first window is a burst."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    state.ssthresh_bytes = UNLIMITED_BYTES
    state.recover_bytes = 0.0
    state.srtt_s = 0.0
    state.alpha = FIRST_ALPHA
    state.round_at_s = 0.0
    state.round_bytes = 0.0
    state.round_marked_bytes = 0.0
    state.reduced_at_s = -1e9


def on_ack(state: Any, ack: Any) -> None:
    """Average the marks, reduce at most once per virtual RTT, and grow by what came unmarked."""
    state.srtt_s = smoothed_rtt(state.srtt_s, ack.rtt_s, min(1.0, ack.acked_bytes / state.cwnd_bytes))
    virtual_s = max(state.srtt_s, state.virtual_rtt_s)
    state.round_bytes += ack.acked_bytes
    state.round_marked_bytes += ack.ecn_fraction * ack.acked_bytes
    if ack.now_s - state.round_at_s >= virtual_s:
        state.alpha = average(state.alpha, state.round_marked_bytes / state.round_bytes, GAIN)
        state.round_at_s = ack.now_s
        state.round_bytes = 0.0
        state.round_marked_bytes = 0.0
    if ack.delivered_bytes >= state.recover_bytes:
        if ack.ecn_fraction > 0.0 and ack.now_s - state.reduced_at_s >= virtual_s:
            state.cwnd_bytes = max(state.cwnd_bytes * (1.0 - 0.5 * state.alpha), MIN_WINDOW_MSS * state.mss_bytes)
            state.ssthresh_bytes = state.cwnd_bytes
            state.reduced_at_s = ack.now_s
        if ack.app_limited == 0.0:
            _grow(state, (1.0 - ack.ecn_fraction) * ack.acked_bytes, virtual_s)
    _pace(state)


@kernel
def _grow(state: Any, unmarked_bytes: float, virtual_s: float) -> None:
    """Grow by unmarked bytes: all of them in slow start, a segment per window after it, less at an RTT below the virtual one."""
    if state.cwnd_bytes < state.ssthresh_bytes:
        step_bytes = min(unmarked_bytes, state.ssthresh_bytes - state.cwnd_bytes)
        state.cwnd_bytes += step_bytes
        unmarked_bytes -= step_bytes
    if unmarked_bytes > 0.0:
        slower = state.srtt_s / virtual_s
        state.cwnd_bytes += slower * slower * state.mss_bytes * min(1.0, unmarked_bytes / state.cwnd_bytes)


@kernel
def _pace(state: Any) -> None:
    gain = START_PACING if state.cwnd_bytes < state.ssthresh_bytes else PACING
    state.pacing_rate_Bps = gain * state.cwnd_bytes / state.srtt_s


def on_loss(state: Any, loss: Any) -> None:
    """Halve once per episode; one segment after a time-out."""
    if loss.new_episode > 0.0:
        flight_bytes = loss.inflight_bytes + loss.lost_bytes
        state.ssthresh_bytes = max(LOSS_FACTOR * flight_bytes, MIN_WINDOW_MSS * state.mss_bytes)
        state.cwnd_bytes = state.ssthresh_bytes
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
    else:  # these bytes were counted as in flight and will not arrive
        state.recover_bytes = max(0.0, state.recover_bytes - loss.lost_bytes)
    if loss.timeout > 0.0:
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
        state.recover_bytes = 0.0
    if state.srtt_s > 0.0:
        _pace(state)


def on_tick(state: Any, tick: Any) -> None:
    """Do nothing: Prague acts on ACKs and losses only."""
