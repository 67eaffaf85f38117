"""The events of the packet engine, one function each, and the ways of packets and ACKs from hop to hop. Compiled.

``kernel.advance`` calls them. ``a`` holds the arrays of the run (``kernel.PacketArrays``), without owners; ``sources`` the
numbers of sources.

Packets that others overtake take a longer way behind the last link: a pipe of its own, in order by itself. A receiver hears from
both ways in the order of time: before a packet of the short way arrives, those of the long way do that are due by then.
"""

from __future__ import annotations

import numpy as np

from ccenv.agents.callbacks import INIT, ON_ACK, ON_LOSS, ON_TICK, STATE_SLOTS
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.calls import call_1, call_2, call_3, load, prefetch
from ccenv.engine.packet.arrivals import arrival_time_s, begin_application, begin_slot, offer, offered_segments, take_slot
from ccenv.engine.packet.dequeue import CODEL
from ccenv.engine.packet.layout import (
    ACK_EVENT,
    ACK_HOP,
    AHEAD,
    CHANGE_LINK,
    CHANGE_RATE,
    CHANGE_TIME,
    DEPART,
    DISCIPLINES,
    DROP_EVENT,
    ERROR_ADVERSARY,
    GRID_DTYPE,
    HOPS,
    JITTERS,
    LATE_COUNTER,
    LATE_HOP,
    PIPE_STRIDE,
    SEND,
    TIME_S,
    TX,
    note,
)
from ccenv.engine.packet.monitor import ask_monitor, monitor_ack
from ccenv.engine.packet.queue import catch_up, count_queue, packet_bytes, waiting_bytes
from ccenv.engine.packet.receiver import loses_packet, oldest_needed, receive, release_time_s, return_ack, send_ack
from ccenv.engine.packet.service import NO_TRACE, arrival_s, shown_rate_Bps
from ccenv.engine.packet.sources import (
    RATE_CHANGES,
    arrive,
    box_time_s,
    flow_time_s,
    put_pipe,
    release_box,
    serve_next,
    set_source,
    start_service,
)
from ccenv.engine.packet.transport import (
    NO_PACKET,
    NO_SEGMENT,
    RACK,
    RTO_TIMER,
    WINDOW_FULL,
    WINDOW_SLACK_BYTES,
    adjust_hold,
    arm,
    arm_after_sending,
    begin_rack,
    begin_rtt,
    find_losses,
    next_segment,
    pace_on,
    put_transmission,
    take_ack,
    take_cca,
    take_delivery,
    take_timer,
)


@kernel
def late_time_s(pipe):
    """Return when the next packet of the longer way arrives."""
    if pipe.head == pipe.tail:
        return np.inf
    return load(pipe.ring_at, (pipe.head & pipe.mask) * PIPE_STRIDE + TIME_S)


@kernel
def deliver(a, run, sources, fl, tx, release_s):
    """Deliver a packet that leaves its jitter box at release_s, or let it take the longer way."""
    pipe = a.pipes[fl.late_pipe]
    if uniform(run.seed, 0.0, float(fl.index), LATE_COUNTER + tx) < fl.late_share:
        put_pipe(pipe, tx, release_s + fl.late_s)
        fl.late_tail += 1
    else:
        while late_time_s(pipe) <= release_s:
            at = (pipe.head & pipe.mask) * PIPE_STRIDE
            pipe.head += 1
            receive(run, fl, int(load(pipe.ring_at, at + TX)), load(pipe.ring_at, at + TIME_S))
        receive(run, fl, tx, release_s)
    set_source(run, sources.pipes + fl.late_pipe, late_time_s(pipe))


@kernel(inline="always")
def link_at(a, run, flow, hop):
    """Return the link at a hop of a flow's data, or of its ACKs (from ACK_HOP on)."""
    return a.links[int(load(run.route_at, flow * HOPS + hop))]


@kernel(inline="always")
def put_on_pipe(a, run, sources, flow, hop, tx, time_s):
    """Let a packet arrive at a hop at time_s."""
    p = int(load(run.route_at, (run.n_flows + flow) * HOPS + hop))
    if put_pipe(a.pipes[p], tx, time_s):
        set_source(run, sources.pipes + p, time_s)


