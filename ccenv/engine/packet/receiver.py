"""Jitter boxes, random losses and receivers of the packet engine. Compiled.

A jitter box turns the time a packet leaves its last link into the time it is delivered: in order, and at most D later. The
receiver acknowledges every n-th packet, or when the delayed-ACK timer ends, and at once where something is missing
(RFC 5681 s.4.2). On their way back ACKs may be collected and come in bursts, or merged into one each. Packets and ACKs are lost
one by one, or in bursts (Gilbert, Elliott). Where some packets overtake others, a ring holds the order of arrival.
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.calls import load, prefetch, store
from ccenv.engine.packet.layout import (
    ACK_COUNTER,
    ACK_LOSS_COUNTER,
    AGGREGATIONS,
    AHEAD,
    ARRIVED,
    BURST_COUNTER,
    DELIVER,
    HERE,
    HERE_MARKED,
    JITTER_COUNTER,
    JITTERS,
    LOSS_COUNTER,
    MARKED_ON_THE_WAY,
    PIPE_STRIDE,
    RECEIVED,
    SEGMENT,
    SEGMENT_STRIDE,
    SENT_S,
    TIME_S,
    TX,
    TX_STRIDE,
    note,
)

DRAWS_PER_PACKET = 2  # of a chain: loss, then step
DRAWS_PER_ACK = 3  # loss one by one, then those of the chain


@kernel(inline="always")
def loses_packet(fl, tx, seed):
    """Tell whether a packet is lost before the first link."""
    lost = fl.loss_rate > 0.0 and uniform(seed, 0.0, float(fl.index), LOSS_COUNTER + tx) < fl.loss_rate
    if fl.bursts == 1:
        at = BURST_COUNTER + DRAWS_PER_PACKET * tx
        hit = uniform(seed, 0.0, float(fl.index), at) < (fl.burst_loss if fl.burst_bad == 1 else fl.burst_loss_between)
        if uniform(seed, 0.0, float(fl.index), at + 1.0) < (fl.burst_leave if fl.burst_bad == 1 else fl.burst_enter):
            fl.burst_bad = 1 - fl.burst_bad
        lost = lost or hit
    return lost


@kernel
def loses_ack(fl, seed):
    """Tell whether the next ACK is lost as it leaves the receiver."""
    at = ACK_LOSS_COUNTER + DRAWS_PER_ACK * fl.acks_sent
    fl.acks_sent += 1.0
    lost = fl.ack_loss_rate > 0.0 and uniform(seed, 0.0, float(fl.index), at) < fl.ack_loss_rate
    if fl.ack_bursts == 1:
        bad = fl.ack_burst_bad == 1
        hit = uniform(seed, 0.0, float(fl.index), at + 1.0) < (fl.ack_burst_loss if bad else fl.ack_burst_loss_between)
        if uniform(seed, 0.0, float(fl.index), at + 2.0) < (fl.ack_burst_leave if bad else fl.ack_burst_enter):
            fl.ack_burst_bad = 1 - fl.ack_burst_bad
        lost = lost or hit
    if lost:
        fl.acks_lost += 1.0
    return lost


@kernel(inline="always")
def note_arrival(fl, tx):
    """Write down that a packet has reached the receiver."""
    store(fl.order_at, fl.order_tail & fl.mask, float(tx))
    fl.order_tail += 1


@kernel(inline="always")
def next_arrival(fl):
    """Return the first packet, in the order of arrival, that no ACK has covered yet; it is covered now."""
    tx = int(load(fl.order_at, fl.order_head & fl.mask))
    fl.order_head += 1
    if fl.late_head < fl.late_tail and _first_late(fl) == tx:
        fl.late_head += 1
    return tx


@kernel(inline="always")
def oldest_needed(fl, oldest_tx):
    """Return the smaller one of a transmission and of the oldest on the longer way that no ACK has covered."""
    return min(oldest_tx, _first_late(fl)) if fl.late_head < fl.late_tail else oldest_tx


@kernel(inline="always")
def _first_late(fl):
    return int(load(fl.late_at, (fl.late_head & fl.mask) * PIPE_STRIDE + TX))


_CONSTANT, _BATCH, _INTERVAL, _EARLY, _REPLAY, _UNIFORM = (
    JITTERS[kind] for kind in ("constant", "batch", "interval", "early", "replay", "uniform")
)
_NONE, _ACK_INTERVAL = AGGREGATIONS["none"], AGGREGATIONS["interval"]
# A time that is a multiple of the interval up to rounding counts as one.
MULTIPLE_TOLERANCE = 1e-9


@kernel(forceinline=True)
def release_time_s(fl, arrival_s, seed):
    """Return when a packet that reaches the box at arrival_s leaves it: in order, within D."""
    release_s = arrival_s
    jitter = fl.jitter_kind
    if jitter == _CONSTANT:
        release_s = arrival_s + fl.jitter_s
    elif jitter == _BATCH:  # [CCmatic] App. H: agg_delay ~ U[0, D), drawn anew per batch
        while fl.batch_end_s < arrival_s:
            fl.batch_end_s += fl.jitter_s * uniform(seed, 0.0, float(fl.index), JITTER_COUNTER + fl.jitter_draws)
            fl.jitter_draws += 1.0
        release_s = fl.batch_end_s
    elif jitter == _UNIFORM:
        release_s = arrival_s + fl.jitter_s * uniform(seed, 0.0, float(fl.index), JITTER_COUNTER + fl.jitter_draws)
        fl.jitter_draws += 1.0
    elif jitter == _INTERVAL:  # [Starvation] s.5.3
        release_s = math.ceil(arrival_s / fl.jitter_interval_s - MULTIPLE_TOLERANCE) * fl.jitter_interval_s
    elif jitter == _REPLAY:
        entry = np.int64(arrival_s / fl.jitter_interval_s + MULTIPLE_TOLERANCE) % fl.jitter_table_length
        release_s = arrival_s + load(fl.jitter_table_at, entry)
    elif jitter == _EARLY:  # [Starvation] s.5.1: one packet without the delay that all others have
        if arrival_s >= fl.jitter_at_s:
            fl.jitter_at_s = fl.jitter_at_s + fl.jitter_interval_s if fl.jitter_interval_s > 0.0 else np.inf
        else:
            release_s = arrival_s + fl.jitter_s
    release_s = max(arrival_s, min(release_s, arrival_s + fl.jitter_s))
    release_s = max(release_s, fl.last_release_s)
    fl.last_release_s = release_s
    return release_s


@kernel(forceinline=True)
def ack_arrival_s(fl, time_s, seed):
    """Return when an ACK that would arrive at time_s does so where ACKs are collected on their way."""
    if fl.ack_aggregation == _ACK_INTERVAL:
        return math.ceil(time_s / fl.ack_aggregate_s - MULTIPLE_TOLERANCE) * fl.ack_aggregate_s
    while fl.ack_batch_end_s < time_s:
        fl.ack_batch_end_s += fl.ack_aggregate_s * uniform(seed, 0.0, float(fl.index), ACK_COUNTER + fl.ack_draws)
        fl.ack_draws += 1.0
    return fl.ack_batch_end_s


@kernel(forceinline=True)
def return_ack(run, fl, tx, time_s):
    """Let the ACK of a packet arrive at the sender at time_s, or when ACKs collected on their way do."""
    if fl.ack_aggregation != _NONE:
        time_s = ack_arrival_s(fl, time_s, run.seed)
        newest = ((fl.ack_tail - 1) & fl.mask) * PIPE_STRIDE
        if fl.ack_merge == 1 and fl.ack_head < fl.ack_tail and load(fl.ack_ring_at, newest + TIME_S) == time_s:
            fl.ack_tail -= 1  # the newer one says all that the older one did
    at = (fl.ack_tail & fl.mask) * PIPE_STRIDE
    store(fl.ack_ring_at, at + TIME_S, time_s)
    store(fl.ack_ring_at, at + TX, float(tx))
    prefetch(fl.ack_ring_at, at + AHEAD * PIPE_STRIDE)
    fl.ack_tail += 1


@kernel(forceinline=True)
def send_ack(run, fl, now_s):
    """Acknowledge everything received; the ACK reaches the sender after the return path's delay, or goes to its first link."""
    fl.pending_acks = 0
    fl.ack_deadline_s = np.inf
    if fl.ack_path == 1:
        if loses_ack(fl, run.seed):
            return
        if fl.ack_hops > 0:
            at = (fl.ack_out_tail & fl.mask) * PIPE_STRIDE
            store(fl.ack_out_at, at + TIME_S, now_s)
            store(fl.ack_out_at, at + TX, float(fl.last_received_tx))
            fl.ack_out_tail += 1
            return
    return_ack(run, fl, fl.last_received_tx, now_s + fl.return_s)


