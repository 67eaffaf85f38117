"""A Remy-like sender (Winstein, Balakrishnan: TCP ex machina: computer-generated congestion control, SIGCOMM 2013).

It remembers three numbers (s.4.1): averages of the time between ACKs and between the sendings they echo, and the newest RTT
over the smallest. A table maps them to an action (s.4.2): a multiple and an increment of the window, and a smallest time
between packets.

The table is our own, not one of the authors': eight rules, by four bands of the RTT ratio and two of the time between ACKs (the
authors' have hundreds over all three). ``python docs/tables/record_remy.py`` searched it by coordinates, in three rounds from a
table by hand (score -0.56, now -0.20), over one to four senders on links of 5 to 50 Mbit/s and RTTs of 50 to 150 ms for the
mean of log(throughput) - log(delay), which is Remy's objective at delta = 1. Deviations: an ACK signal for several segments
acts as that many ACKs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.agents.classic.common import Cca, initial_window
from ccenv.base.kernels.decorator import kernel

EWMA_WEIGHT = 0.125  # of a new sample: [Remy] s.4.1
RATIO_BANDS = (1.1, 1.3, 1.8)  # of the RTT over the smallest RTT
SPACING_S = 0.001  # between ACKs, below which the path is fast
MAX_WINDOW_MSS = 1e6
# by RTT band, then slow and fast: window multiple, window increment in segments, smallest time between packets in ms
RULES = (
    (0.992, 0.5, 0.2),
    (1.0, 0.56, 0.25),
    (0.992, 0.06, 0.2),
    (0.998, 0.04, 0.08),
    (1.0, 0.0, 0.5),
    (0.99, 0.0, 0.25),
    (0.95, 0.0, 1.0),
    (0.95, 0.0, 0.5),
)


sender = Cca(
    "remy",
    __name__,
    parameters=(initial_window(),),
    fields=(
        "window_mss",
        "ack_spacing_s",  # averages per segment
        "send_spacing_s",
        "last_ack_s",
        "last_sent_s",
        *(f"{name}_{i}" for i in range(len(RULES)) for name in ("multiple", "increment_mss", "spacing_ms")),
    ),
)


def init(state: Any) -> None:
    """Start with an empty memory; not paced before the first ACK. A search sets rules of its own before."""
    s = state
    if s.multiple_0 == 0.0:
        s.multiple_0, s.increment_mss_0, s.spacing_ms_0 = RULES[0]
        s.multiple_1, s.increment_mss_1, s.spacing_ms_1 = RULES[1]
        s.multiple_2, s.increment_mss_2, s.spacing_ms_2 = RULES[2]
        s.multiple_3, s.increment_mss_3, s.spacing_ms_3 = RULES[3]
        s.multiple_4, s.increment_mss_4, s.spacing_ms_4 = RULES[4]
        s.multiple_5, s.increment_mss_5, s.spacing_ms_5 = RULES[5]
        s.multiple_6, s.increment_mss_6, s.spacing_ms_6 = RULES[6]
        s.multiple_7, s.increment_mss_7, s.spacing_ms_7 = RULES[7]
    state.window_mss = state.initial_window_mss
    state.cwnd_bytes = state.window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf


def on_ack(state: Any, ack: Any) -> None:
    """Update the memory, find the rule, act."""
    s = state
    acks = ack.acked_bytes / s.mss_bytes
    sent_s = ack.now_s - ack.rtt_s
    if s.last_ack_s > 0.0:
        share = 1.0 - (1.0 - EWMA_WEIGHT) ** acks
        s.ack_spacing_s += share * ((ack.now_s - s.last_ack_s) / acks - s.ack_spacing_s)
        s.send_spacing_s += share * (max(0.0, sent_s - s.last_sent_s) / acks - s.send_spacing_s)
    s.last_ack_s, s.last_sent_s = ack.now_s, sent_s
    multiple, increment_mss, spacing_ms = _rule(s, ack.rtt_s / ack.min_rtt_s)
    kept = multiple**acks
    grown_mss = increment_mss * (acks if multiple == 1.0 else (1.0 - kept) / (1.0 - multiple))
    if ack.app_limited == 0.0 or kept < 1.0:
        s.window_mss = min(max(kept * s.window_mss + grown_mss, 1.0), MAX_WINDOW_MSS)
    s.cwnd_bytes = s.window_mss * s.mss_bytes
    s.pacing_rate_Bps = s.mss_bytes / (1e-3 * spacing_ms)


@kernel
def _rule(state: Any, rtt_ratio: float) -> tuple[float, float, float]:
    s = state
    slow = s.ack_spacing_s >= SPACING_S
    if rtt_ratio < RATIO_BANDS[0]:
        if slow:
            return s.multiple_0, s.increment_mss_0, s.spacing_ms_0
        return s.multiple_1, s.increment_mss_1, s.spacing_ms_1
    if rtt_ratio < RATIO_BANDS[1]:
        if slow:
            return s.multiple_2, s.increment_mss_2, s.spacing_ms_2
        return s.multiple_3, s.increment_mss_3, s.spacing_ms_3
    if rtt_ratio < RATIO_BANDS[2]:
        if slow:
            return s.multiple_4, s.increment_mss_4, s.spacing_ms_4
        return s.multiple_5, s.increment_mss_5, s.spacing_ms_5
    if slow:
        return s.multiple_6, s.increment_mss_6, s.spacing_ms_6
    return s.multiple_7, s.increment_mss_7, s.spacing_ms_7


def on_loss(state: Any, loss: Any) -> None:
    """Forget everything at a time-out; other losses change nothing."""
    if loss.timeout > 0.0:
        state.window_mss = state.initial_window_mss
        state.ack_spacing_s = state.send_spacing_s = state.last_ack_s = state.last_sent_s = 0.0
        state.cwnd_bytes = state.window_mss * state.mss_bytes
