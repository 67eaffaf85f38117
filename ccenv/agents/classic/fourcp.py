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
round trips, 2.4 at first and 240 in the end; tarp stays within [1e-7, 0.1] and changes at most by a factor 2 per signal.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ccenv.agents.callbacks import state_record
from ccenv.agents.classic.common import INITIAL_WINDOW_MSS, classic_sender, initial_window, smoothed_rtt
from ccenv.agents.sender import ClassicSender
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number

TARGET_LOSS = 0.000618  # [4CP] s.5.1: the middle one of its three targets
MIN_CWND_MSS = 2.0  # [4CP] s.3.3.1
MAX_CWND_MSS = 1e6
FALSE_POSITIVES = 0.01  # f of [4CP] eq. (9)
LOSS_RATIO = 2.0  # r of [4CP] eq. (9)
SLOW_START_FACTOR = 0.5  # RFC 5681 eq. (4): of the flight is kept at the end of slow start
TIMEOUT_CWND_MSS = 1.0  # RFC 5681 s.3.1
SQRT_LAW = 1.5  # [4CP] s.2.1.1: f(p) = sqrt(3/(2 b p)), one segment per ACK (b = 1)
MIN_TARGET_LOSS, MAX_TARGET_LOSS = 1e-7, 0.1  # bounds of the adaptation
MAX_STEP = 2.0  # tarp changes at most by this factor per signal
RATE_WINDOWS = 2.0  # windows in flight when the rate is the control

STATE = state_record(
    "initial_window_mss",  # parameter
    "tarp",  # parameter, target loss rate; adapted by fourcp_auto
    "mincwnd_mss",  # parameter
    "maxcwnd_mss",  # parameter
    "false_positives",  # parameter f
    "loss_ratio",  # parameter r
    "fixed_wndbnd_mss",  # parameter; 0: by eq. (9) from tarp
    "rate_based",  # parameter, 0 or 1
    "first_gain",  # parameter of the adaptation, 0: fixed tarp
    "last_gain",  # parameter
    "gain_updates",  # parameter: segments acknowledged until the gain has come down to last_gain
    "detector_root",  # a of [4CP] eq. (8)
    "wnd_mss",  # virtual window
    "window_mss",  # congestion window
    "slow_start",
    "ssthresh_mss",
    "recover_bytes",  # fast recovery lasts until so many bytes are delivered
    "updates",  # segments acknowledged since the start of the adaptation
    "srtt_s",
)


def make_parameters(
    name: str,
    mincwnd_mss: float,
    maxcwnd_mss: float,
    false_positives: float,
    loss_ratio: float,
    wndbnd_mss: float,
    rate_based: int,
) -> dict[str, float]:
    """Check what both 4CP senders share.

    Args:
        name: of the sender, for messages.
        mincwnd_mss: smallest window in segments, >= 1.
        maxcwnd_mss: largest window in segments.
        false_positives: f of [4CP] eq. (9), in (0, 1).
        loss_ratio: r of [4CP] eq. (9), > 1.
        wndbnd_mss: lower bound of the virtual window; 0: by eq. (9).
        rate_based: 1: pace, 0: window only.
    """
    smallest = number(name, "mincwnd_mss", mincwnd_mss, low=1, high=1e6)
    return {
        "mincwnd_mss": smallest,
        "maxcwnd_mss": number(name, "maxcwnd_mss", maxcwnd_mss, low=smallest, high=1e9),
        "false_positives": number(name, "false_positives", false_positives, low=1e-12, high=0.999),
        "loss_ratio": number(name, "loss_ratio", loss_ratio, low=1.01, high=1e3),
        "fixed_wndbnd_mss": number(name, "wndbnd_mss", wndbnd_mss, low=0, high=1e9),
        "rate_based": number(name, "rate_based", rate_based, low=0, high=1, whole=True),
    }


