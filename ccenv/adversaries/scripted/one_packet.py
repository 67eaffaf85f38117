"""One early delivery, then a constant extra delay of D.

[Starvation] s.5.1: on a path of 60 ms a single packet has an RTT of 59 ms; Copa (as well as Vegas and FAST) mistakes the extra
1 ms of all others for queueing and starves. Here Rm = 59 ms and D = 1 ms: all bytes but one delivery are held for D.

FIFO order allows a byte without jitter only if nothing before it is still held. So the early bytes are (nearly all of) the
first that ever leave the bottleneck, or, if bytes are held already, all of them, released at once: the newest of them has no
jitter. A CCA whose minimum RTT expires (Copa, BBR: 10 s) recovers unless the delivery is repeated.
"""

from __future__ import annotations

import sys
from typing import Any

from ccenv.adversaries.scripted import scripted
from ccenv.agents.callbacks import record
from ccenv.base.registry import number
from ccenv.network.adversary import ScriptedAdversary

ALL_FLOWS = -1.0
FIRST_SHARE = 1.0 - 2.0**-20  # a tiny part of the first bytes stays held, so that the next view shows that there were any

STATE = record("at_s", "every_s", "flow", "waiting", "done")


def adversary(at_ms: float = 0.0, every_ms: float = 0.0, flow: int = 0) -> ScriptedAdversary:
    """Build the one-packet offset.

    Args:
        at_ms: not before this time, in ms, >= 0.
        every_ms: repeat it after so many ms, >= 0; 0: once only.
        flow: the flow that gets the early delivery; -1: each flow.
    """
    return scripted(
        "one_packet",
        sys.modules[__name__],
        STATE,
        at_s=number("one_packet", "at_ms", at_ms, low=0, high=1e9) / 1e3,
        every_s=number("one_packet", "every_ms", every_ms, low=0, high=1e9) / 1e3,
        flow=number("one_packet", "flow", flow, low=-1, high=63, whole=True),
    )


def play(state: Any, view: Any, move: Any) -> None:
    """Hold, except for the one early delivery."""
    move.service = 0.0
    move.waste = 1.0
    move.rate = 1.0
    move.loss = 0.0
    chosen = state.flow in (ALL_FLOWS, view.flow)
    if state.done > 0.0 or not chosen or view.now_s + view.dt_s < state.at_s:
        return
    if view.held_bytes <= 0.0:
        move.service = FIRST_SHARE
        state.waiting = 1.0
        return
    if state.waiting == 0.0:
        move.service = 1.0
    state.waiting = 0.0
    if state.every_s > 0.0:
        state.at_s += state.every_s
    else:
        state.done = 1.0
