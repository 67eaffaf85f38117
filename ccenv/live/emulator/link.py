"""The emulated link (random loss, a drop-tail queue, a rate with a schedule) and receivers with thinned ACKs. Compiled.

Packets are served in order, so all times of a packet are known at its arrival. As in the engines, waiting packets are those whose
service has not begun. If a receiver acknowledges every n-th packet, the emulator keeps the kernel's ACKs in between, as the
receiver of the packet engine does: an ACK leaves when it covers n packets, when the oldest has waited for ``ack_timeout_s``, and
immediately if packets are missing or a gap was filled (RFC 5681 s.4.2).
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.packet.layout import (
    AGGREGATIONS,
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
from ccenv.engine.packet.receiver import ack_arrival_s, release_time_s
from ccenv.live.emulator.layout import CCAC

ON_TIME_S = 1e-9  # tolerance for events at an instant, because sums are rounded


@kernel(_nrt=False)
def note(m, event, time_s, flow, link, tx):
    """Add a row to the packet log if there is room; all rows are counted."""
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


@kernel(_nrt=False)
def give_back(m, slot):
    """Free a packet's slot."""
    run = m.run[0]
    m.free[run.n_free] = slot
    run.n_free += 1


@kernel(_nrt=False)
def put(ring, tail, sent_s, entered_s, due_s, slot, tx):
    packet = ring[tail & (ring.shape[0] - 1)]
    packet.sent_s = sent_s
    packet.entered_s = entered_s
    packet.due_s = due_s
    packet.slot = slot
    packet.tx = tx


@kernel(_nrt=False)
def rate_at(m, time_s):
    """Return the link's rate for a packet whose service begins at a time; times of calls must not decrease."""
    run = m.run[0]
    while run.next_change < m.changes.shape[0] and m.changes[run.next_change, 0] <= time_s:
        run.link_rate_Bps = m.changes[run.next_change, 1]
        run.next_change += 1
    return run.link_rate_Bps


@kernel(_nrt=False)
def count_services(m, now_s):
    """Count the packets whose service has begun and ended by now."""
    run = m.run[0]
    mask = m.service.shape[0] - 1
    while run.begun < run.accepted and m.service[run.begun & mask].begin_s <= now_s:
        run.begun += 1
    while run.departed < run.accepted and m.service[run.departed & mask].finish_s <= now_s:
        run.departed += 1
        run.served_bytes += run.mss_bytes


@kernel(_nrt=False)
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


@kernel(_nrt=False)
def drop(m, i, slot, tx, now_s):
    """Lose a packet at the full queue."""
    run, fl = m.run[0], m.flows[i]
    run.dropped_bytes += run.mss_bytes
    fl.dropped_bytes += run.mss_bytes
    note(m, DROP_EVENT, now_s, i, 0, tx)
    give_back(m, slot)


@kernel(_nrt=False)
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
    service = m.service[run.accepted & (m.service.shape[0] - 1)]
    service.begin_s = begin_s
    service.finish_s = finish_s
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


@kernel(_nrt=False)
def release(m, i, due_s):
    """Schedule the next packet of flow i to reach its receiver at a time."""
    fl = m.flows[i]
    packet = m.forward[i, fl.forward_due & (m.forward.shape[1] - 1)]
    packet.due_s = due_s
    fl.forward_due += 1
    fl.one_way_sum_s += due_s - packet.sent_s
    fl.one_way_samples += 1.0
    fl.rtt_sum_s += due_s - packet.sent_s + fl.return_s
    fl.rtt_samples += 1.0
    note(m, DELIVER, due_s, i, -1, packet.tx)


@kernel(_nrt=False)
def leave_access(m, now_s):
    """Bring packets from the flows' access paths to the link, in order of time."""
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


NO_AGGREGATION = AGGREGATIONS["none"]
FIN, SYN, RST = 1, 2, 4
END_OF_OPTIONS, NO_OPERATION, SACK = 0, 1, 5
HEADER_BYTES = 20  # of TCP without options


