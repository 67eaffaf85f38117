"""The sender's transport in the packet engine: acknowledgements, loss detection, timers, samples, what to send next. Compiled.

Every transmission has its own number, so RTT samples are never ambiguous. The SACK scoreboard is the ring of transmissions: a
loss is found as RFC 6675 finds it, when three later transmissions were acknowledged, or by the RTO (RFC 6298), which finds
everything outstanding. Lost segments are sent again before new ones. Pacing leaves a gap of one segment at the CCA's rate.

With RACK (RFC 8985 s.6) a transmission is lost when one that was sent later has arrived, and the RTT of that one plus the
reordering window has passed since it was sent: "sent later" is a larger number, and which of several transmissions of a segment
an ACK is for is never in doubt. Its one timer is RTO, reordering timer or tail loss probe (s.7, 8).
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import load, prefetch, store
from ccenv.engine.compiled.holds import next_hold
from ccenv.engine.packet.layout import (
    ACKED,
    AHEAD,
    APP_LIMITED,
    ARRIVED,
    CONFIRMED,
    DELIVERED,
    DELIVERED_S,
    ERROR_SENDER,
    FIRST_SENT_S,
    HERE_MARKED,
    LOST,
    ON_THE_WAY,
    OUTSTANDING,
    RECOVERIES,
    SEGMENT,
    SEGMENT_STRIDE,
    SENT_S,
    SENT_WITH_STRIDE,
    STATUS,
    TX_AHEAD,
    TX_STRIDE,
    WITH_INFLIGHT,
    WITH_LOST,
)
from ccenv.engine.packet.receiver import next_arrival

NO_PACKET, RETRANSMISSION, PROBE = range(3)  # which packet may be sent although the window is full
RTO_TIMER, REORDERING_TIMER, PROBE_TIMER = range(3)  # what the one timer of a flow is for (s.5.4)
DUPLICATES = 3.0  # DupThresh: s.6.2, step 4
WINDOW_STEPS = 4.0  # the reordering window grows by 1/4 of the smallest RTT: s.6.2, step 4
PERSISTENCE = 16  # recoveries for which a grown window is kept: the same
ROUNDING_S = 1e-9  # a time that has passed up to rounding has passed
SACK, RACK, FLIGHT = (RECOVERIES[name] for name in ("sack", "rack", "flight"))
FAST, BY_RTO = 1, 2  # recoveries; 0: none
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
    if fl.reordering_seen == 0 and (fl.recovering > 0 or sacked_segments(fl) > DUPLICATES - 0.5):
        fl.reordering_s = 0.0


@kernel
def take_delivery(fl, newest_tx, arrivals, acked_bytes):
    """Learn from an ACK that was taken (s.6.2, steps 2 and 4).

    Before it ``newest_tx`` was next to the newest acknowledged transmission; it says that ``arrivals`` transmissions have
    arrived, and ``acked_bytes`` of segments for the first time.
    """
    fl.beyond_window = NO_PACKET
    if fl.ack_next_tx > newest_tx:
        fl.rack_rtt_s = fl.rtt_s
    leaves = fl.recovering > 0 and fl.confirmed_below >= fl.recovery_below
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
    """Begin a recovery: it lasts until the cumulative ACK of all that was sent so far (RFC 6675 s.5, s.5.1)."""
    fl.recovery_below = fl.next_segment
    fl.recovering = 0
    if fl.confirmed_below < fl.next_segment:
        fl.recovering = BY_RTO if by_rto else FAST


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


DUPLICATE_THRESHOLD = 3  # RFC 6675 DupThresh, RFC 5681 s.3.2
INITIAL_RTO_S = 1.0  # RFC 6298 (2.1)
MAX_RTO_S = 60.0  # RFC 6298 (2.5)
NO_SEGMENT, WINDOW_FULL = -1, -2  # instead of a segment to send: the application has none; the receive window is full
WINDOW_SLACK_BYTES = 1e-6  # round-off of windows that are whole segments
SMALL_BURSTS_Bps = 150_000.0  # 1.2 Mbit/s, below which bursts are single packets: draft-ietf-ccwg-bbr-01 s.5.6.3
MAX_BURST_BYTES = 65_536.0  # the same


@kernel(forceinline=True)
def take_cca(run, fl, state):
    """Read what a CCA has set; one that leaves the positive numbers ends the run."""
    if state.cwnd_bytes > 0.0 and state.pacing_rate_Bps > 0.0:
        fl.cwnd_bytes = state.cwnd_bytes
        fl.rate_Bps = state.pacing_rate_Bps
    elif run.error == 0:
        run.error = ERROR_SENDER
        run.error_flow = fl.index


@kernel(forceinline=True)
def rto_s(fl, rto_min_s):
    """Return the RTO (RFC 6298 s.2) with its back-off (s.5.5)."""
    if fl.srtt_s == 0.0:
        return min(INITIAL_RTO_S * fl.rto_backoff, MAX_RTO_S)
    return min(max(rto_min_s, fl.srtt_s + 4.0 * fl.rttvar_s) * fl.rto_backoff, MAX_RTO_S)


@kernel(forceinline=True)
def take_rtt(fl, rtt_s):
    """Take an RTT sample (RFC 6298 s.2)."""
    if fl.srtt_s == 0.0:
        fl.srtt_s = rtt_s
        fl.rttvar_s = 0.5 * rtt_s
    else:
        fl.rttvar_s += 0.25 * (abs(fl.srtt_s - rtt_s) - fl.rttvar_s)
        fl.srtt_s += 0.125 * (rtt_s - fl.srtt_s)
    fl.rtt_s = rtt_s
    fl.min_rtt_s = min(fl.min_rtt_s, rtt_s)
    fl.rtt_sum_s += rtt_s
    fl.rtt_samples += 1.0


@kernel
def begin_rtt(fl):
    """Begin with what is known of the RTT: nothing, or that of the handshake (RFC 6298 s.2.2)."""
    fl.srtt_s = fl.handshake_s
    fl.rttvar_s = 0.5 * fl.handshake_s


@kernel(forceinline=True)
def adjust_hold(fl, now_s):
    """Take the newest RTT sample at a proxy; at the end of its window choose the hold of the next one."""
    fl.hold_rtt_min_s = min(fl.hold_rtt_min_s, fl.rtt_s)
    if now_s >= fl.hold_until_s:
        fl.hold_s = next_hold(fl.hold_target_s, fl.hold_s, fl.hold_rtt_min_s)
        fl.hold_rtt_min_s = np.inf
        fl.hold_until_s = now_s + fl.hold_window_s


@kernel(inline="always")
def confirm(fl, tx, mss_bytes):
    """Take a transmission that an ACK covers, unless it was lost on its way; return newly acknowledged and marked bytes."""
    at = (tx & fl.mask) * TX_STRIDE
    arrived = load(fl.tx_at, at + ARRIVED)
    if arrived <= ON_THE_WAY:  # marked or not
        return 0.0, 0.0
    fl.in_network -= 1
    if load(fl.tx_at, at + STATUS) == OUTSTANDING:
        fl.inflight_bytes -= mss_bytes
    store(fl.tx_at, at + STATUS, ACKED)
    fl.acked_count += 1
    if tx < fl.loss_scan:
        fl.acked_below_scan += 1
    segment = int(load(fl.tx_at, at + SEGMENT))
    seat = (segment & fl.mask) * SEGMENT_STRIDE + CONFIRMED
    prefetch(fl.segment_at, ((segment + AHEAD) & fl.mask) * SEGMENT_STRIDE)
    if load(fl.segment_at, seat) == segment + 1.0:
        return 0.0, 0.0
    store(fl.segment_at, seat, segment + 1.0)
    return mss_bytes, (mss_bytes if arrived == HERE_MARKED else 0.0)


@kernel(forceinline=True)
def take_ack(fl, ack, tells, last_tx, now_s, mss_bytes, rto_min_s):
    """Take an ACK that covers what arrived up to last_tx; return newly acknowledged bytes.

    Where a CCA is told of it (``tells``), fill the signal.
    """
    acked_bytes = 0.0
    marked_bytes = 0.0
    newest_tx = last_tx
    if fl.reorders == 0:
        for tx in range(fl.ack_next_tx, last_tx + 1):
            new_bytes, new_marked_bytes = confirm(fl, tx, mss_bytes)
            acked_bytes += new_bytes
            marked_bytes += new_marked_bytes
    else:
        tx = -1
        while tx != last_tx:
            tx = next_arrival(fl)
            newest_tx = max(newest_tx, tx)
            if fl.rack == RACK:
                see_order(fl, tx)
            new_bytes, new_marked_bytes = confirm(fl, tx, mss_bytes)
            acked_bytes += new_bytes
            marked_bytes += new_marked_bytes
    fl.ack_next_tx = max(fl.ack_next_tx, newest_tx + 1)
    below = before = fl.confirmed_below
    while load(fl.segment_at, (below & fl.mask) * SEGMENT_STRIDE + CONFIRMED) == below + 1.0:
        below += 1
    fl.confirmed_below = below

    entry = fl.tx_at
    at = (newest_tx & fl.mask) * TX_STRIDE
    prefetch(entry, ((newest_tx + TX_AHEAD) & fl.mask) * TX_STRIDE)
    sent_s = load(entry, at + SENT_S)
    take_rtt(fl, now_s - sent_s)
    fl.delivered_bytes += acked_bytes
    fl.marked_bytes += marked_bytes
    fl.first_sent_s = sent_s
    fl.delivered_s = now_s
    fl.rto_backoff = 1.0
    fl.rto_deadline_s = now_s + rto_s(fl, rto_min_s) if fl.inflight_bytes > 0.0 else np.inf
    if fl.delivered_bytes > fl.app_limited_until_bytes:
        fl.app_limited_until_bytes = 0.0
    if not tells:
        return acked_bytes
    # Delivery-rate sample: draft-cheng-iccrg-delivery-rate-estimation s.3.
    before_bytes = load(entry, at + DELIVERED)
    interval_s = max(now_s - load(entry, at + DELIVERED_S), sent_s - load(entry, at + FIRST_SENT_S))
    ack.now_s = now_s
    ack.mss_bytes = mss_bytes
    ack.acked_bytes = acked_bytes
    ack.delivered_bytes = fl.delivered_bytes
    ack.rtt_s = fl.rtt_s
    ack.min_rtt_s = fl.min_rtt_s
    ack.delivery_rate_Bps = (fl.delivered_bytes - before_bytes) / interval_s
    ack.inflight_bytes = fl.inflight_bytes
    ack.round_start = 0.0
    if before_bytes >= fl.round_end_bytes:
        ack.round_start = 1.0
        fl.round_end_bytes = fl.delivered_bytes
    ack.app_limited = load(entry, at + APP_LIMITED)
    ack.ecn_fraction = marked_bytes / acked_bytes if marked_bytes > 0.0 else 0.0
    ack.prior_delivered_bytes = before_bytes
    ack.tx_inflight_bytes = 0.0
    ack.lost_since_bytes = 0.0
    recovering = fl.recovering == FAST and below < fl.recovery_below and fl.rack != FLIGHT
    ack.recovering = 1.0 if recovering or (fl.duplicates_hold == 1 and below == before) else 0.0
    ack.handshake_s = fl.handshake_s
    ack.held_s = max(0.0, fl.next_send_s - now_s) if fl.burst_left < 1.0 else 0.0
    if fl.per_packet == 1:
        at = (newest_tx & fl.mask) * SENT_WITH_STRIDE
        ack.tx_inflight_bytes = load(fl.sent_with_at, at + WITH_INFLIGHT)
        ack.lost_since_bytes = fl.found_lost_bytes - load(fl.sent_with_at, at + WITH_LOST)
    return acked_bytes


@kernel(forceinline=True)
def mark_lost(fl, tx, mss_bytes):
    """Count a transmission as lost and queue its segment for sending again."""
    at = (tx & fl.mask) * TX_STRIDE
    store(fl.tx_at, at + STATUS, LOST)
    fl.inflight_bytes -= mss_bytes
    fl.found_lost_bytes += mss_bytes
    store(fl.resend_at, fl.resend_tail & fl.mask, load(fl.tx_at, at + SEGMENT))
    fl.resend_tail += 1


@kernel(forceinline=True)
def find_losses(fl, loss, by_rto, now_s, mss_bytes):
    """Find losses below the newest acknowledged transmission, or by RTO all; fill the signal; return lost bytes.

    With RACK those that are late are found. Of a CCA per packet only the next one is found.
    """
    lost_bytes = 0.0
    newest, highest = np.int64(-1), np.int64(-1)
    end = fl.next_tx if by_rto else fl.ack_next_tx
    kept_tx = end  # the first that an RTO leaves outstanding
    tx = fl.loss_scan
    while tx < end:
        status = load(fl.tx_at, (tx & fl.mask) * TX_STRIDE + STATUS)
        if status == OUTSTANDING:
            if fl.rack == RACK:
                if not is_late(fl, tx, by_rto, now_s):
                    if not by_rto:
                        break
                    kept_tx = min(kept_tx, tx)
                    tx += 1
                    continue
            elif not by_rto and fl.acked_count - fl.acked_below_scan < DUPLICATE_THRESHOLD:
                break
            mark_lost(fl, tx, mss_bytes)
            lost_bytes += mss_bytes
            newest = tx
            highest = max(highest, np.int64(load(fl.tx_at, (tx & fl.mask) * TX_STRIDE + SEGMENT)))
            if fl.per_packet == 1:
                tx += 1
                break
        elif status == ACKED:
            fl.acked_below_scan += 1
        tx += 1
    fl.loss_scan = min(tx, kept_tx)
    if lost_bytes > 0.0:
        loss.now_s = now_s
        loss.mss_bytes = mss_bytes
        loss.lost_bytes = lost_bytes
        loss.inflight_bytes = fl.inflight_bytes
        loss.delivered_bytes = fl.delivered_bytes
        loss.timeout = 1.0 if by_rto else 0.0
        new_episode = newest > fl.recovery_tx if by_rto or fl.rack == FLIGHT else highest >= fl.recovery_below
        loss.new_episode = 1.0 if new_episode else 0.0
        if new_episode:
            fl.recovery_tx = fl.next_tx - 1
        if by_rto and fl.rack == RACK:
            fl.beyond_window = RETRANSMISSION
        if new_episode or by_rto:
            begin_recovery(fl, by_rto)
        if fl.per_packet == 1:
            tell_packet(fl, loss, newest)
    return lost_bytes


@kernel(forceinline=True)
def tell_packet(fl, loss, tx):
    """Tell a CCA per packet of a lost transmission: what was in flight with it, what was lost since."""
    at = (tx & fl.mask) * SENT_WITH_STRIDE
    loss.tx_inflight_bytes = load(fl.sent_with_at, at + WITH_INFLIGHT)
    loss.lost_since_bytes = fl.found_lost_bytes - load(fl.sent_with_at, at + WITH_LOST)
    loss.app_limited = load(fl.tx_at, (tx & fl.mask) * TX_STRIDE + APP_LIMITED)
    loss.contiguous = 1.0 if tx == fl.newest_lost_tx + 1 else 0.0
    fl.newest_lost_tx = tx


@kernel(forceinline=True)
def next_segment(fl):
    """Return the segment to send next, lost ones first; or NO_SEGMENT, or WINDOW_FULL."""
    while fl.resend_head < fl.resend_tail:
        segment = int(load(fl.resend_at, fl.resend_head & fl.mask))
        if load(fl.segment_at, (segment & fl.mask) * SEGMENT_STRIDE + CONFIRMED) != segment + 1.0:
            return segment
        fl.resend_head += 1
    if fl.next_segment >= fl.app_segments:
        return NO_SEGMENT
    if fl.next_segment - fl.confirmed_below > fl.mask:
        return WINDOW_FULL
    return fl.next_segment


@kernel
def pace_on(fl, rate_Bps, now_s):
    """Let what is left of the gap before the next packet pass at a new rate: any interval then holds rate times length bytes."""
    if fl.next_send_s > now_s and rate_Bps > 0.0:
        fl.next_send_s = now_s + (fl.next_send_s - now_s) * (fl.rate_Bps / rate_Bps)


@kernel(forceinline=True)
def burst_packets(fl, mss_bytes):
    """Return how many packets a paced sender that sends in bursts sends at once (tcp_tso_autosize of Linux)."""
    if fl.rate_Bps < SMALL_BURSTS_Bps:
        return 1.0
    return max(2.0, math.floor(min(fl.burst_s * fl.rate_Bps, MAX_BURST_BYTES) / mss_bytes))


@kernel(forceinline=True)
def put_transmission(fl, segment, now_s, mss_bytes, rto_min_s):
    """Account for sending a segment now; return the transmission's number."""
    if fl.inflight_bytes <= 0.0:
        fl.inflight_bytes = 0.0
        fl.first_sent_s = now_s
        fl.delivered_s = now_s
    tx = fl.next_tx
    at = (tx & fl.mask) * TX_STRIDE
    entry = fl.tx_at
    prefetch(entry, at + TX_AHEAD * TX_STRIDE)
    store(entry, at + SENT_S, now_s)
    store(entry, at + DELIVERED, fl.delivered_bytes)
    store(entry, at + DELIVERED_S, fl.delivered_s)
    store(entry, at + FIRST_SENT_S, fl.first_sent_s)
    store(entry, at + APP_LIMITED, 1.0 if fl.app_limited_until_bytes > 0.0 else 0.0)
    store(entry, at + SEGMENT, float(segment))
    store(entry, at + STATUS, OUTSTANDING)
    store(entry, at + ARRIVED, ON_THE_WAY)
    if segment == fl.next_segment:
        fl.next_segment += 1
    else:
        fl.resend_head += 1
        fl.resent_bytes += mss_bytes
        if fl.rack == RACK:
            store(fl.resent_at, segment & fl.mask, segment + 1.0)
    fl.next_tx = tx + 1
    fl.inflight_bytes += mss_bytes
    fl.sent_bytes += mss_bytes
    if fl.per_packet == 1:
        at = (tx & fl.mask) * SENT_WITH_STRIDE
        store(fl.sent_with_at, at + WITH_INFLIGHT, fl.inflight_bytes)
        store(fl.sent_with_at, at + WITH_LOST, fl.found_lost_bytes)
    if fl.rto_deadline_s == np.inf:
        fl.rto_deadline_s = now_s + rto_s(fl, rto_min_s)
    if fl.rate_Bps < np.inf:
        if fl.burst_s > 0.0:
            if fl.burst_left < 1.0:
                fl.burst_left = burst_packets(fl, mss_bytes)
            fl.burst_left -= 1.0
        fl.next_send_s = max(fl.next_send_s, now_s) + mss_bytes / fl.rate_Bps
    return tx