def sender(
    tarp: float = TARGET_LOSS,
    mincwnd_mss: float = MIN_CWND_MSS,
    maxcwnd_mss: float = MAX_CWND_MSS,
    false_positives: float = FALSE_POSITIVES,
    loss_ratio: float = LOSS_RATIO,
    wndbnd_mss: float = 0.0,
    rate_based: int = 0,
    initial_window_mss: float = INITIAL_WINDOW_MSS,
) -> ClassicSender:
    """Build a 4CP sender with a fixed target loss rate.

    Args:
        tarp: target loss rate, in [1e-7, 0.1].
        mincwnd_mss: smallest window in segments, >= 1.
        maxcwnd_mss: largest window in segments.
        false_positives: share of time f that the detector may be wrong, in (0, 1); sets wndbnd by eq. (9).
        loss_ratio: ratio r of loss rate to tarp at which f is to hold, > 1.
        wndbnd_mss: lower bound of the virtual window is minus this; 0: by eq. (9).
        rate_based: 1: pace the window over the RTT; 0: window only.
        initial_window_mss: window at the start in segments, >= 1.
    """
    shared = make_parameters("fourcp_fixed", mincwnd_mss, maxcwnd_mss, false_positives, loss_ratio, wndbnd_mss, rate_based)
    return classic_sender(
        "fourcp_fixed",
        sys.modules[__name__],
        STATE,
        initial_window_mss=initial_window("fourcp_fixed", initial_window_mss),
        tarp=number("fourcp_fixed", "tarp", tarp, low=MIN_TARGET_LOSS, high=MAX_TARGET_LOSS),
        gain_updates=1.0,
        **shared,
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
def false_positive_share(loss_ratio: float, tarp: float, mincwnd_mss: float, wndbnd_mss: float) -> float:
    """Return the share of time that the detector is wrong in a bad phase of loss rate r tarp ([4CP] theorem 1)."""
    intensity = mincwnd_mss * tarp * loss_ratio
    return math.exp(-intensity * detector_root(loss_ratio) * (mincwnd_mss + wndbnd_mss))


@kernel
def window_bound_mss(state: Any) -> float:
    """Return wndbnd: as given, or by [4CP] eq. (9)."""
    if state.fixed_wndbnd_mss > 0.0:
        return state.fixed_wndbnd_mss
    return math.log(1.0 / state.false_positives) / (state.mincwnd_mss * state.tarp * state.detector_root * state.loss_ratio)


@kernel
def friendly_window_mss(loss: float) -> float:
    """Return f(p), the window of TCP at a loss event rate, in segments ([4CP] s.2.1.1, square-root formula)."""
    return math.sqrt(SQRT_LAW / loss)


def init(state: Any) -> None:
    """Start in slow start."""
    state.detector_root = detector_root(state.loss_ratio)
    state.window_mss = state.initial_window_mss
    state.wnd_mss = state.window_mss
    state.slow_start = 1.0
    state.ssthresh_mss = state.maxcwnd_mss
    state.recover_bytes = 0.0
    state.updates = 0.0
    state.srtt_s = 0.0
    state.cwnd_bytes = state.window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf


def on_ack(state: Any, ack: Any) -> None:
    """Grow the virtual window ([4CP] eqs. 3 and 5), adapt the target ([4CP] eq. 6)."""
    state.srtt_s = smoothed_rtt(state.srtt_s, ack.rtt_s, min(1.0, ack.acked_bytes / state.cwnd_bytes))
    acked_mss = ack.acked_bytes / state.mss_bytes
    if ack.delivered_bytes >= state.recover_bytes and ack.app_limited == 0.0:
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
    step = gain * acked_mss * (friendly_window_mss(state.tarp) - state.window_mss) / state.window_mss
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
            state.wnd_mss = SLOW_START_FACTOR * (loss.inflight_bytes + loss.lost_bytes) / state.mss_bytes
        else:
            state.wnd_mss = max(state.wnd_mss - 1.0 / (state.tarp * state.window_mss), -window_bound_mss(state))
        state.slow_start = 0.0
        state.window_mss = max(state.wnd_mss, state.mincwnd_mss)
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
    else:  # these bytes were counted as in flight and will not arrive
        state.recover_bytes = max(0.0, state.recover_bytes - loss.lost_bytes)
    if loss.timeout > 0.0:
        state.ssthresh_mss = max(state.wnd_mss, state.mincwnd_mss)
        state.window_mss = TIMEOUT_CWND_MSS
        state.slow_start = 1.0
        state.recover_bytes = 0.0
    _set_window(state)


def on_tick(state: Any, tick: Any) -> None:
    """Do nothing: 4CP acts on ACKs and losses only."""


FIRST_TARGET_LOSS = 0.001  # [4CP] Figure 9: one of its two initial values
FIRST_GAIN = 1e-5
LAST_GAIN = 1e-7
GAIN_UPDATES = 2e4


def automatic_sender(
    tarp: float = FIRST_TARGET_LOSS,
    first_gain: float = FIRST_GAIN,
    last_gain: float = LAST_GAIN,
    gain_updates: float = GAIN_UPDATES,
    mincwnd_mss: float = MIN_CWND_MSS,
    maxcwnd_mss: float = MAX_CWND_MSS,
    false_positives: float = FALSE_POSITIVES,
    loss_ratio: float = LOSS_RATIO,
    wndbnd_mss: float = 0.0,
    rate_based: int = 0,
    initial_window_mss: float = INITIAL_WINDOW_MSS,
) -> ClassicSender:
    """Build a 4CP sender in automatic mode.

    Args:
        tarp: target loss rate at the start, in [1e-7, 0.1].
        first_gain: gain a of eq. (6) at the start, in (0, 1].
        last_gain: gain a in the end, in [0, 1].
        gain_updates: segments acknowledged until the gain has come down, >= 1.
        mincwnd_mss: smallest window in segments, >= 1.
        maxcwnd_mss: largest window in segments.
        false_positives: share of time f that the detector may be wrong, in (0, 1); sets wndbnd by eq. (9).
        loss_ratio: ratio r of loss rate to tarp at which f is to hold, > 1.
        wndbnd_mss: lower bound of the virtual window is minus this; 0: by eq. (9).
        rate_based: 1: pace the window over the RTT; 0: window only.
        initial_window_mss: window at the start in segments, >= 1.
    """
    name = "fourcp_auto"
    shared = make_parameters(name, mincwnd_mss, maxcwnd_mss, false_positives, loss_ratio, wndbnd_mss, rate_based)
    return classic_sender(
        name,
        sys.modules[__name__],
        STATE,
        initial_window_mss=initial_window(name, initial_window_mss),
        tarp=number(name, "tarp", tarp, low=MIN_TARGET_LOSS, high=MAX_TARGET_LOSS),
        first_gain=number(name, "first_gain", first_gain, above=0, high=1),
        last_gain=number(name, "last_gain", last_gain, low=0, high=1),
        gain_updates=number(name, "gain_updates", gain_updates, low=1, high=1e12),
        **shared,
    )
