"""Monitors of the packet engine: what a policy is told of its flow, when it decides, and what its decision sets.

A monitor belongs to one flow. Per ACK it adds a few sums; all else are differences of the flow's own counts. At a decision
``fill_measures`` writes the record of ``ccenv.agents.interface.signals``; then either the run stops until the decision comes from
outside (``decide_at`` is 0), or the function at ``decide_at`` takes it: a compiled function over three records,

    decide(policy, measures, monitor)

where ``policy`` is a record of its own at ``policy_at`` and ``measures`` is a MEASURES record. It sets ``monitor.asked``, the
action in [-1, 1]. ``monitor.decisions`` is 0 at a flow's first decision, before anything was measured: a policy with a memory
begins it anew there. ``ccenv.engine.compiled.calls.address_of(function, POLICY, MEASURES, MONITOR_DTYPE)`` gives the address.
Each flow of each network gets a copy of the policy's record, so memory stands in the record itself and weights stand behind
addresses that all copies share (``Decider``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.agents.callbacks import make_record
from ccenv.agents.interface.actions import (
    PROBE_FIELDS,
    START_DOUBLES,
    START_SEGMENTS,
    STARTING,
    action,
    follow_probes,
    set_by_action,
)
from ccenv.agents.interface.interface import Clock, Interface
from ccenv.agents.interface.signals import MOST_OF_LINK, SHARE_WEIGHT, UNKNOWN_RTT_S
from ccenv.agents.sender import ClassicSender
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import call_3, load, store
from ccenv.engine.packet.arrivals import UNLIMITED
from ccenv.engine.packet.service import capacity_bytes
from ccenv.engine.packet.sources import set_source
from ccenv.engine.packet.transport import pace_on, rto_s, take_cca

CLOCKS = {"srtt": 0, "rtt": 1, "seconds": 2, "acks": 3, "min_rtt": 4}
_SRTT, _RTT, _SECONDS, ACKS, _MIN_RTT = CLOCKS.values()
BY_GRID = len(CLOCKS)  # clock of a flow inside a shield: the grid of its beliefs lets it decide
# What an action is for; nothing: a flow that is only watched; position: where in a shield's interval the rate is.
SETS = {"nothing": 0, "rate": 1, "cwnd": 2, "inner": 3, "position": 4}
NOTHING, RATE, CWND, INNER, POSITION = SETS.values()
SHORTEST_INTERVAL_S = 1e-5

# Entry of a flow in the table at shares_at: its smoothed share, and what it had delivered at the monitor's last decision.
SHARE, SHARE_DELIVERED = range(2)
SHARE_STRIDE = 2

MONITOR_DTYPE = make_record(
    """
    # what it is for
    i8 flow
    i8 link  # the slowest of the flow's route
    i8 clock
    f8 clock_count clock_least_rtts
    i8 common sets action_number
    f8 action_first action_second
    f8 start_rate_Bps  # 0: start_segments per told Rm
    f8 start_segments
    i8 decide_at policy_at measures_at shares_at
    i8 grid  # with its beliefs; -1: none
    # decisions
    i8 decisions
    i8 due  # 1: a decision is awaited from outside
    i8 over  # 1: no decision will follow
    f8 asked  # the action that was decided
    f8 action  # the one that holds
    f8 action_before
    f8 acks_left  # until the next decision
    # the interval
    f8 since_s
    f8 sent_bytes  # at its start, like the next ones
    f8 delivered_bytes lost_bytes marked_bytes capacity_bytes served_bytes
    f8 samples  # in it, like the next ones
    f8 rtt_sum_s rtt_min_s
    f8 time_sum_s  # of ACKs, since its start
    f8 time_square_sum time_rtt_sum gap_square_sum first_ack_s last_ack_s
    """,
    *PROBE_FIELDS,
)


EVERY_RTT = Clock(every="rtt")


@dataclass(frozen=True)
class Decider:
    """Who decides for a flow, and by which interface."""

    interface: Interface | None = None  # signals, action and clock; None: the flow is only watched
    clock: Clock = EVERY_RTT  # when it decides; by default the interface's
    inner: ClassicSender | None = None  # the CCA inside, for actions that build on one
    decide_at: int = 0  # address of what decides; 0: the caller does
    record: np.ndarray | None = None  # (1,) record of the policy, which each flow gets a copy of
    keep: tuple[Any, ...] = ()  # what the addresses in the record point into

    @property
    def watches_beliefs(self) -> bool:
        """Whether a signal or the action needs belief bounds."""
        if self.interface is None:
            return False
        needs = {signal.needs for signal in self.interface.rows} | {action(self.interface.action).needs}
        return "beliefs" in needs

    def monitor(self, flow: int) -> np.ndarray:
        """Return a flow's monitor as it begins: (1,) MONITOR_DTYPE, without addresses of its own."""
        made = np.zeros(1, MONITOR_DTYPE)
        clock = self.interface.clock if self.interface is not None else self.clock
        made["flow"], made["decide_at"], made["grid"] = flow, self.decide_at, -1
        made["clock"], made["clock_count"], made["common"] = CLOCKS[clock.every], clock.count, clock.common
        made["clock_least_rtts"] = clock.least_rtts
        if self.interface is not None:
            row = action(self.interface.action)
            made["sets"] = {"inner": INNER, "shield": POSITION}.get(row.needs, SETS[row.sets])
            if row.needs == "shield":
                made["clock"] = BY_GRID
            made["start_segments"] = 1.0 if row.needs == "beliefs" else START_SEGMENTS  # 1: the first C_L
            made["action_number"], made["action_first"], made["action_second"] = self.interface.action_row
        return made


