"""Westwood+ (Grieco, Mascolo, 2004).

Source: Performance evaluation and comparison of Westwood+, New Reno, and Vegas TCP congestion control, ACM CCR 34(2), 2004.
Reno that sets ssthresh after a loss to the bandwidth estimate times the smallest RTT instead of half the window.

Deviations: bytes are counted instead of ACKs; a bandwidth sample covers a round of the engine's count; during recovery the
window does not grow; the initial window is that of RFC 6928.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.agents.classic.common import (
    LOSS_WINDOW_MSS,
    MIN_SSTHRESH_MSS,
    PRR,
    PRR_FIELDS,
    Cca,
    Parameter,
    begin_recovery,
    extend_recovery,
    grow_window,
    initial_window,
    lose_further,
    recovers,
    start_window,
)
from ccenv.base.kernels.decorator import kernel

FILTER_GAIN = 0.9  # CCR 2004 s.2: weight of the old estimate, one sample per RTT
TICK_FILTER_GAIN = 7.0 / 8.0  # tcp_westwood of Linux
SHORTEST_SAMPLE_S = 0.05  # TCP_WESTWOOD_RTT_MIN

sender = Cca(
    "westwood",
    __name__,
    parameters=(
        initial_window(),
        # tick of tcp_westwood of Linux, which counts time in ticks; 0: the paper's rules
        Parameter("tick_ms", 0.0, low=0, high=10, field="tick_s", scale=1e-3, optional=True),
        PRR,
    ),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",  # fast recovery lasts until so many bytes are delivered
        "bandwidth_Bps",  # estimate; 0: none
        "sample_start_s",
        "sample_start_bytes",  # delivered at the start of the sample
        "sampling",  # 1 once the first sample has begun
        "min_rtt_s",
        # in ticks
        "sample_bytes",
        "rough_Bps",  # filtered once
        "min_tick_rtt_s",
        "counted_bytes",  # acknowledged since the window grew
        "reduced",  # since the last recovery began
        *PRR_FIELDS,
    ),
)


def init(state: Any) -> None:
    """Start in slow start without an estimate; not paced."""
    start_window(state)


def on_ack(state: Any, ack: Any) -> None:
    """Estimate the bandwidth once per round trip; grow as Reno (RFC 5681 eqs. 2 and 3)."""
    state.min_rtt_s = ack.min_rtt_s
    _estimate(state, ack)
    if recovers(state, ack):
        return
    if state.reduced > 0.0:
        state.reduced = 0.0
        state.ssthresh_bytes = state.cwnd_bytes = _tick_pipe_bytes(state)
    if ack.app_limited > 0.0:
        return
    if state.tick_s > 0.0 and state.cwnd_bytes >= state.ssthresh_bytes:  # tcp_cong_avoid_ai: whole segments
        state.counted_bytes += ack.acked_bytes
        if state.counted_bytes >= state.cwnd_bytes:
            state.counted_bytes -= state.cwnd_bytes
            state.cwnd_bytes += state.mss_bytes
    else:
        grow_window(state, ack.acked_bytes, 1.0)


@kernel
def _tick_pipe_bytes(state: Any) -> float:
    """Return whole segments of bandwidth times smallest RTT, both in ticks; two at least (tcp_westwood_bw_rttmin)."""
    segments = math.floor(state.bandwidth_Bps * state.min_tick_rtt_s / state.mss_bytes)
    return float(max(segments, MIN_SSTHRESH_MSS) * state.mss_bytes)


@kernel
def _estimate(state: Any, ack: Any) -> None:
    """Filter the rate of each round: b <- 0.9 b + 0.1 sample (CCR 2004 s.2)."""
    if state.tick_s > 0.0:
        _estimate_in_ticks(state, ack)
        return
    if state.sampling == 0.0:
        state.sampling = 1.0
        state.sample_start_s = ack.now_s
        state.sample_start_bytes = ack.delivered_bytes
        return
    elapsed_s = ack.now_s - state.sample_start_s
    if ack.round_start == 0.0 or elapsed_s <= 0.0:
        return
    sample_Bps = (ack.delivered_bytes - state.sample_start_bytes) / elapsed_s
    if state.bandwidth_Bps == 0.0:
        state.bandwidth_Bps = sample_Bps
    else:
        state.bandwidth_Bps = FILTER_GAIN * state.bandwidth_Bps + (1.0 - FILTER_GAIN) * sample_Bps
    state.sample_start_s = ack.now_s
    state.sample_start_bytes = ack.delivered_bytes


@kernel
def _estimate_in_ticks(state: Any, ack: Any) -> None:
    """Filter as tcp_westwood does: twice, with 7/8, over at least 50 ms and an RTT; RTTs are rounded up to whole ticks."""
    now_s = math.floor(ack.now_s / state.tick_s) * state.tick_s
    rtt_s = math.ceil(ack.rtt_s / state.tick_s - 1e-6) * state.tick_s
    state.min_tick_rtt_s = rtt_s if state.min_tick_rtt_s == 0.0 else min(state.min_tick_rtt_s, rtt_s)
    if state.sampling == 0.0:
        state.sampling = 1.0
        state.sample_start_s = now_s
    elapsed_s = now_s - state.sample_start_s
    if elapsed_s > max(rtt_s, SHORTEST_SAMPLE_S) + 1e-9:
        sample_Bps = state.sample_bytes / elapsed_s
        gain = TICK_FILTER_GAIN if state.bandwidth_Bps > 0.0 else 0.0
        state.rough_Bps = gain * state.rough_Bps + (1.0 - gain) * sample_Bps
        state.bandwidth_Bps = gain * state.bandwidth_Bps + (1.0 - gain) * state.rough_Bps
        state.sample_bytes = 0.0
        state.sample_start_s = now_s
    state.sample_bytes += ack.acked_bytes


def on_loss(state: Any, loss: Any) -> None:
    """Set ssthresh to bandwidth times smallest RTT (CCR 2004 s.2); one segment after a time-out.

    With ticks the window is half of it until recovery ends.
    """
    if loss.new_episode > 0.0 and state.tick_s > 0.0:
        state.ssthresh_bytes = max(0.5 * state.cwnd_bytes, MIN_SSTHRESH_MSS * state.mss_bytes)
        state.cwnd_bytes = state.ssthresh_bytes
        state.reduced = 1.0
        state.counted_bytes = 0.0
    elif loss.new_episode > 0.0:
        pipe_bytes = state.bandwidth_Bps * state.min_rtt_s
        state.ssthresh_bytes = max(pipe_bytes, MIN_SSTHRESH_MSS * state.mss_bytes)
        state.cwnd_bytes = min(state.cwnd_bytes, state.ssthresh_bytes)
    if loss.new_episode > 0.0:
        begin_recovery(state, loss)
    else:
        lose_further(state, loss)
    if loss.timeout > 0.0:
        state.prr_flight_bytes = 0.0
        if state.tick_s > 0.0:
            state.ssthresh_bytes = _tick_pipe_bytes(state)
            state.min_tick_rtt_s = state.reduced = 0.0
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
    extend_recovery(state, loss)
