"""Vegas (Brakmo, Peterson: TCP Vegas: end to end congestion avoidance on a global Internet, IEEE JSAC 13(8), 1995).

Once per round trip it compares the expected rate cwnd/BaseRTT with the actual rate cwnd/RTT; their difference times
BaseRTT is the number of its own segments in the queue, kept between alpha and beta.

Deviations: the RTT of a round is the mean over the bytes acknowledged in it, not that of one distinguished segment; the
step of one segment is taken at once instead of spread over the next round; losses are found by the engine, not by Vegas'
own fine-grained timer; the initial window is that of RFC 6928.

With ``linux_module`` it is tcp_vegas of Linux: the smallest RTT of a round counts, the difference is divided by BaseRTT and not
by RTT, in whole segments, slow start doubles in every round, and a loss halves. With ``prr`` recovery ends
at ssthresh, half of what was in flight, with the module or without.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.agents.classic.common import (
    PRR,
    PRR_FIELDS,
    Cca,
    Parameter,
    begin_recovery,
    extend_recovery,
    initial_window,
    lose_further,
    recovers,
    start_window,
    switch,
)
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel

SLOW_START_EXIT = 7.0 / 8.0  # of the window is kept on leaving slow start (the authors' implementation)
LOSS_FACTOR = 0.75  # of the window is kept after a loss (the authors' implementation)
MIN_CWND_MSS = 2.0  # also the window after a time-out


def _check_order(owner: str, values: dict[str, float]) -> None:
    if values["beta_mss"] < values["alpha_mss"]:
        raise InputError(f"{owner}: beta_mss is {values['beta_mss']:g}; it must be at least alpha_mss, {values['alpha_mss']:g}")


sender = Cca(
    "vegas",
    __name__,
    parameters=(
        initial_window(),
        Parameter("alpha_mss", 2.0, above=0),  # fewest own segments in the queue; JSAC 1995 s.IV: Vegas-2,4
        Parameter("beta_mss", 4.0, above=0),  # most
        Parameter("gamma_mss", 1.0, above=0),  # that end slow start: JSAC 1995 s.IV
        switch("linux_module", optional=True),  # 1: tcp_vegas of Linux, in its profile
        PRR,
    ),
    fields=(
        "slow_start",
        "growing",  # in slow start: 1 in the rounds that double, 0 in those that measure
        "ssthresh_bytes",  # ends the slow start after a time-out
        "recover_bytes",  # no change of the window until so many bytes are delivered
        "round_acked_bytes",
        "round_rtt_sum",  # sum over the round of RTT times bytes, in byte seconds
        "round_min_rtt_s",
        "round_samples",  # ACKs of the round, for linux_module
        *PRR_FIELDS,
    ),
    check=_check_order,
)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    start_window(state)
    state.slow_start = 1.0


def on_ack(state: Any, ack: Any) -> None:
    """Decide at the start of each round by the round before; in slow start grow in every other round."""
    recovering = recovers(state, ack)
    if state.linux_module > 0.0:
        _take_module_ack(state, ack, recovering)
        return
    if ack.round_start > 0.0 and state.round_acked_bytes > 0.0:
        if not recovering:
            rtt_s = state.round_rtt_sum / state.round_acked_bytes
            queued_mss = state.cwnd_bytes * max(0.0, 1.0 - ack.min_rtt_s / rtt_s) / state.mss_bytes
            _decide(state, queued_mss, ack.app_limited)
        state.round_acked_bytes = 0.0
        state.round_rtt_sum = 0.0
    state.round_acked_bytes += ack.acked_bytes
    state.round_rtt_sum += ack.rtt_s * ack.acked_bytes
    if state.slow_start > 0.0 and state.growing > 0.0 and not recovering and ack.app_limited == 0.0:
        state.cwnd_bytes = min(state.cwnd_bytes + ack.acked_bytes, state.ssthresh_bytes)
        if state.cwnd_bytes >= state.ssthresh_bytes:
            state.slow_start = 0.0


@kernel
def _take_module_ack(state: Any, ack: Any, recovering: bool) -> None:
    """Do as tcp_vegas_cong_avoid: grow in slow start; decide at the end of a round of more than two samples."""
    if recovering:
        state.round_samples = 0.0
        return
    state.round_min_rtt_s = ack.rtt_s if state.round_samples == 0.0 else min(state.round_min_rtt_s, ack.rtt_s)
    state.round_samples += 1.0
    slow = state.cwnd_bytes < state.ssthresh_bytes
    queued_mss = 0.0
    if ack.round_start > 0.0:
        if state.round_samples > 2.0:
            queued_mss = _end_module_round(state, ack.min_rtt_s, slow)
        elif not slow:  # too few samples: as Reno
            state.cwnd_bytes += state.mss_bytes * min(1.0, ack.acked_bytes / state.cwnd_bytes)
        state.round_samples = 0.0
    if slow and queued_mss <= state.gamma_mss:
        state.cwnd_bytes = min(state.cwnd_bytes + ack.acked_bytes, state.ssthresh_bytes)


@kernel
def _end_module_round(state: Any, base_rtt_s: float, slow: bool) -> float:
    """Return the own segments in the queue, rounded down; move the window by a segment, or to a BDP and one to end slow start."""
    mss_bytes = state.mss_bytes
    window_mss = math.floor(state.cwnd_bytes / mss_bytes)
    queued_mss = math.floor(window_mss * (state.round_min_rtt_s / base_rtt_s - 1.0))
    if slow and queued_mss > state.gamma_mss:
        state.cwnd_bytes = mss_bytes * min(window_mss, math.floor(window_mss * base_rtt_s / state.round_min_rtt_s) + 1.0)
    elif not slow and queued_mss > state.beta_mss:
        state.cwnd_bytes -= mss_bytes
    elif not slow and queued_mss < state.alpha_mss:
        state.cwnd_bytes += mss_bytes
    state.cwnd_bytes = max(state.cwnd_bytes, MIN_CWND_MSS * mss_bytes)
    if queued_mss > (state.gamma_mss if slow else state.beta_mss):
        state.ssthresh_bytes = min(state.ssthresh_bytes, state.cwnd_bytes - mss_bytes)
    state.ssthresh_bytes = max(state.ssthresh_bytes, 0.75 * state.cwnd_bytes)
    return float(queued_mss)


@kernel
def _decide(state: Any, queued_mss: float, app_limited: float) -> None:
    if state.slow_start > 0.0:
        if state.growing > 0.0:
            state.growing = 0.0
        elif queued_mss > state.gamma_mss:
            state.slow_start = 0.0
            state.cwnd_bytes *= SLOW_START_EXIT
        else:
            state.growing = 1.0
    elif queued_mss > state.beta_mss:
        state.cwnd_bytes -= state.mss_bytes
    elif queued_mss < state.alpha_mss and app_limited == 0.0:
        state.cwnd_bytes += state.mss_bytes
    state.cwnd_bytes = max(state.cwnd_bytes, MIN_CWND_MSS * state.mss_bytes)


def on_loss(state: Any, loss: Any) -> None:
    """Keep three quarters once per episode; two segments and slow start after a time-out."""
    minimum_bytes = MIN_CWND_MSS * state.mss_bytes
    if loss.new_episode > 0.0:
        state.ssthresh_bytes = max(0.5 * (loss.inflight_bytes + loss.lost_bytes), minimum_bytes)
        kept_bytes = state.ssthresh_bytes if state.linux_module > 0.0 else LOSS_FACTOR * state.cwnd_bytes
        state.cwnd_bytes = max(kept_bytes, minimum_bytes)
        state.slow_start = 0.0
        begin_recovery(state, loss)
    else:
        lose_further(state, loss)
    if loss.timeout > 0.0:
        state.cwnd_bytes = minimum_bytes
        state.slow_start = 1.0
        state.growing = 0.0
        state.prr_flight_bytes = 0.0
    extend_recovery(state, loss)
