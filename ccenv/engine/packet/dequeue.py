"""Which packet a link with linked queues serves next: CoDel (RFC 8289), FQ-CoDel (RFC 8290), DualPI2 (RFC 9332 A). Compiled.

CoDel: one queue. FQ-CoDel: every flow has a queue of its own (no collisions of hashes). DualPI2: queue 0 is the classic one,
queue 1 that of L4S; a weighted round robin chooses between them.

The queues are linked lists over the link's ring: entry n of the pool is entry n of the ring, the next one of its queue is at
``classes_at``, and behind these follow the records of the queues. ``head`` and ``tail`` of the link only count: their difference
is what waits.
"""

from __future__ import annotations

import math

from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.calls import load, store
from ccenv.engine.packet.layout import (
    ACK_HOP,
    ARRIVED,
    DISCIPLINES,
    LINK_KEY,
    MARKED_ON_THE_WAY,
    Q_ENQUEUED_S,
    Q_FLOW,
    Q_HOP,
    Q_TX,
    QUEUE_STRIDE,
    TX_STRIDE,
)
from ccenv.engine.packet.queue import ROUNDING_BYTES, drop_taken, packet_bytes

# Record of a queue.
(
    FIRST,  # entry, NOTHING: empty
    LAST,
    COUNT,
    DEFICIT,  # bytes of its turn that are left
    ROUND,  # list that it is in: 0 none, 1 new, 2 old
    AFTER,  # next queue of that list
    FIRST_ABOVE_S,  # CoDel
    NEXT_DROP_S,
    DROPS,
    LAST_DROPS,
    DROPPING,
    BYTES,  # counted where packets have several sizes
) = range(12)
CLASS_STRIDE = 12
NOTHING = -1.0
CODEL, FQ, DUALPI2 = (DISCIPLINES[name] for name in ("codel", "fq_codel", "dualpi2"))


@kernel
def n_classes(ln, n_flows):
    """Return how many queues a link has in its pool; 0: it has a plain queue."""
    if ln.discipline == FQ:
        return n_flows
    if ln.discipline == DUALPI2:
        return 2
    return 1 if ln.discipline == CODEL else 0


@kernel
def class_words(ln, n_flows):
    """Return how many words of memory the queues take beside the ring."""
    queues = n_classes(ln, n_flows)
    return (ln.mask + 1 + queues * CLASS_STRIDE) if queues > 0 else 0


@kernel
def clear_classes(ln, n_flows):
    queues = n_classes(ln, n_flows)
    if queues == 0:
        return
    for entry in range(ln.mask + 1):
        store(ln.classes_at, entry, float(entry + 1))
    ln.free_entry = 0
    for queue in range(queues):
        for field in range(CLASS_STRIDE):
            store(ln.classes_at, ln.mask + 1 + queue * CLASS_STRIDE + field, 0.0)
        put(ln, queue, FIRST, NOTHING)
        put(ln, queue, LAST, NOTHING)
        put(ln, queue, AFTER, NOTHING)
    ln.new_first = ln.new_last = ln.old_first = ln.old_last = -1


@kernel(inline="always")
def get(ln, queue, field):
    return load(ln.classes_at, ln.mask + 1 + queue * CLASS_STRIDE + field)


@kernel(inline="always")
def put(ln, queue, field, value):
    store(ln.classes_at, ln.mask + 1 + queue * CLASS_STRIDE + field, value)


@kernel
def push(ln, queue, flow, tx, hop, now_s):
    entry = ln.free_entry
    ln.free_entry = int(load(ln.classes_at, entry))
    at = entry * QUEUE_STRIDE
    store(ln.queue_at, at + Q_FLOW, float(flow))
    store(ln.queue_at, at + Q_TX, float(tx))
    store(ln.queue_at, at + Q_ENQUEUED_S, now_s)
    store(ln.queue_at, at + Q_HOP, float(hop))
    store(ln.classes_at, entry, NOTHING)
    if get(ln, queue, FIRST) == NOTHING:
        put(ln, queue, FIRST, float(entry))
    else:
        store(ln.classes_at, int(get(ln, queue, LAST)), float(entry))
    put(ln, queue, LAST, float(entry))
    put(ln, queue, COUNT, get(ln, queue, COUNT) + 1.0)
    ln.tail += 1


