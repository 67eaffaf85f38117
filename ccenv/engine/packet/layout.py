"""The packet engine's memory: one record per link, flow, transit pipe and jitter box; rings of float64 by address; packet log.

This module alone owns field names and ring offsets. All rings have a power-of-two number of entries; entry n lives at
``(n & mask) * STRIDE``. The packet log holds what happened to each packet, in the order of time.
"""

from __future__ import annotations

import numpy as np

from ccenv.agents.callbacks import STATE_HEADER, STATE_SLOTS, make_record, record
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import load, store

# Entry of a transmission, at tx_at: 8 float64, one cache line.
SENT_S, DELIVERED, DELIVERED_S, FIRST_SENT_S, APP_LIMITED, SEGMENT, STATUS, ARRIVED = range(8)
TX_STRIDE = 8
OUTSTANDING, ACKED, LOST = 0.0, 1.0, 2.0  # STATUS: what the sender knows
ON_THE_WAY, HERE, HERE_MARKED, MARKED_ON_THE_WAY = 0.0, 1.0, 2.0, -1.0  # ARRIVED: what the network has done

# Further entry of a transmission, at sent_with_at, of senders per packet: bytes in flight with it, and found lost before it.
WITH_INFLIGHT, WITH_LOST = range(2)
SENT_WITH_STRIDE = 2

# Entry of a segment, at segment_at: number + 1 once received, number + 1 once acknowledged.
RECEIVED, CONFIRMED = range(2)
SEGMENT_STRIDE = 2

# Entry of an ACK, at ack_ring_at, with its arrival at the sender; of a transit pipe and of a jitter box: time, transmission.
TIME_S, TX = range(2)
PIPE_STRIDE = 2

# How many entries ahead a ring is brought near (``prefetch``): transmissions, one in a cache line; others, of which it holds 4.
TX_AHEAD, AHEAD = 2, 8

# Entry of the packet log.
LOG_TIME, LOG_EVENT, LOG_FLOW, LOG_LINK, LOG_TX, LOG_SEGMENT = range(6)  # LOG_LINK: -1 at the ends
EVENT_STRIDE = 6
EVENTS = ("send", "enqueue", "drop", "depart", "deliver", "ack")
SEND, ENQUEUE, DROP_EVENT, DEPART, DELIVER, ACK_EVENT = range(len(EVENTS))

# Entry of a link's queue.
Q_FLOW, Q_TX, Q_ENQUEUED_S, Q_HOP = range(4)
QUEUE_STRIDE = 4

MAX_HOPS = 8
# Hops of a flow beyond those of its data: of its ACKs, from ACK_HOP on, and the longer way of packets that others overtake.
ACK_HOP, LATE_HOP = MAX_HOPS, 2 * MAX_HOPS
HOPS = LATE_HOP + 1

# Columns of a rate change.
CHANGE_TIME, CHANGE_LINK, CHANGE_RATE = range(3)

RUN_DTYPE = make_record(
    """
    i8 n_links n_flows n_pipes n_boxes n_grids n_monitors
    i8 n_arrivals  # transfers that come and go; 0: none
    i8 next_arrival arrivals_at pools_at
    f8 mss_bytes seed tick_s log_s rto_min_s now_s
    i8 events log_rows next_change ticks
    i8 tree_at  # of all event sources: next times as a winner tree, then winners
    i8 tree_leaves
    f8 first_s  # the next time of the first of all sources
    i8 first_source  # sources.UNKNOWN: to be looked for
    i8 packet_log_at
    i8 packet_log_rows  # that happened; those beyond the limit are not kept
    i8 packet_log_limit  # 0: no packet log
    i8 route_at  # (flow, hop) -> link, then (flow, hop) -> pipe; HOPS each
    i8 grids_at states_at ack_at loss_at tick_at view_at move_at monitors_at
    i8 due  # monitors that await a decision from outside
    i8 outside  # monitors that may still ask for one
    i8 over  # 1: none will any more
    i8 leader  # the monitor whose clock the others with a common one follow; -1: none
    i8 error error_flow
    """
)

