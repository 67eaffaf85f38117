"""Random ACK aggregation: hold everything for agg_delay, release it as one batch, draw the next agg_delay from U[0, D).

This is the jitter of the experiments in [CCmatic] App. H (C * agg_delay bytes are served after agg_delay seconds, so that the
average rate stays C).
"""

from __future__ import annotations

import sys
from typing import Any

from ccenv.adversaries.scripted import FIRST_COUNTER, TIME_TOLERANCE, scripted
from ccenv.agents.callbacks import record
from ccenv.base.random import uniform
from ccenv.network.adversary import ScriptedAdversary

STATE = record("release_s", "draws")


def adversary() -> ScriptedAdversary:
    """Build the aggregating network."""
    return scripted("batch", sys.modules[__name__], STATE)


def init(state: Any, view: Any) -> None:
    """Draw the first agg_delay."""
    state.draws = FIRST_COUNTER
    state.release_s = view.now_s + view.jitter_s * uniform(view.seed, view.env, view.flow, state.draws)


def play(state: Any, view: Any, move: Any) -> None:
    """Hold until the batch is due; the step's deliveries happen at its end."""
    move.service = 0.0
    move.waste = 1.0
    move.rate = 1.0
    move.loss = 0.0
    end_s = view.now_s + view.dt_s * (1.0 + TIME_TOLERANCE)
    if view.jitter_s <= 0.0:
        move.service = 1.0
        return
    while state.release_s <= end_s:
        move.service = 1.0
        state.draws += 1.0
        state.release_s += view.jitter_s * uniform(view.seed, view.env, view.flow, state.draws)