@kernel(forceinline=True)
def receive(run, fl, tx, now_s):
    """Take a packet at the receiver at now_s, not before those of earlier calls."""
    if fl.ack_deadline_s < now_s:
        send_ack(run, fl, fl.ack_deadline_s)
    note(run, DELIVER, now_s, fl, -1, tx)
    entry = fl.tx_at
    at = (tx & fl.mask) * TX_STRIDE
    marked = load(entry, at + ARRIVED) == MARKED_ON_THE_WAY
    store(entry, at + ARRIVED, HERE_MARKED if marked else HERE)
    fl.one_way_sum_s += now_s - load(entry, at + SENT_S)
    fl.one_way_samples += 1.0
    segment = int(load(entry, at + SEGMENT))
    in_order = segment == fl.received_below and fl.received_high <= segment
    seat = (segment & fl.mask) * SEGMENT_STRIDE + RECEIVED
    prefetch(fl.segment_at, ((segment + AHEAD) & fl.mask) * SEGMENT_STRIDE)
    if load(fl.segment_at, seat) != segment + 1.0:
        store(fl.segment_at, seat, segment + 1.0)
        fl.goodput_bytes += fl.mss_bytes
    fl.received_high = max(fl.received_high, segment + 1)
    below = fl.received_below
    while load(fl.segment_at, (below & fl.mask) * SEGMENT_STRIDE + RECEIVED) == below + 1.0:
        below += 1
    fl.received_below = below
    fl.last_received_tx = tx
    if fl.reorders == 1:
        note_arrival(fl, tx)
    fl.pending_acks += 1
    if not in_order or fl.pending_acks >= fl.ack_every or segment < fl.quick_acks:
        send_ack(run, fl, now_s)
    elif fl.pending_acks == 1:
        fl.ack_deadline_s = now_s + fl.ack_timeout_s