@kernel
def go_on_back(a, run, sources, fl):
    """Let the ACKs that a receiver has sent reach their first link, if they pass one; set when the flow has something to do."""
    if fl.ack_hops > 0:
        pipe = a.pipes[fl.ack_pipe]
        if pipe.tail < fl.ack_out_tail:
            empty = pipe.head == pipe.tail
            pipe.tail = fl.ack_out_tail
            if empty:
                time_s = load(pipe.ring_at, (pipe.head & pipe.mask) * PIPE_STRIDE + TIME_S)
                set_source(run, sources.pipes + fl.ack_pipe, time_s)
    set_source(run, sources.flows + fl.index, flow_time_s(fl))


STATE_BYTES = 8 * STATE_SLOTS
GRID_BYTES = GRID_DTYPE.itemsize
_PIE = DISCIPLINES["pie"]
_ADVERSARY = JITTERS["adversary"]


@kernel(inline="always")
def change_rate(a, run, sources, now_s):
    """Change the rate of a link: of packets whose service begins after it; one that began at rate 0 begins again."""
    row = run.next_change
    ln = a.links[int(a.changes[row, CHANGE_LINK])]
    ln.capacity_bytes += ln.rate_Bps * (now_s - ln.capacity_s)
    ln.capacity_s = now_s
    ln.rate_Bps = a.changes[row, CHANGE_RATE]
    if ln.busy == 1 and ln.finish_s == np.inf and ln.rate_Bps > 0.0:
        size_bytes = packet_bytes(a.flows[ln.serving_flow], ln.serving_hop) if ln.mixed == 1 else run.mss_bytes
        ln.finish_s = now_s + size_bytes / ln.rate_Bps
        set_source(run, sources.links + ln.index, ln.finish_s)
    row += 1
    run.next_change = row
    next_s = a.changes[row, CHANGE_TIME] if row < a.changes.shape[0] else np.inf
    set_source(run, RATE_CHANGES, next_s)


@kernel(inline="always")
def end_service(a, run, sources, ln, fl, now_s):
    """End the service of a packet at a link: the next one's begins, and it goes on to the next hop, its box or its receiver."""
    mss_bytes = run.mss_bytes
    tx, hop, row = ln.serving_tx, ln.serving_hop, ln.trace_row
    ln.served_bytes += packet_bytes(fl, hop) if ln.mixed == 1 else mss_bytes
    if hop < ACK_HOP:
        note(run, DEPART, now_s, fl, ln.index, tx)
    if ln.discipline == _PIE:
        catch_up(ln, now_s, mss_bytes)
    if ln.discipline >= CODEL:
        serve_next(run, a.flows, ln, now_s)
    else:
        start_service(run, a.flows, ln, now_s)
    set_source(run, sources.links + ln.index, ln.finish_s)
    time_s = now_s + ln.delay_s if ln.trace_kind == NO_TRACE else arrival_s(ln, now_s, row)
    if hop >= ACK_HOP:
        if hop + 1 < ACK_HOP + fl.ack_hops:
            put_on_pipe(a, run, sources, fl.index, hop + 1, tx, time_s)
        else:
            return_ack(run, fl, tx, time_s + fl.return_s)
            set_source(run, sources.flows + fl.index, flow_time_s(fl))
    elif hop + 1 < fl.n_hops:
        put_on_pipe(a, run, sources, fl.index, hop + 1, tx, time_s)
    elif fl.jitter_kind == _ADVERSARY:
        box = a.boxes[fl.box]
        put_pipe(box, tx, now_s)
        set_source(run, sources.boxes + fl.box, box_time_s(box, fl))
    elif fl.reorders == 1:
        deliver(a, run, sources, fl, tx, release_time_s(fl, time_s, run.seed))
        go_on_back(a, run, sources, fl)
    else:
        waited = fl.ack_head < fl.ack_tail or fl.pending_acks > 0
        receive(run, fl, tx, release_time_s(fl, time_s, run.seed))
        if fl.ack_path == 1:
            go_on_back(a, run, sources, fl)
        elif not waited or fl.ack_tail - fl.ack_head == 1:
            set_source(run, sources.flows + fl.index, flow_time_s(fl))