PROBE_RTTS = 2.0  # s.7.2


@kernel
def _wait_for_probe(fl, now_s):
    """Set the timer to the next probe, or to the RTO where none may be sent (s.7.2; before the RTT is known: s.7.3)."""
    fl.timer = RTO_TIMER
    fl.rto_deadline_s = fl.rto_expires_s
    if fl.recovering > 0 or sacked_segments(fl) > 0.5 or fl.srtt_s == 0.0:
        return
    wait_s = PROBE_RTTS * fl.srtt_s
    if fl.ack_every > 1 and fl.inflight_bytes < 1.5 * fl.mss_bytes:
        wait_s += fl.ack_timeout_s  # TLP.max_ack_delay: as the receiver's timer
    fl.timer = PROBE_TIMER
    fl.rto_deadline_s = min(now_s + wait_s, fl.rto_expires_s)


@kernel
def arm(fl, now_s, rto_min_s):
    """Set the timer after an ACK, or after the timer (s.8): to the first that is needed of reordering, probe and RTO."""
    if fl.inflight_bytes <= 0.0:
        fl.timer = RTO_TIMER
        fl.rto_deadline_s = fl.rto_expires_s = np.inf
        return
    fl.rto_expires_s = now_s + rto_s(fl, rto_min_s)
    hole_tx = newest_hole(fl)
    if hole_tx >= 0:
        fl.timer = REORDERING_TIMER
        fl.rto_deadline_s = load(fl.tx_at, (hole_tx & fl.mask) * TX_STRIDE + SENT_S) + fl.rack_rtt_s + fl.reordering_s
    else:
        _wait_for_probe(fl, now_s)


