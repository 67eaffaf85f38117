"""Verus (Zaki et al.: Adaptive congestion control for unpredictable cellular networks, SIGCOMM 2015).

It learns a delay profile, the delay that belongs to a window. Every 5 ms a delay to aim at moves a step up or down by how the
delay has changed ([Verus] s.4, eq. 4); the window is the one whose delay that is.

Deviations: the profile is linear between windows of 1, 2, 4, ... 32,768 segments and follows each RTT by a stochastic gradient
(the paper: a spline over averages, made anew every second); beyond the windows seen it goes on with its last slope, to twice
the largest at most; the window is in force at once (the paper sends a quota per epoch, eq. 3, which leads to the same window
over an RTT); an epoch ends with the first ACK after 5 ms; alpha is chosen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ccenv.agents.classic.common import Cca, Parameter, extend_recovery, in_recovery, initial_window
from ccenv.base.kernels.decorator import kernel

N_KNOTS = 16
EPOCH_S = 0.005  # [Verus] s.5
DELTA_1_S, DELTA_2_S = 0.001, 0.002  # s.5: steps down and up of the delay to aim at
ALPHA = 0.875  # of eq. 1: weight of the largest delay so far
SLOW_START_RATIO = 15.0  # s.4: N, of the delay over the smallest, ends slow start
LOSS_FACTOR = 0.5  # eq. 6: M
PROFILE_GAIN = 0.125  # of an RTT sample, at the windows beside its own
MIN_WINDOW_MSS = 2.0

sender = Cca(
    "verus",
    __name__,
    parameters=(
        initial_window(),
        Parameter("ratio", 2.0, above=1, high=100),  # R of eq. 4: largest delay borne over the smallest; 2, 4, 6 in s.6
    ),
    fields=(
        "window_mss",
        "slow_start",
        "aim_s",  # D_est
        "smooth_s",  # D_max: smoothed largest delay of an epoch
        "last_smooth_s",
        "epoch_end_s",
        "epoch_max_s",
        "recover_bytes",
        "recovering",
        *(f"delay_{i}_s" for i in range(N_KNOTS)),  # of a window of 2^i segments; 0: not seen yet
    ),
)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    state.window_mss = state.initial_window_mss
    state.cwnd_bytes = state.window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    state.slow_start = 1.0


@kernel
def _profile(state: Any) -> Any:
    s = state
    return (
        s.delay_0_s, s.delay_1_s, s.delay_2_s, s.delay_3_s, s.delay_4_s, s.delay_5_s, s.delay_6_s, s.delay_7_s,
        s.delay_8_s, s.delay_9_s, s.delay_10_s, s.delay_11_s, s.delay_12_s, s.delay_13_s, s.delay_14_s, s.delay_15_s,
    )  # fmt: skip


@kernel
def delay_of(knots: Any, window_mss: float) -> float:
    """Return the delay of a window, in seconds; 0 where nothing is known."""
    x = min(max(math.log2(max(window_mss, 1.0)), 0.0), N_KNOTS - 1.001)
    i = int(x)
    low, high = knots[i], knots[i + 1]
    if low == 0.0 or high == 0.0:
        return float(max(low, high))
    return float(low + (window_mss - 2.0**i) / 2.0**i * (high - low))


@kernel
def window_of(knots: Any, delay_s: float) -> float:
    """Return the largest window whose delay is at most this one, in segments: the profile made monotone, read backwards."""
    window_mss, known_s, slope = 1.0, 0.0, 0.0  # slope: seconds per segment
    for i in range(N_KNOTS):
        if knots[i] == 0.0:
            continue
        if known_s >= delay_s:
            return window_mss
        if known_s > 0.0:
            slope = max(0.0, knots[i] - known_s) / (2.0**i - window_mss)
            if knots[i] > delay_s:
                return window_mss + (delay_s - known_s) / slope
        window_mss, known_s = 2.0**i, max(known_s, knots[i])
    if slope == 0.0:
        return 2.0 * window_mss
    return window_mss + min(max(0.0, delay_s - known_s) / slope, window_mss)


@kernel
def _learn(knot_s: float, i: float, x: float, error_s: float, rtt_s: float) -> float:
    share = 1.0 - abs(x - i)
    if share <= 0.0:
        return knot_s
    return rtt_s if knot_s == 0.0 else max(knot_s + PROFILE_GAIN * share * error_s, 1e-6)


@kernel
def _take_sample(state: Any, window_mss: float, rtt_s: float) -> None:
    s = state
    x = min(max(math.log2(max(window_mss, 1.0)), 0.0), N_KNOTS - 1.0)
    error_s = rtt_s - delay_of(_profile(s), window_mss)
    s.delay_0_s = _learn(s.delay_0_s, 0.0, x, error_s, rtt_s)
    s.delay_1_s = _learn(s.delay_1_s, 1.0, x, error_s, rtt_s)
    s.delay_2_s = _learn(s.delay_2_s, 2.0, x, error_s, rtt_s)
    s.delay_3_s = _learn(s.delay_3_s, 3.0, x, error_s, rtt_s)
    s.delay_4_s = _learn(s.delay_4_s, 4.0, x, error_s, rtt_s)
    s.delay_5_s = _learn(s.delay_5_s, 5.0, x, error_s, rtt_s)
    s.delay_6_s = _learn(s.delay_6_s, 6.0, x, error_s, rtt_s)
    s.delay_7_s = _learn(s.delay_7_s, 7.0, x, error_s, rtt_s)
    s.delay_8_s = _learn(s.delay_8_s, 8.0, x, error_s, rtt_s)
    s.delay_9_s = _learn(s.delay_9_s, 9.0, x, error_s, rtt_s)
    s.delay_10_s = _learn(s.delay_10_s, 10.0, x, error_s, rtt_s)
    s.delay_11_s = _learn(s.delay_11_s, 11.0, x, error_s, rtt_s)
    s.delay_12_s = _learn(s.delay_12_s, 12.0, x, error_s, rtt_s)
    s.delay_13_s = _learn(s.delay_13_s, 13.0, x, error_s, rtt_s)
    s.delay_14_s = _learn(s.delay_14_s, 14.0, x, error_s, rtt_s)
    s.delay_15_s = _learn(s.delay_15_s, 15.0, x, error_s, rtt_s)


def on_ack(state: Any, ack: Any) -> None:
    """Learn the profile; at the end of an epoch choose the delay and take its window."""
    s = state
    if s.recovering > 0.0:
        s.window_mss += ack.acked_bytes / s.mss_bytes / s.window_mss  # s.4: 1/W per ACK, and no learning
        if not in_recovery(s, ack):
            s.recovering = 0.0
            s.aim_s = max(ack.min_rtt_s, delay_of(_profile(s), s.window_mss))
    else:
        # what was delivered between its sending and its ACK was in flight when the newest byte was sent
        _take_sample(s, (ack.delivered_bytes - ack.prior_delivered_bytes) / s.mss_bytes, ack.rtt_s)
        if s.slow_start > 0.0 and ack.app_limited == 0.0:
            s.window_mss += ack.acked_bytes / s.mss_bytes
            if ack.rtt_s > SLOW_START_RATIO * ack.min_rtt_s:
                s.slow_start = 0.0
                s.aim_s = ack.rtt_s
    s.epoch_max_s = max(s.epoch_max_s, ack.rtt_s)
    if ack.now_s >= s.epoch_end_s:
        s.epoch_end_s = ack.now_s + EPOCH_S
        s.smooth_s = s.epoch_max_s if s.smooth_s == 0.0 else ALPHA * s.smooth_s + (1.0 - ALPHA) * s.epoch_max_s
        if s.slow_start == 0.0 and s.recovering == 0.0:
            _choose(s, ack.min_rtt_s, ack.app_limited)
        s.last_smooth_s, s.epoch_max_s = s.smooth_s, 0.0
    s.cwnd_bytes = max(s.window_mss, MIN_WINDOW_MSS) * s.mss_bytes


@kernel
def _choose(state: Any, min_rtt_s: float, app_limited: float) -> None:
    """Move the delay to aim at (eq. 4) and take its window."""
    if state.smooth_s > state.ratio * min_rtt_s:
        state.aim_s -= DELTA_2_S
    elif state.smooth_s > state.last_smooth_s:
        state.aim_s -= DELTA_1_S
    elif app_limited == 0.0:
        state.aim_s += DELTA_2_S
    state.aim_s = max(state.aim_s, min_rtt_s)
    state.window_mss = max(window_of(_profile(state), state.aim_s), MIN_WINDOW_MSS)


def on_loss(state: Any, loss: Any) -> None:
    """Keep half once per episode (eq. 6); slow start anew after a time-out."""
    if loss.new_episode > 0.0:
        state.window_mss = max(LOSS_FACTOR * (loss.inflight_bytes + loss.lost_bytes) / state.mss_bytes, MIN_WINDOW_MSS)
        state.slow_start = 0.0
        state.recovering = 1.0
    if loss.timeout > 0.0:
        state.window_mss = MIN_WINDOW_MSS
        state.slow_start = 1.0
        state.recovering = 0.0
        state.aim_s = 0.0
    extend_recovery(state, loss)
    state.cwnd_bytes = max(state.window_mss, MIN_WINDOW_MSS) * state.mss_bytes