@kernel(inline="always")
def count_ack(monitor, fl, now_s):
    """Take an ACK's RTT sample and its gap to the one before."""
    since_s = now_s - monitor.since_s
    rtt_s = fl.rtt_s
    if monitor.samples > 0.0:
        gap_s = now_s - monitor.last_ack_s
        monitor.gap_square_sum += gap_s * gap_s
    else:
        monitor.first_ack_s = now_s
    monitor.last_ack_s = now_s
    monitor.samples += 1.0
    monitor.rtt_sum_s += rtt_s
    monitor.rtt_min_s = min(monitor.rtt_min_s, rtt_s)
    monitor.time_sum_s += since_s
    monitor.time_square_sum += since_s * since_s
    monitor.time_rtt_sum += since_s * rtt_s


@kernel(inline="always")
def may_send(fl, now_s):
    """Tell whether a flow may send: it has begun, its time is not over, its transfer is not done."""
    return fl.started == 1 and now_s < fl.stop_s and fl.finished_s == np.inf


@kernel
def begin_monitor(a, run, monitor, m, now_s):
    """Begin at a flow's first decision: nothing was measured, and the interval before it is a told Rm of silence."""
    fl = a.flows[monitor.flow]
    m.min_rtt_s = m.srtt_s = m.rtt_mean_s = m.rtt_min_s = m.rtt_last_s = m.rtt_slope = m.rtt_mean_before_s = 0.0
    m.rtt_least_mean_s = m.throughput_most_Bps = 0.0
    m.shield_low_Bps = m.shield_high_Bps = 0.0
    monitor.since_s = now_s
    for i in range(run.n_flows):
        at = i * SHARE_STRIDE
        store(monitor.shares_at, at + SHARE, 1.0)
        store(monitor.shares_at, at + SHARE_DELIVERED, a.flows[i].delivered_bytes)
    start_Bps = monitor.start_rate_Bps
    if start_Bps == 0.0:
        start_Bps = monitor.start_segments * run.mss_bytes / fl.told_rtt_s
    if monitor.sets == RATE:
        fl.rate_Bps = start_Bps
        fl.cwnd_bytes = np.inf
    elif monitor.sets == CWND:
        fl.rate_Bps = np.inf
        fl.cwnd_bytes = max(start_Bps * fl.told_rtt_s, run.mss_bytes)


@kernel
def begin_interval(a, monitor, now_s):
    """Begin the interval before the next decision."""
    fl, ln = a.flows[monitor.flow], a.links[monitor.link]
    monitor.since_s = now_s
    monitor.sent_bytes = fl.sent_bytes
    monitor.delivered_bytes = fl.delivered_bytes
    monitor.lost_bytes = fl.found_lost_bytes
    monitor.marked_bytes = fl.marked_bytes
    monitor.capacity_bytes = capacity_bytes(ln, now_s)
    monitor.served_bytes = ln.served_bytes
    monitor.samples = 0.0
    monitor.rtt_sum_s = 0.0
    monitor.rtt_min_s = np.inf
    monitor.time_sum_s = 0.0
    monitor.time_square_sum = 0.0
    monitor.time_rtt_sum = 0.0
    monitor.gap_square_sum = 0.0