@kernel
def waiting_since_s(ln, queue):
    """Return when the first packet of a queue that is not empty came."""
    return load(ln.queue_at, int(get(ln, queue, FIRST)) * QUEUE_STRIDE + Q_ENQUEUED_S)


@kernel
def pull(ln, queue):
    """Take the first packet of a queue out of it; it becomes the one in service."""
    entry = int(get(ln, queue, FIRST))
    at = entry * QUEUE_STRIDE
    ln.serving_flow = int(load(ln.queue_at, at + Q_FLOW))
    ln.serving_tx = int(load(ln.queue_at, at + Q_TX))
    ln.serving_hop = int(load(ln.queue_at, at + Q_HOP))
    put(ln, queue, FIRST, load(ln.classes_at, entry))
    if get(ln, queue, FIRST) == NOTHING:
        put(ln, queue, LAST, NOTHING)
    put(ln, queue, COUNT, get(ln, queue, COUNT) - 1.0)
    store(ln.classes_at, entry, float(ln.free_entry))
    ln.free_entry = entry
    ln.head += 1


@kernel
def delay_s(ln, queue, now_s):
    """Return how long the first packet of a queue has waited; 0 for none."""
    if get(ln, queue, FIRST) == NOTHING:
        return 0.0
    return now_s - waiting_since_s(ln, queue)


@kernel
def first_bytes(flows, ln, queue):
    """Return the size of the first packet of a queue that is not empty."""
    at = int(get(ln, queue, FIRST)) * QUEUE_STRIDE
    return packet_bytes(flows[int(load(ln.queue_at, at + Q_FLOW))], int(load(ln.queue_at, at + Q_HOP)))


@kernel
def fullest(ln, queues, field):
    """Return the queue with most packets (COUNT) or bytes (BYTES), the first of equals."""
    best = 0
    for queue in range(1, queues):
        if get(ln, queue, field) > get(ln, best, field):
            best = queue
    return best


CLASSIC, L4S = 0, 1
NO_LIST, NEW, OLD = 0.0, 1.0, 2.0
RECENT_INTERVALS = 16.0  # RFC 8289 s.5.5
LARGEST_PROBABILITY = 1.0


@kernel
def put_in(run, flows, ln, fl, tx, hop, now_s):
    """Put an arriving packet into its queue. FQ-CoDel then drops the head of the fullest one if there are too many (s.4.1.2)."""
    if ln.discipline == DUALPI2:
        catch_up(ln, now_s)
        push(ln, L4S if fl.ecn == 2 and hop < ACK_HOP else CLASSIC, fl.index, tx, hop, now_s)
        if ln.mixed == 1:
            ln.waiting_bytes += packet_bytes(fl, hop)
        return
    queue = fl.index if ln.discipline == FQ else 0
    push(ln, queue, fl.index, tx, hop, now_s)
    if ln.mixed == 1:
        ln.waiting_bytes += packet_bytes(fl, hop)
        put(ln, queue, BYTES, get(ln, queue, BYTES) + packet_bytes(fl, hop))
    if ln.discipline == CODEL:
        return
    if get(ln, fl.index, ROUND) == NO_LIST:
        put(ln, fl.index, DEFICIT, ln.quantum_bytes)
        _append(ln, fl.index, NEW)
    in_service = ln.serving_flow, ln.serving_tx, ln.serving_hop
    while ln.waiting_bytes > ln.buffer_bytes + ROUNDING_BYTES or ln.tail - ln.head > ln.capacity_packets:
        _pull(run, flows, ln, fullest(ln, run.n_flows, BYTES if ln.mixed == 1 else COUNT))
        drop_taken(run, flows, ln, now_s)
    ln.serving_flow, ln.serving_tx, ln.serving_hop = in_service


@kernel
def take_out(run, flows, ln, now_s):
    """Take the next packet to serve out of the queues; return whether there is one."""
    if ln.discipline == DUALPI2:
        return _from_two(run, flows, ln, now_s)
    if ln.discipline == CODEL:
        return _from_one(run, flows, ln, 0, now_s)
    return _from_many(run, flows, ln, now_s)


