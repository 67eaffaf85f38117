"""The packet engine's memory: one record per link, flow, transit pipe and jitter box; rings of float64 by address; packet log.

This module alone owns field names and ring offsets. All rings have a power-of-two number of entries; entry n lives at
``(n & mask) * STRIDE``. The packet log holds what happened to each packet, in the order of time.
"""

from __future__ import annotations

import numpy as np

from ccenv.agents.callbacks import STATE_HEADER, STATE_SLOTS, record
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import load, store

RACK_FIELDS = [
    ("rack", "<i8"),  # 0: losses by duplicates, and nothing below is used
    ("resent_at", "<i8"),  # per segment: number + 1 once it was sent again
    ("first_segment", "<i8"),
    ("fack", "<i8"),  # newest segment that has arrived
    ("rack_rtt_s", "<f8"),  # RTT of the newest transmission that has arrived
    ("reordering_seen", "<i8"),
    ("reordering_s", "<f8"),  # the reordering window, in steps of a quarter of the smallest RTT
    ("reordering_steps", "<i8"),
    ("reordering_persists", "<i8"),  # recoveries for which they are kept
    ("dsack_below", "<i8"),  # segment with which the round ends in which something arrived twice
    ("recovering", "<i8"),
    ("recovery_below", "<i8"),  # segment with which the recovery ends
    ("hole_tx", "<i8"),
    ("hole_seen", "<i8"),
    ("timer", "<i8"),  # what rto_deadline_s is for
    ("rto_expires_s", "<f8"),
    ("probe_tx", "<i8"),
    ("probe_samples", "<f8"),  # RTT samples when it was sent
    ("beyond_window", "<i8"),  # what may be sent although the window is full
]


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

RUN_DTYPE = np.dtype(
    [
        ("n_links", "<i8"),
        ("n_flows", "<i8"),
        ("n_pipes", "<i8"),
        ("n_boxes", "<i8"),
        ("n_grids", "<i8"),
        ("n_monitors", "<i8"),
        ("n_arrivals", "<i8"),  # transfers that come and go; 0: none
        ("next_arrival", "<i8"),
        ("arrivals_at", "<i8"),
        ("pools_at", "<i8"),
        ("mss_bytes", "<f8"),
        ("seed", "<f8"),
        ("tick_s", "<f8"),
        ("log_s", "<f8"),
        ("rto_min_s", "<f8"),
        ("now_s", "<f8"),
        ("events", "<i8"),
        ("log_rows", "<i8"),
        ("next_change", "<i8"),
        ("ticks", "<i8"),
        ("tree_at", "<i8"),  # of all event sources: next times as a winner tree, then winners
        ("tree_leaves", "<i8"),
        ("first_s", "<f8"),  # the next time of the first of all sources
        ("first_source", "<i8"),  # sources.UNKNOWN: to be looked for
        ("packet_log_at", "<i8"),
        ("packet_log_rows", "<i8"),  # that happened; those beyond the limit are not kept
        ("packet_log_limit", "<i8"),  # 0: no packet log
        ("route_at", "<i8"),  # (flow, hop) -> link, then (flow, hop) -> pipe; HOPS each
        ("grids_at", "<i8"),
        ("states_at", "<i8"),
        ("ack_at", "<i8"),
        ("loss_at", "<i8"),
        ("tick_at", "<i8"),
        ("view_at", "<i8"),
        ("move_at", "<i8"),
        ("monitors_at", "<i8"),
        ("due", "<i8"),  # monitors that await a decision from outside
        ("outside", "<i8"),  # monitors that may still ask for one
        ("over", "<i8"),  # 1: none will any more
        ("leader", "<i8"),  # the monitor whose clock the others with a common one follow; -1: none
        ("error", "<i8"),
        ("error_flow", "<i8"),
    ]
)

