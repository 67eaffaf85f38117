"""Independent uniform moves: every number of every step is drawn from [0, 1).

This is the simplest random jitter; it averages out over a few steps, so it is weaker than persistent patterns.
"""

from __future__ import annotations

import sys
from typing import Any

from ccenv.adversaries.scripted import FIRST_COUNTER, scripted
from ccenv.agents.callbacks import record
from ccenv.base.random import uniform
from ccenv.network.adversary import ScriptedAdversary

STATE = record("draws")


def adversary() -> ScriptedAdversary:
    """Build the uniform network."""
    return scripted("uniform", sys.modules[__name__], STATE)


def init(state: Any, view: Any) -> None:
    """Start to count draws."""
    state.draws = FIRST_COUNTER


def play(state: Any, view: Any, move: Any) -> None:
    """Draw all four numbers."""
    seed, env, flow, draws = view.seed, view.env, view.flow, state.draws
    # Drawn before any is stored, so that the compiler shares common subexpressions.
    service, waste = uniform(seed, env, flow, draws), uniform(seed, env, flow, draws + 1.0)
    rate, loss = uniform(seed, env, flow, draws + 2.0), uniform(seed, env, flow, draws + 3.0)
    move.service, move.waste, move.rate, move.loss = service, waste, rate, loss
    state.draws = draws + 4.0
