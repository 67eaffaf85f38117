"""One step of the curve engine, compiled. The plain reference is ``curve_reference``; the laws are in docs/traces.md.

Environments are outer, steps inner: a call advances each environment by n steps. Letters follow [CCmatic] Table 1:
A sent, L lost, E = A - L enqueued, G tokens admitted, P departed, S delivered; k is the newest step.
The parts of a step are functions over records and addresses: an array argument would cost atomic reference counts per call.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ccenv.engine.compiled.beliefs import TIE, reset_beliefs, update_beliefs, update_queue_bound
from ccenv.engine.compiled.calls import call_1, load, store
from ccenv.engine.compiled.rings import at, keep_env_cursors, keep_flow_cursors
from ccenv.engine.curve.decision import choose_rate, close_interval, decide_by_program, play_policy
from ccenv.engine.curve.layout import ADVERSARY_KINDS, FLOW_RINGS, SENDER_KINDS
from ccenv.engine.curve.network import (
    admit_tokens,
    early_drop_share,
    fifo_position,
    fifo_share,
    look,
    lose_on_the_way,
    overflow_of,
    play,
    served_by_jitter,
    served_by_tokens,
    unit,
)
from ccenv.engine.curve.transport import acknowledge, adjust_hold, fill_ack, fill_loss, find_losses, react, send, take_decision

# Everything a run needs besides the records, one record. Addresses are of the first element of the named arrays.
RUN_DTYPE = np.dtype(
    [
        ("n_flows", "<i8"),
        ("ring_length", "<i8"),
        ("hoards_tokens", "<i8"),
        ("varies_rate", "<i8"),
        ("has_jitter", "<i8"),
        ("early_feedback", "<i8"),  # 1 in proof timing: the rate of step k + 1 is decided on S(k + 1 - Rm)
        ("oracle_loss", "<i8"),
        ("rto_min_s", "<f8"),
        ("recording", "<i8"),
        ("compute_beliefs", "<i8"),
        ("ring_at", "<i8"),
        ("env_ring_at", "<i8"),
        ("reciprocals_at", "<i8"),
        ("nodes_at", "<i8"),
        ("inputs_at", "<i8"),
        ("inputs_bytes", "<i8"),
        ("states_at", "<i8"),
        ("state_bytes", "<i8"),
        ("adversary_states_at", "<i8"),
        ("adversary_state_bytes", "<i8"),
        ("ack_at", "<i8"),
        ("ack_bytes", "<i8"),
        ("loss_at", "<i8"),
        ("loss_bytes", "<i8"),
        ("tick_at", "<i8"),
        ("tick_bytes", "<i8"),
        ("view_at", "<i8"),
        ("view_bytes", "<i8"),
        ("move_at", "<i8"),
        ("move_bytes", "<i8"),
    ]
)

_PROGRAM, _CLASSIC, _MLP = SENDER_KINDS["program"], SENDER_KINDS["classic"], SENDER_KINDS["mlp"]
_RECORDED, _SCRIPTED, _POLICY = (ADVERSARY_KINDS[kind] for kind in ("recorded", "scripted", "mlp"))
# Columns of a row of moves: waste, rate, then service per flow, then loss per flow.
WASTE, RATE, FIRST_SERVICE = 0, 1, 2


@njit(cache=True, error_model="numpy", nogil=True)
def advance_range(
    first, last, runs, env, flow, rate_changes, states, state_words, templates, acks, losses, ticks, views,
    flow_moves, sender_calls, adversary_calls, moves, recorded, recorded_period, first_rows, observations,
    mlp_weights, mlp_shapes, mlp_scratch, adversary_weights, adversary_shapes, adversary_outputs, settings, flow_log, env_log,
    n_steps,
):  # fmt: skip
    """Advance environments first .. last - 1 by n_steps. All arrays are those of ``CurveEngine``."""
    run = runs[0]
    ring, env_ring, reciprocals = run.ring_at, run.env_ring_at, run.reciprocals_at
    belief_settings = settings[0]
    N, H = run.n_flows, run.ring_length
    mask = H - 1
    # Scratch of this chunk, taken once: a view made in the loop would cost reference counts too.
    inputs_at = run.inputs_at + first * run.inputs_bytes
    own_observation = observations[first]
    own_scratch = mlp_scratch[first]
    for b in range(first, last):
        ev = env[b]
        dt_s, mss_bytes, D = ev.dt_s, ev.mss_bytes, ev.jitter_steps
        inv_dt = 1.0 / dt_s
        r0 = b * N
        g_at = b * 2 * H
        e_total_at = g_at + H
        hoards = run.hoards_tokens == 1 and D > 0
        rto_min_steps = run.rto_min_s / dt_s
        has_budget = False
        for i in range(N):
            has_budget = has_budget or flow[r0 + i].loss_budget > 0.0
        loss_proves = ev.has_red == 0 and not has_budget
        kind = ev.adversary_kind
        move_row, recorded_row = b % moves.shape[0], b % recorded.shape[0]
        signals_at = (run.ack_at + b * run.ack_bytes, run.loss_at + b * run.loss_bytes, run.tick_at + b * run.tick_bytes)

        for step in range(n_steps):
            k = ev.step + 1
            keep_env_cursors(ev, k, mask)

            # Moves of the network for this step.
            if kind == _SCRIPTED:
                view = views[b]
                look(ev, view, k)
                for i in range(N):
                    r = r0 + i
                    play(
                        ev, flow[r], i, k, hoards, view, flow_moves[r],
                        adversary_calls[ev.adversary_index, 0], adversary_calls[ev.adversary_index, 1],
                        run.adversary_states_at + r * run.adversary_state_bytes, run.view_at + b * run.view_bytes,
                        run.move_at + r * run.move_bytes,
                    )  # fmt: skip
            elif kind == _POLICY:
                play_policy(
                    ev, flow, flow_moves, r0, N, k - 1, adversary_weights, adversary_shapes, adversary_outputs, own_observation,
                    own_scratch,
                )  # fmt: skip
            elif kind == _RECORDED:
                row = (k - 1) % recorded.shape[1] if recorded_period else min(k - 1, recorded.shape[1] - 1)
                for i in range(N):
                    move = flow_moves[r0 + i]
                    move.waste = recorded[recorded_row, row, WASTE]
                    move.rate = recorded[recorded_row, row, RATE]
                    move.service = recorded[recorded_row, row, FIRST_SERVICE + i]
                    move.loss = recorded[recorded_row, row, FIRST_SERVICE + N + i]
            elif step == 0:
                for i in range(N):
                    move = flow_moves[r0 + i]
                    move.waste = moves[move_row, WASTE]
                    move.rate = moves[move_row, RATE]
                    move.service = moves[move_row, FIRST_SERVICE + i]
                    move.loss = moves[move_row, FIRST_SERVICE + N + i]

            # Link rate: the scenario's steps, or in ``strong`` the network's choice.
            while ev.next_rate_change < ev.n_rate_changes and rate_changes[b, ev.next_rate_change, 0] < k:
                ev.link_rate_Bps = rate_changes[b, ev.next_rate_change, 1]
                ev.next_rate_change += 1
            rate = ev.link_rate_Bps
            if run.varies_rate == 1:
                rate = ev.link_rate_min_Bps + unit(flow_moves[r0].rate) * (ev.link_rate_max_Bps - ev.link_rate_min_Bps)
            ev.link_rate_now_Bps = rate

            # 1. Send; non-congestive loss and RED take their share on the way to the queue.
            early_drop = early_drop_share(ev) if ev.has_red == 1 else 0.0
            X = ev.enqueued_bytes
            tie_before_bytes = TIE * X
            kept_total = 0.0
            for i in range(N):
                fl = flow[r0 + i]
                keep_flow_cursors(fl, ring, (r0 + i) * FLOW_RINGS * H + 3 * H, k, mask)
                if k == fl.start_step + 1:
                    reset_beliefs(fl, mss_bytes)
                    fl.last_ack_step = k - 1
                    if fl.sender_kind == _CLASSIC:
                        state = states[r0 + i]
                        for word in range(state_words.shape[1]):
                            state_words[r0 + i, word] = templates[fl.sender_index, word]
                        state.mss_bytes = mss_bytes
                        state.seed = ev.seed
                        state.env = ev.env_key
                        state.flow = i
                        call_1(sender_calls[fl.sender_index, 0], run.states_at + (r0 + i) * run.state_bytes)
                        take_decision(ev, fl, state, i, k)
                    if fl.sender_kind == _PROGRAM:
                        rows = fl.sender_index
                        decide_by_program(ev, fl, i, k - 1, first_rows[rows, 0], first_rows[rows, 1], run.nodes_at, inputs_at)
                    elif fl.sender_kind == _MLP:
                        fl.rate_Bps = choose_rate(ev, fl, k - 1, mlp_weights, mlp_shapes, own_observation, own_scratch)
                    else:
                        close_interval(fl, k - 1)
                send(fl, k, dt_s, tie_before_bytes)
                kept = lose_on_the_way(fl, flow_moves[r0 + i], early_drop)
                kept_total += kept
                X += kept
                if run.recording == 1:
                    flow_log[b, k, i].rate_Bps = fl.rate_Bps
                    flow_log[b, k, i].cwnd_bytes = min(fl.cwnd_bytes, fl.receive_window_bytes)

            # 2. and 3. Tokens.
            G = admit_tokens(ev, env_ring, g_at, k, mask, D, hoards, rate, X, unit(flow_moves[r0].waste))
            if run.recording == 1:
                env_log[b, k].link_rate_Bps = rate
                for j in range(max(k - D, 0), k + 1):  # later steps may still lower the newest D
                    env_log[b, j].G = load(env_ring, at(g_at, j, mask))

            # 4. Drop-tail.
            overflow = overflow_of(X, G, ev.buffer_bytes, kept_total)
            E_total = X - overflow
            ev.enqueued_bytes = E_total
            store(env_ring, at(e_total_at, k, mask), E_total)
            for i in range(N):
                fl = flow[r0 + i]
                base = (r0 + i) * FLOW_RINGS * H
                E = fl.E + fl.kept_bytes
                if overflow > 0.0:
                    share = overflow if N == 1 else overflow * (fl.kept_bytes / kept_total)
                    fl.L += share
                    E = E - share
                fl.E = E
                store(ring, at(base + 2 * H, k, mask), E)
                store(ring, at(base + 3 * H, k, mask), fl.L)

            # 5. and 6. Departures and service.
            if hoards:
                departed = served_by_tokens(ev, env_ring, g_at, k, mask, D, unit(flow_moves[r0].service))
            else:
                departed = min(G, E_total)
            fraction = 1.0
            if N > 1:
                fraction = fifo_position(ev, env_ring, e_total_at, k, mask, departed)
            total = 0.0
            for i in range(N):
                fl = flow[r0 + i]
                base = (r0 + i) * FLOW_RINGS * H
                left = departed if N == 1 else fifo_share(fl, ring, base + 2 * H, ev.fifo_step, mask, fraction)
                fl.P = left
                if hoards:
                    fl.S = left
                else:
                    d = fl.jitter_steps if run.has_jitter == 1 else 0
                    fl.S = served_by_jitter(fl, ring, base + 4 * H, k, mask, d, left, unit(flow_moves[r0 + i].service))
                total += fl.S
                store(ring, at(base, k, mask), fl.S)
                store(ring, at(base, k, mask) + H, fl.S)
            ev.served_bytes = departed if hoards else total

            # 7. and 8. Feedback, beliefs, decisions.
            tie_bytes = TIE * E_total
            for i in range(N):
                fl = flow[r0 + i]
                if run.recording == 1:
                    log = flow_log[b, k, i]
                    log.A = fl.A
                    log.L = fl.L
                    log.L_free = fl.L_free
                    log.S = fl.S
                if k <= fl.start_step:
                    continue
                base = (r0 + i) * FLOW_RINGS * H
                e_at, l_at = base + 2 * H, base + 3 * H
                n = k - fl.lag_steps + run.early_feedback
                if fl.hold_window_steps > 0:  # in order, also when the hold becomes longer
                    n = max(n, fl.heard_step)
                    fl.heard_step = n
                newly, lost, newest_loss, timeout = 0.0, 0.0, np.int64(-1), False
                if n >= 1:
                    newly = acknowledge(ev, fl, i, ring, base, e_at, n, k, mask, dt_s, tie_bytes)
                    if newly > 0.0 and fl.hold_window_steps > 0:
                        adjust_hold(fl, k)
                    lost, newest_loss, timeout = find_losses(
                        fl, ring, e_at, l_at, n, k, mask, run.oracle_loss == 1, rto_min_steps, mss_bytes
                    )
                    fl.lost_since_decision_bytes += lost
                    if run.compute_beliefs == 1 and n > fl.start_step:
                        update_beliefs(
                            fl, ring, base, e_at, l_at, n, mask, dt_s, inv_dt, mss_bytes, tie_bytes, loss_proves, belief_settings,
                            reciprocals,
                        )  # fmt: skip
                inflight = max(0.0, fl.A - fl.acked_bytes - fl.found_lost_bytes)
                update_queue_bound(fl, fl.sent_bytes, inflight, dt_s)
                if fl.sender_kind == _CLASSIC:
                    if newly > 0.0:
                        fill_ack(acks[b], fl, ring, base, n, k, mask, run.early_feedback, dt_s, mss_bytes, newly, inflight)
                    if lost > 0.0:
                        fill_loss(losses[b], fl, k, dt_s, mss_bytes, lost, newest_loss, timeout, inflight)
                    which = fl.sender_index
                    react(
                        ev, fl, states[r0 + i], ticks[b], i, k, newly, lost, inflight,
                        sender_calls[which, 1], sender_calls[which, 2], sender_calls[which, 3],
                        run.states_at + (r0 + i) * run.state_bytes, signals_at,
                    )  # fmt: skip
                if run.recording == 1:
                    log = flow_log[b, k, i]
                    log.C_L = fl.C_L_Bps
                    log.C_U = fl.C_U_Bps
                    log.C_L_lambda = fl.C_L_lambda_Bps
                    log.q_U = fl.q_U_bytes
                    log.qdel_L = fl.qdel_L_s
                    log.qdel_U = fl.qdel_U_s
                    log.rtt_s = fl.rtt_now_steps * dt_s
                if k >= fl.decision_step:
                    if fl.sender_kind == _PROGRAM:
                        rows = fl.sender_index
                        decide_by_program(ev, fl, i, k, first_rows[rows, 0], first_rows[rows, 1], run.nodes_at, inputs_at)
                    elif fl.sender_kind == _MLP:
                        fl.rate_Bps = choose_rate(ev, fl, k, mlp_weights, mlp_shapes, own_observation, own_scratch)
                    else:
                        close_interval(fl, k)
            ev.step = k


@njit(cache=True, error_model="numpy", nogil=True, parallel=True)
def advance_parallel(
    n_chunks, runs, env, flow, rate_changes, states, state_words, templates, acks, losses, ticks, views,
    flow_moves, sender_calls, adversary_calls, moves, recorded, recorded_period, first_rows, observations,
    mlp_weights, mlp_shapes, mlp_scratch, adversary_weights, adversary_shapes, adversary_outputs, settings, flow_log, env_log,
    n_steps,
):  # fmt: skip
    """Advance all environments on several threads; environments share nothing, so the result is the same."""
    n_envs = env.shape[0]
    for chunk in prange(n_chunks):
        advance_range(
            chunk * n_envs // n_chunks, (chunk + 1) * n_envs // n_chunks,
            runs, env, flow, rate_changes, states, state_words, templates, acks, losses, ticks, views,
            flow_moves, sender_calls, adversary_calls, moves, recorded, recorded_period, first_rows, observations,
            mlp_weights, mlp_shapes, mlp_scratch, adversary_weights, adversary_shapes, adversary_outputs, settings, flow_log,
            env_log, n_steps,
        )  # fmt: skip
