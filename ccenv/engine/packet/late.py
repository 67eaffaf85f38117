"""Reordering: packets that take a longer way behind the last link, so that others overtake them. Compiled.

The longer way is a pipe of its own, in order by itself. A receiver is told of both ways in the order of time: before a packet of
the short way arrives, those of the long way do that are due by then.
"""

from __future__ import annotations

import numpy as np

from ccenv.engine.compiled.calls import load
from ccenv.base.random import uniform
from ccenv.engine.packet.layout import LATE_COUNTER, PIPE_STRIDE, TIME_S, TX
from ccenv.engine.packet.receiver import receive
from ccenv.engine.packet.sources import put_pipe, set_source
from ccenv.base.kernels.decorator import kernel


@kernel
def late_time_s(pipe):
    """Return when the next packet of the longer way arrives."""
    if pipe.head == pipe.tail:
        return np.inf
    return load(pipe.ring_at, (pipe.head & pipe.mask) * PIPE_STRIDE + TIME_S)


@kernel
def deliver(a, run, sources, fl, tx, release_s):
    """Deliver a packet that leaves its jitter box at release_s, or let it take the longer way."""
    pipe = a.pipes[fl.late_pipe]
    if uniform(run.seed, 0.0, float(fl.index), LATE_COUNTER + tx) < fl.late_share:
        put_pipe(pipe, tx, release_s + fl.late_s)
        fl.late_tail += 1
    else:
        while late_time_s(pipe) <= release_s:
            at = (pipe.head & pipe.mask) * PIPE_STRIDE
            pipe.head += 1
            receive(run, fl, int(load(pipe.ring_at, at + TX)), load(pipe.ring_at, at + TIME_S))
        receive(run, fl, tx, release_s)
    set_source(run.tree_at, run.tree_leaves, sources.pipes + fl.late_pipe, late_time_s(pipe))