@kernel(inline="always")
def start_flow(a, run, i):
    """Start a flow: the state of its CCA and its application."""
    fl = a.flows[i]
    state = a.states[i]
    fl.started = 1
    for word in range(a.words.shape[1]):
        a.words[i, word] = a.templates[fl.sender_index, word]
    state.mss_bytes = fl.mss_bytes
    state.seed = run.seed
    state.flow = i if fl.pool < 0 else run.n_flows + fl.arrival
    call_1(a.sender_calls[fl.sender_index, INIT], run.states_at + i * STATE_BYTES)
    take_cca(run, fl, state)
    begin_rtt(fl)
    begin_application(fl, fl.mss_bytes)
    if fl.rack == RACK:
        begin_rack(fl)


@kernel(inline="always")
def admit(a, run, sources, now_s):
    """Let the next transfer begin in a free slot; return it, or -1 if there is none."""
    slot = take_slot(run)
    if slot >= 0:
        begin_slot(run, a.flows[slot], now_s)
        start_flow(a, run, slot)
        a.flows[slot].app_segments = offered_segments(run, a.flows[slot])
    run.next_arrival += 1
    set_source(run, sources.arrivals, arrival_time_s(run))
    return slot


@kernel(inline="always")
def take_feedback(a, run, sources, fl, monitor, now_s):
    """Take the ACK that has arrived at a flow, or its RTO; tell its CCA, and its monitor if it has one."""
    state_at = run.states_at + fl.index * STATE_BYTES
    if fl.ack_hops > 0:
        if fl.ack_deadline_s <= now_s:
            send_ack(run, fl, fl.ack_deadline_s)
            go_on_back(a, run, sources, fl)
    elif fl.ack_head == fl.ack_tail and fl.ack_deadline_s + fl.return_s <= now_s:
        send_ack(run, fl, fl.ack_deadline_s)
    scans, by_rto, heard = False, False, False
    ack_entry = (fl.ack_head & fl.mask) * PIPE_STRIDE
    if fl.ack_head < fl.ack_tail and load(fl.ack_ring_at, ack_entry + TIME_S) + fl.hold_s <= now_s:
        last_tx = int(load(fl.ack_ring_at, ack_entry + TX))
        prefetch(fl.ack_ring_at, ack_entry + AHEAD * PIPE_STRIDE)
        fl.ack_head += 1
        note(run, ACK_EVENT, now_s, fl, -1, last_tx)
        on_ack = a.sender_calls[fl.sender_index, ON_ACK]
        newest_tx, arrivals = fl.ack_next_tx, fl.acked_count
        acked_bytes = take_ack(fl, a.acks[0], on_ack != 0, last_tx, now_s, fl.mss_bytes, run.rto_min_s)
        if fl.monitor >= 0:
            monitor_ack(run, sources, fl, monitor, now_s)
        if fl.hold_window_s > 0.0:
            adjust_hold(fl, now_s)
        if acked_bytes > 0.0 and on_ack != 0:
            call_2(on_ack, state_at, run.ack_at)
            take_cca(run, fl, a.states[fl.index])
        scans, heard = fl.loss_scan < fl.ack_next_tx, True
        if fl.rack == RACK:
            take_delivery(fl, newest_tx, fl.acked_count - arrivals, acked_bytes)
    elif fl.rto_deadline_s <= now_s:
        fl.rto_deadline_s = np.inf
        if fl.rack == RACK and fl.timer != RTO_TIMER:
            scans = heard = take_timer(fl, now_s, run.rto_min_s)
        elif fl.inflight_bytes > 0.0:
            scans = by_rto = heard = True
            fl.timeouts += 1.0
            fl.rto_backoff *= 2.0
    while scans and find_losses(fl, a.losses[0], by_rto, now_s, fl.mss_bytes) > 0.0:
        on_loss = a.sender_calls[fl.sender_index, ON_LOSS]
        if on_loss != 0:
            call_2(on_loss, state_at, run.loss_at)
            take_cca(run, fl, a.states[fl.index])
        if fl.inflight_bytes <= 0.0:
            fl.rto_deadline_s = np.inf
        scans = fl.per_packet == 1
    if fl.rack == RACK and heard:
        arm(fl, now_s, run.rto_min_s)


