"""The adversary's delay element behind the link, and the tokens of ccac; adversary and laws are those of the engines. Compiled.

Decisions and steps keep their times when the loop is late: packets are then written late, which is measured, but the network is
that of the decisions. Observations of learned adversaries are computed from the emulator's packets. Beliefs are those of a sender
with the flow's history, by the packet engine's steps; the rate of a flow is what it sent in the newest Rm, because a kernel's
sender may have no pacing rate.
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import call_2, call_3
from ccenv.engine.curve.decision import close_interval, play_policy
from ccenv.engine.curve.transport import admit_tokens, look, overflow_of, play, served_by_tokens, unit
from ccenv.engine.packet.beliefs import take_step
from ccenv.engine.packet.layout import ENQUEUE
from ccenv.live.emulator.layout import CCAC, LEARNED, RECORDED, SCRIPTED
from ccenv.live.emulator.link import ON_TIME_S, count_services, drop, note, put, rate_at, release
from ccenv.network.adversary import FIRST_SERVICE, RATE, WASTE


@kernel(_nrt=False)
def watch(m, time_s):
    """Advance the flows' beliefs to a time."""
    run = m.run[0]
    for i in range(run.n_flows):
        fl, path, beliefs = m.flows[i], m.paths[i], m.beliefs[i]
        while beliefs.start_s + (beliefs.step + 1) * beliefs.dt_s <= time_s + ON_TIME_S:
            path.sent_bytes = fl.transmissions * run.mss_bytes
            path.dropped_bytes = fl.dropped_bytes
            path.random_lost_bytes = fl.random_lost_bytes
            lost_bytes = fl.dropped_bytes + fl.random_lost_bytes
            path.inflight_bytes = max(0.0, path.sent_bytes - lost_bytes - path.acked_count * run.mss_bytes)
            k = take_step(beliefs, path)
            if k >= beliefs.decision_step:
                close_interval(beliefs, k)
                beliefs.rate_Bps = max(run.mss_bytes, beliefs.sent_last_interval_bytes) / beliefs.rtt_s


@kernel(_nrt=False)
def learned_moves(m, step, time_s):
    """Set the moves of a learned adversary after a number of steps; between its decisions they stay."""
    run, ev = m.run[0], m.env[0]
    watch(m, time_s)
    if run.model != CCAC:
        count_services(m, time_s)
        ev.link_rate_now_Bps = run.link_rate_Bps
        ev.enqueued_bytes = run.accepted * run.mss_bytes
        ev.tokens_bytes = run.departed * run.mss_bytes
        released = 0
        for i in range(run.n_flows):
            released += m.flows[i].forward_due
        ev.served_bytes = released * run.mss_bytes
    play_policy(
        ev, m.beliefs, m.moves, 0, run.n_flows, step, m.mlp_weights, m.mlp_shapes, m.mlp_moves, m.observation, m.mlp_scratch
    )


@kernel(_nrt=False)
def note_ack(m, i, packet):
    """Record an ACK of flow i that reaches the sender now."""
    path = m.paths[i]
    if packet.count > path.acked_count:
        path.acked_count = packet.count
        path.rtt_s = packet.due_s - packet.sent_s
        path.min_rtt_s = min(path.min_rtt_s, path.rtt_s)


WHOLE = 1e-9  # of a packet: tolerance for whole packets


@kernel(_nrt=False)
def recorded_moves(m, step):
    """Set the moves of a recorded adversary for a step, counted from 0; the last row is repeated."""
    row = m.recorded[min(step, m.recorded.shape[0] - 1)]
    n = m.run[0].n_flows
    for i in range(n):
        move = m.moves[i]
        move.waste = row[WASTE]
        move.rate = row[RATE]
        move.service = row[FIRST_SERVICE + i]
        move.loss = row[FIRST_SERVICE + n + i]


@kernel(_nrt=False)
def held(m, i, time_s):
    """Return the number of packets of flow i in its delay element at a time."""
    fl = m.flows[i]
    mask = m.forward.shape[1] - 1
    n = 0
    while fl.forward_due + n < fl.forward_tail and m.forward[i, (fl.forward_due + n) & mask].entered_s <= time_s:
        n += 1
    return n


@kernel(_nrt=False)
def let_go(m, i, time_s):
    """Release the packets of flow i that may be held no longer at a time; return when the next one is due."""
    fl = m.flows[i]
    mask = m.forward.shape[1] - 1
    jitter_s = m.paths[i].jitter_s
    while fl.forward_due < fl.forward_tail:
        due_s = m.forward[i, fl.forward_due & mask].entered_s + jitter_s
        if due_s > time_s:
            return due_s
        release(m, i, due_s)
    return math.inf


@kernel(_nrt=False)
def share_of(m, i, time_s, count):
    """Return the share of the held packets that the adversary releases now."""
    run, move = m.run[0], m.moves[i]
    if run.play_kind == SCRIPTED:
        view = m.views[i]
        view.now_s = time_s
        view.step = run.play_steps
        view.held_bytes = count * run.mss_bytes
        count_services(m, time_s)
        view.queue_bytes = (run.accepted - run.begun) * run.mss_bytes
        view_at = run.view_at + i * run.view_bytes
        state_at = run.words_at + i * run.words_bytes
        if run.play_steps == 0:
            call_2(run.init_at, state_at, view_at)
        call_3(run.play_at, state_at, view_at, run.move_at + i * run.move_bytes)
    return unit(move.service) if move.service >= 0.0 else 1.0


