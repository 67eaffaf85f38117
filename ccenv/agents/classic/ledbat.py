"""LEDBAT: Low Extra Delay Background Transport (RFC 6817).

The window moves in proportion to how far the queueing delay is from TARGET: at most one segment per round trip up.

Deviations: the RTT stands for the one-way delay of s.2.4.2 (the signals carry no one-way delay), so that queueing on the ACK
path counts as well; a sample of the current-delay filter is the smallest RTT of one segment's worth of acknowledged bytes,
so that one large and many small signals act alike.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ccenv.agents.classic.common import Cca, Parameter, initial_window
from ccenv.base.kernels.decorator import kernel

MIN_CWND_MSS = 2.0  # RFC 6817 s.2.5
ALLOWED_INCREASE_MSS = 1.0  # RFC 6817 s.2.5
BASE_INTERVAL_S = 60.0  # RFC 6817 s.3.4.2: a minimum per minute, BASE_HISTORY = 10 of them (fields base_0 to base_9)
LOSS_FACTOR = 0.5  # RFC 6817 s.2.4.2
TIMEOUT_CWND_MSS = 1.0  # RFC 6817 s.2.4.2
NO_DELAY_S = 1e9  # larger than any delay: an empty place of a minimum filter

sender = Cca(
    "ledbat",
    __name__,
    parameters=(
        initial_window(2.0),  # RFC 6817 s.2.5
        # queueing delay to aim at, and segments per round trip at a queueing delay of zero: RFC 6817 s.2.5
        Parameter("target_ms", 100.0, above=0, high=100, field="target_s", scale=1e-3),
        Parameter("gain", 1.0, above=0, high=1),
    ),
    fields=(
        "recover_bytes",  # one reduction until so many bytes are delivered
        "base_at_s",  # start of the newest minute
        *(f"base_{i}_s" for i in range(10)),  # smallest delay of each of the last ten minutes, newest first
        "segment_bytes",  # acknowledged of the newest sample
        *(f"current_{i}_s" for i in range(4)),  # the last CURRENT_FILTER = 4 samples (RFC 6817 s.3.4.2), newest first
    ),
)


def init(state: Any) -> None:
    """Start with empty filters; LEDBAT has no slow start (RFC 6817 s.2.4.2) and does not pace."""
    s = state
    s.cwnd_bytes = s.initial_window_mss * s.mss_bytes
    s.pacing_rate_Bps = np.inf
    s.base_0_s = s.base_1_s = s.base_2_s = s.base_3_s = s.base_4_s = NO_DELAY_S
    s.base_5_s = s.base_6_s = s.base_7_s = s.base_8_s = s.base_9_s = NO_DELAY_S
    s.current_0_s = s.current_1_s = s.current_2_s = s.current_3_s = NO_DELAY_S


def on_ack(state: Any, ack: Any) -> None:
    """Move the window in proportion to the distance from the target (RFC 6817 s.2.4.2)."""
    _update_base(state, ack.now_s, ack.rtt_s)
    _update_current(state, ack.acked_bytes, ack.rtt_s)
    off_target = 1.0 - _queueing_s(state) / state.target_s
    # Per window of bytes at most, so that one large signal counts as one round trip.
    share = min(1.0, ack.acked_bytes / state.cwnd_bytes)
    flight_bytes = ack.inflight_bytes + ack.acked_bytes
    increased_bytes = state.cwnd_bytes + state.gain * off_target * share * state.mss_bytes
    allowed_bytes = flight_bytes + ALLOWED_INCREASE_MSS * state.mss_bytes
    state.cwnd_bytes = max(min(increased_bytes, allowed_bytes), MIN_CWND_MSS * state.mss_bytes)


@kernel
def _update_base(state: Any, now_s: float, delay_s: float) -> None:
    """Keep the smallest delay of each of the last ten minutes (RFC 6817 s.3.4.2, update_base_delay)."""
    s = state
    if now_s - s.base_at_s >= BASE_INTERVAL_S and s.base_0_s < NO_DELAY_S:
        s.base_9_s, s.base_8_s, s.base_7_s, s.base_6_s, s.base_5_s = s.base_8_s, s.base_7_s, s.base_6_s, s.base_5_s, s.base_4_s
        s.base_4_s, s.base_3_s, s.base_2_s, s.base_1_s, s.base_0_s = s.base_3_s, s.base_2_s, s.base_1_s, s.base_0_s, NO_DELAY_S
        s.base_at_s += BASE_INTERVAL_S * math.floor((now_s - s.base_at_s) / BASE_INTERVAL_S)
    s.base_0_s = min(s.base_0_s, delay_s)


@kernel
def _update_current(state: Any, acked_bytes: float, delay_s: float) -> None:
    """Keep the last four samples of at least a segment each (RFC 6817 s.3.4.2, update_current_delay)."""
    s = state
    if s.segment_bytes == 0.0 or s.segment_bytes >= s.mss_bytes:
        s.current_3_s, s.current_2_s, s.current_1_s, s.current_0_s = s.current_2_s, s.current_1_s, s.current_0_s, delay_s
        s.segment_bytes = 0.0
    s.current_0_s = min(s.current_0_s, delay_s)
    s.segment_bytes += acked_bytes


@kernel
def _queueing_s(state: Any) -> float:
    """Return the queueing delay: the smallest current sample less the base delay (RFC 6817 s.2.4.2)."""
    s = state
    recent_s = min(s.base_0_s, s.base_1_s, s.base_2_s, s.base_3_s, s.base_4_s)
    base_s = min(recent_s, s.base_5_s, s.base_6_s, s.base_7_s, s.base_8_s, s.base_9_s)
    return max(0.0, min(s.current_0_s, s.current_1_s, s.current_2_s, s.current_3_s) - base_s)


def on_loss(state: Any, loss: Any) -> None:
    """Halve at most once per round trip, to two segments at least; one segment after a time-out (RFC 6817 s.2.4.2)."""
    if loss.new_episode > 0.0 and loss.delivered_bytes >= state.recover_bytes:
        state.cwnd_bytes = min(state.cwnd_bytes, max(LOSS_FACTOR * state.cwnd_bytes, MIN_CWND_MSS * state.mss_bytes))
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
    else:  # these bytes were counted as in flight and will not arrive
        state.recover_bytes = max(0.0, state.recover_bytes - loss.lost_bytes)
    if loss.timeout > 0.0:
        state.cwnd_bytes = TIMEOUT_CWND_MSS * state.mss_bytes
        state.recover_bytes = 0.0
