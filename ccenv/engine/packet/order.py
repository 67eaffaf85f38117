"""The order in which packets reach a receiver where some overtake others, and up to where ACKs have covered it. Compiled."""

from __future__ import annotations

from ccenv.engine.compiled.calls import load, store
from ccenv.engine.packet.layout import PIPE_STRIDE, TX
from ccenv.base.kernels.decorator import kernel


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