@kernel
def taken_bytes(run, flows, ln):
    """Return the size of the packet that was taken out of the queues."""
    return packet_bytes(flows[ln.serving_flow], ln.serving_hop) if ln.mixed == 1 else run.mss_bytes


@kernel
def _pull(run, flows, ln, queue):
    pull(ln, queue)
    if ln.mixed == 1:
        put(ln, queue, BYTES, get(ln, queue, BYTES) - taken_bytes(run, flows, ln))


@kernel
def _mark_taken(run, flows, ln):
    fl = flows[ln.serving_flow]
    ln.marked_bytes += taken_bytes(run, flows, ln)
    store(fl.tx_at, (ln.serving_tx & fl.mask) * TX_STRIDE + ARRIVED, MARKED_ON_THE_WAY)


@kernel
def _can_mark(flows, ln):
    return flows[ln.serving_flow].ecn > 0 and ln.serving_hop < ACK_HOP


# --- FQ-CoDel -----------------------------------------------------------------------------------------------------------


@kernel
def _append(ln, queue, which):
    put(ln, queue, ROUND, which)
    put(ln, queue, AFTER, NOTHING)
    if which == NEW:
        if ln.new_first < 0:
            ln.new_first = queue
        else:
            put(ln, ln.new_last, AFTER, float(queue))
        ln.new_last = queue
    else:
        if ln.old_first < 0:
            ln.old_first = queue
        else:
            put(ln, ln.old_last, AFTER, float(queue))
        ln.old_last = queue


@kernel
def _remove_first(ln, which):
    if which == NEW:
        queue = ln.new_first
        ln.new_first = int(get(ln, queue, AFTER))
    else:
        queue = ln.old_first
        ln.old_first = int(get(ln, queue, AFTER))
    put(ln, queue, ROUND, NO_LIST)


@kernel
def _from_many(run, flows, ln, now_s):
    """Deficit round robin, new flows first (RFC 8290 s.4.2)."""
    while ln.new_first >= 0 or ln.old_first >= 0:
        which = NEW if ln.new_first >= 0 else OLD
        queue = ln.new_first if which == NEW else ln.old_first
        if get(ln, queue, DEFICIT) <= 0.0:
            put(ln, queue, DEFICIT, get(ln, queue, DEFICIT) + ln.quantum_bytes)
            _remove_first(ln, which)
            _append(ln, queue, OLD)
            continue
        if _from_one(run, flows, ln, queue, now_s):
            put(ln, queue, DEFICIT, get(ln, queue, DEFICIT) - taken_bytes(run, flows, ln))
            return True
        _remove_first(ln, which)
        if which == NEW:  # else a flow could stay new for ever by sending one packet at a time
            _append(ln, queue, OLD)
    return False


@kernel
def _from_one(run, flows, ln, queue, now_s):
    """Take the next packet of a queue, after CoDel's drops; return whether there is one."""
    first = True
    while get(ln, queue, FIRST) != NOTHING:
        hit = ln.isolates_only == 0 and _codel_hits(flows, ln, queue, now_s, first)
        _pull(run, flows, ln, queue)
        if not hit:
            return True
        if ln.ecn == 1 and _can_mark(flows, ln):
            _mark_taken(run, flows, ln)
            return True
        drop_taken(run, flows, ln, now_s)
        first = False
    put(ln, queue, FIRST_ABOVE_S, 0.0)
    put(ln, queue, DROPPING, 0.0)
    return False


@kernel
def _codel_above(flows, ln, queue, now_s):
    """Tell whether the head has waited too long for a whole interval (RFC 8289 s.5.6, dodequeue)."""
    few = get(ln, queue, COUNT) <= 2.0
    if ln.mixed == 1:
        few = get(ln, queue, BYTES) - first_bytes(flows, ln, queue) <= ln.largest_bytes + ROUNDING_BYTES
    if now_s - waiting_since_s(ln, queue) < ln.codel_target_s or few:
        put(ln, queue, FIRST_ABOVE_S, 0.0)
        return False
    if get(ln, queue, FIRST_ABOVE_S) == 0.0:
        put(ln, queue, FIRST_ABOVE_S, now_s + ln.codel_interval_s)
        return False
    return now_s >= get(ln, queue, FIRST_ABOVE_S)


