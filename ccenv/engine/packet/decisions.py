"""When monitors wake, and who decides then: a compiled policy at once, or the caller, for whom the run stops. Compiled."""

from __future__ import annotations

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import call_3
from ccenv.engine.packet.monitor import (
    CLOCKS,
    MONITOR_DTYPE,
    NOTHING,
    POSITION,
    begin_interval,
    count_ack,
    fill_measures,
    next_decision_s,
    take_decision,
)
from ccenv.engine.packet.sources import set_source
from ccenv.engine.packet.transport import take_cca

MONITOR_BYTES = MONITOR_DTYPE.itemsize
ACKS = CLOCKS["acks"]


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
