"""The benign network: delivers at once, keeps no spare tokens, runs at full rate, loses nothing.

Every model then behaves as the ideal link of [CCmatic] s.3.
"""

from __future__ import annotations

import sys
from typing import Any

from ccenv.adversaries.scripted import scripted
from ccenv.agents.callbacks import record
from ccenv.network.adversary import ScriptedAdversary

STATE = record("unused")


def adversary() -> ScriptedAdversary:
    """Build the benign network."""
    return scripted("benign", sys.modules[__name__], STATE)


def play(state: Any, view: Any, move: Any) -> None:
    """Deliver everything now."""
    move.service = 1.0
    move.waste = 1.0
    move.rate = 1.0
    move.loss = 0.0
