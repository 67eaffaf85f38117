"""Links of the packet engine: queue disciplines and service, as functions over a link's record. Compiled.

The packet being serialised is not counted as waiting. Where all packets have one size buffers are whole packets; a link
whose packets have several sizes (``mixed``) counts bytes.

PIE (RFC 8033) drops at random on arrival, with a probability that a controller moves by the queueing delay, which is what waits
over the link rate (s.4.2). The controller has no timer: it catches up with its updates before every arrival and every departure,
between which nothing changes.
"""

from __future__ import annotations

from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.calls import load, prefetch, store
from ccenv.engine.packet.layout import (
    ACK_HOP,
    DISCIPLINES,
    DROP_EVENT,
    LINK_KEY,
    Q_ENQUEUED_S,
    Q_FLOW,
    Q_HOP,
    Q_TX,
    QUEUE_STRIDE,
    TX_STRIDE,
    note,
)
from ccenv.engine.packet.service import service_end_s

ACCEPT, MARK, DROP = 0, 1, 2
MOST_MARKED = 0.1  # RFC 8033 s.5.1: mark_ecnth
SMALL_PROBABILITY = 0.2  # s.4.1: below it a queue of half the target is left alone
FEW_PACKETS = 2.0  # s.4.1: 2 * MEAN_PKTSIZE
LEAST_ACCUMULATED, MOST_ACCUMULATED = 0.85, 8.5  # s.5.4, derandomization
DECAY = 0.98  # s.4.2
LARGE_PROBABILITY, LARGEST_STEP = 0.1, 0.02  # s.5.5
# s.4.2: below a probability the step is divided by so much.
SCALES = ((0.000001, 2048.0), (0.00001, 512.0), (0.0001, 128.0), (0.001, 32.0), (0.01, 8.0), (0.1, 2.0))


@kernel
def catch_up(ln, now_s, mss_bytes):
    """Make the controller's updates up to now (s.4.2, s.4.4)."""
    while ln.next_update_s <= now_s:
        delay_s = (ln.waiting_bytes if ln.mixed == 1 else (ln.tail - ln.head) * mss_bytes) / ln.rate_Bps
        step = ln.alpha * (delay_s - ln.target_s) + ln.beta * (delay_s - ln.old_delay_s)
        for bound, divisor in SCALES:
            if ln.probability < bound:
                step /= divisor
                break
        if ln.probability >= LARGE_PROBABILITY:
            step = min(step, LARGEST_STEP)
        ln.probability += step
        if delay_s == 0.0 and ln.old_delay_s == 0.0:
            ln.probability *= DECAY
        ln.probability = min(1.0, max(0.0, ln.probability))
        ln.old_delay_s = delay_s
        ln.burst_left_s = max(0.0, ln.burst_left_s - ln.update_s)
        if ln.probability == 0.0 and delay_s < 0.5 * ln.target_s and ln.old_delay_s < 0.5 * ln.target_s:
            ln.burst_left_s = ln.burst_s
        ln.next_update_s += ln.update_s


@kernel
def pie_verdict(ln, now_s, mss_bytes, seed, codepoint):
    """Decide about an arriving packet (s.4.1, s.5.1, s.5.4)."""
    catch_up(ln, now_s, mss_bytes)
    if ln.burst_left_s > 0.0:
        return ACCEPT
    few = ln.waiting_bytes <= FEW_PACKETS * mss_bytes if ln.mixed == 1 else ln.tail - ln.head <= FEW_PACKETS
    if (ln.old_delay_s < 0.5 * ln.target_s and ln.probability < SMALL_PROBABILITY) or few:
        return ACCEPT
    ln.accumulated = 0.0 if ln.probability == 0.0 else ln.accumulated + ln.probability
    if ln.accumulated < LEAST_ACCUMULATED:
        return ACCEPT
    draw = uniform(seed, 0.0, LINK_KEY + ln.index, ln.draws)
    ln.draws += 1.0
    if ln.accumulated < MOST_ACCUMULATED and draw >= ln.probability:
        return ACCEPT
    ln.accumulated = 0.0
    return MARK if ln.ecn == 1 and codepoint > 0 and ln.probability <= MOST_MARKED else DROP


_RED, _ECN, _PIE, _FQ = (DISCIPLINES[k] for k in ("red", "ecn", "pie", "fq_codel"))
TOKEN_ROUNDING_BYTES = ROUNDING_BYTES = 1e-6


@kernel(inline="always")
def packet_bytes(fl, hop):
    """Return the size of a flow's packet at a hop: data, or an ACK."""
    return fl.mss_bytes if hop < ACK_HOP else fl.ack_bytes


@kernel(inline="always")
def waiting_bytes(ln, mss_bytes):
    return ln.waiting_bytes if ln.mixed == 1 else (ln.tail - ln.head) * mss_bytes


@kernel(forceinline=True)
def count_queue(ln, now_s, mss_bytes):
    """Add to the integral of the waiting bytes what has passed since the queue last changed."""
    ln.queue_byte_s += waiting_bytes(ln, mss_bytes) * (now_s - ln.queue_changed_s)
    ln.queue_changed_s = now_s


