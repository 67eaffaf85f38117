"""The rings of recent history: where a step lies, and the rule that keeps what is read within them.

A ring of H = mask + 1 steps holds steps k - mask .. k once step k is written; the step before them is gone. What reads a ring is
either a step counted back from k by a delay of the path, which the length of the rings covers (``curve.initial``), or
a *cursor*: a field that stays where it is while nothing happens (``layout.FLOW_CURSORS``, ``layout.ENV_CURSORS``). The rule:
before step k is written, every cursor moves up to the oldest step whose predecessor stays readable. So no cursor is ever stale,
however long a flow is silent.

Moving up loses nothing: what is still in flight was sent within the rings (the receive window sees to it, and the engine stops
where it was lifted and this fails), so nothing that a cursor passes this way is asked for again, except when the newest loss that
was not found yet had happened: that step is noted.
"""

from __future__ import annotations

from typing import NamedTuple

from ccenv.engine.compiled.calls import load, store
from ccenv.base.kernels.decorator import kernel


class FlowRings(NamedTuple):
    """The rings of one flow, in a flat float64 array.

    Attributes:
        ring: address of the array.
        mask: length of a ring - 1.
        s_at: where the ring of S starts; the same again follows it.
        e_at: the same for E.
        l_at: the same for L.
        p_at: the same for P, which the curve engine keeps only.
    """

    ring: int
    mask: int
    s_at: int
    e_at: int
    l_at: int
    p_at: int


@kernel(inline="always")
def flow_rings(ring, first, mask):
    """Return the rings of the flow whose first ring starts at ``first``: S twice, so that its windows are contiguous, E, L, P."""
    length = mask + 1
    return FlowRings(ring, mask, first, first + 2 * length, first + 3 * length, first + 4 * length)


@kernel(inline="always")
def store_served(rings, n, served_bytes):
    """Write S(n), twice."""
    store(rings.ring, at(rings.s_at, n, rings.mask), served_bytes)
    store(rings.ring, at(rings.s_at, n, rings.mask) + rings.mask + 1, served_bytes)


@kernel(inline="always")
def at(base, n, mask):
    """Return where step n of a ring lies."""
    return base + (n & mask)


@kernel(inline="always")
def oldest_cursor(k, mask):
    """Return the oldest step that a cursor may stand at once step k is written: it and its predecessor are in the rings."""
    return k - mask + 1


@kernel(inline="always")
def keep_flow_cursors(fl, rings, k):
    """Move a flow's cursors up before step k is written, where one of them would get stale."""
    if k >= fl.stale_step:
        move_flow_cursors(fl, rings, k)


@kernel
def move_flow_cursors(fl, rings, k):
    """Move a flow's cursors up before step k is written; note when the first of them gets stale."""
    ring, mask = rings.ring, rings.mask
    oldest = oldest_cursor(k, mask)
    fl.ack_sent_step = max(fl.ack_sent_step, oldest)
    if fl.loss_step < oldest:
        fl.loss_step = oldest
        if load(ring, at(rings.l_at, oldest, mask)) > load(ring, at(rings.l_at, oldest - 1, mask)):
            fl.unfound_loss_step = oldest
    if fl.judged_step < oldest + fl.probe_window_steps:  # C_L_lambda reads back by T*
        fl.judged_step = oldest + fl.probe_window_steps
        fl.utilised_run_steps = 0
        fl.idle_run_steps = 0
    first = min(fl.ack_sent_step, fl.loss_step, fl.judged_step - fl.probe_window_steps)
    fl.stale_step = k + 1 + first - oldest  # cursors only go forward: none is stale before


@kernel(inline="always")
def keep_env_cursors(ev, k, mask):
    """Move an environment's cursors up before step k is written."""
    ev.fifo_step = max(ev.fifo_step, oldest_cursor(k, mask))
