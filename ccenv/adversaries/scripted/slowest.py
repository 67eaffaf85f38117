"""The slowest legal network: every byte is held as long as the law allows.

In `cbr_delay` this is a constant extra delay of D; in `ccac` no spare token survives and served bytes are held for D; in
`strong` the link also runs at its smallest rate.
"""

from __future__ import annotations

import sys
from typing import Any

from ccenv.adversaries.scripted import scripted, share
from ccenv.agents.callbacks import record
from ccenv.network.adversary import ScriptedAdversary

STATE = record("waste", "rate", "loss")


def adversary(waste: float = 1.0, rate: float = 0.0, loss: float = 0.0) -> ScriptedAdversary:
    """Build the slowest network.

    Args:
        waste: share of the spare tokens thrown away, in [0, 1] (`ccac`).
        rate: link rate between its bounds, in [0, 1] (`strong`).
        loss: share of the loss budget used at once, in [0, 1].
    """
    return scripted(
        "slowest",
        sys.modules[__name__],
        STATE,
        waste=share("slowest", "waste", waste),
        rate=share("slowest", "rate", rate),
        loss=share("slowest", "loss", loss),
    )


def play(state: Any, view: Any, move: Any) -> None:
    """Deliver only what must be delivered."""
    move.service = 0.0
    move.waste = state.waste
    move.rate = state.rate
    move.loss = state.loss
