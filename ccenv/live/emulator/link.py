"""The emulated link: random loss, a drop-tail queue, a rate with a schedule. Compiled.

All times are known when a packet arrives: it is served after those before it. What the engines count as waiting is counted here:
packets whose service has not begun.
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.base.random import uniform
from ccenv.engine.packet.layout import (
    DELIVER,
    DEPART,
    DROP_EVENT,
    ENQUEUE,
    LOG_EVENT,
    LOG_FLOW,
    LOG_LINK,
    LOG_SEGMENT,
    LOG_TIME,
    LOG_TX,
    LOSS_COUNTER,
    SEND,
)
from ccenv.engine.packet.receiver import release_time_s
from ccenv.base.kernels.decorator import kernel
from ccenv.live.emulator.layout import CCAC

ON_TIME_S = 1e-9  # what happens so little after an instant has happened by then: rounding of sums


@kernel
def note(m, event, time_s, flow, link, tx):
    """Add a row to the packet log, as long as there is room; the rows that happened are counted."""
    run = m.run[0]
    if run.event_rows < m.events.shape[0]:
        row = m.events[run.event_rows]
        row[LOG_TIME] = time_s
        row[LOG_EVENT] = event
        row[LOG_FLOW] = flow
        row[LOG_LINK] = link
        row[LOG_TX] = tx
        row[LOG_SEGMENT] = tx
    run.event_rows += 1


@kernel
def give_back(m, slot):
    """Free a packet's slot."""
    run = m.run[0]
    m.free[run.n_free] = slot
    run.n_free += 1


@kernel
def put(ring, tail, sent_s, entered_s, due_s, slot, tx):
    """Write a packet to a place of a ring."""
    packet = ring[tail & (ring.shape[0] - 1)]
    packet.sent_s = sent_s
    packet.entered_s = entered_s
    packet.due_s = due_s
    packet.slot = slot
    packet.tx = tx


@kernel
def rate_at(m, time_s):
    """Return the link's rate for a packet whose service begins at a time, not before those of earlier calls."""
    run = m.run[0]
    while run.next_change < m.changes.shape[0] and m.changes[run.next_change, 0] <= time_s:
        run.link_rate_Bps = m.changes[run.next_change, 1]
        run.next_change += 1
    return run.link_rate_Bps


@kernel
def count_services(m, now_s):
    """Count whose service has begun and ended by now."""
    run = m.run[0]
    mask = m.service.shape[0] - 1
    while run.begun < run.accepted and m.service[run.begun & mask].begin_s <= now_s:
        run.begun += 1
    while run.departed < run.accepted and m.service[run.departed & mask].finish_s <= now_s:
        run.departed += 1
        run.served_bytes += run.mss_bytes


@kernel
def send(m, i, slot, now_s):
    """Take a packet of flow i from its sender."""
    run, fl = m.run[0], m.flows[i]
    tx = fl.transmissions
    fl.transmissions += 1
    note(m, SEND, now_s, i, -1, tx)
    if fl.loss_rate > 0.0 and uniform(run.seed, 0.0, float(i), LOSS_COUNTER + tx) < fl.loss_rate:
        fl.random_lost_bytes += run.mss_bytes
        note(m, DROP_EVENT, now_s, i, -1, tx)
        give_back(m, slot)
    elif fl.access_s > 0.0:
        put(m.access[i], fl.access_tail, now_s, 0.0, now_s + fl.access_s, slot, tx)
        fl.access_tail += 1
    else:
        arrive(m, i, slot, tx, now_s, now_s)


@kernel
def drop(m, i, slot, tx, now_s):
    """Lose a packet at the full queue."""
    run, fl = m.run[0], m.flows[i]
    run.dropped_bytes += run.mss_bytes
    fl.dropped_bytes += run.mss_bytes
    note(m, DROP_EVENT, now_s, i, 0, tx)
    give_back(m, slot)


@kernel
def arrive(m, i, slot, tx, sent_s, now_s):
    """Bring a packet to the link; in ccac it waits there for the end of the step."""
    run, fl = m.run[0], m.flows[i]
    run.arrived_bytes += run.mss_bytes
    if run.model == CCAC:
        order = m.order[run.order_tail & (m.order.shape[0] - 1)]
        order.sent_s = sent_s
        order.arrival_s = now_s
        order.slot = slot
        order.tx = tx
        order.flow = i
        run.order_tail += 1
        return
    count_services(m, now_s)
    waiting = run.accepted - run.begun
    begin_s = max(now_s, run.busy_until_s)
    if begin_s > now_s and (waiting + 1) * run.mss_bytes > run.buffer_bytes + 1e-6 * run.mss_bytes:
        drop(m, i, slot, tx, now_s)
        return
    finish_s = begin_s + run.mss_bytes / rate_at(m, begin_s)
    place = m.service[run.accepted & (m.service.shape[0] - 1)]
    place.begin_s = begin_s
    place.finish_s = finish_s
    run.accepted += 1
    run.busy_until_s = finish_s
    run.queue_byte_s += (begin_s - now_s) * run.mss_bytes
    note(m, ENQUEUE, now_s, i, 0, tx)
    note(m, DEPART, finish_s, i, 0, tx)
    if fl.boxed == 1:
        put(m.forward[i], fl.forward_tail, sent_s, finish_s, np.inf, slot, tx)
        fl.forward_tail += 1
    else:
        due_s = release_time_s(m.paths[i], finish_s + fl.forward_s, run.seed)
        put(m.forward[i], fl.forward_tail, sent_s, finish_s, due_s, slot, tx)
        fl.forward_tail += 1
        release(m, i, due_s)


@kernel
def release(m, i, due_s):
    """Let the next packet of flow i reach its receiver at a time."""
    fl = m.flows[i]
    packet = m.forward[i, fl.forward_due & (m.forward.shape[1] - 1)]
    packet.due_s = due_s
    fl.forward_due += 1
    fl.one_way_sum_s += due_s - packet.sent_s
    fl.one_way_samples += 1.0
    fl.rtt_sum_s += due_s - packet.sent_s + fl.return_s
    fl.rtt_samples += 1.0
    note(m, DELIVER, due_s, i, -1, packet.tx)


@kernel
def leave_access(m, now_s):
    """Bring what has come through the flows' access paths to the link, in the order of time."""
    while True:
        best, best_s = -1, math.inf
        for i in range(m.run[0].n_flows):
            fl = m.flows[i]
            if fl.access_head < fl.access_tail:
                due_s = m.access[i, fl.access_head & (m.access.shape[1] - 1)].due_s
                if due_s < best_s:
                    best, best_s = i, due_s
        if best_s > now_s:
            return best_s
        packet = m.access[best, m.flows[best].access_head & (m.access.shape[1] - 1)]
        m.flows[best].access_head += 1
        arrive(m, best, packet.slot, packet.tx, packet.sent_s, best_s)
