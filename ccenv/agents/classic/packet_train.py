"""A sender that reads the link rate off the spacing of a packet train: what [CCmatic] s.6.2 says ideal links allow.

The initial window goes out back to back. Its ACKs are a segment's transmission time apart, so that bytes over spacing is the
link rate, found in one round trip at the risk of no more than the train, whatever the rate: no tradeoff of loss against
convergence. The sender then sends at that rate, a round trip's worth in flight. Jitter that is drawn averages out over more
trains; jitter that is chosen makes the reading mean nothing.

There is no paper of this sender; it is the example that the text describes. It takes the link to be its own and constant: a
time-out alone starts it over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.agents.classic.common import Cca, Parameter

sender = Cca(
    "packet_train",
    __name__,
    parameters=(
        Parameter("train_mss", 10.0, low=2, high=1e4),  # segments of a train
        Parameter("trains", 1.0, low=1, high=1e4, whole=True),  # whose spacing is taken together
    ),
    fields=(
        "measured",  # trains so far
        "train_bytes",  # acknowledged of the train that comes in, after its first ACK
        "spaced_bytes",  # of all trains, and the time between their first and last ACKs
        "spaced_s",
        "first_at_s",
        "newest_at_s",
        "rate_Bps",  # 0: not known yet
    ),
)


def init(state: Any) -> None:
    """Send the first train, back to back."""
    state.cwnd_bytes = state.train_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf


def on_ack(state: Any, ack: Any) -> None:
    """Add up spacing and bytes train by train; the first ACK of a round begins one."""
    s = state
    if s.rate_Bps > 0.0:
        s.cwnd_bytes = max(s.rate_Bps * ack.min_rtt_s, s.mss_bytes)
        return
    if ack.round_start > 0.0:
        if s.train_bytes > 0.0 and s.newest_at_s > s.first_at_s:
            s.spaced_bytes += s.train_bytes
            s.spaced_s += s.newest_at_s - s.first_at_s
            s.measured += 1.0
        s.first_at_s = ack.now_s
        s.train_bytes = 0.0
        if s.measured >= s.trains:
            s.rate_Bps = max(s.spaced_bytes / s.spaced_s, s.mss_bytes / ack.rtt_s)
            s.pacing_rate_Bps = s.rate_Bps
    else:
        s.train_bytes += ack.acked_bytes
    s.newest_at_s = ack.now_s


def on_loss(state: Any, loss: Any) -> None:
    """Start over after a time-out; other losses change nothing."""
    if loss.timeout > 0.0:
        state.measured = state.train_bytes = state.spaced_bytes = state.spaced_s = state.rate_Bps = 0.0
        state.cwnd_bytes = state.train_mss * state.mss_bytes
        state.pacing_rate_Bps = np.inf
