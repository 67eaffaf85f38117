"""Token hoarding: keep every spare token and hold service, then deliver in a burst (`ccac`).

CCAC's token bucket is non-deterministic ([CCmatic] s.3, Listing 3; s.6.2.1 "Discussion"): hoarded tokens, at most D old, pass a
burst above the link rate, so that a sender overestimates it. In models without tokens only the service wave acts.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from ccenv.adversaries.scripted import TIME_TOLERANCE, scripted, share
from ccenv.agents.callbacks import record
from ccenv.base.registry import number
from ccenv.network.adversary import ScriptedAdversary

STATE = record("period_rtts", "hold")


def adversary(period_rtts: float = 2.0, hold: float = 0.5) -> ScriptedAdversary:
    """Build the hoarding network.

    Args:
        period_rtts: length of a period in units of the flow's Rm, > 0.
        hold: share of a period, at its start, in which service is held back; in [0, 1].
    """
    return scripted(
        "hoard",
        sys.modules[__name__],
        STATE,
        period_rtts=number("hoard", "period_rtts", period_rtts, above=0, high=1e6),
        hold=share("hoard", "hold", hold),
    )


def play(state: Any, view: Any, move: Any) -> None:
    """Keep all tokens; hold service, then release."""
    periods = view.now_s / (state.period_rtts * view.rtt_s) + TIME_TOLERANCE
    move.service = 0.0 if periods - math.floor(periods) < state.hold else 1.0
    move.waste = 0.0
    move.rate = 1.0
    move.loss = 0.0