@kernel(_nrt=False)
def word_at(m, slot, at, n_bytes):
    """Return a big-endian number in a packet."""
    value = 0
    for j in range(n_bytes):
        value = (value << 8) | m.slab[slot, at + j]
    return value


@kernel(_nrt=False)
def reports_gap(m, slot, tcp, end):
    """Tell whether the options of a TCP header report packets beyond the acknowledged ones."""
    at = tcp + HEADER_BYTES
    while at < end:
        option = m.slab[slot, at]
        if option == SACK:
            return True
        if option == END_OF_OPTIONS:
            return False
        length = 1
        if option != NO_OPERATION:
            length = int(m.slab[slot, at + 1]) if at + 1 < end else 0
            if length < 2:
                return False
        at += length
    return False


@kernel(_nrt=False)
def send_back(m, i, slot, now_s):
    """Send an ACK from the receiver; it reaches the sender after the return path and its ACK aggregation."""
    fl, path = m.flows[i], m.paths[i]
    due_s = now_s + fl.return_s
    if path.ack_aggregation != NO_AGGREGATION and due_s >= 0.0:
        due_s = ack_arrival_s(path, due_s, m.run[0].seed)
        newest = m.back[i, (fl.back_tail - 1) & (m.back.shape[1] - 1)]
        if path.ack_merge == 1 and fl.back_head < fl.back_tail and newest.due_s == due_s:
            give_back(m, newest.slot)
            fl.back_tail -= 1
    put(m.back[i], fl.back_tail, fl.last_sent_s, now_s, due_s, slot, fl.last_delivered)
    m.back[i, fl.back_tail & (m.back.shape[1] - 1)].count = fl.delivered
    fl.back_tail += 1
    if fl.size_bytes < math.inf and fl.payload_bytes >= fl.size_bytes and fl.finished_s == math.inf:
        fl.finished_s = due_s


@kernel(_nrt=False)
def forget_kept(m, i):
    """Drop the ACK that is kept, if there is one, because a newer one covers it."""
    fl = m.flows[i]
    if fl.kept_slot >= 0:
        give_back(m, fl.kept_slot)
    fl.kept_slot = -1
    fl.kept_packets = 0.0


@kernel(_nrt=False)
def acknowledge(m, i, slot, tcp, now_s):
    """Send an ACK of the kernel's receiver now, or keep it."""
    fl = m.flows[i]
    end = tcp + (m.slab[slot, tcp + 12] >> 4) * 4
    acked = word_at(m, slot, tcp + 8, 4)
    advanced = (acked - fl.acked) & 0xFFFFFFFF if fl.acked >= 0 else 0
    special = m.slab[slot, tcp + 13] & (FIN | SYN | RST)
    gap = reports_gap(m, slot, tcp, end)
    in_order = special == 0 and not gap and fl.had_gap == 0 and 0 <= advanced < 0x80000000
    fl.acked = acked
    fl.had_gap = 1 if gap else 0
    if not in_order or (advanced == 0 and fl.kept_slot < 0):
        forget_kept(m, i)
        send_back(m, i, slot, now_s)
        return
    kept_packets = fl.kept_packets
    forget_kept(m, i)
    if kept_packets == 0.0:
        fl.kept_until_s = now_s + fl.ack_timeout_s
    fl.kept_slot = slot
    fl.kept_packets = kept_packets + math.ceil(advanced / fl.segment_bytes)
    if fl.kept_packets >= fl.ack_every:
        send_kept(m, i, now_s)


@kernel(_nrt=False)
def send_kept(m, i, now_s):
    fl = m.flows[i]
    slot = fl.kept_slot
    fl.kept_slot = -1
    fl.kept_packets = 0.0
    send_back(m, i, slot, now_s)


@kernel(_nrt=False)
def end_waits(m, now_s):
    """Send the ACKs whose time is over; return when the next one is due."""
    next_s = math.inf
    for i in range(m.run[0].n_flows):
        fl = m.flows[i]
        if fl.kept_slot >= 0:
            if fl.kept_until_s <= now_s:
                send_kept(m, i, fl.kept_until_s)
            else:
                next_s = min(next_s, fl.kept_until_s)
    return next_s