LINK_DTYPE = make_record(
    """
    f8 rate_Bps delay_s
    i8 capacity_packets discipline ecn
    f8 threshold_packets  # ECN threshold
    f8 red_min_packets red_max_packets red_max_probability red_weight codel_target_s codel_interval_s
    f8 quantum_bytes  # of FQ-CoDel
    i8 isolates_only  # 1: queues per flow without CoDel
    f8 target_s  # of a controller
    f8 update_s alpha beta
    f8 burst_s  # of PIE
    f8 coupling  # of DualPI2
    f8 ramp_start_s ramp_s classic_share overload
    f8 policer_Bps  # 0: no policer
    f8 policer_bytes
    f8 buffer_bytes  # as the network says it
    i8 mixed  # 1: its packets have several sizes, and it counts bytes
    f8 largest_bytes  # packet that it carries
    i8 index queue_at
    i8 classes_at  # of linked queues
    i8 mask
    # state
    f8 capacity_bytes  # that it could have carried by the last change of its rate
    f8 capacity_s  # time of that change
    i8 head tail busy serving_flow serving_tx serving_hop
    f8 waiting_bytes  # of a link that counts them
    f8 finish_s idle_since_s red_average_packets red_count draws
    i8 free_entry  # of linked queues
    i8 new_first new_last old_first old_last
    f8 probability  # of a controller
    f8 old_delay_s next_update_s burst_left_s accumulated credit_bytes tokens_bytes tokens_s
    # cumulative
    f8 queue_changed_s
    f8 queue_byte_s  # integral of the waiting bytes
    f8 arrived_bytes dropped_bytes marked_bytes served_bytes
    # a varying rate (traces): which trace, or the generator of one
    i8 trace_index  # among those of the batch; -1: none
    i8 trace_kind trace_at trace_rows
    f8 trace_length_s
    f8 trace_bytes  # that one length carries
    f8 peak_Bps
    i8 generator  # 0: none
    f8 generator_mean_Bps generator_a generator_b generator_c generator_d
    i8 trace_row  # in which the newest service ends
    f8 trace_begin_s  # of the repetition that it lies in
    f8 trace_left_bytes  # of its opportunity
    f8 last_arrival_s  # behind it, of the packets so far
    """
)

