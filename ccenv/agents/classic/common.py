"""Code shared by classic CCAs: constants, windowed filters, the factory, Proportional Rate Reduction and HyStart++.

PRR (RFC 9937): in fast recovery send in proportion to deliveries, down to ssthresh. Deviations: no ACK is safe (SafeACK of
s.6): the cumulative acknowledgement advances when the first retransmission arrives, which is when recovery ends here. What was
sent follows from what is in flight.

HyStart++ (RFC 9406): leave slow start when the RTT rises, through a phase of slower growth. Deviations: no limit on the bytes
that one ACK counts for (L of s.4.3, which is infinite for paced senders), as CCAs here count bytes; a round is a round trip of
the engine's delivery samples.
"""

from __future__ import annotations

import math
import types
from typing import Any

import numpy as np

from ccenv.agents.sender import ClassicSender
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number

INITIAL_WINDOW_MSS = 10.0  # RFC 6928 s.2
UNLIMITED_BYTES = 1e15  # "arbitrarily high" (RFC 5681 s.3.1), yet finite
RTT_GAIN = 0.125  # alpha of RFC 6298 s.2, per round trip

Samples = tuple[float, float, float, float, float, float]


@kernel
def smoothed_rtt(srtt_s: float, rtt_s: float, share: float) -> float:
    """Update a smoothed RTT (RFC 6298 s.2) for any number of samples per round trip (as RFC 7323 app. G).

    Args:
        srtt_s: value so far; 0: none.
        rtt_s: the sample.
        share: share of a window that the signal acknowledges, in (0, 1].
    """
    if srtt_s <= 0.0:
        return rtt_s
    return srtt_s + RTT_GAIN * share * (rtt_s - srtt_s)


@kernel
def windowed_min(filter_state: Samples, now: float, value: float, window: float) -> Samples:
    """Return a windowed minimum, updated in constant space: the three-sample estimator of K. Nichols.

    The first sample is the minimum and always at most ``window`` old. The second and third are the smallest since the first
    and since the second, taken afresh when they are older than a quarter and a half of the window, so that a good
    successor is at hand when the first expires.

    Args:
        filter_state: (value, time) of the three samples, flat; the first value is 0 before the first sample.
        now: time of the new sample, in any unit (seconds, rounds).
        value: the new sample, not 0.
        window: length of the window in the unit of now.
    """
    best, best_at, second, second_at, third, third_at = filter_state
    if best == 0.0 or value <= best or now - third_at > window:
        return value, now, value, now, value, now
    if value <= second:
        second, second_at, third, third_at = value, now, value, now
    elif value <= third:
        third, third_at = value, now
    if now - best_at > window:
        best, best_at, second, second_at, third, third_at = second, second_at, third, third_at, value, now
        if now - best_at > window:
            best, best_at, second, second_at = second, second_at, third, third_at
    elif second_at == best_at and now - second_at > 0.25 * window:
        second, second_at, third, third_at = value, now, value, now
    elif third_at == second_at and now - third_at > 0.5 * window:
        third, third_at = value, now
    return best, best_at, second, second_at, third, third_at


def classic_sender(name: str, module: types.ModuleType, state: np.dtype, **parameters: float) -> ClassicSender:
    """Return the sender made of a module's init, on_ack, on_loss and on_tick; with PER_PACKET it hears of each lost packet."""
    per_packet = getattr(module, "PER_PACKET", False)
    return ClassicSender(name, state, module.init, module.on_ack, module.on_loss, module.on_tick, parameters, "", per_packet)


def chosen(**options: float) -> dict[str, float]:
    """Return the options that are not 0, which is what a state holds without them: a new option changes no sender's hash."""
    return {name: value for name, value in options.items() if value != 0}


def initial_window(name: str, value: float) -> float:
    """Check the parameter initial_window_mss."""
    return number(name, "initial_window_mss", value, low=1, high=1e6)


PRR_FIELDS = (
    "prr",  # parameter: 1: in use
    "prr_delivered_bytes",
    "prr_sent_bytes",  # prr_out
    "prr_flight_bytes",  # RecoverFS
    "prr_inflight_bytes",  # in flight at the newest signal
)


@kernel
def begin_recovery(state: Any, loss: Any) -> None:
    """Begin fast recovery: the lost segment may be sent again at once (RFC 9937 s.6)."""
    if state.prr == 0.0:
        return
    state.prr_delivered_bytes = 0.0
    state.prr_sent_bytes = 0.0
    state.prr_flight_bytes = loss.inflight_bytes + loss.lost_bytes
    state.prr_inflight_bytes = loss.inflight_bytes
    state.cwnd_bytes = loss.inflight_bytes + state.mss_bytes


