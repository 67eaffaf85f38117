"""Transfers that come and go, compiled: each is a new flow in a free slot, which is free again when nothing of it is left.

The record of a slot goes on counting transmissions and segments, so that no ring is cleared; all that a sender knows begins anew.
"""

from __future__ import annotations

import numpy as np

from ccenv.engine.compiled.calls import load, store
from ccenv.base.kernels.decorator import kernel

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