FLOW_DTYPE = make_record(
    """
    # path
    i8 index n_hops
    f8 path_rtt_s  # propagation
    f8 told_rtt_s  # Rm that the sender goes by
    i8 rtt_known
    f8 access_s return_s
    f8 burst_s  # 0: packets are paced one by one
    f8 handshake_s  # RTT of the handshake; 0: none
    i8 duplicates_hold  # 1: no window grows by ACKs that leave the cumulative one where it was
    f8 loss_rate mss_bytes
    i8 ecn  # CODEPOINTS
    f8 start_s stop_s
    i8 ack_every quick_acks
    f8 ack_timeout_s
    i8 jitter_kind
    f8 jitter_s jitter_interval_s jitter_at_s
    i8 jitter_table_at  # delays of a replay
    i8 jitter_table_length ack_aggregation
    f8 ack_aggregate_s
    i8 ack_merge box workload
    i8 offers  # 1: what its application offers changes with time
    f8 workload_a workload_b
    i8 sender_index
    i8 monitor  # -1: none
    i8 grid  # -1: none
    i8 mask
    i8 pool  # of which it is a slot; -1: none
    i8 arrival  # in it
    i8 tx_at sent_with_at segment_at resend_at ack_ring_at
    # what its path does beside queueing (path): losses in bursts, packets that others overtake, the way of its ACKs
    i8 bursts burst_bad ack_bursts ack_burst_bad
    f8 burst_enter burst_leave burst_loss burst_loss_between ack_burst_enter ack_burst_leave ack_burst_loss
    f8 ack_burst_loss_between
    i8 reorders late_pipe late_at late_tail order_at order_tail
    i8 late_head  # those below it are covered by ACKs, like the next
    i8 order_head
    f8 late_share late_s
    i8 ack_path ack_hops ack_pipe ack_out_at ack_out_tail
    f8 ack_bytes ack_loss_rate acks_sent acks_lost
    # sender
    i8 started next_tx
    i8 ack_next_tx  # transmissions below it were covered by an ACK
    i8 loss_scan  # SACK scoreboard: transmissions below it are acknowledged or found lost
    i8 acked_count acked_below_scan recovery_tx
    i8 per_packet  # 1: its CCA hears of each lost packet
    i8 newest_lost_tx  # told to such a CCA
    i8 next_segment
    i8 confirmed_below  # cumulative acknowledgement, in segments
    i8 resend_head resend_tail ack_head ack_tail
    f8 hold_s  # for which a proxy holds ACKs
    i8 in_network
    f8 inflight_bytes cwnd_bytes rate_Bps
    f8 next_send_s  # pacing: no packet before it, but for what is left of a burst
    f8 burst_left  # packets
    f8 wake_s  # pacing or application timer
    f8 rto_deadline_s rto_backoff srtt_s rttvar_s rtt_s min_rtt_s delivered_bytes delivered_s first_sent_s
    f8 round_end_bytes app_limited_until_bytes
    i8 app_segments  # offered so far
    f8 app_next_s app_draws
    # a proxy that holds ACKs (ccenv.engine.compiled.holds)
    f8 hold_target_s  # lambda
    f8 hold_window_s  # 0: the hold never changes
    f8 hold_until_s  # end of the window
    f8 hold_rtt_min_s  # of the window
    # receiver and jitter box
    i8 received_below
    i8 received_high  # newest segment received + 1
    i8 pending_acks last_received_tx
    f8 ack_deadline_s last_release_s batch_end_s jitter_draws ack_batch_end_s ack_draws
    # cumulative
    f8 sent_bytes resent_bytes found_lost_bytes dropped_bytes random_lost_bytes goodput_bytes rtt_sum_s rtt_samples
    f8 one_way_sum_s one_way_samples marked_bytes timeouts finished_s
    # RACK
    i8 rack  # RECOVERIES; but for RACK nothing below is used except the recovery
    i8 resent_at  # per segment: number + 1 once it was sent again
    i8 first_segment
    i8 fack  # newest segment that has arrived
    f8 rack_rtt_s  # RTT of the newest transmission that has arrived
    i8 reordering_seen
    f8 reordering_s  # the reordering window, in steps of a quarter of the smallest RTT
    i8 reordering_steps
    i8 reordering_persists  # recoveries for which they are kept
    i8 dsack_below  # segment with which the round ends in which something arrived twice
    i8 recovering  # 0: no; 1: fast recovery; 2: after an RTO
    i8 recovery_below  # segment with which the recovery ends
    i8 hole_tx hole_seen
    i8 timer  # what rto_deadline_s is for
    f8 rto_expires_s
    i8 probe_tx
    f8 probe_samples  # RTT samples when it was sent
    i8 beyond_window  # what may be sent although the window is full
    """
)

# A pipe brings packets of one flow to one of its hops after a constant delay.
PIPE_DTYPE = np.dtype([("flow", "<i8"), ("hop", "<i8"), ("ring_at", "<i8"), ("mask", "<i8"), ("head", "<i8"), ("tail", "<i8")])

# A box holds packets of one flow as an adversary decides.
BOX_DTYPE = make_record(
    """
    i8 flow ring_at mask head tail
    f8 decision_s
    i8 decisions init_at play_at state_at
    f8 link_rate_Bps buffer_bytes rtt_s
    """
)

# A grid steps the beliefs of a flow; the function at step_at sets next_s and, where a program decides, rate_Bps.
GRID_DTYPE = make_record(
    """
    i8 flow
    i8 watches  # 1: nothing is set
    i8 step_at beliefs_at flow_at
    f8 next_s rate_Bps
    """
)

# Those from codel on keep their packets in linked queues (``dequeue``).
DISCIPLINES = {"drop_tail": 0, "red": 1, "ecn": 2, "pie": 3, "codel": 4, "fq_codel": 5, "dualpi2": 6}
CODEPOINTS = {"none": 0, "classic": 1, "l4s": 2}  # Not-ECT, ECT(0), ECT(1)
TRACE_KINDS = {"none": 0, "rate": 1, "opportunities": 2}
JITTERS = {"none": 0, "constant": 1, "batch": 2, "interval": 3, "early": 4, "adversary": 5, "replay": 6, "uniform": 7}
AGGREGATIONS = {"none": 0, "interval": 1, "batch": 2}
RECOVERIES = {"sack": 0, "rack": 1, "flight": 2}
WORKLOADS = {"bulk": 0, "rate": 1, "on_off": 2, "finite": 3, "batches": 4, "web": 5, "asked": 6}
STEADY = ("bulk", "finite")  # what these offer does not change with time

