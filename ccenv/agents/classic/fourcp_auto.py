"""4CP in automatic mode ([4CP] s.3.1.1): ``fourcp_fixed`` with a target loss rate that makes it TCP-friendly in the long run.

Per acknowledged segment tarp <- tarp + a (f(tarp) - cwnd)/cwnd (eq. 6), so that the mean window tends to that of TCP at tarp.
The gain a falls linearly with the number of updates (s.3.3.3).

Deviations: those of ``fourcp_fixed``; the paper gives no numbers for the gain: here from 1e-5 to 1e-7 over 20,000 segments,
so that at 50 segments (tarp 6e-4) tarp follows within 2 tarp/(a cwnd) round trips, 2.4 at first and 240 in the end; tarp
stays within [1e-7, 0.1] and changes at most by a factor 2 per signal.
"""

from __future__ import annotations

from ccenv.agents.classic import fourcp as fourcp_fixed
from ccenv.agents.classic.common import INITIAL_WINDOW_MSS, classic_sender, initial_window
from ccenv.agents.sender import ClassicSender
from ccenv.base.parameters import number

FIRST_TARGET_LOSS = 0.001  # [4CP] Figure 9: one of its two initial values
FIRST_GAIN = 1e-5
LAST_GAIN = 1e-7
GAIN_UPDATES = 2e4


def sender(
    tarp: float = FIRST_TARGET_LOSS,
    first_gain: float = FIRST_GAIN,
    last_gain: float = LAST_GAIN,
    gain_updates: float = GAIN_UPDATES,
    mincwnd_mss: float = fourcp_fixed.MIN_CWND_MSS,
    maxcwnd_mss: float = fourcp_fixed.MAX_CWND_MSS,
    false_positives: float = fourcp_fixed.FALSE_POSITIVES,
    loss_ratio: float = fourcp_fixed.LOSS_RATIO,
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
    shared = fourcp_fixed.parameters_of(name, mincwnd_mss, maxcwnd_mss, false_positives, loss_ratio, wndbnd_mss, rate_based)
    return classic_sender(
        name,
        fourcp_fixed,
        fourcp_fixed.STATE,
        initial_window_mss=initial_window(name, initial_window_mss),
        tarp=number(name, "tarp", tarp, low=fourcp_fixed.MIN_TARGET_LOSS, high=fourcp_fixed.MAX_TARGET_LOSS),
        first_gain=number(name, "first_gain", first_gain, above=0, high=1),
        last_gain=number(name, "last_gain", last_gain, low=0, high=1),
        gain_updates=number(name, "gain_updates", gain_updates, low=1, high=1e12),
        **shared,
    )
