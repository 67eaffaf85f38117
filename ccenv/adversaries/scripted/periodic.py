"""Periodic release: bytes (or their ACKs) are delivered only at integer multiples of an interval.

[Starvation] s.5.3 starves Vivace with ACKs at multiples of 60 ms. With an interval above D, bytes are delivered after D.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from ccenv.adversaries.scripted import TIME_TOLERANCE, scripted
from ccenv.agents.callbacks import record
from ccenv.base.registry import number
from ccenv.network.adversary import ScriptedAdversary

STATE = record("interval_s")


def adversary(interval_ms: float = 0.0) -> ScriptedAdversary:
    """Build the periodic network; ``interval_ms`` >= 0 is the time between releases, 0: the jitter bound D of the flow."""
    interval_s = number("periodic", "interval_ms", interval_ms, low=0, high=1e6) / 1e3
    return scripted("periodic", sys.modules[__name__], STATE, interval_s=interval_s)


def init(state: Any, view: Any) -> None:
    """Use D by default."""
    if state.interval_s <= 0.0:
        state.interval_s = view.jitter_s


def play(state: Any, view: Any, move: Any) -> None:
    """Release in the steps that reach a multiple of the interval."""
    move.service = 0.0
    move.waste = 1.0
    move.rate = 1.0
    move.loss = 0.0
    if state.interval_s <= 0.0:
        move.service = 1.0
        return
    before = math.floor(view.now_s / state.interval_s + TIME_TOLERANCE)
    after = math.floor((view.now_s + view.dt_s) / state.interval_s + TIME_TOLERANCE)
    if after > before:
        move.service = 1.0