# Errors that end a run.
ERROR_SENDER, ERROR_EVENTS, ERROR_ADVERSARY = 1, 2, 3
# Why a network cannot be built.
ERROR_RETURN, ERROR_BUFFER, ERROR_SEGMENT, ERROR_MEMORY = 4, 5, 6, 7

TICK_S = 0.01  # of CCAs and adversaries
RTO_MIN_S = 0.2  # smallest RTO, as in the curve engine; RFC 6298 (2.4) says 1 s, deployed stacks use 0.2 s
DEEPEST_S = 8.0  # queueing delay that the windows of an infinite buffer can build up, at most
MIN_RING, MAX_RING = 1 << 10, 1 << 17
STATE_DTYPE = record(*STATE_HEADER, *(f"w{i}" for i in range(STATE_SLOTS - len(STATE_HEADER))))

# What is logged at intervals, per flow and per link: state and cumulative counts.
FLOW_LOG = (
    *("cwnd_bytes", "rate_Bps", "inflight_bytes", "rtt_s", "sent_bytes"),
    *("resent_bytes", "found_lost_bytes", "dropped_bytes", "random_lost_bytes", "goodput_bytes"),
    *("rtt_sum_s", "rtt_samples", "one_way_sum_s", "one_way_samples", "marked_bytes", "timeouts"),
)
LINK_LOG = ("queue_bytes", "queue_byte_s", "arrived_bytes", "dropped_bytes", "marked_bytes", "served_bytes", "rate_Bps")

# Keys of random numbers: counters far from those of CCAs, one range per purpose.
JITTER_COUNTER = 2.0**40
LOSS_COUNTER = 2.0**41
WORKLOAD_COUNTER = 2.0**42
ACK_COUNTER = 2.0**43
TRACE_COUNTER = 2.0**45
BURST_COUNTER, ACK_LOSS_COUNTER, LATE_COUNTER = 2.0**48, 2.0**49, 2.0**50
LINK_KEY = 2.0**20  # links draw as flows LINK_KEY + index


# Rows of a packet log as users see it; ``event`` is an index into layout.EVENTS, ``link`` is -1 at the ends.
LOG_DTYPE = np.dtype(
    [("time_s", "<f8"), ("event", "<i1"), ("flow", "<i2"), ("link", "<i2"), ("transmission", "<i8"), ("segment", "<i8")]
)
MAX_ROWS = 20_000_000
DEFAULT_ROWS = 5_000_000


@kernel(forceinline=True)
def note(run, event, time_s, fl, link, tx):
    """Log an event of a transmission; nothing without a packet log."""
    if run.packet_log_limit > 0:
        if run.packet_log_rows < run.packet_log_limit:
            at = run.packet_log_rows * EVENT_STRIDE
            store(run.packet_log_at, at + LOG_TIME, time_s)
            store(run.packet_log_at, at + LOG_EVENT, float(event))
            store(run.packet_log_at, at + LOG_FLOW, float(fl.index))
            store(run.packet_log_at, at + LOG_LINK, float(link))
            store(run.packet_log_at, at + LOG_TX, float(tx))
            store(run.packet_log_at, at + LOG_SEGMENT, load(fl.tx_at, (tx & fl.mask) * TX_STRIDE + SEGMENT))
        run.packet_log_rows += 1


def ordered(rows: np.ndarray, until_s: float) -> np.ndarray:
    """Return what was logged up to a time as LOG_DTYPE, in the order of time; what happened at one time stays in its order.

    ``rows`` are (n, EVENT_STRIDE) as the kernel wrote them: deliveries are known before their time.
    """
    rows = rows[rows[:, LOG_TIME] <= until_s]
    rows = rows[np.argsort(rows[:, LOG_TIME], kind="stable")]
    log = np.zeros(len(rows), LOG_DTYPE)
    for name, column in zip(LOG_DTYPE.names or (), rows.T, strict=True):
        log[name] = column
    return log
