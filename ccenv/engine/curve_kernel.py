"""One step of the curve engine, compiled. The plain reference is ``curve_reference``; the laws are in docs/traces.md.

Environments are outer, steps inner: a call advances each environment by n steps. Letters follow [CCmatic] Table 1:
A sent, L lost, E = A - L enqueued, G tokens admitted, P departed, S delivered; k is the newest step.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ccenv.beliefs import TIE, reset_beliefs, update_beliefs, update_queue_bound
from ccenv.engine.calls import call_1, call_2, call_3, load, store
from ccenv.engine.layout import ADVERSARY_KINDS, FLOW_RINGS, SENDER_KINDS, WORKLOADS
from ccenv.engine.mlp import mlp_action
from ccenv.engine.observation import fill_observation
from ccenv.programs.compiled import evaluate

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

# Error codes of an environment.
ERROR_SENDER, ERROR_ADVERSARY = 1, 2

# A loss is found when so many segments past it are acknowledged (RFC 5681 s.3.2), when a byte sent one Rm after it is
# (as the time-based rule of RFC 8985 does for thin flows), or by a time-out.
LOSS_DETECTION_SEGMENTS = 3.0

_EXTERNAL, _PROGRAM, _CLASSIC, _MLP = (SENDER_KINDS[k] for k in ("external", "program", "classic", "mlp"))
_RECORDED, _SCRIPTED = ADVERSARY_KINDS["recorded"], ADVERSARY_KINDS["scripted"]
_RATE, _ON_OFF, _FINITE = (WORKLOADS[k] for k in ("rate", "on_off", "finite"))
_WASTE, _RATE_MOVE, _FIRST_SERVICE = 0, 1, 2
MLP_RANGE_LOG2 = 3.0  # an action in [-1, 1] is log2(rate / C_L) / 3


@njit(cache=True, inline="always")
def _at(base, n, mask):  # type: ignore[no-untyped-def]
    return base + (n & mask)


@njit(cache=True, inline="always")
def _unit(x):  # type: ignore[no-untyped-def]
    return min(1.0, max(0.0, x))


@njit(cache=True, error_model="numpy")
def _offered_bytes(fl, k, dt_s):  # type: ignore[no-untyped-def]
    """Bytes that the application has ready for step k (retransmissions of found losses included)."""
    if k <= fl.start_step or k > fl.stop_step:
        return 0.0
    if fl.workload == _RATE:
        return max(0.0, fl.workload_a * (k - fl.start_step) * dt_s + fl.found_lost_bytes - fl.A)
    if fl.workload == _ON_OFF:
        phase = ((k - 1 - fl.start_step + 1e-9) * dt_s) % (fl.workload_a + fl.workload_b)
        return np.inf if phase < fl.workload_a else 0.0
    if fl.workload == _FINITE:
        return max(0.0, fl.workload_a + fl.found_lost_bytes - fl.A)
    return np.inf


@njit(cache=True, error_model="numpy")
def _fail(ev, code, flow, k):  # type: ignore[no-untyped-def]
    if ev.error == 0:
        ev.error = code
        ev.error_flow = flow
        ev.error_step = k


@njit(cache=True, error_model="numpy")
def _take_classic(ev, fl, state, flow, k):  # type: ignore[no-untyped-def]
    """Read what a CCA has set; a CCA that leaves the positive numbers is stopped."""
    if state.cwnd_bytes > 0.0 and state.pacing_rate_Bps > 0.0:
        fl.cwnd_bytes = state.cwnd_bytes
        fl.rate_Bps = state.pacing_rate_Bps
    else:
        fl.cwnd_bytes = 1.0
        fl.rate_Bps = 1.0
        _fail(ev, ERROR_SENDER, flow, k)


@njit(cache=True, error_model="numpy")
def _decide(ev, fl, r, k, inputs, observation, nodes, first_rows, mlp_weights, mlp_shapes, scratch):  # type: ignore[no-untyped-def]
    """Let a program or network choose the rate for the next interval; close the interval's counts."""
    fl.lost_last_interval_bytes = fl.lost_since_decision_bytes
    fl.lost_since_decision_bytes = 0.0
    fl.sent_last_interval_bytes = fl.A - fl.sent_at_decision_bytes
    fl.sent_at_decision_bytes = fl.A
    hold = 1.0
    floor = ev.mss_bytes / fl.rtt_s
    if fl.sender_kind == _PROGRAM:
        inputs[0] = fl.C_L_Bps
        inputs[1] = fl.C_U_Bps
        inputs[2] = fl.C_L_lambda_Bps
        inputs[3] = floor
        inputs[4] = fl.rate_Bps
        inputs[5] = fl.q_U_bytes / fl.rtt_s
        inputs[6] = fl.qdel_L_s
        inputs[7] = fl.qdel_U_s
        inputs[8] = fl.rtt_s
        inputs[9] = fl.q_U_bytes
        inputs[10] = ev.mss_bytes
        inputs[11] = float(fl.utilised)
        inputs[12] = 1.0 if fl.lost_last_interval_bytes > 0.0 else 0.0
        rate, hold = evaluate(nodes, first_rows[fl.sender_index], inputs)
        fl.rate_Bps = rate
        if not rate > 0.0:
            _fail(ev, ERROR_SENDER, r, k)
            fl.rate_Bps = floor
    elif fl.sender_kind == _MLP:
        fill_observation(ev, fl, observation)
        action = mlp_action(mlp_weights, mlp_shapes, fl.sender_index, observation, scratch)
        fl.rate_Bps = max(floor, fl.C_L_Bps * 2.0 ** (MLP_RANGE_LOG2 * action))
    fl.decision_step = k + np.int64(hold) * fl.rtt_steps


