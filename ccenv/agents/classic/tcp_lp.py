"""TCP-LP (Kuzmanovic, Knightly: TCP-LP: a distributed algorithm for low priority data transfer, INFOCOM 2003).

It takes a smoothed delay above a share of its range for early congestion (eq. 1 and 2): the window is halved and held while an
inference phase lasts; another sign within it leaves one segment. Otherwise Reno.

Deviations: the RTT stands for the one-way delay (the signals carry none), so that queueing on the ACK path counts as well; the
inference phase lasts three RTTs, as in Linux; early congestion counts after the first loss, before which the largest delay is
not known; the largest delay is forgotten at a time-out only.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import (
    LOSS_FACTOR,
    UNLIMITED_BYTES,
    Cca,
    Parameter,
    grow_window,
    in_recovery,
    initial_window,
    reduce_window,
    start_window,
)

INFERENCE_RTTS = 3.0  # itt
EARLY_FACTOR = 0.5  # [TCP-LP] s.III
DELAY_GAIN = 0.125  # gamma of eq. (1), per segment

sender = Cca(
    "tcp_lp",
    __name__,
    parameters=(
        initial_window(),
        Parameter("threshold", 0.15, low=0, high=1),  # delta of eq. (2): share of the range of delays
    ),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",
        "srtt_s",
        "max_rtt_s",
        "signalled",  # an early sign has been seen
        "signal_at_s",  # when the newest was
    ),
)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    start_window(state)


def on_ack(state: Any, ack: Any) -> None:
    """Grow as Reno outside the inference phase; halve, or leave a segment, on early congestion."""
    if state.srtt_s == 0.0:
        state.srtt_s = ack.rtt_s
    state.srtt_s += (1.0 - (1.0 - DELAY_GAIN) ** (ack.acked_bytes / state.mss_bytes)) * (ack.rtt_s - state.srtt_s)
    state.max_rtt_s = max(state.max_rtt_s, ack.rtt_s)
    since_s = ack.now_s - state.signal_at_s
    inferring = state.signalled > 0.0 and since_s < INFERENCE_RTTS * ack.rtt_s
    # the first slow start runs into the buffer: it finds the largest delay
    early = state.ssthresh_bytes < UNLIMITED_BYTES and state.srtt_s > ack.min_rtt_s + state.threshold * (
        state.max_rtt_s - ack.min_rtt_s
    )
    # a halved window shows in the delays after a round trip
    if early and (state.signalled == 0.0 or since_s >= ack.rtt_s):
        state.cwnd_bytes = state.mss_bytes if inferring else max(EARLY_FACTOR * state.cwnd_bytes, state.mss_bytes)
        state.ssthresh_bytes = state.cwnd_bytes
        state.signalled = 1.0
        state.signal_at_s = ack.now_s
    elif not inferring and not in_recovery(state, ack) and ack.app_limited == 0.0:
        grow_window(state, ack.acked_bytes, 1.0)


def on_loss(state: Any, loss: Any) -> None:
    """React as Reno; forget the extremes of the delay at a time-out."""
    reduce_window(state, loss, LOSS_FACTOR)
    if loss.timeout > 0.0:
        state.max_rtt_s = 0.0