@kernel
def take_timer(fl, now_s, rto_min_s):
    """Take the timer where it is not the RTO; return whether losses are to be looked for.

    A probe is sent where no other one is on its way and the RTT was measured since (s.7.3): new data, or the last segment again.
    It may exceed the window, and does not wait for its pacing.
    """
    if fl.timer == REORDERING_TIMER:
        set_reordering_window(fl)
        return True
    fl.timer = RTO_TIMER
    fl.rto_deadline_s = fl.rto_expires_s = now_s + rto_s(fl, rto_min_s)
    probing = fl.probe_tx >= fl.loss_scan and load(fl.tx_at, (fl.probe_tx & fl.mask) * TX_STRIDE + STATUS) == OUTSTANDING
    if not probing and fl.rtt_samples > fl.probe_samples:
        window_full = fl.next_segment - fl.confirmed_below > fl.mask
        if fl.next_segment >= fl.app_segments or window_full:
            store(fl.resend_at, fl.resend_tail & fl.mask, float(fl.next_segment - 1))
            fl.resend_tail += 1
        fl.beyond_window = PROBE
        fl.probe_samples = fl.rtt_samples
        fl.next_send_s = min(fl.next_send_s, now_s)
    return False


@kernel
def arm_after_sending(fl, now_s, rto_min_s):
    """Set the timer after packets were sent; after a probe it is the RTO (s.7.3)."""
    probe = fl.beyond_window == PROBE
    fl.beyond_window = NO_PACKET
    if probe:
        fl.probe_tx = fl.next_tx - 1
    if probe or fl.rto_expires_s == np.inf:
        fl.rto_expires_s = now_s + rto_s(fl, rto_min_s)
    if probe:
        fl.timer = RTO_TIMER
        fl.rto_deadline_s = fl.rto_expires_s
    elif fl.timer != REORDERING_TIMER:
        _wait_for_probe(fl, now_s)