@kernel(inline="always")
def leave_pipe(a, run, sources, p, now_s):
    """Let the first packet of a pipe arrive at its hop."""
    pipe = a.pipes[p]
    tx = int(load(pipe.ring_at, (pipe.head & pipe.mask) * PIPE_STRIDE + TX))
    pipe.head += 1
    time_s = np.inf
    if pipe.head < pipe.tail:
        time_s = load(pipe.ring_at, (pipe.head & pipe.mask) * PIPE_STRIDE + TIME_S)
    set_source(run, sources.pipes + p, time_s)
    if pipe.hop == LATE_HOP:
        receive(run, a.flows[pipe.flow], tx, now_s)
        go_on_back(a, run, sources, a.flows[pipe.flow])
    else:
        arrive(run, a.flows, link_at(a, run, pipe.flow, pipe.hop), a.flows[pipe.flow], tx, pipe.hop, now_s)


@kernel(inline="always")
def open_box(a, run, sources, row, now_s):
    """Let an adversary decide at its instants; deliver what leaves its box."""
    box = a.boxes[row]
    fl = a.flows[box.flow]
    share = 0.0
    if box.decision_s <= now_s:
        view, move = a.views[0], a.moves[0]
        view.now_s = now_s
        view.step = box.decisions
        view.dt_s = run.tick_s
        view.steps_per_rtt = box.rtt_s / run.tick_s
        view.flow = box.flow
        view.rtt_s = box.rtt_s
        view.jitter_s = fl.jitter_s
        view.link_rate_Bps = box.link_rate_Bps
        view.buffer_bytes = box.buffer_bytes
        view.held_bytes = (box.tail - box.head) * fl.mss_bytes
        ln = link_at(a, run, box.flow, fl.n_hops - 1)
        view.queue_bytes = waiting_bytes(ln, run.mss_bytes)
        if box.decisions == 0:
            call_2(box.init_at, box.state_at, run.view_at)
        call_3(box.play_at, box.state_at, run.view_at, run.move_at)
        share = move.service
        if not share >= 0.0:
            run.error = ERROR_ADVERSARY
            run.error_flow = box.flow
        share = min(1.0, max(0.0, share))
        box.decisions += 1
        box.decision_s = box.decisions * run.tick_s
    release_box(run, box, fl, now_s, share)
    set_source(run, sources.boxes + row, box_time_s(box, fl))
    go_on_back(a, run, sources, fl)


@kernel(inline="always")
def step_grid(a, run, sources, row, now_s):
    """Take a step of the grid of a belief program or policy; return whether a choice inside a shield is awaited."""
    grid = a.grids[row]
    fl, state = a.flows[grid.flow], a.states[grid.flow]
    call_3(grid.step_at, run.grids_at + row * GRID_BYTES, grid.beliefs_at, grid.flow_at)
    waits = a.beliefs[row].choice_due == 1 and a.monitors[fl.monitor].over == 0
    if waits:
        ask_monitor(a, run, fl.monitor, now_s)
    elif grid.watches == 0:
        state.cwnd_bytes = np.inf
        state.pacing_rate_Bps = grid.rate_Bps
        pace_on(fl, grid.rate_Bps, now_s)
        take_cca(run, fl, state)
    set_source(run, sources.grids + row, grid.next_s)
    return waits


@kernel(inline="always")
def tick_flows(a, run, sources, now_s):
    """Tell all CCAs that time has passed."""
    tick = a.ticks[0]
    tick.now_s = now_s
    for i in range(run.n_flows):
        fl = a.flows[i]
        on_tick = a.sender_calls[fl.sender_index, ON_TICK]
        if on_tick != 0 and fl.started == 1 and now_s < fl.stop_s:
            tick.mss_bytes = fl.mss_bytes
            tick.inflight_bytes = fl.inflight_bytes
            tick.delivered_bytes = fl.delivered_bytes
            tick.min_rtt_s = fl.min_rtt_s
            call_2(on_tick, run.states_at + i * STATE_BYTES, run.tick_at)
            take_cca(run, fl, a.states[i])
    run.ticks += 1
    set_source(run, sources.tick, run.ticks * run.tick_s)