@kernel
def fill_measures(a, run, monitor, now_s, m):
    """Write what is known of a monitor's flow at a decision into MEASURES, which keep the extremes of the intervals so far."""
    fl, ln = a.flows[monitor.flow], a.links[monitor.link]
    first = monitor.decisions == 0
    if first:
        begin_monitor(a, run, monitor, m, now_s)
        begin_interval(a, monitor, now_s)
    interval_s = fl.told_rtt_s if first else now_s - monitor.since_s
    m.now_s = now_s
    m.interval_s = interval_s
    m.sent_bytes = fl.sent_bytes - monitor.sent_bytes
    m.acked_bytes = fl.delivered_bytes - monitor.delivered_bytes
    m.lost_bytes = fl.found_lost_bytes - monitor.lost_bytes
    m.marked_bytes = fl.marked_bytes - monitor.marked_bytes
    _fill_rtts(monitor, fl, m)
    m.throughput_most_Bps = max(m.throughput_most_Bps, m.acked_bytes / interval_s)
    m.inflight_bytes = fl.inflight_bytes
    m.cwnd_bytes = fl.cwnd_bytes
    m.rate_Bps = fl.rate_Bps
    m.app_left_bytes = (fl.app_segments - fl.next_segment) * run.mss_bytes if fl.app_segments < UNLIMITED else np.inf
    m.action = monitor.action
    m.mss_bytes = run.mss_bytes
    m.told_rtt_s = fl.told_rtt_s
    m.inner_cwnd_bytes = fl.cwnd_bytes if monitor.sets == INNER else 0.0
    follow_probes(monitor, m)
    if monitor.grid >= 0:
        _copy_beliefs(a.beliefs[monitor.grid], m)
    m.true_rtt_s = fl.path_rtt_s
    carried = capacity_bytes(ln, now_s) - monitor.capacity_bytes
    m.true_link_Bps = ln.rate_Bps if first else carried / interval_s
    m.true_served_Bps = (ln.served_bytes - monitor.served_bytes) / interval_s
    m.true_queue_bytes = (ln.tail - ln.head) * run.mss_bytes
    m.true_buffer_bytes = ln.capacity_packets * run.mss_bytes
    _fill_shares(a, run, monitor, now_s, interval_s, m)


@kernel
def _fill_rtts(monitor, fl, m):
    n = monitor.samples
    m.rtt_samples = n
    m.ack_gap_mean_s = 0.0
    m.ack_gap_std_s = 0.0
    if n > 0.0:
        mean_s = monitor.rtt_sum_s / n
        m.rtt_mean_before_s = m.rtt_mean_s if m.rtt_mean_s > 0.0 else mean_s
        m.rtt_mean_s = mean_s
        m.rtt_min_s = monitor.rtt_min_s
        m.rtt_last_s = fl.rtt_s
        m.rtt_least_mean_s = min(m.rtt_least_mean_s, mean_s) if m.rtt_least_mean_s > 0.0 else mean_s
        spread = monitor.time_square_sum - monitor.time_sum_s * monitor.time_sum_s / n
        m.rtt_slope = 0.0
        if monitor.last_ack_s > monitor.first_ack_s and spread > 0.0:
            m.rtt_slope = (monitor.time_rtt_sum - monitor.time_sum_s * mean_s) / spread
        if n > 1.0:
            gap_s = (monitor.last_ack_s - monitor.first_ack_s) / (n - 1.0)
            m.ack_gap_mean_s = gap_s
            m.ack_gap_std_s = np.sqrt(max(monitor.gap_square_sum / (n - 1.0) - gap_s * gap_s, 0.0))
    else:
        m.rtt_mean_before_s = m.rtt_mean_s
    m.min_rtt_s = fl.min_rtt_s if fl.min_rtt_s < np.inf else 0.0
    m.srtt_s = fl.srtt_s


@kernel
def _copy_beliefs(beliefs, m):
    m.told_rtt_s = beliefs.rtt_s
    m.C_L_Bps = beliefs.C_L_Bps
    m.C_U_Bps = beliefs.C_U_Bps
    m.C_L_lambda_Bps = beliefs.C_L_lambda_Bps
    m.q_U_bytes = beliefs.q_U_bytes
    m.qdel_L_s = beliefs.qdel_L_s
    m.qdel_U_s = beliefs.qdel_U_s
    m.utilised = beliefs.utilised
    m.shield_low_Bps = beliefs.lo_Bps
    m.shield_high_Bps = beliefs.hi_Bps


