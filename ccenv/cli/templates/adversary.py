"""An adversary: the network's moves, numbers in [0, 1] that the engines map into what is legal.

Try it: ccenv attack copa --adversary {name}.py, or ccenv compare copa bbr3 --network {name}.py -s jitter=20ms.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.callbacks import record

STATE = record("period_rtts")  # at most 16 fields


def init(state: Any, view: Any) -> None:
    """Set the state before the first move; view: now_s, rtt_s, jitter_s, link_rate_Bps, queue_bytes, held_bytes, ..."""
    state.period_rtts = 4.0


def play(state: Any, view: Any, move: Any) -> None:
    """Hold everything for the first half of a period, deliver it in the second."""
    periods = view.now_s / (state.period_rtts * view.rtt_s)
    move.service = 1.0 if periods % 1.0 > 0.5 else 0.0
    move.waste = 1.0
    move.rate = 1.0
    move.loss = 0.0
