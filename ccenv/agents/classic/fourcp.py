"""4CP ([4CP] s.3): low priority that yields when the loss rate passes a target, which is fixed or adapts (s.3.1.1).

A virtual window wnd may go below zero, down to -wndbnd; the congestion window is max(wnd, mincwnd). Per acknowledged segment
wnd grows by 1/cwnd, per loss event it falls by 1/(tarp cwnd): its drift is 1 - p/tarp per round trip. Below mincwnd it
detects bad phases: it comes back only when the loss rate has been below tarp for long enough.

Automatic mode (``fourcp_auto``) adapts tarp so that 4CP is TCP-friendly in the long run. Per acknowledged segment
tarp <- tarp + a (f(tarp) - cwnd)/cwnd (eq. 6), so that the mean window tends to that of TCP at tarp. The gain a falls linearly
with the number of updates (s.3.3.3).

Deviations: a loss event is the first loss of an episode (as the triple duplicate ACK of standard TCP), or a time-out, which
the paper leaves to standard TCP; slow start ends at the first loss, from where wnd is half the flight; after a time-out slow
start runs up to the window in force (the paper: as standard TCP). The rate-based variant of s.5.1 is not specified in the
paper: here it paces cwnd/srtt and allows twice the window in flight. In automatic mode, for whose gain the paper gives no
numbers, a falls from 1e-5 to 1e-7 over 20,000 segments, so that at 50 segments (tarp 6e-4) tarp follows within 2 tarp/(a cwnd)
round trips, 2.4 at first and 240 in the end; tarp stays within [1e-7, 0.1] and changes at most by a factor 2 per signal. With
``pftk=1`` f is the simplified formula of Padhye et al., from whom its term of time-outs is taken (3 q/2; [4CP] prints q/2).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ccenv.agents.classic.common import (
    LOSS_FACTOR,
    LOSS_WINDOW_MSS,
    Cca,
    Parameter,
    extend_recovery,
    in_recovery,
    initial_window,
    smoothed_rtt,
    switch,
)
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number

SQRT_LAW = 1.5  # [4CP] s.2.1.1: f(p) = sqrt(3/(2 b p)), one segment per ACK (b = 1)
TIMEOUT_RTTS = 4.0  # q of the PFTK formula: time-out over RTT, as RFC 5348 takes it
MIN_TARGET_LOSS, MAX_TARGET_LOSS = 1e-7, 0.1  # bounds of the adaptation
MAX_STEP = 2.0  # tarp changes at most by this factor per signal
RATE_WINDOWS = 2.0  # windows in flight when the rate is the control

FIELDS = (
    "detector_root",  # a of [4CP] eq. (8)
    "wnd_mss",  # virtual window
    "window_mss",  # congestion window
    "slow_start",
    "ssthresh_mss",
    "recover_bytes",  # fast recovery lasts until so many bytes are delivered
    "updates",  # segments acknowledged since the start of the adaptation
    "srtt_s",
)
TARGET = Parameter("tarp", 0.000618, low=MIN_TARGET_LOSS, high=MAX_TARGET_LOSS)  # [4CP] s.5.1: the middle one of its three
FIRST_TARGET = replace(TARGET, default=0.001)  # [4CP] Figure 9: one of its two initial values
SHARED = (
    Parameter("mincwnd_mss", 2.0, low=1, high=1e6),  # [4CP] s.3.3.1
    Parameter("maxcwnd_mss", 1e6, high=1e9),
    Parameter("false_positives", 0.01, low=1e-12, high=0.999),  # f of [4CP] eq. (9), share of time; sets wndbnd
    Parameter("loss_ratio", 2.0, low=1.01, high=1e3),  # r of [4CP] eq. (9), of loss rate to tarp, at which f is to hold
    Parameter("wndbnd_mss", 0.0, low=0, high=1e9, field="fixed_wndbnd_mss"),  # 0: by [4CP] eq. (9)
    switch("rate_based"),  # pace the window over the RTT; 0: window only
)
PFTK = switch("pftk", optional=True)  # f by the simplified PFTK formula ([4CP] s.2.1.1 (ii)); 0: the square-root formula


def _check_windows(name: str, values: dict[str, float]) -> None:
    number(name, "maxcwnd_mss", values["maxcwnd_mss"], low=values["mincwnd_mss"], high=1e9)


sender = Cca(
    "fourcp_fixed",
    __name__,
    parameters=(initial_window(), TARGET, *SHARED),
    fields=("first_gain", "last_gain", "pftk", *FIELDS),
    check=_check_windows,
    gain_updates=1.0,
)
automatic_sender = Cca(
    "fourcp_auto",
    __name__,
    parameters=(
        initial_window(),
        FIRST_TARGET,
        # gain a of [4CP] eq. (6) at the start and in the end, and the segments acknowledged until it has come down
        Parameter("first_gain", 1e-5, above=0, high=1),
        Parameter("last_gain", 1e-7, low=0, high=1),
        Parameter("gain_updates", 2e4, low=1, high=1e12),
        *SHARED,
        PFTK,
    ),
    fields=FIELDS,
    check=_check_windows,
)


@kernel
def detector_root(loss_ratio: float) -> float:
    """Return a > 0 with 1 - a = exp(-a r), r > 1 ([4CP] eq. 8)."""
    low, high = 1e-6, 1.0  # 0 is a root as well
    for _ in range(60):
        middle = 0.5 * (low + high)
        if 1.0 - middle > math.exp(-middle * loss_ratio):
            low = middle
        else:
            high = middle
    return low


@kernel
def window_bound_mss(state: Any) -> float:
    """Return wndbnd: as given, or by [4CP] eq. (9)."""
    if state.fixed_wndbnd_mss > 0.0:
        return state.fixed_wndbnd_mss
    return math.log(1.0 / state.false_positives) / (state.mincwnd_mss * state.tarp * state.detector_root * state.loss_ratio)


@kernel
def friendly_window_mss(loss: float, pftk: float) -> float:
    """Return f(p), the window of TCP at a loss event rate, in segments ([4CP] s.2.1.1: square-root or PFTK formula)."""
    root = math.sqrt(loss / SQRT_LAW)
    if pftk > 0.0:
        root += 1.5 * TIMEOUT_RTTS * SQRT_LAW * root * (loss + 32.0 * loss**3)
    return 1.0 / root


def init(state: Any) -> None:
    """Start in slow start."""
    state.detector_root = detector_root(state.loss_ratio)
    state.window_mss = state.initial_window_mss
    state.wnd_mss = state.window_mss
    state.slow_start = 1.0
    state.ssthresh_mss = state.maxcwnd_mss
    state.cwnd_bytes = state.window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf


def on_ack(state: Any, ack: Any) -> None:
    """Grow the virtual window ([4CP] eqs. 3 and 5), adapt the target ([4CP] eq. 6)."""
    state.srtt_s = smoothed_rtt(state.srtt_s, ack.rtt_s, min(1.0, ack.acked_bytes / state.cwnd_bytes))
    acked_mss = ack.acked_bytes / state.mss_bytes
    if not in_recovery(state, ack) and ack.app_limited == 0.0:
        if state.slow_start > 0.0:
            state.window_mss = min(state.window_mss + acked_mss, state.ssthresh_mss)
            if state.window_mss >= state.ssthresh_mss:
                state.slow_start = 0.0
                state.window_mss = max(state.wnd_mss, state.mincwnd_mss)
        else:
            share = min(1.0, acked_mss / state.window_mss)
            state.wnd_mss = min(state.wnd_mss + share, state.maxcwnd_mss)
            state.window_mss = max(state.wnd_mss, state.mincwnd_mss)
            if state.first_gain > 0.0:
                _adapt_target(state, acked_mss)
    _set_window(state)


@kernel
def _adapt_target(state: Any, acked_mss: float) -> None:
    """Move tarp to where TCP's window at tarp is the mean window ([4CP] eq. 6); the gain falls linearly (s.3.3.3)."""
    left = max(0.0, 1.0 - state.updates / state.gain_updates)
    gain = state.last_gain + (state.first_gain - state.last_gain) * left
    step = gain * acked_mss * (friendly_window_mss(state.tarp, state.pftk) - state.window_mss) / state.window_mss
    tarp = min(max(state.tarp + step, state.tarp / MAX_STEP), MAX_STEP * state.tarp)
    state.tarp = min(max(tarp, MIN_TARGET_LOSS), MAX_TARGET_LOSS)
    state.updates = min(state.updates + acked_mss, state.gain_updates)


