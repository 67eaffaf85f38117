"""TCP Nice (Venkataramani, Kokku, Dahlin: TCP Nice: a mechanism for background transfers, OSDI 2002).

Vegas that also halves its window when more than a share of a round's bytes saw a queueing delay above a share of the largest
one seen (s.3), and whose window may fall below one segment.

Deviations: those of ``vegas``; a window below a segment is one segment in flight, paced at that window per RTT (the paper skips
whole round trips), at least 1/48 of a segment as there; share and threshold are those of the paper as remembered; the largest
RTT is forgotten at a time-out only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.agents.classic.common import Cca, Parameter, extend_recovery, in_recovery, initial_window, smoothed_rtt
from ccenv.base.kernels.decorator import kernel

ALPHA_MSS, BETA_MSS, GAMMA_MSS = 2.0, 4.0, 1.0  # of Vegas
MIN_WINDOW_MSS = 1.0 / 48.0  # [Nice] s.3: one segment every 48 round trips
EARLY_FACTOR = 0.5  # [Nice] s.3: on early congestion; losses likewise, as Reno
SLOW_START_EXIT = 7.0 / 8.0  # as in Vegas

sender = Cca(
    "nice",
    __name__,
    parameters=(
        initial_window(),
        Parameter("fraction", 0.5, low=0, high=1),  # f of [Nice] s.3: of a round's bytes that were delayed
        Parameter("threshold", 0.2, low=0, high=1),  # t: of the largest queueing delay, from where a byte counts as delayed
    ),
    fields=(
        "window_mss",
        "slow_start",
        "growing",
        "srtt_s",
        "max_rtt_s",
        "recover_bytes",
        "round_acked_bytes",
        "round_delayed_bytes",
        "round_rtt_sum",
    ),
)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    state.window_mss = state.initial_window_mss
    state.slow_start = 1.0
    state.cwnd_bytes = state.window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf


def on_ack(state: Any, ack: Any) -> None:
    """Decide at the start of each round by the round before."""
    state.srtt_s = smoothed_rtt(state.srtt_s, ack.rtt_s, min(1.0, ack.acked_bytes / state.cwnd_bytes))
    state.max_rtt_s = max(state.max_rtt_s, ack.rtt_s)
    recovering = in_recovery(state, ack)
    if ack.round_start > 0.0 and state.round_acked_bytes > 0.0:
        if not recovering:
            _decide(state, ack.min_rtt_s, ack.app_limited)
        state.round_acked_bytes = state.round_delayed_bytes = state.round_rtt_sum = 0.0
    state.round_acked_bytes += ack.acked_bytes
    state.round_rtt_sum += ack.rtt_s * ack.acked_bytes
    if ack.rtt_s > ack.min_rtt_s + state.threshold * (state.max_rtt_s - ack.min_rtt_s):
        state.round_delayed_bytes += ack.acked_bytes
    if state.slow_start > 0.0 and state.growing > 0.0 and not recovering and ack.app_limited == 0.0:
        state.window_mss += ack.acked_bytes / state.mss_bytes
    _set_window(state)


@kernel
def _decide(state: Any, min_rtt_s: float, app_limited: float) -> None:
    rtt_s = state.round_rtt_sum / state.round_acked_bytes
    queued_mss = state.window_mss * max(0.0, 1.0 - min_rtt_s / rtt_s)
    if state.round_delayed_bytes > state.fraction * state.round_acked_bytes:
        state.window_mss *= EARLY_FACTOR
        state.slow_start = 0.0
    elif state.slow_start > 0.0:
        if state.growing == 0.0 and queued_mss > GAMMA_MSS:
            state.slow_start = 0.0
            state.window_mss *= SLOW_START_EXIT
        state.growing = 1.0 - state.growing
    elif queued_mss > BETA_MSS:
        state.window_mss -= 1.0
    elif queued_mss < ALPHA_MSS and app_limited == 0.0:
        state.window_mss += 1.0 if state.window_mss >= 1.0 else state.window_mss


@kernel
def _set_window(state: Any) -> None:
    state.window_mss = max(state.window_mss, MIN_WINDOW_MSS)
    state.cwnd_bytes = max(state.window_mss, 1.0) * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    if state.window_mss < 1.0 and state.srtt_s > 0.0:
        state.pacing_rate_Bps = state.window_mss * state.mss_bytes / state.srtt_s


def on_loss(state: Any, loss: Any) -> None:
    """Halve once per episode; one segment, and what was the largest RTT forgotten, after a time-out."""
    if loss.new_episode > 0.0:
        state.window_mss *= EARLY_FACTOR
        state.slow_start = 0.0
    if loss.timeout > 0.0:
        state.window_mss = 1.0
        state.max_rtt_s = 0.0
    extend_recovery(state, loss)
    _set_window(state)
