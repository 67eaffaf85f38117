"""HyStart++: leave slow start when the RTT rises, through a phase of slower growth (RFC 9406).

Deviations: no limit on the bytes that one ACK counts for (L of s.4.3, which is infinite for paced senders), as CCAs here count
bytes; a round is a round trip of the engine's delivery samples.
"""

from __future__ import annotations

from typing import Any

from ccenv.base.kernels.decorator import kernel

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
