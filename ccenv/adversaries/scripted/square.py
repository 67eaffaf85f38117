"""A square wave between the fastest and the slowest legal service (bang-bang jitter)."""

from __future__ import annotations

import math
import sys
from typing import Any

from ccenv.adversaries.scripted import TIME_TOLERANCE, scripted, share
from ccenv.agents.callbacks import record
from ccenv.base.registry import number
from ccenv.network.adversary import ScriptedAdversary

STATE = record("period_rtts", "duty", "waste", "rate", "loss")


def adversary(
    period_rtts: float = 2.0, duty: float = 0.5, waste: float = 1.0, rate: float = 1.0, loss: float = 0.0
) -> ScriptedAdversary:
    """Build the square wave.

    Args:
        period_rtts: length of a period in units of the flow's Rm, > 0.
        duty: share of a period with full service, at its start; in [0, 1].
        waste: share of the spare tokens thrown away, in [0, 1] (`ccac`).
        rate: link rate between its bounds, in [0, 1] (`strong`).
        loss: share of the loss budget used at once, in [0, 1].
    """
    return scripted(
        "square",
        sys.modules[__name__],
        STATE,
        period_rtts=number("square", "period_rtts", period_rtts, above=0, high=1e6),
        duty=share("square", "duty", duty),
        waste=share("square", "waste", waste),
        rate=share("square", "rate", rate),
        loss=share("square", "loss", loss),
    )


def play(state: Any, view: Any, move: Any) -> None:
    """Serve fully in the first part of each period, as little as possible in the rest."""
    periods = view.now_s / (state.period_rtts * view.rtt_s) + TIME_TOLERANCE
    move.service = 1.0 if periods - math.floor(periods) < state.duty else 0.0
    move.waste = state.waste
    move.rate = state.rate
    move.loss = state.loss