@kernel(_nrt=False)
def open_boxes(m, now_s):
    """Play all decisions up to now; return the next due time."""
    run = m.run[0]
    next_s = math.inf
    while True:
        # A scripted adversary decides at time 0 and then every 10 ms; other moves are for the step that ends.
        first = 0 if run.play_kind == SCRIPTED else 1
        decision_s = (run.play_steps + first) * run.play_s
        until_s = min(now_s, decision_s)
        next_s = math.inf
        for i in range(run.n_flows):
            if m.flows[i].boxed == 1:
                next_s = min(next_s, let_go(m, i, until_s))
        if decision_s > now_s or decision_s > run.end_s:
            return min(next_s, decision_s) if decision_s <= run.end_s else next_s
        if run.play_kind == RECORDED:
            recorded_moves(m, run.play_steps)
        elif run.play_kind == LEARNED:
            learned_moves(m, run.play_steps, decision_s)
        for i in range(run.n_flows):
            if m.flows[i].boxed == 1:
                n = held(m, i, decision_s)
                for _ in range(int(share_of(m, i, decision_s, n) * n + 0.5)):
                    release(m, i, decision_s)
        run.play_steps += 1


@kernel(_nrt=False)
def step_tokens(m, k, time_s):
    """Take step k of ccac: its arrivals, tokens, losses and service."""
    run, ev = m.run[0], m.env[0]
    mask = m.order.shape[0] - 1
    first = run.order_seen
    while run.order_seen < run.order_tail and m.order[run.order_seen & mask].arrival_s <= time_s + ON_TIME_S:
        run.order_seen += 1
    arrived_bytes = (run.order_seen - first) * run.mss_bytes
    ev.link_rate_now_Bps = rate_at(m, time_s - run.step_s + ON_TIME_S)
    if run.play_kind == RECORDED:
        recorded_moves(m, k - 1)
    elif run.play_kind == LEARNED:
        learned_moves(m, k - 1, time_s - run.step_s)
    elif run.play_kind == SCRIPTED:
        for i in range(run.n_flows):
            look(ev, m.views[i], k)
            play(
                ev, m.curve_flows[i], i, k, True, m.views[i], m.moves[i], run.init_at, run.play_at,
                run.words_at + i * run.words_bytes, run.view_at + i * run.view_bytes, run.move_at + i * run.move_bytes,
            )  # fmt: skip
    ring, ring_mask = run.ring_at, m.tokens.shape[0] - 1
    X = ev.enqueued_bytes + arrived_bytes
    G = admit_tokens(ev, ring, 0, k, ring_mask, ev.jitter_steps, True, ev.link_rate_now_Bps, X, unit(m.moves[0].waste))
    overflow = overflow_of(X, G, run.buffer_bytes, arrived_bytes)
    lost = min(run.order_seen - first, np.int64(math.ceil(overflow / run.mss_bytes - WHOLE)))
    for j in range(first, run.order_seen):
        packet = m.order[j & mask]
        if j < run.order_seen - lost:
            note(m, ENQUEUE, packet.arrival_s, packet.flow, 0, packet.tx)
        else:
            drop(m, packet.flow, packet.slot, packet.tx, packet.arrival_s)
            packet.slot = -1
    ev.enqueued_bytes = X - lost * run.mss_bytes
    ev.served_bytes = served_by_tokens(ev, ring, 0, k, ring_mask, ev.jitter_steps, unit(m.moves[0].service))
    while run.order_head < run.order_seen:
        packet = m.order[run.order_head & mask]
        if packet.slot >= 0:
            if (run.delivered + 1 - WHOLE) * run.mss_bytes > ev.served_bytes:
                break
            run.delivered += 1
            run.served_bytes += run.mss_bytes
            fl = m.flows[packet.flow]
            put(m.forward[packet.flow], fl.forward_tail, packet.sent_s, packet.arrival_s, time_s, packet.slot, packet.tx)
            fl.forward_tail += 1
            release(m, packet.flow, time_s + fl.forward_s)
        run.order_head += 1
    run.queue_byte_s += max(0.0, ev.enqueued_bytes - ev.tokens_bytes) * run.step_s


@kernel(_nrt=False)
def step_to(m, now_s):
    """Take all steps of ccac that have ended; return when the next one ends."""
    run = m.run[0]
    while True:
        time_s = (run.steps + 1) * run.step_s
        if time_s > run.end_s:
            return math.inf
        if time_s > now_s:
            return time_s
        run.steps += 1
        step_tokens(m, run.steps, time_s)


@kernel(_nrt=False)
def play_network(m, now_s):
    run = m.run[0]
    if run.model == CCAC:
        return step_to(m, now_s)
    return open_boxes(m, now_s) if run.play_kind > 0 else np.inf
