"""What applications offer, in whole segments, and transfers that come and go. Compiled.

Workloads: bulk, a constant rate, on/off, a finite transfer, batches, web objects; what an application outside of the kernel asks
for (``asked``) is added by ``PacketEngine.offer``. A transfer is a new flow in a slot, which is free again when nothing of it is
left. The record of a slot goes on counting transmissions and segments, so that no ring is cleared; all that a sender knows begins
anew.
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.calls import load, store
from ccenv.engine.packet.layout import WORKLOAD_COUNTER, WORKLOADS

# Columns of the table of arrivals at run.arrivals_at, and what is written into it: when the last ACK came; infinite: turned away.
COME_S, POOL, SEGMENTS, DONE_S = range(4)
ARRIVAL_WIDTH = 4
# At run.pools_at: where each pool begins; a pool: how many of its slots are free, then a stack of them.
FREE = 0
STACK = 1


@kernel
def arrival_time_s(run):
    """Return when the next transfer comes."""
    if run.next_arrival >= run.n_arrivals:
        return np.inf
    return load(run.arrivals_at, run.next_arrival * ARRIVAL_WIDTH + COME_S)


@kernel
def take_slot(run):
    """Take a free slot for the transfer that comes now; return it, or -1 if all are in use and it is turned away."""
    pool = int(load(run.arrivals_at, run.next_arrival * ARRIVAL_WIDTH + POOL))
    at = int(load(run.pools_at, pool))
    free = int(load(run.pools_at, at + FREE))
    if free == 0:
        store(run.arrivals_at, run.next_arrival * ARRIVAL_WIDTH + DONE_S, np.inf)
        return -1
    store(run.pools_at, at + FREE, free - 1.0)
    return int(load(run.pools_at, at + STACK + free - 1))


@kernel
def begin_slot(run, fl, now_s):
    """Let a sender that knows nothing begin in a slot."""
    fl.arrival = run.next_arrival
    fl.start_s = now_s
    fl.finished_s = np.inf
    fl.ack_next_tx = fl.next_tx
    fl.loss_scan = fl.next_tx
    fl.recovery_tx = fl.next_tx - 1
    fl.newest_lost_tx = fl.next_tx - 2
    fl.acked_count = 0
    fl.acked_below_scan = 0
    fl.resend_head = fl.resend_tail
    fl.received_high = fl.next_segment
    fl.inflight_bytes = 0.0
    fl.next_send_s = 0.0
    fl.burst_left = 0.0
    fl.wake_s = np.inf
    fl.rto_deadline_s = np.inf
    fl.rto_backoff = 1.0
    fl.srtt_s = 0.0
    fl.rttvar_s = 0.0
    fl.rtt_s = 0.0
    fl.min_rtt_s = np.inf
    fl.delivered_bytes = 0.0
    fl.delivered_s = 0.0
    fl.first_sent_s = 0.0
    fl.round_end_bytes = 0.0
    fl.app_limited_until_bytes = 0.0
    fl.cwnd_bytes = 0.0
    fl.rate_Bps = np.inf


@kernel
def offered_segments(run, fl):
    """Return up to which segment the transfer in a slot goes."""
    return fl.next_segment + int(load(run.arrivals_at, fl.arrival * ARRIVAL_WIDTH + SEGMENTS))


@kernel
def leave_slot(run, fl):
    """Write down when a transfer was done; free its slot when nothing of it is on its way. Return whether it was freed."""
    if fl.finished_s == np.inf or fl.started == 0:
        return False
    store(run.arrivals_at, fl.arrival * ARRIVAL_WIDTH + DONE_S, fl.finished_s)
    if fl.in_network > 0 or fl.ack_head < fl.ack_tail or fl.pending_acks > 0:
        return False
    fl.started = 0
    fl.start_s = np.inf
    at = int(load(run.pools_at, fl.pool))
    free = int(load(run.pools_at, at + FREE))
    store(run.pools_at, at + STACK + free, float(fl.index))
    store(run.pools_at, at + FREE, free + 1.0)
    return True


_RATE, _ON_OFF, _FINITE, _BATCHES, _WEB, _ASKED = (WORKLOADS[k] for k in ("rate", "on_off", "finite", "batches", "web", "asked"))
UNLIMITED = 2**52  # segments
LARGEST_OFFER = 2.0**50  # segments of a rate, far above what any run sends
ROUNDING = 1e-6  # segments: a time that is a whole number of gaps up to rounding counts as one
SHORTEST_S = 1e-9  # between two changes of what is offered
LATER_S = 1e300  # of what is asked for from outside: more may come
PARETO_SHAPE = 1.2  # sizes of web objects: [4CP] s.5
LARGEST_OBJECT = 1e5  # in units of the mean: the tail has no mean square


@kernel
def begin_application(fl, mss_bytes):
    """Set what is offered at the start of a flow."""
    workload = fl.workload
    fl.app_next_s = np.inf
    fl.app_segments = UNLIMITED
    if workload == _FINITE:
        fl.app_segments = np.int64(math.ceil(fl.workload_a / mss_bytes))
    elif workload == _ON_OFF:
        fl.app_next_s = fl.start_s + fl.workload_a
    elif workload in (_RATE, _BATCHES, _WEB):
        fl.app_segments = 0
        fl.app_next_s = fl.start_s
    elif workload == _ASKED:
        fl.app_segments = 0
        fl.app_next_s = LATER_S


@kernel
def offer(fl, now_s, mss_bytes, seed):
    """Bring what is offered up to now_s; app_next_s is when that changes next."""
    workload = fl.workload
    while fl.app_next_s <= now_s:
        if workload == _RATE:  # workload_a: bytes/s
            fl.app_segments = 1 + np.int64(min((now_s - fl.start_s) * fl.workload_a / mss_bytes + ROUNDING, LARGEST_OFFER))
            fl.app_next_s = max(fl.start_s + fl.app_segments * mss_bytes / fl.workload_a, now_s + SHORTEST_S)
        elif workload == _BATCHES:  # workload_a bytes every workload_b seconds
            fl.app_segments += np.int64(math.ceil(fl.workload_a / mss_bytes))
            fl.app_draws += 1.0
            fl.app_next_s = fl.start_s + fl.app_draws * fl.workload_b
        elif workload == _WEB:  # objects of mean size workload_a, exponential gaps of mean workload_b
            size = uniform(seed, 0.0, float(fl.index), WORKLOAD_COUNTER + fl.app_draws)
            gap = uniform(seed, 0.0, float(fl.index), WORKLOAD_COUNTER + fl.app_draws + 1.0)
            fl.app_draws += 2.0
            smallest_bytes = fl.workload_a * (PARETO_SHAPE - 1.0) / PARETO_SHAPE
            object_bytes = smallest_bytes * (1.0 - size) ** (-1.0 / PARETO_SHAPE)
            object_bytes = min(object_bytes, LARGEST_OBJECT * fl.workload_a)
            fl.app_segments += np.int64(math.ceil(object_bytes / mss_bytes))
            fl.app_next_s = fl.app_next_s - fl.workload_b * math.log(1.0 - gap)
        elif fl.app_segments == UNLIMITED:  # on/off: workload_a seconds on, workload_b off
            fl.app_segments = fl.next_segment
            fl.app_next_s += fl.workload_b
        else:
            fl.app_segments = UNLIMITED
            fl.app_next_s += fl.workload_a