LINK_DTYPE = np.dtype(
    [
        ("rate_Bps", "<f8"),
        ("delay_s", "<f8"),
        ("capacity_packets", "<i8"),
        ("discipline", "<i8"),
        ("ecn", "<i8"),
        ("threshold_packets", "<f8"),  # ECN threshold
        ("red_min_packets", "<f8"),
        ("red_max_packets", "<f8"),
        ("red_max_probability", "<f8"),
        ("red_weight", "<f8"),
        ("codel_target_s", "<f8"),
        ("codel_interval_s", "<f8"),
        ("quantum_bytes", "<f8"),  # of FQ-CoDel
        ("isolates_only", "<i8"),  # 1: queues per flow without CoDel
        ("target_s", "<f8"),  # of a controller
        ("update_s", "<f8"),
        ("alpha", "<f8"),
        ("beta", "<f8"),
        ("burst_s", "<f8"),  # of PIE
        ("coupling", "<f8"),  # of DualPI2
        ("ramp_start_s", "<f8"),
        ("ramp_s", "<f8"),
        ("classic_share", "<f8"),
        ("overload", "<f8"),
        ("policer_Bps", "<f8"),  # 0: no policer
        ("policer_bytes", "<f8"),
        ("buffer_bytes", "<f8"),  # as the network says it
        ("mixed", "<i8"),  # 1: its packets have several sizes, and it counts bytes
        ("largest_bytes", "<f8"),  # packet that it carries
        ("index", "<i8"),
        ("queue_at", "<i8"),
        ("classes_at", "<i8"),  # of several queues
        ("mask", "<i8"),
        # state
        ("capacity_bytes", "<f8"),  # that it could have carried by the last change of its rate
        ("capacity_s", "<f8"),  # time of that change
        ("head", "<i8"),
        ("tail", "<i8"),
        ("busy", "<i8"),
        ("serving_flow", "<i8"),
        ("serving_tx", "<i8"),
        ("serving_hop", "<i8"),
        ("waiting_bytes", "<f8"),  # of a link that counts them
        ("finish_s", "<f8"),
        ("idle_since_s", "<f8"),
        ("red_average_packets", "<f8"),
        ("red_count", "<f8"),
        ("draws", "<f8"),
        ("codel_first_above_s", "<f8"),
        ("codel_next_drop_s", "<f8"),
        ("codel_count", "<f8"),
        ("codel_last_count", "<f8"),
        ("codel_dropping", "<i8"),
        ("free_entry", "<i8"),  # of several queues
        ("new_first", "<i8"),
        ("new_last", "<i8"),
        ("old_first", "<i8"),
        ("old_last", "<i8"),
        ("probability", "<f8"),  # of a controller
        ("old_delay_s", "<f8"),
        ("next_update_s", "<f8"),
        ("burst_left_s", "<f8"),
        ("accumulated", "<f8"),
        ("credit_bytes", "<f8"),
        ("tokens_bytes", "<f8"),
        ("tokens_s", "<f8"),
        # cumulative
        ("queue_changed_s", "<f8"),
        ("queue_byte_s", "<f8"),  # integral of the waiting bytes
        ("arrived_bytes", "<f8"),
        ("dropped_bytes", "<f8"),
        ("marked_bytes", "<f8"),
        ("served_bytes", "<f8"),
        # a varying rate (traces): which trace, or the generator of one
        ("trace_index", "<i8"),  # among those of the batch; -1: none
        ("trace_kind", "<i8"),
        ("trace_at", "<i8"),
        ("trace_rows", "<i8"),
        ("trace_length_s", "<f8"),
        ("trace_bytes", "<f8"),  # that one length carries
        ("peak_Bps", "<f8"),
        ("generator", "<i8"),  # 0: none
        ("generator_mean_Bps", "<f8"),
        ("generator_a", "<f8"),
        ("generator_b", "<f8"),
        ("generator_c", "<f8"),
        ("generator_d", "<f8"),
        ("trace_row", "<i8"),  # in which the newest service ends
        ("trace_begin_s", "<f8"),  # of the repetition that it lies in
        ("trace_left_bytes", "<f8"),  # of its opportunity
        ("last_arrival_s", "<f8"),  # behind it, of the packets so far
    ]
)