@kernel
def red_verdict(ln, now_s, mss_bytes, seed):
    """Random early detection (Floyd, Jacobson 1993, figure 2; gentle off): average at each arrival, drops spread by a count.

    While the queue is idle the average decays as if small packets had arrived at the link rate.
    """
    waiting = ln.tail - ln.head
    if ln.busy == 0:
        slots = (now_s - ln.idle_since_s) * ln.rate_Bps / mss_bytes
        ln.red_average_packets *= (1.0 - ln.red_weight) ** slots
    else:
        ln.red_average_packets += ln.red_weight * (waiting - ln.red_average_packets)
    average = ln.red_average_packets
    if average >= ln.red_max_packets:
        ln.red_count = 0.0
        return DROP
    if average < ln.red_min_packets:
        ln.red_count = -1.0
        return ACCEPT
    ln.red_count += 1.0
    share = ln.red_max_probability * (average - ln.red_min_packets) / (ln.red_max_packets - ln.red_min_packets)
    spread = 1.0 - ln.red_count * share
    probability = share / spread if spread > share else 1.0
    draw = uniform(seed, 0.0, LINK_KEY + ln.index, ln.draws)
    ln.draws += 1.0
    if draw < probability:
        ln.red_count = 0.0
        return MARK if ln.ecn == 1 else DROP
    return ACCEPT


@kernel(forceinline=True)
def verdict(ln, now_s, size_bytes, mss_bytes, seed, codepoint):
    """Decide about an arriving packet: ACCEPT, MARK (accept with a congestion mark) or DROP.

    What cannot be marked (codepoint 0) is dropped instead. A full link with several queues accepts: it drops another packet.
    """
    if ln.policer_Bps > 0.0 and not has_token(ln, now_s, size_bytes):
        return DROP
    decision = ACCEPT
    if ln.discipline == _RED:
        decision = red_verdict(ln, now_s, size_bytes, seed)
    elif ln.discipline == _PIE:
        decision = pie_verdict(ln, now_s, mss_bytes, seed, codepoint)
    waiting = ln.tail - ln.head
    if ln.busy == 1 and waiting >= ln.capacity_packets and ln.discipline != _FQ:
        return DROP
    full = ln.waiting_bytes + size_bytes > ln.buffer_bytes + ROUNDING_BYTES
    if ln.mixed == 1 and ln.busy == 1 and full and ln.discipline != _FQ:
        return DROP
    if ln.discipline == _ECN and waiting >= ln.threshold_packets:
        decision = MARK
    return DROP if decision == MARK and codepoint == 0 else decision


@kernel
def has_token(ln, now_s, size_bytes):
    """Take a packet's tokens from the policer's bucket, if it has as many."""
    ln.tokens_bytes = min(ln.policer_bytes, ln.tokens_bytes + (now_s - ln.tokens_s) * ln.policer_Bps)
    ln.tokens_s = now_s
    if ln.tokens_bytes < size_bytes - TOKEN_ROUNDING_BYTES:
        return False
    ln.tokens_bytes -= size_bytes
    return True


@kernel(forceinline=True)
def append(ln, flow, tx, hop, now_s):
    at = (ln.tail & ln.mask) * QUEUE_STRIDE
    store(ln.queue_at, at + Q_FLOW, float(flow))
    store(ln.queue_at, at + Q_TX, float(tx))
    store(ln.queue_at, at + Q_ENQUEUED_S, now_s)
    store(ln.queue_at, at + Q_HOP, float(hop))
    ln.tail += 1


@kernel(forceinline=True)
def serve_head(run, flows, ln, now_s):
    at = (ln.head & ln.mask) * QUEUE_STRIDE
    ln.serving_flow = int(load(ln.queue_at, at + Q_FLOW))
    ln.serving_tx = int(load(ln.queue_at, at + Q_TX))
    ln.serving_hop = int(load(ln.queue_at, at + Q_HOP))
    ln.head += 1
    fl = flows[ln.serving_flow]
    prefetch(fl.tx_at, (ln.serving_tx & fl.mask) * TX_STRIDE)  # for the receiver
    size_bytes = run.mss_bytes
    if ln.mixed == 1:
        size_bytes = packet_bytes(fl, ln.serving_hop)
        ln.waiting_bytes -= size_bytes
    ln.busy = 1
    ln.finish_s = service_end_s(ln, now_s, size_bytes)


@kernel
def drop_taken(run, flows, ln, now_s):
    fl = flows[ln.serving_flow]
    size_bytes = run.mss_bytes
    if ln.mixed == 1:
        size_bytes = packet_bytes(fl, ln.serving_hop)
        ln.waiting_bytes -= size_bytes
    ln.dropped_bytes += size_bytes
    if ln.serving_hop >= ACK_HOP:
        fl.acks_lost += 1.0
        return
    fl.dropped_bytes += size_bytes
    fl.in_network -= 1
    note(run, DROP_EVENT, now_s, fl, ln.index, ln.serving_tx)
