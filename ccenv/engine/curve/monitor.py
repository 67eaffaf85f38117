"""Monitors of the curve engine: what is measured of a flow between two of its decisions, on the grid. Compiled.

What a transport counts per segment and per ACK the grid has per step and byte (docs/interface.md has the table):

- an RTT sample is that of the bytes that a step acknowledged, and counts as often as these bytes are segments;
- ACKs come one for each segment: where a step, or several, have acknowledged at least a segment, its ACKs are as far apart as the
  time since those before them, divided by their number;
- nothing is marked.

``tests/oracles/monitor.py`` is the plain reference.
"""

from __future__ import annotations

import numpy as np

from ccenv.agents.callbacks import make_record
from ccenv.agents.interface.actions import ACTIONS, PROBE_FIELDS, START_SEGMENTS, follow_probes, set_by_action
from ccenv.agents.interface.signals import MOST_OF_LINK, SHARE_WEIGHT
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.curve.layout import WORKLOADS

_WINDOWS = np.array([row.sets == "cwnd" for row in ACTIONS])
_NEEDS_BELIEFS, _NEEDS_INNER = (np.array([row.needs == need for row in ACTIONS]) for need in ("beliefs", "inner"))
_FINITE = WORKLOADS["finite"]
_SEGMENT = 1.0 - 1e-9  # of a segment: what is one but for round-off

MONITOR_DTYPE = make_record(
    """
    i8 decisions
    f8 action  # the one that holds
    f8 action_before
    # the interval: counts at its start
    i8 since_step
    f8 A acked_bytes found_lost_bytes capacity_bytes served_bytes
    # RTT samples, in steps, weighted by segments
    f8 samples rtt_mean rtt_min
    f8 time_mean  # since the start of the interval
    f8 time_square  # weighted sum of squares about the mean
    f8 time_rtt
    # gaps between ACKs, in steps
    f8 pending_bytes  # acknowledged since the newest ACK, less than a segment
    i8 ack_step  # of the newest ACK of the interval; -1: none
    f8 gaps gap_mean
    f8 gap_square  # weighted sum of squares about the mean
    # of intervals before, s
    f8 mean_s min_s last_s least_mean_s throughput_most_Bps
    # of a clock of ACKs
    f8 due_bytes
    i8 deadline_step
    """,
    *PROBE_FIELDS,
)

# Columns of an environment's shares: the smoothed one, and what the flow had acknowledged at the decision before.
SHARE, SHARE_ACKED = range(2)


@kernel
def begin_interval(ev, fl, monitor, k):
    """Begin the interval before the next decision at step k."""
    monitor.since_step = k
    monitor.A = fl.A
    monitor.acked_bytes = fl.acked_bytes
    monitor.found_lost_bytes = fl.found_lost_bytes
    monitor.capacity_bytes = ev.capacity_bytes
    monitor.served_bytes = ev.served_bytes
    monitor.samples = 0.0
    monitor.rtt_mean = 0.0
    monitor.rtt_min = np.inf
    monitor.time_mean = 0.0
    monitor.time_square = 0.0
    monitor.time_rtt = 0.0
    monitor.ack_step = -1
    monitor.gaps = 0.0
    monitor.gap_mean = 0.0
    monitor.gap_square = 0.0


@kernel
def count_ack(monitor, fl, newly_bytes, mss_bytes, k):
    """Take the bytes that step k acknowledged: their RTT, and the gap since the ACKs before."""
    weight = newly_bytes / mss_bytes
    monitor.samples += weight
    share = weight / monitor.samples
    time_off = k - monitor.since_step - monitor.time_mean
    monitor.time_mean += time_off * share
    rest = weight * (k - monitor.since_step - monitor.time_mean)
    monitor.time_square += rest * time_off
    monitor.time_rtt += rest * (fl.rtt_now_steps - monitor.rtt_mean)
    monitor.rtt_mean += (fl.rtt_now_steps - monitor.rtt_mean) * share
    monitor.rtt_min = min(monitor.rtt_min, fl.rtt_now_steps)
    monitor.pending_bytes += newly_bytes
    if monitor.pending_bytes >= _SEGMENT * mss_bytes:
        if monitor.ack_step >= 0:
            acks = monitor.pending_bytes / mss_bytes
            monitor.gaps += acks
            gap_off = (k - monitor.ack_step) / acks - monitor.gap_mean
            monitor.gap_mean += gap_off * (acks / monitor.gaps)
            monitor.gap_square += acks * gap_off * ((k - monitor.ack_step) / acks - monitor.gap_mean)
        monitor.ack_step = k
        monitor.pending_bytes = 0.0


@kernel
def start_flow_of(action_number, fl, mss_bytes):
    """Set what holds before a flow's first decision: a rate or a window of START_SEGMENTS per told Rm, or the C_L that it knows.

    An action on C_L starts at C_L; the CCA inside sets its own start.
    """
    if _NEEDS_BELIEFS[action_number] or _NEEDS_INNER[action_number]:
        return
    rate_Bps = max(fl.C_L_Bps, START_SEGMENTS * mss_bytes / fl.rtt_s)
    if _WINDOWS[action_number]:
        fl.cwnd_bytes = rate_Bps * fl.rtt_s
        fl.rate_Bps = np.inf
    else:
        fl.rate_Bps = rate_Bps


