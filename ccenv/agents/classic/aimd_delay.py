"""AIMD on delay, which [Starvation] s.6.2 takes for a way around its theorem 1: a sawtooth of delay wider than the jitter.

A segment per round trip more while the queueing delay is below a threshold, a share of the window less when it passes it, once
per round trip. The rate is told by how often the delay passes the threshold, not by how large the delay is.

The paper gives no rule beyond the name; chosen here: the threshold, half as the share, slow start until the first signal, and a
loss counts as a signal. The queueing delay is the RTT over the smallest RTT seen. The window never falls below two segments.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import (
    LOSS_WINDOW_MSS,
    Cca,
    Parameter,
    extend_recovery,
    grow_window,
    in_recovery,
    initial_window,
    start_window,
)
from ccenv.base.kernels.decorator import kernel

MIN_CWND_MSS = 2.0

sender = Cca(
    "aimd_delay",
    __name__,
    parameters=(
        initial_window(),
        # queueing delay that is a sign of congestion; above the jitter D that is to be withstood
        Parameter("threshold_ms", 50.0, above=0, high=1e5, field="threshold_s", scale=1e-3),
        Parameter("increase_mss", 1.0, above=0, high=1e6),  # segments per round trip
        Parameter("decrease", 0.5, above=0, high=0.99),  # share of the window that is kept
    ),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",  # no change of the window until so many bytes are delivered
    ),
)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    start_window(state)


def on_ack(state: Any, ack: Any) -> None:
    """Grow below the threshold, reduce above it; rest for the round trip after a reduction."""
    if in_recovery(state, ack):
        return
    if ack.rtt_s - ack.min_rtt_s > state.threshold_s:
        _reduce(state)
        state.recover_bytes = ack.delivered_bytes + ack.inflight_bytes
    elif ack.app_limited == 0.0:
        grow_window(state, ack.acked_bytes, state.increase_mss)


@kernel
def _reduce(state: Any) -> None:
    state.cwnd_bytes = max(state.decrease * state.cwnd_bytes, MIN_CWND_MSS * state.mss_bytes)
    state.ssthresh_bytes = state.cwnd_bytes


def on_loss(state: Any, loss: Any) -> None:
    """Reduce once per episode, to one segment after a time-out."""
    if loss.new_episode > 0.0 and loss.delivered_bytes >= state.recover_bytes:
        _reduce(state)
    if loss.timeout > 0.0:
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
    extend_recovery(state, loss)
