"""RACK: losses by time (RFC 8985 s.6). Compiled.

A transmission is lost when one that was sent later has arrived, and the RTT of that one plus the reordering window has passed
since it was sent. Transmissions are numbered as they are sent, so "sent later" is a larger number, and which of several
transmissions of a segment an ACK is for is never in doubt.
"""

from __future__ import annotations

import numpy as np

from ccenv.engine.compiled.calls import load, store
from ccenv.engine.packet.layout import (
    CONFIRMED,
    LOST,
    OUTSTANDING,
    SEGMENT,
    SEGMENT_STRIDE,
    SENT_S,
    STATUS,
    TX_STRIDE,
)
from ccenv.base.kernels.decorator import kernel

NO_PACKET, RETRANSMISSION, PROBE = range(3)  # which packet may be sent although the window is full
RTO_TIMER, REORDERING_TIMER, PROBE_TIMER = range(3)  # what the one timer of a flow is for (s.5.4)
DUPLICATES = 3.0  # DupThresh: s.6.2, step 4
WINDOW_STEPS = 4.0  # the reordering window grows by 1/4 of the smallest RTT: s.6.2, step 4
PERSISTENCE = 16  # recoveries for which a grown window is kept: the same
ROUNDING_S = 1e-9  # a time that has passed up to rounding has passed
NO_ROUND = -1  # of duplicates that a receiver told of (RACK.dsack_round)


@kernel
def begin_rack(fl):
    """Begin with what a sender knows that has sent nothing (s.5.3)."""
    fl.first_segment = fl.next_segment
    fl.fack = fl.next_segment - 1
    fl.reordering_seen = 0
    fl.reordering_steps = 1
    fl.reordering_persists = PERSISTENCE
    fl.reordering_s = 0.0
    fl.dsack_below = NO_ROUND
    fl.rack_rtt_s = 0.0
    fl.recovering = 0
    fl.recovery_below = fl.next_segment
    fl.hole_tx = fl.next_tx - 1
    fl.hole_seen = fl.next_tx
    fl.timer = RTO_TIMER
    fl.rto_expires_s = np.inf
    fl.probe_tx = -1
    fl.probe_samples = fl.rtt_samples
    fl.beyond_window = NO_PACKET


@kernel
def see_order(fl, tx):
    """Notice a segment that was sent once and arrives behind later ones (s.6.2, step 3)."""
    segment = int(load(fl.tx_at, (tx & fl.mask) * TX_STRIDE + SEGMENT))
    if load(fl.segment_at, (segment & fl.mask) * SEGMENT_STRIDE + CONFIRMED) == segment + 1.0:
        return
    if segment > fl.fack:
        fl.fack = segment
    elif load(fl.resent_at, segment & fl.mask) != segment + 1.0:
        fl.reordering_seen = 1


@kernel
def sacked_segments(fl):
    """Return how many segments have arrived beyond the cumulative acknowledgement."""
    return fl.delivered_bytes / fl.mss_bytes - (fl.confirmed_below - fl.first_segment)


@kernel
def set_reordering_window(fl):
    """Set the reordering window (s.6.2, step 4, last part)."""
    fl.reordering_s = min(fl.reordering_steps * fl.min_rtt_s / WINDOW_STEPS, fl.srtt_s)
    if fl.reordering_seen == 0 and (fl.recovering == 1 or sacked_segments(fl) > DUPLICATES - 0.5):
        fl.reordering_s = 0.0


@kernel
def take_delivery(fl, newest_tx, arrivals, acked_bytes):
    """Learn from an ACK (s.6.2, steps 2 and 4).

    Args:
        fl: the flow, after the ACK was taken.
        newest_tx: next to the newest transmission that was acknowledged before.
        arrivals: transmissions that this ACK says have arrived.
        acked_bytes: of segments that have arrived for the first time.
    """
    fl.beyond_window = NO_PACKET
    if fl.ack_next_tx > newest_tx:
        fl.rack_rtt_s = fl.rtt_s
    leaves = fl.recovering == 1 and fl.confirmed_below >= fl.recovery_below
    if leaves:
        fl.recovering = 0
    if fl.dsack_below != NO_ROUND and fl.confirmed_below >= fl.dsack_below:
        fl.dsack_below = NO_ROUND
    if fl.dsack_below == NO_ROUND and (arrivals - 0.5) * fl.mss_bytes > acked_bytes:  # a duplicate (RFC 2883)
        fl.dsack_below = fl.next_segment
        fl.reordering_steps += 1
        fl.reordering_persists = PERSISTENCE
    elif leaves:
        fl.reordering_persists -= 1
        if fl.reordering_persists <= 0:
            fl.reordering_steps = 1
    if fl.confirmed_below == fl.next_segment and fl.inflight_bytes > 0.0:
        _forget_copies(fl)
    set_reordering_window(fl)


@kernel
def _forget_copies(fl):
    """Take nothing to be in flight any more when everything has arrived: what is on its way are copies."""
    for tx in range(fl.loss_scan, fl.next_tx):
        at = (tx & fl.mask) * TX_STRIDE + STATUS
        if load(fl.tx_at, at) == OUTSTANDING:
            store(fl.tx_at, at, LOST)
    fl.inflight_bytes = 0.0
    fl.rto_deadline_s = np.inf


@kernel
def is_late(fl, tx, by_rto, now_s):
    """Tell whether an outstanding transmission, sent before one that has arrived, is lost (s.6.2, step 5).

    After an RTO the first segment that has not arrived is lost as well (s.6.3).
    """
    at = (tx & fl.mask) * TX_STRIDE
    if by_rto and int(load(fl.tx_at, at + SEGMENT)) == fl.confirmed_below:
        return True
    return load(fl.tx_at, at + SENT_S) + fl.rack_rtt_s + fl.reordering_s - now_s <= ROUNDING_S


@kernel
def begin_recovery(fl, by_rto):
    """Notice that losses were found: recovery lasts until all that was sent so far has arrived (RFC 6675 s.5)."""
    if by_rto:
        fl.beyond_window = RETRANSMISSION
    if fl.recovering == 0 or by_rto:
        fl.recovery_below = fl.next_segment
        fl.recovering = 1 if fl.confirmed_below < fl.next_segment else 0


@kernel
def newest_hole(fl):
    """Return the newest outstanding transmission that was sent before one that has arrived, or -1.

    No transmission between ``hole_tx`` and ``hole_seen`` is outstanding, so that each is looked at once.
    """
    for tx in range(fl.ack_next_tx - 1, max(fl.hole_seen, fl.loss_scan) - 1, -1):
        if load(fl.tx_at, (tx & fl.mask) * TX_STRIDE + STATUS) == OUTSTANDING:
            fl.hole_tx = tx
            break
    fl.hole_seen = max(fl.hole_seen, fl.ack_next_tx)
    while fl.hole_tx >= fl.loss_scan:
        if load(fl.tx_at, (fl.hole_tx & fl.mask) * TX_STRIDE + STATUS) == OUTSTANDING:
            return fl.hole_tx
        fl.hole_tx -= 1
    return -1
