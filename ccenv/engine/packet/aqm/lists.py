"""Several queues in the memory of one link: linked lists over its ring's entries, a record per queue. Compiled.

A link's ``head`` and ``tail`` then only count: their difference is what waits. Entry n of the pool is entry n of the ring; the
next one of its queue is at ``classes_at``. Behind these follow the records of the queues.
"""

from __future__ import annotations

from ccenv.engine.compiled.calls import load, store
from ccenv.engine.packet.layout import DISCIPLINES, Q_ENQUEUED_S, Q_FLOW, Q_HOP, Q_TX, QUEUE_STRIDE
from ccenv.engine.packet.queue import packet_bytes
from ccenv.base.kernels.decorator import kernel

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
_FQ, _DUALPI2 = DISCIPLINES["fq_codel"], DISCIPLINES["dualpi2"]


@kernel
def n_classes(ln, n_flows):
    """Return how many queues a link has in its pool; 0: it has a plain queue."""
    if ln.discipline == _FQ:
        return n_flows
    return 2 if ln.discipline == _DUALPI2 else 0


@kernel
def class_words(ln, n_flows):
    """Return how many words of memory the queues take beside the ring."""
    queues = n_classes(ln, n_flows)
    return (ln.mask + 1 + queues * CLASS_STRIDE) if queues > 0 else 0


@kernel
def clear_classes(ln, n_flows):
    """Empty all queues."""
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
    """Return a field of a queue's record."""
    return load(ln.classes_at, ln.mask + 1 + queue * CLASS_STRIDE + field)


@kernel(inline="always")
def put(ln, queue, field, value):
    """Set a field of a queue's record."""
    store(ln.classes_at, ln.mask + 1 + queue * CLASS_STRIDE + field, value)


@kernel
def push(ln, queue, flow, tx, hop, now_s):
    """Put a packet at the end of a queue."""
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