@kernel
def _fill_shares(a, run, monitor, now_s, interval_s, m):
    """Write how the flows share the link: smoothed shares of all that may send, over this monitor's own intervals."""
    flows = 0.0
    others = 0.0
    for i in range(run.n_flows):
        if may_send(a.flows[i], now_s):
            flows += 1.0
            if not is_controlled(a, a.flows[i]):
                others += 1.0
    controlled_shares = 0.0
    controlled = 0.0
    total = 0.0
    squares = 0.0
    for i in range(run.n_flows):
        fl, at = a.flows[i], i * SHARE_STRIDE
        share = 1.0
        if may_send(fl, now_s):
            share = load(monitor.shares_at, at + SHARE)
            if monitor.decisions > 0 and m.true_link_Bps > 0.0:
                got_Bps = (fl.delivered_bytes - load(monitor.shares_at, at + SHARE_DELIVERED)) / interval_s
                share += SHARE_WEIGHT * (min(MOST_OF_LINK, got_Bps / m.true_link_Bps) * flows - share)
            total += share
            squares += share * share
            if is_controlled(a, fl):
                controlled_shares += share
                controlled += 1.0
        store(monitor.shares_at, at + SHARE, share)
        store(monitor.shares_at, at + SHARE_DELIVERED, fl.delivered_bytes)
    m.true_flows = flows
    m.true_others = others
    m.true_share = load(monitor.shares_at, monitor.flow * SHARE_STRIDE + SHARE)
    m.true_own_share_mean = controlled_shares / controlled if controlled > 0.0 else 1.0
    m.true_jain = total * total / (flows * squares) if squares > 0.0 else 1.0


@kernel(inline="always")
def is_controlled(a, fl):
    """Tell whether decisions set what a flow does."""
    return fl.monitor >= 0 and a.monitors[fl.monitor].sets != NOTHING


@kernel
def next_decision_s(monitor, fl, now_s, rto_min_s):
    """Return when a flow decides again, or infinity for one whose time is over.

    Before the first RTT sample a smoothed RTT is the told Rm. A clock of ACKs waits for them for an RTO at most.
    """
    if not may_send(fl, now_s):
        monitor.over = 1
        return np.inf
    if monitor.clock == BY_GRID:
        return np.inf
    if monitor.clock == ACKS:
        monitor.acks_left = monitor.clock_count
        return now_s + rto_s(fl, rto_min_s)
    unit_s = 1.0
    if monitor.clock == _RTT or (monitor.clock == _SRTT and fl.srtt_s == 0.0):
        unit_s = fl.told_rtt_s
    elif monitor.clock == _SRTT:
        unit_s = fl.srtt_s
    elif monitor.clock == _MIN_RTT:
        unit_s = fl.min_rtt_s if fl.min_rtt_s < np.inf else UNKNOWN_RTT_S
    wait_s = monitor.clock_count * unit_s
    if fl.min_rtt_s < np.inf:
        wait_s = max(wait_s, monitor.clock_least_rtts * fl.min_rtt_s)
    if monitor.action_number in START_DOUBLES and monitor.starting == STARTING:
        wait_s = fl.srtt_s if fl.srtt_s > 0.0 else fl.told_rtt_s
    return now_s + max(wait_s, SHORTEST_INTERVAL_S)


@kernel
def take_decision(monitor, fl, state, m, now_s):
    """Set what a decision asks for (``monitor.asked``); one that is no number counts as -1."""
    asked = monitor.asked
    asked = -1.0 if np.isnan(asked) else min(1.0, max(-1.0, asked))
    monitor.action_before = monitor.action
    monitor.action = asked
    if monitor.sets == NOTHING:
        return
    rate_Bps, cwnd_bytes = set_by_action(monitor.action_number, monitor.action_first, monitor.action_second, asked, m)
    state.cwnd_bytes = cwnd_bytes
    state.pacing_rate_Bps = rate_Bps
    if fl.rate_Bps < np.inf:
        pace_on(fl, rate_Bps, now_s)