FLOW_DTYPE = np.dtype(
    [
        # path
        ("index", "<i8"),
        ("n_hops", "<i8"),
        ("path_rtt_s", "<f8"),  # propagation
        ("told_rtt_s", "<f8"),  # Rm that the sender goes by
        ("rtt_known", "<i8"),
        ("access_s", "<f8"),
        ("return_s", "<f8"),
        ("burst_s", "<f8"),  # 0: packets are paced one by one
        ("loss_rate", "<f8"),
        ("mss_bytes", "<f8"),
        ("ecn", "<i8"),  # CODEPOINTS
        ("start_s", "<f8"),
        ("stop_s", "<f8"),
        ("ack_every", "<i8"),
        ("ack_timeout_s", "<f8"),
        ("jitter_kind", "<i8"),
        ("jitter_s", "<f8"),
        ("jitter_interval_s", "<f8"),
        ("jitter_at_s", "<f8"),
        ("jitter_table_at", "<i8"),  # delays of a replay
        ("jitter_table_length", "<i8"),
        ("ack_aggregation", "<i8"),
        ("ack_aggregate_s", "<f8"),
        ("ack_merge", "<i8"),
        ("box", "<i8"),
        ("workload", "<i8"),
        ("offers", "<i8"),  # 1: what its application offers changes with time
        ("workload_a", "<f8"),
        ("workload_b", "<f8"),
        ("sender_index", "<i8"),
        ("monitor", "<i8"),  # -1: none
        ("grid", "<i8"),  # -1: none
        ("mask", "<i8"),
        ("pool", "<i8"),  # of which it is a slot; -1: none
        ("arrival", "<i8"),  # in it
        ("tx_at", "<i8"),
        ("sent_with_at", "<i8"),
        ("segment_at", "<i8"),
        ("resend_at", "<i8"),
        ("ack_ring_at", "<i8"),
        # what its path does beside queueing (path): losses in bursts, packets that others overtake, the way of its ACKs
        *((f"{of}{name}", "<i8") for of in ("", "ack_") for name in ("bursts", "burst_bad")),  # 1: there are some; the state
        *((f"{of}burst_{name}", "<f8") for of in ("", "ack_") for name in ("enter", "leave", "loss", "loss_between")),
        *((name, "<i8") for name in ("reorders", "late_pipe", "late_at", "late_tail", "order_at", "order_tail")),
        ("late_head", "<i8"),  # those below it are covered by ACKs, like the next
        ("order_head", "<i8"),
        ("late_share", "<f8"),
        ("late_s", "<f8"),
        *((name, "<i8") for name in ("ack_path", "ack_hops", "ack_pipe", "ack_out_at", "ack_out_tail")),
        *((name, "<f8") for name in ("ack_bytes", "ack_loss_rate", "acks_sent", "acks_lost")),
        # sender
        ("started", "<i8"),
        ("next_tx", "<i8"),
        ("ack_next_tx", "<i8"),  # transmissions below it were covered by an ACK
        ("loss_scan", "<i8"),  # SACK scoreboard: transmissions below it are acknowledged or found lost
        ("acked_count", "<i8"),
        ("acked_below_scan", "<i8"),
        ("recovery_tx", "<i8"),
        ("per_packet", "<i8"),  # 1: its CCA hears of each lost packet
        ("newest_lost_tx", "<i8"),  # told to such a CCA
        ("next_segment", "<i8"),
        ("confirmed_below", "<i8"),  # cumulative acknowledgement, in segments
        ("resend_head", "<i8"),
        ("resend_tail", "<i8"),
        ("ack_head", "<i8"),
        ("ack_tail", "<i8"),
        ("hold_s", "<f8"),  # for which a proxy holds ACKs
        ("in_network", "<i8"),
        ("inflight_bytes", "<f8"),
        ("cwnd_bytes", "<f8"),
        ("rate_Bps", "<f8"),
        ("next_send_s", "<f8"),  # pacing: no packet before it, but for what is left of a burst
        ("burst_left", "<f8"),  # packets
        ("wake_s", "<f8"),  # pacing or application timer
        ("rto_deadline_s", "<f8"),
        ("rto_backoff", "<f8"),
        ("srtt_s", "<f8"),
        ("rttvar_s", "<f8"),
        ("rtt_s", "<f8"),
        ("min_rtt_s", "<f8"),
        ("delivered_bytes", "<f8"),
        ("delivered_s", "<f8"),
        ("first_sent_s", "<f8"),
        ("round_end_bytes", "<f8"),
        ("app_limited_until_bytes", "<f8"),
        ("app_segments", "<i8"),  # offered so far
        ("app_next_s", "<f8"),
        ("app_draws", "<f8"),
        # a proxy that holds ACKs (ccenv.engine.compiled.holds)
        ("hold_target_s", "<f8"),  # lambda
        ("hold_window_s", "<f8"),  # 0: the hold never changes
        ("hold_until_s", "<f8"),  # end of the window
        ("hold_rtt_min_s", "<f8"),  # of the window
        # receiver and jitter box
        ("received_below", "<i8"),
        ("received_high", "<i8"),  # newest segment received + 1
        ("pending_acks", "<i8"),
        ("last_received_tx", "<i8"),
        ("ack_deadline_s", "<f8"),
        ("last_release_s", "<f8"),
        ("batch_end_s", "<f8"),
        ("jitter_draws", "<f8"),
        ("ack_batch_end_s", "<f8"),
        ("ack_draws", "<f8"),
        # cumulative
        ("sent_bytes", "<f8"),
        ("resent_bytes", "<f8"),
        ("found_lost_bytes", "<f8"),
        ("dropped_bytes", "<f8"),
        ("random_lost_bytes", "<f8"),
        ("goodput_bytes", "<f8"),
        ("rtt_sum_s", "<f8"),
        ("rtt_samples", "<f8"),
        ("one_way_sum_s", "<f8"),
        ("one_way_samples", "<f8"),
        ("marked_bytes", "<f8"),
        ("timeouts", "<f8"),
        ("finished_s", "<f8"),
        *RACK_FIELDS,
    ]
)

