"""The packet engine's event loop, compiled. The plain reference is ``packet_reference``.

Event sources: rate changes, links (end of a service), flows (ACK, pacing, application and time-out timers, start), pipes
(arrival at a further hop), boxes (an adversary's decision), grids (steps of a belief program or policy), the tick of all CCAs,
the log. A winner tree holds the next time of each; at equal times the source with the lowest number is first, so a run is a
function of its inputs alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ccenv.engine.compiled.calls import call_1, call_2, call_3, load
from ccenv.engine.compiled.rng import uniform
from ccenv.engine.compiled.signals import STATE_SLOTS
from ccenv.engine.packet.events import arrive, box_time_s, flow_time_s, put_pipe, release_box, set_source, start_service
from ccenv.engine.packet.layout import (
    ACK_EVENT,
    DEPART,
    DISCIPLINES,
    DROP_EVENT,
    ERROR_ADVERSARY,
    ERROR_EVENTS,
    ERROR_SENDER,
    GRID_DTYPE,
    JITTERS,
    LOSS_COUNTER,
    MAX_HOPS,
    PIPE_STRIDE,
    SEND,
    TIME_S,
    TX,
)
from ccenv.engine.packet.log import note
from ccenv.engine.packet.queue import codel_drops_head, count_queue, serve_head
from ccenv.engine.packet.receiver import receive, release_time_s, send_ack
from ccenv.engine.packet.transport import (
    WINDOW_SLACK_BYTES,
    adjust_hold,
    find_losses,
    next_segment,
    pace_on,
    put_transmission,
    take_ack,
)
from ccenv.engine.packet.workload import begin_application, offer

STATE_BYTES = 8 * STATE_SLOTS
GRID_BYTES = GRID_DTYPE.itemsize
_CODEL = DISCIPLINES["codel"]
_ADVERSARY = JITTERS["adversary"]


@njit(cache=True, error_model="numpy")
def take_cca(run, fl, state):
    """Read what a CCA has set; one that leaves the positive numbers ends the run."""
    if state.cwnd_bytes > 0.0 and state.pacing_rate_Bps > 0.0:
        fl.cwnd_bytes = state.cwnd_bytes
        fl.rate_Bps = state.pacing_rate_Bps
    elif run.error == 0:
        run.error = ERROR_SENDER
        run.error_flow = fl.index


@njit(cache=True, error_model="numpy", nogil=True)
def advance(
    runs, links, flows, pipes, boxes, grids, states, words, templates, sender_calls, acks, losses, ticks, views, moves,
    changes, flow_log, link_log, until_s, max_events,
):  # fmt: skip
    """Process events up to until_s (exclusive), or until an error. All arrays are those of ``PacketEngine``."""
    run = runs[0]
    ack, loss, tick, view, move = acks[0], losses[0], ticks[0], views[0], moves[0]
    tree, leaves = run.tree_at, run.tree_leaves
    n_links, n_flows, n_pipes = run.n_links, run.n_flows, run.n_pipes
    mss_bytes = run.mss_bytes
    first_flow = 1 + n_links
    first_pipe = first_flow + n_flows
    first_box = first_pipe + n_pipes
    first_grid = first_box + run.n_boxes
    tick_source = first_grid + run.n_grids
    log_source = tick_source + 1
    while run.error == 0:
        now_s = load(tree, 1)
        if not now_s < until_s:
            break
        if run.events >= max_events:
            run.error = ERROR_EVENTS
            break
        run.events += 1
        run.now_s = now_s
        source = int(load(tree, 2 * leaves + 1))
        first_sender, last_sender = 0, -1  # flows that may send after this event

        if source >= first_flow and source < first_pipe:
            i = source - first_flow
            fl = flows[i]
            first_sender, last_sender = i, i
            state_at = run.states_at + i * STATE_BYTES
            if fl.started == 0:
                fl.started = 1
                for word in range(words.shape[1]):
                    words[i, word] = templates[fl.sender_index, word]
                states[i].mss_bytes = mss_bytes
                states[i].seed = run.seed
                states[i].flow = i
                call_1(sender_calls[fl.sender_index, 0], state_at)
                take_cca(run, fl, states[i])
                begin_application(fl, mss_bytes)
            else:
                if fl.ack_head == fl.ack_tail and fl.ack_deadline_s + fl.return_s <= now_s:
                    send_ack(run, fl, fl.ack_deadline_s)
                lost_bytes = 0.0
                ack_entry = (fl.ack_head & fl.mask) * PIPE_STRIDE
                if fl.ack_head < fl.ack_tail and load(fl.ack_ring_at, ack_entry + TIME_S) + fl.hold_s <= now_s:
                    last_tx = int(load(fl.ack_ring_at, ack_entry + TX))
                    fl.ack_head += 1
                    note(run, ACK_EVENT, now_s, fl, -1, last_tx)
                    acked_bytes = take_ack(fl, ack, last_tx, now_s, mss_bytes, run.rto_min_s)
                    if fl.hold_window_s > 0.0:
                        adjust_hold(fl, now_s)
                    if acked_bytes > 0.0:
                        call_2(sender_calls[fl.sender_index, 1], state_at, run.ack_at)
                        take_cca(run, fl, states[i])
                    if fl.loss_scan < fl.ack_next_tx:
                        lost_bytes = find_losses(fl, loss, False, now_s, mss_bytes)
                elif fl.rto_deadline_s <= now_s:
                    fl.rto_deadline_s = np.inf
                    if fl.inflight_bytes > 0.0:
                        lost_bytes = find_losses(fl, loss, True, now_s, mss_bytes)
                        fl.timeouts += 1.0
                        fl.rto_backoff *= 2.0
                if lost_bytes > 0.0:
                    call_2(sender_calls[fl.sender_index, 2], state_at, run.loss_at)
                    take_cca(run, fl, states[i])
                    if fl.inflight_bytes <= 0.0:
                        fl.rto_deadline_s = np.inf

        elif source >= 1 and source < first_flow:
            ln = links[source - 1]
            fl = flows[ln.serving_flow]
            tx, hop = ln.serving_tx, ln.serving_hop
            ln.served_bytes += mss_bytes
            note(run, DEPART, now_s, fl, ln.index, tx)
            if ln.discipline == _CODEL:
                count_queue(ln, now_s, mss_bytes)
                first = True
                while codel_drops_head(ln, now_s, first):
                    first = False
                    serve_head(ln, now_s, mss_bytes)
                    ln.dropped_bytes += mss_bytes
                    flows[ln.serving_flow].dropped_bytes += mss_bytes
                    flows[ln.serving_flow].in_network -= 1
                    note(run, DROP_EVENT, now_s, flows[ln.serving_flow], ln.index, ln.serving_tx)
            start_service(ln, now_s, mss_bytes)
            set_source(tree, leaves, source, ln.finish_s)
            arrival_s = now_s + ln.delay_s
            if hop + 1 < fl.n_hops:
                p = int(load(run.route_at, (n_flows + fl.index) * MAX_HOPS + hop + 1))
                if put_pipe(pipes[p], tx, arrival_s):
                    set_source(tree, leaves, first_pipe + p, arrival_s)
            elif fl.jitter_kind == _ADVERSARY:
                put_pipe(boxes[fl.box], tx, now_s)
                set_source(tree, leaves, first_box + fl.box, box_time_s(boxes[fl.box], fl))
            else:
                waited = fl.ack_head < fl.ack_tail or fl.pending_acks > 0
                receive(run, fl, tx, release_time_s(fl, arrival_s, run.seed))
                if not waited or fl.ack_tail - fl.ack_head == 1:
                    set_source(tree, leaves, first_flow + fl.index, flow_time_s(fl))

        elif source >= first_pipe and source < first_box:
            pipe = pipes[source - first_pipe]
            fl = flows[pipe.flow]
            tx = int(load(pipe.ring_at, (pipe.head & pipe.mask) * PIPE_STRIDE + TX))
            pipe.head += 1
            time_s = np.inf
            if pipe.head < pipe.tail:
                time_s = load(pipe.ring_at, (pipe.head & pipe.mask) * PIPE_STRIDE + TIME_S)
            set_source(tree, leaves, source, time_s)
            arrive(run, links[int(load(run.route_at, pipe.flow * MAX_HOPS + pipe.hop))], fl, tx, pipe.hop, now_s)

        elif source >= first_box and source < first_grid:
            box = boxes[source - first_box]
            fl = flows[box.flow]
            share = 0.0
            if box.decision_s <= now_s:
                view.now_s = now_s
                view.step = box.decisions
                view.dt_s = run.tick_s
                view.steps_per_rtt = box.rtt_s / run.tick_s
                view.flow = box.flow
                view.rtt_s = box.rtt_s
                view.jitter_s = fl.jitter_s
                view.link_rate_Bps = box.link_rate_Bps
                view.buffer_bytes = box.buffer_bytes
                view.held_bytes = (box.tail - box.head) * mss_bytes
                ln = links[int(load(run.route_at, box.flow * MAX_HOPS + fl.n_hops - 1))]
                view.queue_bytes = (ln.tail - ln.head) * mss_bytes
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
            set_source(tree, leaves, source, box_time_s(box, fl))
            set_source(tree, leaves, first_flow + box.flow, flow_time_s(fl))

        elif source >= first_grid and source < tick_source:
            grid = grids[source - first_grid]
            i = grid.flow
            call_3(grid.step_at, run.grids_at + (source - first_grid) * GRID_BYTES, grid.beliefs_at, grid.flow_at)
            states[i].cwnd_bytes = np.inf
            states[i].pacing_rate_Bps = grid.rate_Bps
            pace_on(flows[i], grid.rate_Bps, now_s)
            take_cca(run, flows[i], states[i])
            set_source(tree, leaves, source, grid.next_s)
            first_sender, last_sender = i, i

        elif source == tick_source:
            tick.now_s = now_s
            for i in range(n_flows):
                fl = flows[i]
                if fl.started == 1 and now_s < fl.stop_s:
                    tick.inflight_bytes = fl.inflight_bytes
                    tick.delivered_bytes = fl.delivered_bytes
                    tick.min_rtt_s = fl.min_rtt_s
                    call_2(sender_calls[fl.sender_index, 3], run.states_at + i * STATE_BYTES, run.tick_at)
                    take_cca(run, fl, states[i])
            run.ticks += 1
            set_source(tree, leaves, source, run.ticks * run.tick_s)
            last_sender = n_flows - 1

        elif source == log_source:
            row = run.log_rows
            for i in range(n_flows):
                fl, log = flows[i], flow_log[row, i]
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
            for index in range(n_links):
                ln, entry = links[index], link_log[row, index]
                count_queue(ln, now_s, mss_bytes)
                entry.queue_bytes = (ln.tail - ln.head) * mss_bytes
                entry.queue_byte_s = ln.queue_byte_s
                entry.arrived_bytes = ln.arrived_bytes
                entry.dropped_bytes = ln.dropped_bytes
                entry.marked_bytes = ln.marked_bytes
                entry.served_bytes = ln.served_bytes
                entry.rate_Bps = ln.rate_Bps
            run.log_rows = row + 1
            set_source(tree, leaves, source, (row + 1) * run.log_s if row + 1 < flow_log.shape[0] else np.inf)

        else:  # a rate change: of packets whose service begins after it
            change = run.next_change
            links[int(changes[change, 1])].rate_Bps = changes[change, 2]
            run.next_change = change + 1
            set_source(tree, leaves, 0, changes[change + 1, 0] if change + 1 < changes.shape[0] else np.inf)

        for i in range(first_sender, last_sender + 1):
            fl = flows[i]
            if fl.started == 0:
                continue
            fl.wake_s = np.inf
            while now_s < fl.stop_s and run.error == 0:
                if fl.app_next_s <= now_s:
                    offer(fl, now_s, mss_bytes, run.seed)
                # One packet may always be in flight: no window is smaller than a segment.
                if fl.inflight_bytes > 0.0 and fl.inflight_bytes + mss_bytes > fl.cwnd_bytes + WINDOW_SLACK_BYTES:
                    break
                segment = next_segment(fl)
                if segment < 0:
                    if segment == -1:  # draft-cheng-iccrg-delivery-rate-estimation s.3.4
                        fl.app_limited_until_bytes = max(fl.delivered_bytes + fl.inflight_bytes, mss_bytes)
                        fl.wake_s = fl.app_next_s
                        if fl.inflight_bytes <= 0.0 and fl.app_next_s == np.inf and fl.finished_s == np.inf:
                            fl.finished_s = now_s
                    break
                oldest_tx = min(fl.loss_scan, fl.ack_next_tx) if fl.in_network > 0 else fl.loss_scan
                if fl.next_tx - oldest_tx > fl.mask:  # its entry is still needed
                    break
                if fl.next_send_s > now_s:
                    fl.wake_s = fl.next_send_s
                    break
                tx = put_transmission(fl, segment, now_s, mss_bytes, run.rto_min_s)
                note(run, SEND, now_s, fl, -1, tx)
                if fl.loss_rate > 0.0 and uniform(run.seed, 0.0, float(i), LOSS_COUNTER + tx) < fl.loss_rate:
                    fl.random_lost_bytes += mss_bytes
                    note(run, DROP_EVENT, now_s, fl, -1, tx)
                    continue
                fl.in_network += 1
                if fl.access_s > 0.0:
                    p = int(load(run.route_at, (n_flows + i) * MAX_HOPS))
                    if put_pipe(pipes[p], tx, now_s + fl.access_s):
                        set_source(tree, leaves, first_pipe + p, now_s + fl.access_s)
                else:
                    arrive(run, links[int(load(run.route_at, i * MAX_HOPS))], fl, tx, 0, now_s)
            set_source(tree, leaves, first_flow + i, flow_time_s(fl))