@njit(cache=True, error_model="numpy")
def _find_losses(fl, ring, e_at, l_at, n, k, mask, oracle, rto_min_steps, mss_bytes):  # type: ignore[no-untyped-def]
    """Advance fl.loss_step; return (newly found bytes, newest step with a found loss, whether a time-out found them)."""
    reach = fl.loss_step
    timeout = False
    if oracle:
        reach = n
    else:
        while reach < n and (
            fl.ack_sent_step - reach > fl.rtt_steps
            or load(ring, _at(e_at, reach + 1, mask)) + LOSS_DETECTION_SEGMENTS * mss_bytes <= fl.acked_bytes
        ):
            reach += 1
        outstanding = fl.A - fl.acked_bytes - fl.found_lost_bytes
        rto = max(rto_min_steps, fl.srtt_steps + 4.0 * fl.rttvar_steps)
        if outstanding > TIE * fl.A and k - fl.last_ack_step > rto and n > reach:
            timeout = True
            reach = n
            fl.last_ack_step = k
    newest = np.int64(-1)
    lost = 0.0
    if reach > fl.loss_step:
        lost = load(ring, _at(l_at, reach, mask)) - fl.found_lost_bytes
        if lost > 0.0:
            newest = reach
            while newest > fl.loss_step and not load(ring, _at(l_at, newest, mask)) > load(ring, _at(l_at, newest - 1, mask)):
                newest -= 1
            fl.found_lost_bytes += lost
        fl.loss_step = reach
    return lost, newest, timeout


