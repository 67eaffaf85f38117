"""Sources of events: their next times, which of them is first, and what events do to links, pipes and jitter boxes. Compiled.

While an event happens the first of all other sources is already known; a time that is set then only has to be compared with it.
Only a source that was first and is put off makes all be looked at again. Very many sources play matches in a winner tree instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import load, smallest_of, store
from ccenv.engine.packet.dequeue import CODEL, put_in, take_out, taken_bytes
from ccenv.engine.packet.layout import (
    ACK_HOP,
    ARRIVED,
    DROP_EVENT,
    ENQUEUE,
    MARKED_ON_THE_WAY,
    PIPE_STRIDE,
    TIME_S,
    TX,
    TX_STRIDE,
    note,
)
from ccenv.engine.packet.queue import DROP, MARK, append, count_queue, packet_bytes, serve_head, verdict
from ccenv.engine.packet.receiver import receive
from ccenv.engine.packet.service import service_end_s


class Sources(NamedTuple):
    """The numbers of the event sources, of the first link, flow and so on; boxes are those with an adversary.

    Number 0 are the rate changes. ``tick`` is the one of all CCAs, ``arrivals`` are transfers that come.
    """

    links: int
    flows: int
    pipes: int
    boxes: int
    grids: int
    monitors: int
    tick: int
    log: int
    arrivals: int


RATE_CHANGES, FIRST_LINK = 0, 1
FEW, MAX_FLAT = 8, 128  # leaves up to which all are looked at before each event; beyond which there are matches
UNKNOWN = -1  # which source is first
_SPAN = 16  # leaves that are compared at once
_first_of_few, _first_of_span = smallest_of(FEW), smallest_of(_SPAN)


@kernel(inline="always")
def sources_of(n_links, n_flows, n_pipes, n_boxes, n_grids, n_monitors):
    flows = FIRST_LINK + n_links
    pipes = flows + n_flows
    boxes = pipes + n_pipes
    grids = boxes + n_boxes
    monitors = grids + n_grids
    tick = monitors + n_monitors
    return Sources(FIRST_LINK, flows, pipes, boxes, grids, monitors, tick, tick + 1, tick + 2)


@kernel(forceinline=True)
def _look_at_all(tree, leaves, left_out):
    """Return time and number of the first source but one."""
    time_s, winner = _first_of_span(tree, leaves, left_out)
    for begin in range(_SPAN, leaves, _SPAN):
        other_s, other = _first_of_span(tree, leaves + begin, left_out - begin)
        if other_s < time_s:
            time_s, winner = other_s, begin + other
    return time_s, winner


@kernel(inline="always")
def next_event(run):
    tree, leaves = run.tree_at, run.tree_leaves
    if leaves == FEW:
        return _first_of_few(tree, leaves, UNKNOWN)
    if leaves <= MAX_FLAT and run.first_source == UNKNOWN:
        run.first_s, run.first_source = _look_at_all(tree, leaves, UNKNOWN)
    return run.first_s, run.first_source


@kernel(inline="always")
def take_event(run, source):
    """Look for the first source but the one whose event happens now; what sets a next time compares it with that one's."""
    if FEW < run.tree_leaves <= MAX_FLAT:
        run.first_s, run.first_source = _look_at_all(run.tree_at, run.tree_leaves, source)


@kernel(forceinline=True)
def set_source(run, source, time_s):
    """Set the next time of an event source, and which source is first."""
    store(run.tree_at, run.tree_leaves + source, time_s)
    if run.tree_leaves == FEW:
        return
    if run.tree_leaves > MAX_FLAT:
        _play_matches(run, source, time_s)
    elif source == run.first_source:
        if time_s > run.first_s:
            run.first_source = UNKNOWN
            run.first_s = -np.inf
        else:
            run.first_s = time_s
    elif time_s < run.first_s or (time_s == run.first_s and source < run.first_source):
        run.first_source = source
        run.first_s = time_s


@kernel
def _play_matches(run, source, time_s):
    """Play the matches of a source in the winner tree, up to the root."""
    tree, leaves = run.tree_at, run.tree_leaves
    node = leaves + source
    winner = float(source)
    node >>= 1
    while node >= 1:
        left, right = 2 * node, 2 * node + 1
        first, second = load(tree, left), load(tree, right)
        if first <= second:
            time_s = first
            winner = load(tree, 2 * leaves + left)
        else:
            time_s = second
            winner = load(tree, 2 * leaves + right)
        store(tree, node, time_s)
        store(tree, 2 * leaves + node, winner)
        node >>= 1
    run.first_s = time_s
    run.first_source = int(winner)