@kernel
def lose_further(state: Any, loss: Any) -> None:
    """Take a further loss of the same recovery."""
    state.prr_inflight_bytes -= loss.lost_bytes


@kernel
def recover(state: Any, ack: Any) -> None:
    """Set the window for what an ACK in fast recovery lets go (RFC 9937 s.6)."""
    if state.prr == 0.0:
        return
    state.prr_sent_bytes += max(0.0, ack.inflight_bytes + ack.acked_bytes - state.prr_inflight_bytes)
    state.prr_delivered_bytes += ack.acked_bytes
    state.prr_inflight_bytes = ack.inflight_bytes
    if ack.inflight_bytes > state.ssthresh_bytes:
        due_mss = math.ceil(state.prr_delivered_bytes * state.ssthresh_bytes / state.prr_flight_bytes / state.mss_bytes)
        send_bytes = due_mss * state.mss_bytes - state.prr_sent_bytes
    else:
        send_bytes = max(state.prr_delivered_bytes - state.prr_sent_bytes, ack.acked_bytes)
        send_bytes = min(send_bytes, state.ssthresh_bytes - ack.inflight_bytes)
    state.cwnd_bytes = max(ack.inflight_bytes + max(0.0, send_bytes), state.mss_bytes)


@kernel
def end_recovery(state: Any) -> None:
    """End fast recovery: the window is ssthresh (RFC 9937 s.6)."""
    if state.prr_flight_bytes > 0.0:
        state.prr_flight_bytes = 0.0
        state.cwnd_bytes = state.ssthresh_bytes


MIN_RTT_THRESH_S = 0.004  # RFC 9406 s.4.3
MAX_RTT_THRESH_S = 0.016  # RFC 9406 s.4.3
MIN_RTT_DIVISOR = 8.0  # RFC 9406 s.4.3
N_RTT_SAMPLE = 8.0  # RFC 9406 s.4.3
CSS_GROWTH_DIVISOR = 4.0  # RFC 9406 s.4.3
CSS_ROUNDS = 5.0  # RFC 9406 s.4.3
NO_RTT_S = 1e300  # of a round without a sample

FIELDS = (
    "hystart",  # parameter: 1: in use
    "round_rtt_s",  # smallest RTT of this round
    "last_round_rtt_s",  # and of the round before
    "round_samples",
    "css_rounds",  # rounds of conservative slow start that have begun; 0: none
    "css_rtt_s",  # smallest RTT of the round in which it was entered
)


@kernel
def begin(state: Any) -> None:
    """Start in slow start, without a sample."""
    state.round_rtt_s = NO_RTT_S
    state.last_round_rtt_s = NO_RTT_S
    state.round_samples = 0.0
    state.css_rounds = 0.0
    state.css_rtt_s = NO_RTT_S


@kernel
def slow_start(state: Any, ack: Any, acked_bytes: float) -> float:
    """Grow the window of a sender in slow start; return the bytes that are left for congestion avoidance."""
    share = 1.0
    if state.hystart > 0.0:
        share = _growth(state, ack)
        if share == 0.0:
            state.ssthresh_bytes = state.cwnd_bytes
            return acked_bytes
    step_bytes = min(share * acked_bytes, state.ssthresh_bytes - state.cwnd_bytes)
    state.cwnd_bytes += step_bytes
    return acked_bytes - step_bytes / share


@kernel
def _growth(state: Any, ack: Any) -> float:
    """Return the bytes by which the window grows per byte acknowledged (RFC 9406 s.4.2); 0: slow start is over."""
    if ack.round_start > 0.0:
        state.last_round_rtt_s = state.round_rtt_s
        state.round_rtt_s = NO_RTT_S
        state.round_samples = 0.0
        if state.css_rounds > 0.0:
            state.css_rounds += 1.0
            if state.css_rounds > CSS_ROUNDS:
                return 0.0
    state.round_rtt_s = min(state.round_rtt_s, ack.rtt_s)
    state.round_samples += 1.0
    if state.round_samples >= N_RTT_SAMPLE:
        if state.css_rounds > 0.0:
            if state.round_rtt_s < state.css_rtt_s:  # the RTT has fallen again: it was no queue
                state.css_rounds = 0.0
        elif state.last_round_rtt_s < NO_RTT_S:
            thresh_s = max(MIN_RTT_THRESH_S, min(state.last_round_rtt_s / MIN_RTT_DIVISOR, MAX_RTT_THRESH_S))
            if state.round_rtt_s >= state.last_round_rtt_s + thresh_s:
                state.css_rtt_s = state.round_rtt_s
                state.css_rounds = 1.0
    return 1.0 if state.css_rounds == 0.0 else 1.0 / CSS_GROWTH_DIVISOR