@kernel
def _codel_hits(flows, ln, queue, now_s, first):
    """Tell whether CoDel drops or marks the head now (RFC 8289 s.5.5); ``first`` on the first question of a dequeue."""
    above = _codel_above(flows, ln, queue, now_s)
    if get(ln, queue, DROPPING) == 1.0:
        if not above:
            put(ln, queue, DROPPING, 0.0)
            return False
        if now_s >= get(ln, queue, NEXT_DROP_S):
            drops = get(ln, queue, DROPS) + 1.0
            put(ln, queue, DROPS, drops)
            put(ln, queue, NEXT_DROP_S, get(ln, queue, NEXT_DROP_S) + ln.codel_interval_s / math.sqrt(drops))
            return True
        return False
    if not (above and first):
        return False
    delta = get(ln, queue, DROPS) - get(ln, queue, LAST_DROPS)
    recent = now_s - get(ln, queue, NEXT_DROP_S) < RECENT_INTERVALS * ln.codel_interval_s
    drops = delta if delta > 1.0 and recent else 1.0
    put(ln, queue, DROPPING, 1.0)
    put(ln, queue, DROPS, drops)
    put(ln, queue, LAST_DROPS, drops)
    put(ln, queue, NEXT_DROP_S, now_s + ln.codel_interval_s / math.sqrt(drops))
    return True


# --- DualPI2 ------------------------------------------------------------------------------------------------------------


@kernel
def catch_up(ln, now_s):
    """Make the PI controller's updates up to now (RFC 9332 A.1, dualpi2_update), with the longer of both delays."""
    while ln.next_update_s <= now_s:
        at_s = ln.next_update_s
        longest_s = max(delay_s(ln, CLASSIC, at_s), delay_s(ln, L4S, at_s))
        step = ln.alpha * (longest_s - ln.target_s) + ln.beta * (longest_s - ln.old_delay_s)
        ln.probability = min(LARGEST_PROBABILITY, max(0.0, ln.probability + step))
        ln.old_delay_s = longest_s
        ln.next_update_s += ln.update_s


@kernel
def _draw(run, ln):
    draw = uniform(run.seed, 0.0, LINK_KEY + ln.index, ln.draws)
    ln.draws += 1.0
    return draw


@kernel
def _from_two(run, flows, ln, now_s):
    """Take the next packet of both queues, after drops and marks (RFC 9332 A.1 and A.2, dualpi2_dequeue)."""
    catch_up(ln, now_s)
    while ln.tail > ln.head:
        l4s, classic = get(ln, L4S, COUNT), get(ln, CLASSIC, COUNT)
        few = l4s + classic <= 1.0
        squared = ln.probability * ln.probability
        if l4s > 0.0 and (classic == 0.0 or ln.credit_bytes <= 0.0):
            if classic > 0.0:
                ln.credit_bytes += ln.classic_share * (first_bytes(flows, ln, L4S) if ln.mixed == 1 else run.mss_bytes)
            ramp_probability = 0.0
            if l4s > 1.0:  # a packet by itself is no queue
                ramp_probability = ramp(ln, delay_s(ln, L4S, now_s))
            pull(ln, L4S)
            if squared >= ln.overload and not few and _draw(run, ln) < squared:
                drop_taken(run, flows, ln, now_s)
                continue
            if _draw(run, ln) < max(ramp_probability, min(1.0, ln.coupling * ln.probability)):
                _mark_taken(run, flows, ln)
            return True
        if l4s > 0.0:
            size_bytes = first_bytes(flows, ln, CLASSIC) if ln.mixed == 1 else run.mss_bytes
            ln.credit_bytes -= (1.0 - ln.classic_share) * size_bytes
        pull(ln, CLASSIC)
        if few or _draw(run, ln) >= squared:
            return True
        if _can_mark(flows, ln) and squared < ln.overload:
            _mark_taken(run, flows, ln)
            return True
        drop_taken(run, flows, ln, now_s)
    return False


@kernel
def ramp(ln, waited_s):
    """Return the probability with which the L4S queue marks by itself (RFC 9332 A.1, laqm)."""
    if waited_s >= ln.ramp_start_s + ln.ramp_s:
        return 1.0
    return max(0.0, (waited_s - ln.ramp_start_s) / ln.ramp_s)