MONITOR_BYTES = MONITOR_DTYPE.itemsize


@kernel(inline="always")
def monitor_ack(run, sources, fl, monitor, now_s):
    """Take an ACK; with a clock of ACKs the last one that it waits for lets its flow decide, at a later time than the last."""
    count_ack(monitor, fl, now_s)
    if monitor.clock == ACKS:
        monitor.acks_left -= 1.0
        if (
            monitor.acks_left <= 0.0
            and now_s > monitor.since_s
            and monitor.over == 0
            and monitor.decisions > 0
            and (monitor.common == 0 or run.leader == fl.monitor)
        ):
            set_source(run, sources.monitors + fl.monitor, now_s)


@kernel
def wake_monitor(a, run, sources, row, now_s):
    """Let a monitor's flow decide, and with a common clock all others; return the first and the last flow that may send then."""
    monitor = a.monitors[row]
    if monitor.common == 0:
        ask_monitor(a, run, row, now_s)
        return _go_on(a, run, sources, row, row, now_s)
    if run.leader >= 0 and run.leader != row:  # a flow begins whose times are those of another one
        set_source(run, sources.monitors + row, np.inf)
        return 0, -1
    run.leader = row
    for other in range(run.n_monitors):
        if a.monitors[other].over == 0 and a.flows[a.monitors[other].flow].started == 1:
            ask_monitor(a, run, other, now_s)
    return _go_on(a, run, sources, 0, run.n_monitors - 1, now_s)


@kernel
def take_outside(a, run, sources, now_s):
    """Take the decisions from outside that the run has stopped for; return the first and the last flow that may send then."""
    if run.due == 0 or run.error != 0:
        return 0, -1
    run.due = 0
    first, last = run.n_monitors, -1
    for row in range(run.n_monitors):
        if a.monitors[row].due == 1:
            a.monitors[row].due = 2
            first = min(first, row)
            last = row
    return _go_on(a, run, sources, first, last, now_s)


@kernel
def ask_monitor(a, run, row, now_s):
    """Measure, and ask the monitor's policy; the monitor is then due (1: the decision comes from outside) or has decided (2)."""
    monitor = a.monitors[row]
    fill_measures(a, run, monitor, now_s, a.measures[row])
    if monitor.decide_at == 0:
        monitor.due = 1
        run.due += 1
    else:
        call_3(monitor.decide_at, monitor.policy_at, monitor.measures_at, run.monitors_at + row * MONITOR_BYTES)
        monitor.due = 2


@kernel
def _go_on(a, run, sources, first, last, now_s):
    """Set what was decided between two monitors, and when they wake again; return the flows that may send now."""
    first_flow, last_flow = run.n_flows, -1
    common = False
    for row in range(first, last + 1):
        monitor = a.monitors[row]
        if monitor.due == 1:
            set_source(run, sources.monitors + row, np.inf)
        if monitor.due != 2:
            continue
        monitor.due = 0
        common = common or monitor.common == 1
        fl, state = a.flows[monitor.flow], a.states[monitor.flow]
        take_decision(monitor, fl, state, a.measures[row], now_s)
        if monitor.sets != NOTHING:
            take_cca(run, fl, state)
        if monitor.sets == POSITION:
            beliefs = a.beliefs[monitor.grid]
            beliefs.rate_Bps = a.grids[monitor.grid].rate_Bps = state.pacing_rate_Bps
            beliefs.choice_due = 0
        monitor.decisions += 1
        begin_interval(a, monitor, now_s)
        next_s = next_decision_s(monitor, fl, now_s, run.rto_min_s)
        if monitor.over == 1 and monitor.decide_at == 0:
            run.outside -= 1
            if run.outside == 0:
                run.over = 1
        set_source(run, sources.monitors + row, next_s)
        first_flow = min(first_flow, monitor.flow)
        last_flow = max(last_flow, monitor.flow)
    if common and run.due == 0:
        _choose_leader(a, run, sources)
    return first_flow, last_flow


@kernel
def _choose_leader(a, run, sources):
    """Let the first monitor of those whose flows have begun wake all others."""
    run.leader = -1
    for row in range(run.n_monitors):
        monitor = a.monitors[row]
        if monitor.over == 1 or a.flows[monitor.flow].started == 0:
            continue
        if run.leader < 0:
            run.leader = row
        else:
            set_source(run, sources.monitors + row, np.inf)
