"""From hop to hop: the links of data and of ACKs, and what brings packets to them. Compiled."""

from __future__ import annotations

from ccenv.engine.compiled.calls import load
from ccenv.engine.packet.layout import HOPS, PIPE_STRIDE, TIME_S
from ccenv.engine.packet.sources import flow_time_s, put_pipe, set_source
from ccenv.base.kernels.decorator import kernel


@kernel(inline="always")
def link_at(a, run, flow, hop):
    """Return the link at a hop of a flow's data, or of its ACKs (from ACK_HOP on)."""
    return a.links[int(load(run.route_at, flow * HOPS + hop))]


@kernel(inline="always")
def put_on_pipe(a, run, sources, flow, hop, tx, time_s):
    """Let a packet arrive at a hop at time_s."""
    p = int(load(run.route_at, (run.n_flows + flow) * HOPS + hop))
    if put_pipe(a.pipes[p], tx, time_s):
        set_source(run.tree_at, run.tree_leaves, sources.pipes + p, time_s)


@kernel
def go_on_back(a, run, sources, fl):
    """Let the ACKs that a receiver has sent reach their first link, if they pass one; set when the flow has something to do."""
    if fl.ack_hops > 0:
        pipe = a.pipes[fl.ack_pipe]
        if pipe.tail < fl.ack_out_tail:
            empty = pipe.head == pipe.tail
            pipe.tail = fl.ack_out_tail
            if empty:
                time_s = load(pipe.ring_at, (pipe.head & pipe.mask) * PIPE_STRIDE + TIME_S)
                set_source(run.tree_at, run.tree_leaves, sources.pipes + fl.ack_pipe, time_s)
    set_source(run.tree_at, run.tree_leaves, sources.flows + fl.index, flow_time_s(fl))