@kernel(forceinline=True)
def flow_time_s(fl):
    if fl.started == 0:
        return fl.start_s
    time_s = min(fl.wake_s, fl.rto_deadline_s)
    if fl.ack_hops > 0:  # the delayed ACK has to pass links
        time_s = min(time_s, fl.ack_deadline_s)
    if fl.ack_head < fl.ack_tail:
        return min(time_s, load(fl.ack_ring_at, (fl.ack_head & fl.mask) * PIPE_STRIDE + TIME_S) + fl.hold_s)
    return time_s if fl.ack_hops > 0 else min(time_s, fl.ack_deadline_s + fl.return_s)


@kernel(forceinline=True)
def start_service(run, flows, ln, now_s):
    """Take the next packet of an unoccupied link with a plain queue into service, if there is one."""
    count_queue(ln, now_s, run.mss_bytes)
    if ln.head < ln.tail:
        serve_head(run, flows, ln, now_s)
    else:
        ln.busy = 0
        ln.finish_s = np.inf
        ln.idle_since_s = now_s


@kernel
def serve_next(run, flows, ln, now_s):
    """Take the next packet of an unoccupied link with linked queues into service, if there is one."""
    count_queue(ln, now_s, run.mss_bytes)
    if take_out(run, flows, ln, now_s):
        size_bytes = taken_bytes(run, flows, ln)
        if ln.mixed == 1:
            ln.waiting_bytes -= size_bytes
        ln.busy = 1
        ln.finish_s = service_end_s(ln, now_s, size_bytes)
    else:
        ln.busy = 0
        ln.finish_s = np.inf
        ln.idle_since_s = now_s


@kernel(forceinline=True)
def arrive(run, flows, ln, fl, tx, hop, now_s):
    """Bring a packet to a link: drop, mark, queue or serve it."""
    mss_bytes = run.mss_bytes
    size_bytes = packet_bytes(fl, hop) if ln.mixed == 1 else mss_bytes
    ln.arrived_bytes += size_bytes
    decision = verdict(ln, now_s, size_bytes, mss_bytes, run.seed, fl.ecn if hop < ACK_HOP else 0)
    if decision == DROP:
        ln.dropped_bytes += size_bytes
        if hop >= ACK_HOP:
            fl.acks_lost += 1.0
            return
        fl.dropped_bytes += size_bytes
        fl.in_network -= 1
        note(run, DROP_EVENT, now_s, fl, ln.index, tx)
        return
    if hop < ACK_HOP:
        note(run, ENQUEUE, now_s, fl, ln.index, tx)
    if decision == MARK:
        ln.marked_bytes += size_bytes
        store(fl.tx_at, (tx & fl.mask) * TX_STRIDE + ARRIVED, MARKED_ON_THE_WAY)
    if ln.discipline >= CODEL:
        count_queue(ln, now_s, mss_bytes)
        put_in(run, flows, ln, fl, tx, hop, now_s)
        if ln.busy == 0:
            serve_next(run, flows, ln, now_s)
            set_source(run, FIRST_LINK + ln.index, ln.finish_s)
    elif ln.busy == 1:
        count_queue(ln, now_s, mss_bytes)
        append(ln, fl.index, tx, hop, now_s)
        if ln.mixed == 1:
            ln.waiting_bytes += size_bytes
    else:
        ln.busy = 1
        ln.serving_flow = fl.index
        ln.serving_tx = tx
        ln.serving_hop = hop
        ln.finish_s = service_end_s(ln, now_s, size_bytes)
        set_source(run, FIRST_LINK + ln.index, ln.finish_s)


@kernel
def put_pipe(pipe, tx, time_s):
    """Append a packet to a pipe or box; return whether it was empty."""
    at = (pipe.tail & pipe.mask) * PIPE_STRIDE
    store(pipe.ring_at, at + TIME_S, time_s)
    store(pipe.ring_at, at + TX, float(tx))
    pipe.tail += 1
    return pipe.tail - pipe.head == 1


@kernel
def release_box(run, box, fl, now_s, share):
    """Deliver from a box what is due, and of the rest the share that the adversary lets go (rounded)."""
    while box.head < box.tail and load(box.ring_at, (box.head & box.mask) * PIPE_STRIDE + TIME_S) + fl.jitter_s <= now_s:
        receive(run, fl, int(load(box.ring_at, (box.head & box.mask) * PIPE_STRIDE + TX)), now_s)
        box.head += 1
    count = int(share * (box.tail - box.head) + 0.5)
    for _ in range(count):
        receive(run, fl, int(load(box.ring_at, (box.head & box.mask) * PIPE_STRIDE + TX)), now_s)
        box.head += 1


@kernel
def box_time_s(box, fl):
    """Return when a box has something to do next: a decision, or a packet that may be held no longer."""
    if box.head < box.tail:
        return min(box.decision_s, load(box.ring_at, (box.head & box.mask) * PIPE_STRIDE + TIME_S) + fl.jitter_s)
    return box.decision_s
