"""Receivers that acknowledge every n-th packet: the emulator keeps the ACKs of the kernel in between. Compiled.

As the receiver of the packet engine: an ACK goes when it stands for n packets, when the oldest has waited for ``ack_timeout_s``,
and at once where something is missing or was filled (RFC 5681 s.4.2).
"""

from __future__ import annotations

import math

from ccenv.engine.packet.layout import AGGREGATIONS
from ccenv.engine.packet.receiver import ack_arrival_s
from ccenv.base.kernels.decorator import kernel
from ccenv.live.emulator.link import give_back, put

NO_AGGREGATION = AGGREGATIONS["none"]
FIN, SYN, RST = 1, 2, 4
END_OF_OPTIONS, NO_OPERATION, SACK = 0, 1, 5
HEADER_BYTES = 20  # of TCP without options


@kernel
def word_at(m, slot, at, n_bytes):
    """Return a number of a packet, most significant byte first."""
    value = 0
    for j in range(n_bytes):
        value = (value << 8) | m.slab[slot, at + j]
    return value


@kernel
def reports_gap(m, slot, tcp, end):
    """Tell whether the options of a TCP header name packets beyond the acknowledged ones."""
    at = tcp + HEADER_BYTES
    while at < end:
        kind = m.slab[slot, at]
        if kind == SACK:
            return True
        if kind == END_OF_OPTIONS:
            return False
        length = 1
        if kind != NO_OPERATION:
            length = int(m.slab[slot, at + 1]) if at + 1 < end else 0
            if length < 2:
                return False
        at += length
    return False


@kernel
def send_back(m, i, slot, now_s):
    """Let an ACK leave the receiver; it comes to the sender after the return path and what collects ACKs there."""
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


@kernel
def forget_kept(m, i):
    """Give up the ACK that is kept, if there is one: a newer one says all that it did."""
    fl = m.flows[i]
    if fl.kept_slot >= 0:
        give_back(m, fl.kept_slot)
    fl.kept_slot = -1
    fl.kept_packets = 0.0


@kernel
def acknowledge(m, i, slot, tcp, now_s):
    """Take an ACK that the kernel's receiver sends: it goes now, or is kept."""
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
    kept = fl.kept_packets
    forget_kept(m, i)
    if kept == 0.0:
        fl.kept_until_s = now_s + fl.ack_timeout_s
    fl.kept_slot = slot
    fl.kept_packets = kept + math.ceil(advanced / fl.segment_bytes)
    if fl.kept_packets >= fl.ack_every:
        send_kept(m, i, now_s)


@kernel
def send_kept(m, i, now_s):
    """Let the ACK go that is kept."""
    fl = m.flows[i]
    slot = fl.kept_slot
    fl.kept_slot = -1
    fl.kept_packets = 0.0
    send_back(m, i, slot, now_s)


@kernel
def end_waits(m, now_s):
    """Let the ACKs go that have been kept for long enough; return when the next one has."""
    next_s = math.inf
    for i in range(m.run[0].n_flows):
        fl = m.flows[i]
        if fl.kept_slot >= 0:
            if fl.kept_until_s <= now_s:
                send_kept(m, i, fl.kept_until_s)
            else:
                next_s = min(next_s, fl.kept_until_s)
    return next_s