@kernel
def fill_measures(ev, fl, monitor, k, m):
    """Write what is known of a flow at its decision at step k, but for how flows share the link; its next interval begins."""
    first = monitor.decisions == 0
    if first:
        begin_interval(ev, fl, monitor, k)
    interval_s = fl.rtt_s if first or k == monitor.since_step else (k - monitor.since_step) * ev.dt_s
    m.now_s = k * ev.dt_s
    m.interval_s = interval_s
    m.sent_bytes = fl.A - monitor.A
    m.acked_bytes = fl.acked_bytes - monitor.acked_bytes
    m.lost_bytes = fl.found_lost_bytes - monitor.found_lost_bytes
    m.marked_bytes = 0.0
    m.rtt_samples = monitor.samples
    m.rtt_slope = 0.0
    m.rtt_mean_before_s = monitor.mean_s
    if monitor.samples > 0.0:
        mean_s = monitor.rtt_mean * ev.dt_s
        if monitor.mean_s == 0.0:
            m.rtt_mean_before_s = mean_s
        if monitor.time_square > 0.0:
            m.rtt_slope = monitor.time_rtt / monitor.time_square
        monitor.mean_s = mean_s
        monitor.min_s = monitor.rtt_min * ev.dt_s
        monitor.last_s = fl.rtt_now_steps * ev.dt_s
        monitor.least_mean_s = min(monitor.least_mean_s, mean_s) if monitor.least_mean_s > 0.0 else mean_s
    m.rtt_mean_s = monitor.mean_s
    m.rtt_min_s = monitor.min_s
    m.rtt_last_s = monitor.last_s
    m.rtt_least_mean_s = monitor.least_mean_s
    m.ack_gap_mean_s = 0.0
    m.ack_gap_std_s = 0.0
    if monitor.gaps > 0.0:
        m.ack_gap_mean_s = monitor.gap_mean * ev.dt_s
        m.ack_gap_std_s = np.sqrt(max(monitor.gap_square / monitor.gaps, 0.0)) * ev.dt_s
    m.min_rtt_s = fl.rtt_min_steps * ev.dt_s if np.isfinite(fl.rtt_min_steps) else 0.0
    m.srtt_s = fl.srtt_steps * ev.dt_s
    monitor.throughput_most_Bps = max(monitor.throughput_most_Bps, m.acked_bytes / interval_s)
    m.throughput_most_Bps = monitor.throughput_most_Bps
    m.inflight_bytes = max(0.0, fl.A - fl.acked_bytes - fl.found_lost_bytes)
    m.cwnd_bytes = fl.cwnd_bytes
    m.rate_Bps = fl.rate_Bps
    m.app_left_bytes = np.inf
    m.action = monitor.action
    m.mss_bytes = ev.mss_bytes
    m.told_rtt_s = fl.rtt_s
    m.C_L_Bps = fl.C_L_Bps
    m.C_U_Bps = fl.C_U_Bps
    m.C_L_lambda_Bps = fl.C_L_lambda_Bps
    m.q_U_bytes = fl.q_U_bytes
    m.qdel_L_s = fl.qdel_L_s
    m.qdel_U_s = fl.qdel_U_s
    m.utilised = float(fl.utilised)
    m.shield_low_Bps = 0.0
    m.shield_high_Bps = 0.0
    m.inner_cwnd_bytes = fl.cwnd_bytes
    m.true_rtt_s = (fl.lag_steps - fl.hold_steps) * ev.dt_s
    m.true_link_Bps = ev.link_rate_now_Bps if first else (ev.capacity_bytes - monitor.capacity_bytes) / interval_s
    m.true_served_Bps = (ev.served_bytes - monitor.served_bytes) / interval_s
    m.true_queue_bytes = max(0.0, ev.enqueued_bytes - ev.tokens_bytes)
    m.true_buffer_bytes = ev.buffer_bytes
    follow_probes(monitor, m)
    monitor.decisions += 1
    begin_interval(ev, fl, monitor, k)


@kernel
def may_send(fl, k):
    """Tell whether a flow may send after step k: it has begun, its time is not over, its transfer is not done."""
    done = fl.workload == _FINITE and fl.acked_bytes >= _SEGMENT * fl.workload_a
    return fl.start_step <= k < fl.stop_step and not done


@kernel
def update_shares(flow, first_row, n_flows, controlled, k, link_Bps, interval_s, first, shares):
    """Bring an environment's smoothed shares of the link, (N, 2) SHARE and SHARE_ACKED, up to the interval that ends at step k.

    ``link_Bps`` is what the link could carry in the interval; at the ``first`` decision nothing was shared yet. Returns flows
    that may send, those of them that are not controlled, mean share of the controlled ones, Jain's index.
    """
    flows, others, own, members, total, squares = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n_flows):
        if may_send(flow[first_row + i], k):
            flows += 1.0
            others += 0.0 if controlled[i] else 1.0
    for i in range(n_flows):
        fl = flow[first_row + i]
        share = 1.0
        if may_send(fl, k):
            share = 1.0 if first else shares[i, SHARE]
            if not first and link_Bps > 0.0:
                got_Bps = (fl.acked_bytes - shares[i, SHARE_ACKED]) / interval_s
                share += SHARE_WEIGHT * (min(MOST_OF_LINK, got_Bps / link_Bps) * flows - share)
            total += share
            squares += share * share
            if controlled[i]:
                own += share
                members += 1.0
        shares[i, SHARE] = share
        shares[i, SHARE_ACKED] = fl.acked_bytes
    jain = total * total / (flows * squares) if squares > 0.0 else 1.0
    return flows, others, (own / members if members > 0.0 else 1.0), jain


@kernel
def obey(fl, monitor, action_number, first, second, a, m):
    """Let an action set a flow's rate and window."""
    monitor.action_before = monitor.action
    monitor.action = a
    rate_Bps, cwnd_bytes = set_by_action(action_number, first, second, a, m)
    fl.rate_Bps = rate_Bps
    fl.cwnd_bytes = cwnd_bytes
