"""Prague: a scalable congestion control for L4S (draft-briscoe-iccrg-prague-congestion-control-04).

DCTCP's averaged share of marks, with growth by unmarked bytes only, pacing, and a growth that depends less on the RTT: below a
virtual RTT of 25 ms it grows and averages as a flow with that RTT would. Its packets carry ECT(1) (RFC 9331).

Deviations: no detection of classic ECN bottlenecks (s.3.2); windows are not fractions of a segment below two; the marks of each
ACK are known exactly, as with accurate ECN (RFC 9768) without its overflows; losses act as in Reno (RFC 9331 s.4.3).
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import (
    LOSS_FACTOR,
    MIN_SSTHRESH_MSS,
    Cca,
    Parameter,
    grow_window,
    in_recovery,
    initial_window,
    reduce_window,
    smoothed_rtt,
    start_window,
)
from ccenv.agents.classic.dctcp import FIRST_ALPHA, GAIN, average
from ccenv.base.kernels.decorator import kernel

START_PACING, PACING = 2.0, 1.0  # draft s.2.4.2: twice the window per RTT in slow start, then the window

sender = Cca(
    "prague",
    __name__,
    parameters=(
        initial_window(),
        # RTT as which shorter ones count: draft s.2.4.4
        Parameter("virtual_rtt_ms", 25.0, low=0, high=1000, field="virtual_rtt_s", scale=1e-3),
    ),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",  # fast recovery lasts until so many bytes are delivered
        "srtt_s",
        "alpha",  # share of marked bytes, averaged
        "round_at_s",  # start of this observation window
        "round_bytes",  # acknowledged in it
        "round_marked_bytes",  # of them marked
        "reduced_at_s",
    ),
)


def init(state: Any) -> None:
    """Start in slow start; the first window is a burst."""
    start_window(state)
    state.alpha = FIRST_ALPHA
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
    if not in_recovery(state, ack):
        if ack.ecn_fraction > 0.0 and ack.now_s - state.reduced_at_s >= virtual_s:
            state.cwnd_bytes = max(state.cwnd_bytes * (1.0 - 0.5 * state.alpha), MIN_SSTHRESH_MSS * state.mss_bytes)
            state.ssthresh_bytes = state.cwnd_bytes
            state.reduced_at_s = ack.now_s
        if ack.app_limited == 0.0:
            slower = state.srtt_s / virtual_s  # below 1 at an RTT below the virtual one
            grow_window(state, (1.0 - ack.ecn_fraction) * ack.acked_bytes, slower * slower)
    _pace(state)


@kernel
def _pace(state: Any) -> None:
    gain = START_PACING if state.cwnd_bytes < state.ssthresh_bytes else PACING
    state.pacing_rate_Bps = gain * state.cwnd_bytes / state.srtt_s


def on_loss(state: Any, loss: Any) -> None:
    """Halve once per episode; one segment after a time-out."""
    reduce_window(state, loss, LOSS_FACTOR)
    if state.srtt_s > 0.0:
        _pace(state)