@kernel(inline="always")
def write_log(a, run, sources, now_s):
    """Write a row of the log."""
    row = run.log_rows
    for i in range(run.n_flows):
        fl, log = a.flows[i], a.flow_log[row, i]
        log.cwnd_bytes = fl.cwnd_bytes
        log.rate_Bps = fl.rate_Bps
        log.inflight_bytes = fl.inflight_bytes
        log.rtt_s = fl.rtt_s
        log.sent_bytes = fl.sent_bytes
        log.resent_bytes = fl.resent_bytes
        log.found_lost_bytes = fl.found_lost_bytes
        log.dropped_bytes = fl.dropped_bytes
        log.random_lost_bytes = fl.random_lost_bytes
        log.goodput_bytes = fl.goodput_bytes
        log.rtt_sum_s = fl.rtt_sum_s
        log.rtt_samples = fl.rtt_samples
        log.one_way_sum_s = fl.one_way_sum_s
        log.one_way_samples = fl.one_way_samples
        log.marked_bytes = fl.marked_bytes
        log.timeouts = fl.timeouts
    for index in range(run.n_links):
        ln, entry = a.links[index], a.link_log[row, index]
        count_queue(ln, now_s, run.mss_bytes)
        entry.queue_bytes = waiting_bytes(ln, run.mss_bytes)
        entry.queue_byte_s = ln.queue_byte_s
        entry.arrived_bytes = ln.arrived_bytes
        entry.dropped_bytes = ln.dropped_bytes
        entry.marked_bytes = ln.marked_bytes
        entry.served_bytes = ln.served_bytes
        entry.rate_Bps = shown_rate_Bps(ln, now_s, run.log_s)
    run.log_rows = row + 1
    next_s = (row + 1) * run.log_s if row + 1 < a.flow_log.shape[0] else np.inf
    set_source(run, sources.log, next_s)


@kernel(inline="always")
def send_packets(a, run, sources, fl, first, now_s):
    """Send what window, pacing and application of a flow allow now to its first link; set when it may go on."""
    mss_bytes = fl.mss_bytes
    fl.wake_s = np.inf
    first_tx = fl.next_tx
    while now_s < fl.stop_s and run.error == 0:
        if fl.offers == 1 and fl.app_next_s <= now_s:
            offer(fl, now_s, mss_bytes, run.seed)
        # One packet may always be in flight: no window is smaller than a segment.
        full = fl.inflight_bytes > 0.0 and fl.inflight_bytes + mss_bytes > fl.cwnd_bytes + WINDOW_SLACK_BYTES
        if full and (fl.beyond_window == NO_PACKET or fl.next_tx > first_tx):
            fl.burst_left = 0.0
            break
        segment = next_segment(fl)
        if segment in (NO_SEGMENT, WINDOW_FULL):
            fl.burst_left = 0.0
            if segment == NO_SEGMENT:  # draft-cheng-iccrg-delivery-rate-estimation s.3.4
                fl.app_limited_until_bytes = max(fl.delivered_bytes + fl.inflight_bytes, mss_bytes)
                fl.wake_s = fl.app_next_s
                if fl.inflight_bytes <= 0.0 and fl.app_next_s == np.inf and fl.finished_s == np.inf:
                    fl.finished_s = now_s
            break
        oldest_tx = min(fl.loss_scan, fl.ack_next_tx) if fl.in_network > 0 else fl.loss_scan
        if fl.reorders == 1:
            oldest_tx = oldest_needed(fl, oldest_tx)
        if fl.next_tx - oldest_tx > fl.mask:  # its entry is still needed
            break
        if fl.next_send_s > now_s and fl.burst_left < 1.0:
            fl.wake_s = fl.next_send_s
            break
        tx = put_transmission(fl, segment, now_s, mss_bytes, run.rto_min_s)
        note(run, SEND, now_s, fl, -1, tx)
        if (fl.loss_rate > 0.0 or fl.bursts == 1) and loses_packet(fl, tx, run.seed):
            fl.random_lost_bytes += mss_bytes
            note(run, DROP_EVENT, now_s, fl, -1, tx)
            continue
        fl.in_network += 1
        if fl.access_s > 0.0:
            put_on_pipe(a, run, sources, fl.index, 0, tx, now_s + fl.access_s)
        else:
            arrive(run, a.flows, first, fl, tx, 0, now_s)
    if fl.rack == RACK and fl.next_tx > first_tx:
        arm_after_sending(fl, now_s, run.rto_min_s)
    set_source(run, sources.flows + fl.index, flow_time_s(fl))
