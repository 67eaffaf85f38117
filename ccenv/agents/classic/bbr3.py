"""BBR version 3 (draft-ietf-ccwg-bbr-01, October 2024): what differs from ``bbr2``.

STARTUP paces at 4 ln 2 with a window of 2 BDP and needs fewer losses to end; DRAIN at half the bandwidth; DOWN drains more
gently; UP has a larger window and lasts until the bandwidth has stopped growing for three rounds, not only to 1.25 BDP.

Deviations: those of ``bbr2``.
"""

from __future__ import annotations

import math

from ccenv.agents.classic import bbr2
from ccenv.agents.classic.bbr2_model import STATE
from ccenv.agents.classic.common import INITIAL_WINDOW_MSS, classic_sender, initial_window
from ccenv.network.sender import ClassicSender

STARTUP_PACING_GAIN = 4.0 * math.log(2.0)  # draft s.2.4: 2.77
STARTUP_CWND_GAIN = 2.0  # draft s.5.3.1
DRAIN_PACING_GAIN = 0.5  # draft s.5.3.2: 1/StartupCwndGain
DOWN_PACING_GAIN = 0.9  # draft s.5.3.3.1
UP_CWND_GAIN = 2.25  # draft s.5.3.3.4
FULL_LOSS_MSS = 6.0  # draft s.5.3.1.3: BBRStartupFullLossCnt


def sender(initial_window_mss: float = INITIAL_WINDOW_MSS) -> ClassicSender:
    """Build a BBRv3 sender.

    Args:
        initial_window_mss: window at the start in segments, >= 1.
    """
    return classic_sender(
        "bbr3",
        bbr2,
        STATE,
        initial_window_mss=initial_window("bbr3", initial_window_mss),
        startup_pacing_gain=STARTUP_PACING_GAIN,
        startup_cwnd_gain=STARTUP_CWND_GAIN,
        drain_pacing_gain=DRAIN_PACING_GAIN,
        down_pacing_gain=DOWN_PACING_GAIN,
        up_cwnd_gain=UP_CWND_GAIN,
        full_loss_mss=FULL_LOSS_MSS,
        up_until_plateau=1.0,
    )
