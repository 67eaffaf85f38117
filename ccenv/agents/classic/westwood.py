"""Westwood+ (Grieco, Mascolo, 2004).

Source: Performance evaluation and comparison of Westwood+, New Reno, and Vegas TCP congestion control, ACM CCR 34(2), 2004.
Reno that sets ssthresh after a loss to the bandwidth estimate times the smallest RTT instead of half the window.

Deviations: bytes are counted instead of ACKs; a bandwidth sample covers a round of the engine's count; during recovery the
window does not grow; the initial window is that of RFC 6928.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import (
    LOSS_WINDOW_MSS,
    MIN_SSTHRESH_MSS,
    Cca,
    extend_recovery,
    grow_window,
    in_recovery,
    initial_window,
    start_window,
)
from ccenv.base.kernels.decorator import kernel

FILTER_GAIN = 0.9  # CCR 2004 s.2: weight of the old estimate, one sample per RTT

sender = Cca(
    "westwood",
    __name__,
    parameters=(initial_window(),),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",  # fast recovery lasts until so many bytes are delivered
        "bandwidth_Bps",  # estimate; 0: none
        "sample_start_s",
        "sample_start_bytes",  # delivered at the start of the sample
        "sampling",  # 1 once the first sample has begun
        "min_rtt_s",
    ),
)


def init(state: Any) -> None:
    """Start in slow start without an estimate; not paced."""
    start_window(state)


def on_ack(state: Any, ack: Any) -> None:
    """Estimate the bandwidth once per round trip; grow as Reno (RFC 5681 eqs. 2 and 3)."""
    state.min_rtt_s = ack.min_rtt_s
    _estimate(state, ack)
    if in_recovery(state, ack) or ack.app_limited > 0.0:
        return
    grow_window(state, ack.acked_bytes, 1.0)


@kernel
def _estimate(state: Any, ack: Any) -> None:
    """Filter the rate of each round: b <- 0.9 b + 0.1 sample (CCR 2004 s.2)."""
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


def on_loss(state: Any, loss: Any) -> None:
    """Set ssthresh to bandwidth times smallest RTT (CCR 2004 s.2); one segment after a time-out."""
    if loss.new_episode > 0.0:
        pipe_bytes = state.bandwidth_Bps * state.min_rtt_s
        state.ssthresh_bytes = max(pipe_bytes, MIN_SSTHRESH_MSS * state.mss_bytes)
        state.cwnd_bytes = min(state.cwnd_bytes, state.ssthresh_bytes)
    if loss.timeout > 0.0:
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
    extend_recovery(state, loss)