@kernel
def _set_window(state: Any) -> None:
    state.cwnd_bytes = state.window_mss * state.mss_bytes
    if state.rate_based > 0.0 and state.srtt_s > 0.0:
        state.pacing_rate_Bps = state.cwnd_bytes / state.srtt_s
        state.cwnd_bytes *= RATE_WINDOWS


def on_loss(state: Any, loss: Any) -> None:
    """Take 1/(tarp cwnd) from the virtual window per loss event ([4CP] eq. 4)."""
    if loss.new_episode > 0.0:
        if state.slow_start > 0.0 and state.ssthresh_mss == state.maxcwnd_mss:
            state.wnd_mss = LOSS_FACTOR * (loss.inflight_bytes + loss.lost_bytes) / state.mss_bytes
        else:
            state.wnd_mss = max(state.wnd_mss - 1.0 / (state.tarp * state.window_mss), -window_bound_mss(state))
        state.slow_start = 0.0
        state.window_mss = max(state.wnd_mss, state.mincwnd_mss)
    if loss.timeout > 0.0:
        state.ssthresh_mss = max(state.wnd_mss, state.mincwnd_mss)
        state.window_mss = LOSS_WINDOW_MSS
        state.slow_start = 1.0
    extend_recovery(state, loss)
    _set_window(state)