# A pipe brings packets of one flow to one of its hops after a constant delay.
PIPE_DTYPE = np.dtype([("flow", "<i8"), ("hop", "<i8"), ("ring_at", "<i8"), ("mask", "<i8"), ("head", "<i8"), ("tail", "<i8")])

# A box holds packets of one flow as an adversary decides.
BOX_DTYPE = np.dtype(
    [
        ("flow", "<i8"),
        ("ring_at", "<i8"),
        ("mask", "<i8"),
        ("head", "<i8"),
        ("tail", "<i8"),
        ("decision_s", "<f8"),
        ("decisions", "<i8"),
        ("init_at", "<i8"),
        ("play_at", "<i8"),
        ("state_at", "<i8"),
        ("link_rate_Bps", "<f8"),
        ("buffer_bytes", "<f8"),
        ("rtt_s", "<f8"),
    ]
)

# A grid steps the beliefs of a flow; the function at step_at sets next_s and, where a program decides, rate_Bps.
GRID_DTYPE = np.dtype(
    [
        ("flow", "<i8"),
        ("watches", "<i8"),  # 1: nothing is set
        ("step_at", "<i8"),
        ("beliefs_at", "<i8"),
        ("flow_at", "<i8"),
        ("next_s", "<f8"),
        ("rate_Bps", "<f8"),
    ]
)

# Those from fq_codel on have several queues (aqm.lists).
DISCIPLINES = {"drop_tail": 0, "red": 1, "ecn": 2, "codel": 3, "pie": 4, "fq_codel": 5, "dualpi2": 6}
CODEPOINTS = {"none": 0, "classic": 1, "l4s": 2}  # Not-ECT, ECT(0), ECT(1)
TRACE_KINDS = {"none": 0, "rate": 1, "opportunities": 2}
JITTERS = {"none": 0, "constant": 1, "batch": 2, "interval": 3, "early": 4, "adversary": 5, "replay": 6}
AGGREGATIONS = {"none": 0, "interval": 1, "batch": 2}
RECOVERIES = {"sack": 0, "rack": 1}
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
    "cwnd_bytes",
    "rate_Bps",
    "inflight_bytes",
    "rtt_s",
    "sent_bytes",
    "resent_bytes",
    "found_lost_bytes",
    "dropped_bytes",
    "random_lost_bytes",
    "goodput_bytes",
    "rtt_sum_s",
    "rtt_samples",
    "one_way_sum_s",
    "one_way_samples",
    "marked_bytes",
    "timeouts",
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

    Args:
        rows: (n, EVENT_STRIDE) as the kernel wrote them: deliveries are known before their time.
        until_s: end of the run.
    """
    rows = rows[rows[:, LOG_TIME] <= until_s]
    rows = rows[np.argsort(rows[:, LOG_TIME], kind="stable")]
    log = np.zeros(len(rows), LOG_DTYPE)
    for name, column in zip(LOG_DTYPE.names or (), rows.T, strict=True):
        log[name] = column
    return log