@njit(cache=True, error_model="numpy")
def advance_range(  # type: ignore[no-untyped-def]
    first, last, runs, env, flow, rate_changes, states, state_words, templates, acks, losses, ticks, views,
    moves_scratch, sender_calls, adversary_calls, moves, recorded, recorded_period, nodes, first_rows, inputs, observations,
    mlp_weights, mlp_shapes, mlp_scratch, settings, flow_log, env_log, n_steps,
):  # fmt: skip
    """Advance environments first .. last - 1 by n_steps. All arrays are those of ``CurveEngine``."""
    run = runs[0]
    ring, env_ring, reciprocals = run.ring_at, run.env_ring_at, run.reciprocals_at
    settings_0 = settings[0]
    # Scratch of this chunk, taken once: every view made in the loop would cost atomic reference counts.
    own_inputs = inputs[first]
    own_observation = observations[first]
    own_scratch = mlp_scratch[first]
    for b in range(first, last):
        ev = env[b]
        n_flows = run.n_flows
        H = run.ring_length
        mask = H - 1
        dt_s = ev.dt_s
        mss_bytes = ev.mss_bytes
        r0 = b * n_flows
        g_at = b * 2 * H
        e_total_at = g_at + H
        D = ev.jitter_steps
        beta = ev.buffer_bytes
        hoards = run.hoards_tokens == 1 and D > 0
        rto_min_steps = run.rto_min_s / dt_s
        has_budget = False
        for i in range(n_flows):
            has_budget = has_budget or flow[r0 + i].loss_budget > 0.0
        loss_proves = ev.has_red == 0 and not has_budget
        kind = ev.adversary_kind
        move_row = b % moves.shape[0]
        recorded_row = b % recorded.shape[0]

        for _ in range(n_steps):
            k = ev.step + 1

            # Moves of the network for this step.
            waste = 0.0
            rate_move = 0.0
            script_row = np.int64(0)
            if kind == _SCRIPTED:
                view = views[b]
                view.now_s = (k - 1) * dt_s
                view.step = k - 1
                view.queue_bytes = max(0.0, ev.enqueued_bytes - ev.tokens_bytes)
                view.spare_token_bytes = max(0.0, ev.tokens_bytes - ev.enqueued_bytes)
                view.link_rate_Bps = ev.link_rate_now_Bps
                for i in range(n_flows):
                    fl = flow[r0 + i]
                    view.flow = i
                    view.rtt_s = fl.rtt_s
                    view.jitter_s = fl.jitter_s
                    view.held_bytes = (min(ev.tokens_bytes, ev.enqueued_bytes) - ev.served_bytes) if hoards else fl.P - fl.S
                    move = moves_scratch[r0 + i]
                    state_at = run.adversary_states_at + (r0 + i) * run.adversary_state_bytes
                    view_at = run.view_at + b * run.view_bytes
                    if k == 1:
                        call_2(adversary_calls[ev.adversary_index, 0], state_at, view_at)
                    call_3(adversary_calls[ev.adversary_index, 1], state_at, view_at, run.move_at + (r0 + i) * run.move_bytes)
                    if not (move.service >= 0.0 and move.waste >= 0.0 and move.rate >= 0.0 and move.loss >= 0.0):
                        _fail(ev, ERROR_ADVERSARY, i, k)
                        move.service = 1.0
                        move.waste = 1.0
                        move.rate = 1.0
                        move.loss = 0.0
                waste = _unit(moves_scratch[r0].waste)
                rate_move = _unit(moves_scratch[r0].rate)
            elif kind == _RECORDED:
                script_row = (k - 1) % recorded.shape[1] if recorded_period else min(k - 1, recorded.shape[1] - 1)
                waste = _unit(recorded[recorded_row, script_row, _WASTE])
                rate_move = _unit(recorded[recorded_row, script_row, _RATE_MOVE])
            else:
                waste = _unit(moves[move_row, _WASTE])
                rate_move = _unit(moves[move_row, _RATE_MOVE])

            # Link rate: the scenario's steps, or in ``strong`` the network's choice.
            while ev.next_rate_change < ev.n_rate_changes and rate_changes[b, ev.next_rate_change, 0] < k:
                ev.link_rate_Bps = rate_changes[b, ev.next_rate_change, 1]
                ev.next_rate_change += 1
            rate = ev.link_rate_Bps
            if run.varies_rate == 1:
                rate = ev.link_rate_min_Bps + rate_move * (ev.link_rate_max_Bps - ev.link_rate_min_Bps)
            ev.link_rate_now_Bps = rate

            # 1. Send; non-congestive loss and RED take their share on the way to the queue.
            early_drop = 0.0
            if ev.has_red == 1:
                queue = max(0.0, ev.enqueued_bytes - ev.tokens_bytes)
                ev.red_average_bytes += ev.red_weight * (queue - ev.red_average_bytes)
                if ev.red_average_bytes > ev.red_max_bytes:
                    early_drop = 1.0
                elif ev.red_average_bytes > ev.red_min_bytes:
                    share = (ev.red_average_bytes - ev.red_min_bytes) / (ev.red_max_bytes - ev.red_min_bytes)
                    early_drop = ev.red_max_probability * share
            X = ev.enqueued_bytes
            kept_total = 0.0
            for i in range(n_flows):
                fl = flow[r0 + i]
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
                        _take_classic(ev, fl, state, i, k)
                    elif fl.sender_kind != _EXTERNAL:
                        _decide(
                            ev, fl, i, k - 1, own_inputs, own_observation, nodes, first_rows, mlp_weights, mlp_shapes, own_scratch
                        )
                    else:
                        fl.decision_step = k - 1 + fl.rtt_steps
                window = min(fl.cwnd_bytes, fl.receive_window_bytes)
                sent = min(fl.rate_Bps * dt_s, max(0.0, window - (fl.A - fl.acked_bytes - fl.found_lost_bytes)))
                sent = min(sent, _offered_bytes(fl, k, dt_s))
                if run.recording == 1:
                    flow_log[b, k, i].rate_Bps = fl.rate_Bps
                    flow_log[b, k, i].cwnd_bytes = window
                fl.A += sent
                fl.sent_bytes = sent
                kept = sent
                if fl.loss_budget > 0.0:
                    if kind == _SCRIPTED:
                        loss_move = _unit(moves_scratch[r0 + i].loss)
                    elif kind == _RECORDED:
                        loss_move = _unit(recorded[recorded_row, script_row, _FIRST_SERVICE + n_flows + i])
                    else:
                        loss_move = _unit(moves[move_row, _FIRST_SERVICE + n_flows + i])
                    free = loss_move * min(sent, max(0.0, fl.loss_budget * fl.A - fl.L_free))
                    free = free if free > TIE * fl.A else 0.0
                    fl.L_free += free
                    fl.L += free
                    kept -= free
                if early_drop > 0.0:
                    fl.L += early_drop * kept
                    kept -= early_drop * kept
                fl.kept_bytes = kept
                kept_total += kept
                X += kept

            # 2. Expiry: tokens not used within D were wasted at k - D, when nothing waited.
            if hoards and k > D:
                late = load(env_ring, _at(g_at, k - D, mask)) - ev.token_offset_bytes - X
                if late > 0.0:
                    ev.token_offset_bytes += late
                    ev.tokens_bytes -= late
                    if run.recording == 1:
                        for j in range(k - D, k):
                            env_log[b, j].G -= late

            # 3. Tokens.
            G_before = ev.tokens_bytes
            G = G_before + rate * dt_s
            ev.capacity_bytes += rate * dt_s
            if G > X:
                if hoards and waste < 1.0:
                    G -= waste * (G - X)
                else:
                    G = X
                if G_before > G:  # tokens kept from earlier steps were thrown away: they had been wasted then
                    for j in range(max(k - D, 0), k):
                        at = _at(g_at, j, mask)
                        store(env_ring, at, min(load(env_ring, at), G + ev.token_offset_bytes))
                        if run.recording == 1:
                            env_log[b, j].G = min(env_log[b, j].G, G)
            ev.tokens_bytes = G
            store(env_ring, _at(g_at, k, mask), G + ev.token_offset_bytes)

            # 4. Drop-tail.
            overflow = X - G - beta
            # Round-off at a queue that is exactly full is not a loss: a sender would halve its window for it.
            overflow = min(overflow, kept_total) if overflow > TIE * X else 0.0
            E_total = X - overflow
            ev.enqueued_bytes = E_total
            store(env_ring, _at(e_total_at, k, mask), E_total)
            for i in range(n_flows):
                fl = flow[r0 + i]
                base = (r0 + i) * FLOW_RINGS * H
                E = fl.E + fl.kept_bytes
                if overflow > 0.0:
                    share = overflow if n_flows == 1 else overflow * (fl.kept_bytes / kept_total)
                    fl.L += share
                    E = E - share
                fl.E = E
                store(ring, _at(base + 2 * H, k, mask), E)
                store(ring, _at(base + 3 * H, k, mask), fl.L)

            # 5. and 6. Departures and service.
            served_total = ev.served_bytes
            if hoards:
                lower = served_total
                if k > D:
                    lower = max(lower, load(env_ring, _at(g_at, k - D, mask)) - ev.token_offset_bytes)
                upper = min(G, E_total)
                if kind == _SCRIPTED:
                    u = _unit(moves_scratch[r0].service)
                elif kind == _RECORDED:
                    u = _unit(recorded[recorded_row, script_row, _FIRST_SERVICE])
                else:
                    u = _unit(moves[move_row, _FIRST_SERVICE])
                served_total = upper if u >= 1.0 else max(lower, min(upper, lower + u * (upper - lower)))
                departed = served_total
            else:
                departed = min(G, E_total)
            t = ev.fifo_step
            while t < k and load(env_ring, _at(e_total_at, t, mask)) < departed:
                t += 1
            ev.fifo_step = t
            E_t = load(env_ring, _at(e_total_at, t, mask))
            fraction = 1.0
            if departed < E_t and t > 0:
                E_s = load(env_ring, _at(e_total_at, t - 1, mask))
                fraction = (departed - E_s) / (E_t - E_s)
            total = 0.0
            for i in range(n_flows):
                fl = flow[r0 + i]
                base = (r0 + i) * FLOW_RINGS * H
                if n_flows == 1:
                    left = departed
                else:
                    after = load(ring, _at(base + 2 * H, t, mask))
                    left = after
                    if fraction < 1.0:
                        before = load(ring, _at(base + 2 * H, t - 1, mask))
                        left = before + fraction * (after - before)
                    left = max(left, fl.P)
                fl.P = left
                if hoards:
                    fl.S = left
                else:
                    store(ring, _at(base + 4 * H, k, mask), left)
                    d = fl.jitter_steps if run.has_jitter == 1 else 0
                    lower = fl.S
                    if k > d:
                        lower = max(lower, load(ring, _at(base + 4 * H, k - d, mask)))
                    if kind == _SCRIPTED:
                        u = _unit(moves_scratch[r0 + i].service)
                    elif kind == _RECORDED:
                        u = _unit(recorded[recorded_row, script_row, _FIRST_SERVICE + i])
                    else:
                        u = _unit(moves[move_row, _FIRST_SERVICE + i])
                    fl.S = left if u >= 1.0 else max(lower, min(left, lower + u * (left - lower)))
                    total += fl.S
                store(ring, _at(base, k, mask), fl.S)
                store(ring, base + (k & mask) + H, fl.S)
            ev.served_bytes = served_total if hoards else total

            # 7. and 8. Feedback, beliefs, decisions.
            tie_bytes = TIE * E_total
            for i in range(n_flows):
                fl = flow[r0 + i]
                if k <= fl.start_step:
                    continue
                base = (r0 + i) * FLOW_RINGS * H
                e_at = base + 2 * H
                n = k - fl.rtt_steps + run.early_feedback
                lost = 0.0
                newly = 0.0
                if n >= 1:
                    served = load(ring, _at(base, n, mask))
                    newly = served - fl.acked_bytes
                    if newly <= tie_bytes:
                        newly = 0.0
                    if newly > 0.0:
                        p = fl.ack_sent_step
                        while p < n and load(ring, _at(e_at, p, mask)) < served - tie_bytes:
                            p += 1
                        fl.ack_sent_step = p
                        E_p = load(ring, _at(e_at, p, mask))
                        E_q = load(ring, _at(e_at, p - 1, mask))
                        sent_at = float(p)
                        if E_p > served and E_p > E_q:
                            sent_at = p - 1 + max(0.0, (served - E_q) / (E_p - E_q))
                        rtt = n - sent_at + fl.rtt_steps
                        fl.delay_floor_steps = n - p
                        fl.acked_bytes = served
                        fl.last_ack_step = k
                        fl.rtt_now_steps = rtt
                        fl.rtt_byte_sum_s += newly * (rtt - fl.rtt_steps) * dt_s
                        if fl.srtt_steps == 0.0:  # RFC 6298 s.2
                            fl.srtt_steps = rtt
                            fl.rttvar_steps = 0.5 * rtt
                        else:
                            fl.rttvar_steps += 0.25 * (abs(fl.srtt_steps - rtt) - fl.rttvar_steps)
                            fl.srtt_steps += 0.125 * (rtt - fl.srtt_steps)
                        fl.rtt_min_steps = min(fl.rtt_min_steps, rtt)
                    lost, newest_loss, timeout = _find_losses(
                        fl, ring, e_at, base + 3 * H, n, k, mask, run.oracle_loss == 1, rto_min_steps, mss_bytes
                    )
                    fl.lost_since_decision_bytes += lost
                    if run.compute_beliefs == 1 and n > fl.start_step:
                        update_beliefs(
                            fl,
                            ring,
                            base,
                            e_at,
                            base + 3 * H,
                            n,
                            mask,
                            dt_s,
                            mss_bytes,
                            tie_bytes,
                            loss_proves,
                            settings_0,
                            reciprocals,
                        )
                inflight = max(0.0, fl.A - fl.acked_bytes - fl.found_lost_bytes)
                update_queue_bound(fl, fl.sent_bytes, inflight, dt_s)

                if fl.sender_kind == _CLASSIC:
                    state = states[r0 + i]
                    calls_row = fl.sender_index
                    state_at = run.states_at + (r0 + i) * run.state_bytes
                    if newly > 0.0:
                        ack = acks[b]
                        ack.now_s = k * dt_s
                        ack.acked_bytes = newly
                        ack.delivered_bytes = fl.acked_bytes
                        ack.rtt_s = fl.rtt_now_steps * dt_s
                        ack.min_rtt_s = fl.rtt_min_steps * dt_s
                        earlier = max(fl.ack_sent_step - fl.rtt_steps + run.early_feedback, fl.start_step)
                        earlier = max(earlier, n - mask + fl.rtt_steps)
                        known = load(ring, _at(base, earlier, mask)) if earlier > 0 else 0.0
                        ack.delivery_rate_Bps = (fl.acked_bytes - known) / (max(1, n - earlier) * dt_s)
                        ack.inflight_bytes = inflight
                        ack.round_start = 0.0
                        if fl.acked_bytes >= fl.round_end_bytes:
                            ack.round_start = 1.0
                            fl.round_end_bytes = fl.E
                        ack.app_limited = (
                            1.0
                            if (fl.workload != 0 and fl.sent_bytes < min(fl.rate_Bps * dt_s, fl.cwnd_bytes - inflight))
                            else 0.0
                        )
                        ack.ecn_fraction = 0.0
                        ack.mss_bytes = mss_bytes
                        call_2(sender_calls[calls_row, 1], state_at, run.ack_at + b * run.ack_bytes)
                    if lost > 0.0:
                        loss = losses[b]
                        loss.now_s = k * dt_s
                        loss.lost_bytes = lost
                        loss.inflight_bytes = inflight
                        loss.delivered_bytes = fl.acked_bytes
                        loss.timeout = 1.0 if timeout else 0.0
                        loss.new_episode = 1.0 if newest_loss > fl.recovery_step else 0.0
                        if newest_loss > fl.recovery_step:
                            fl.recovery_step = k
                        loss.mss_bytes = mss_bytes
                        call_2(sender_calls[calls_row, 2], state_at, run.loss_at + b * run.loss_bytes)
                    tick = ticks[b]
                    tick.now_s = k * dt_s
                    tick.dt_s = dt_s
                    tick.inflight_bytes = inflight
                    tick.delivered_bytes = fl.acked_bytes
                    tick.min_rtt_s = fl.rtt_min_steps * dt_s
                    tick.mss_bytes = mss_bytes
                    call_2(sender_calls[calls_row, 3], state_at, run.tick_at + b * run.tick_bytes)
                    _take_classic(ev, fl, state, i, k)
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
                    _decide(ev, fl, i, k, own_inputs, own_observation, nodes, first_rows, mlp_weights, mlp_shapes, own_scratch)

            if run.recording == 1:
                env_log[b, k].G = ev.tokens_bytes
                env_log[b, k].link_rate_Bps = rate
                for i in range(n_flows):
                    fl = flow[r0 + i]
                    log = flow_log[b, k, i]
                    log.A = fl.A
                    log.L = fl.L
                    log.L_free = fl.L_free
                    log.S = fl.S
            ev.step = k


@njit(cache=True, error_model="numpy", parallel=True)
def advance_parallel(  # type: ignore[no-untyped-def]
    n_chunks, runs, env, flow, rate_changes, states, state_words, templates, acks, losses, ticks, views,
    moves_scratch, sender_calls, adversary_calls, moves, recorded, recorded_period, nodes, first_rows, inputs, observations,
    mlp_weights, mlp_shapes, mlp_scratch, settings, flow_log, env_log, n_steps,
):  # fmt: skip
    """Advance all environments on several threads; environments share nothing, so the result is the same."""
    n_envs = env.shape[0]
    for chunk in prange(n_chunks):
        advance_range(
            chunk * n_envs // n_chunks, (chunk + 1) * n_envs // n_chunks, runs, env, flow, rate_changes, states, state_words, templates, acks, losses, ticks, views,
            moves_scratch, sender_calls, adversary_calls, moves, recorded, recorded_period, nodes, first_rows, inputs, observations,
            mlp_weights, mlp_shapes, mlp_scratch, settings, flow_log, env_log, n_steps,
        )  # fmt: skip
