"""The curve engine's kernel, compiled: a step is the list of docs/engine.md; the laws are in docs/networks.md.

Environments are outer, steps inner: a call advances each environment by n steps. Letters follow [CCmatic] Table 1: A sent, L
lost, E = A - L enqueued, G tokens admitted, P departed, S delivered; k is the newest step. ``a`` holds the arrays of the batch
(``KernelArrays``), without owners. The parts of a step are inlined. The plain reference is ``tests/oracles/curve.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccenv.agents.callbacks import INIT, ON_ACK, ON_LOSS, ON_TICK, PLAY
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.beliefs import (
    TIE,
    at,
    begin_untold,
    flow_rings,
    keep_env_cursors,
    keep_flow_cursors,
    reset_beliefs,
    store_served,
    update_beliefs,
    update_queue_bound,
)
from ccenv.engine.compiled.calls import call_1, load, store, unowned
from ccenv.engine.compiled.policies import NO_INNER
from ccenv.engine.curve.decision import (
    choose_inside_far,
    choose_rate_far,
    close_interval,
    decide_by_policy_far,
    decide_by_program,
    play_policy_far,
    take_choice,
)
from ccenv.engine.curve.layout import (
    ADVERSARY_KINDS,
    CHANGE_RATE,
    CHANGE_STEP,
    ENV_RINGS,
    FLOW_RINGS,
    MAIN_ROW,
    SENDER_KINDS,
    START_ROW,
)
from ccenv.engine.curve.monitor import count_ack, start_flow_of
from ccenv.engine.curve.transport import (
    acknowledge,
    adjust_hold,
    admit_tokens,
    early_drop_share,
    fifo_position,
    fifo_share,
    fill_ack,
    fill_loss,
    find_losses,
    look,
    lose_on_the_way,
    overflow_of,
    play,
    react,
    send,
    served_by_jitter,
    served_by_tokens,
    take_decision,
    unit,
)
from ccenv.network.adversary import FIRST_SERVICE, RATE, WASTE

_PROGRAM, _CLASSIC, _MLP, _EXTERNAL, _SHIELD = (
    SENDER_KINDS[kind] for kind in ("program", "classic", "mlp", "external", "shield")
)
_RECORDED, _SCRIPTED, _POLICY = (ADVERSARY_KINDS[kind] for kind in ("recorded", "scripted", "mlp"))


class Here(NamedTuple):
    """One environment: its rows in the arrays, and what stays the same during a call.

    Attributes:
        g_at, e_total_at: where the rings of G and of the total E start in env_ring.
        mask: length of a ring - 1.
        D: jitter bound of flow 0 in steps: in CCAC that of all flows.
        hoards: the network keeps spare tokens.
        loss_proves: a loss proves that its step was utilised.
    """

    b: int
    first_flow: int
    n_flows: int
    scratch: int
    inputs_at: int
    ring: int
    env_ring: int
    g_at: int
    e_total_at: int
    mask: int
    dt_s: float
    inv_dt: float
    mss_bytes: float
    D: int
    hoards: bool
    loss_proves: bool
    rto_min_steps: float


@kernel(inline="always")
def locate(a, run, ev, b, scratch):
    """Return what stays the same of environment b during a call."""
    N, H = run.n_flows, run.ring_length
    has_budget = False
    for i in range(N):
        has_budget = has_budget or a.flow[b * N + i].loss_budget > 0.0
    return Here(
        b, b * N, N, scratch, run.inputs_at + scratch * run.inputs_bytes,
        run.ring_at, run.env_ring_at, b * ENV_RINGS * H, b * ENV_RINGS * H + H, H - 1,
        ev.dt_s, 1.0 / ev.dt_s, ev.mss_bytes, ev.jitter_steps, run.hoards_tokens == 1 and ev.jitter_steps > 0,
        ev.has_red == 0 and not has_budget, run.rto_min_s / ev.dt_s,
    )  # fmt: skip


@kernel(inline="always")
def rings_of(here, i):
    return flow_rings(here.ring, (here.first_flow + i) * FLOW_RINGS * (here.mask + 1), here.mask)


@kernel(inline="always")
def move_network(a, run, ev, here, k, first_of_call):
    """Let the network's player choose its moves; those from outside hold for a whole call."""
    N = here.n_flows
    if ev.adversary_kind == _SCRIPTED:
        view = a.views[here.b]
        look(ev, view, k)
        for i in range(N):
            r = here.first_flow + i
            play(
                ev, a.flow[r], i, k, here.hoards, view, a.flow_moves[r],
                a.adversary_calls[ev.adversary_index, INIT], a.adversary_calls[ev.adversary_index, PLAY],
                run.adversary_states_at + r * run.adversary_states_bytes, run.view_at + here.b * run.view_bytes,
                run.move_at + r * run.move_bytes,
            )  # fmt: skip
    elif ev.adversary_kind == _POLICY:
        play_policy_far(run.play_policy_at, (
            ev, a.flow, a.flow_moves, here.first_flow, N, k - 1, a.adversary_weights, a.adversary_shapes, a.adversary_outputs,
            a.observations[here.scratch], a.mlp_scratch[here.scratch],
        ))  # fmt: skip
    elif ev.adversary_kind == _RECORDED:
        rows = a.recorded.shape[1]
        row = (k - 1) % rows if run.recorded_period == 1 else min(k - 1, rows - 1)
        take_moves(a.flow_moves, here.first_flow, N, a.recorded[here.b % a.recorded.shape[0]], row)
    elif first_of_call:
        take_moves(a.flow_moves, here.first_flow, N, a.moves, here.b)


@kernel(inline="always")
def take_moves(flow_moves, first_flow, N, moves, row):
    for i in range(N):
        move = flow_moves[first_flow + i]
        move.waste = moves[row, WASTE]
        move.rate = moves[row, RATE]
        move.service = moves[row, FIRST_SERVICE + i]
        move.loss = moves[row, FIRST_SERVICE + N + i]


@kernel(inline="always")
def set_link_rate(a, run, ev, here, k):
    """Set the link rate of the step: the path's, or in ``strong`` the network's choice."""
    while ev.next_rate_change < ev.n_rate_changes and a.rate_changes[here.b, ev.next_rate_change, CHANGE_STEP] < k:
        ev.link_rate_Bps = a.rate_changes[here.b, ev.next_rate_change, CHANGE_RATE]
        ev.next_rate_change += 1
    rate_Bps = ev.link_rate_Bps
    if run.varies_rate == 1:
        chosen = unit(a.flow_moves[here.first_flow].rate)
        rate_Bps = ev.link_rate_min_Bps + chosen * (ev.link_rate_max_Bps - ev.link_rate_min_Bps)
    ev.link_rate_now_Bps = rate_Bps


@kernel(inline="always")
def send_flows(a, run, ev, here, k):
    """Send; non-congestive loss and RED take their share on the way to the queue.

    Returns X, bytes that have arrived so far and were not lost before this step's overflow, and of these the bytes of this step.
    """
    early_drop = early_drop_share(ev) if ev.has_red == 1 else 0.0
    X = ev.enqueued_bytes
    tie_bytes = TIE * X
    arrived_bytes = 0.0
    for i in range(here.n_flows):
        fl = a.flow[here.first_flow + i]
        keep_flow_cursors(fl, rings_of(here, i), k)
        if k == fl.start_step + 1:
            start_flow(a, run, ev, fl, here, i, k)
        if fl.choice_due == 1:
            take_choice(fl)
        send(fl, k, here.dt_s, tie_bytes)
        kept_bytes = lose_on_the_way(fl, a.flow_moves[here.first_flow + i], early_drop)
        arrived_bytes += kept_bytes
        X += kept_bytes
        if run.recording == 1:
            log = a.flow_log[here.b, k, i]
            log.rate_Bps = fl.rate_Bps
            log.cwnd_bytes = min(fl.cwnd_bytes, fl.receive_window_bytes)
    return X, arrived_bytes


@kernel(inline="always")
def cca_of(a, fl):
    """Return the row of a flow's CCA, its own or the one inside its policy or its action; negative: none."""
    if fl.sender_kind == _MLP:
        return a.policies[fl.sender_index].inner
    return np.int64(NO_INNER) if fl.sender_kind in (_PROGRAM, _SHIELD) else fl.sender_index


@kernel(inline="always")
def begin_cca(a, run, ev, fl, cca, row, flow, k):
    """Begin a CCA in step k: its state is that of its template, and it sets window and rate.

    ``cca`` is its row, ``row`` the flow's in the batch, ``flow`` its number in the environment.
    """
    state = a.states[row]
    for word in range(a.state_words.shape[1]):
        a.state_words[row, word] = a.templates[cca, word]
    state.mss_bytes = ev.mss_bytes
    state.seed = ev.seed
    state.env = ev.env_key
    state.flow = flow
    call_1(a.sender_calls[cca, INIT], run.states_at + row * run.states_bytes)
    take_decision(ev, fl, state, flow, k)


@kernel(inline="always")
def start_flow(a, run, ev, fl, here, i, k):
    """Begin flow i in step k: beliefs, the state of its CCA, its first decision."""
    if run.compute_beliefs == 1 and a.settings[0].jitter_known == 0:
        begin_untold(fl, here.dt_s)
    reset_beliefs(fl, here.mss_bytes)
    fl.last_ack_step = k - 1
    cca = cca_of(a, fl)
    if cca >= 0 and fl.sender_kind != _EXTERNAL:  # those of an environment have begun when it was reset
        begin_cca(a, run, ev, fl, cca, here.first_flow + i, i, k)
    if fl.sender_kind == _MLP:
        start_flow_of(a.policies[fl.sender_index].action, fl, here.mss_bytes)
    decide(a, run, ev, fl, here, i, k - 1)


@kernel(inline="always")
def admit(a, run, ev, here, k, X):
    """Expire and admit tokens; return G."""
    G = admit_tokens(
        ev, here.env_ring, here.g_at, k, here.mask, here.D, here.hoards, ev.link_rate_now_Bps, X,
        unit(a.flow_moves[here.first_flow].waste),
    )  # fmt: skip
    if run.recording == 1:
        a.env_log[here.b, k].link_rate_Bps = ev.link_rate_now_Bps
        for j in range(max(k - here.D, 0), k + 1):  # later steps may still lower the newest D
            a.env_log[here.b, j].G = load(here.env_ring, at(here.g_at, j, here.mask))
    return G


@kernel(inline="always")
def drop_tail(a, ev, here, k, X, arrived_bytes, G):
    """Lose what is above G + buffer, split over the flows in proportion to what each brought in the step."""
    overflow = overflow_of(X, G, ev.buffer_bytes, arrived_bytes)
    ev.enqueued_bytes = X - overflow
    store(here.env_ring, at(here.e_total_at, k, here.mask), ev.enqueued_bytes)
    for i in range(here.n_flows):
        fl = a.flow[here.first_flow + i]
        rings = rings_of(here, i)
        E = fl.E + fl.kept_bytes
        if overflow > 0.0:
            share = overflow if here.n_flows == 1 else overflow * (fl.kept_bytes / arrived_bytes)
            fl.L += share
            E = E - share
        fl.E = E
        store(rings.ring, at(rings.e_at, k, rings.mask), E)
        store(rings.ring, at(rings.l_at, k, rings.mask), fl.L)


@kernel(inline="always")
def serve(a, run, ev, here, k, G):
    """Depart first in, first out; deliver within the legal band, at the place that the network chose."""
    if here.hoards:
        service = unit(a.flow_moves[here.first_flow].service)
        departed = served_by_tokens(ev, here.env_ring, here.g_at, k, here.mask, here.D, service)
    else:
        departed = min(G, ev.enqueued_bytes)
    fraction = 1.0
    if here.n_flows > 1:
        fraction = fifo_position(ev, here.env_ring, here.e_total_at, k, here.mask, departed)
    total = 0.0
    for i in range(here.n_flows):
        fl = a.flow[here.first_flow + i]
        rings = rings_of(here, i)
        left = departed if here.n_flows == 1 else fifo_share(fl, rings, ev.fifo_step, fraction)
        fl.P = left
        if here.hoards:
            fl.S = left
        else:
            d = fl.jitter_steps if run.has_jitter == 1 else 0
            fl.S = served_by_jitter(fl, rings, k, d, left, unit(a.flow_moves[here.first_flow + i].service))
        total += fl.S
        store_served(rings, k, fl.S)
        if run.recording == 1:
            log = a.flow_log[here.b, k, i]
            log.A = fl.A
            log.L = fl.L
            log.L_free = fl.L_free
            log.S = fl.S
    ev.served_bytes = departed if here.hoards else total


@kernel(inline="always")
def give_feedback(a, run, ev, fl, here, i, k):
    """Tell flow i what the network did one Rm ago: acknowledgements, losses, beliefs; a classic CCA reacts."""
    rings = rings_of(here, i)
    tie_bytes = TIE * ev.enqueued_bytes
    n = k - fl.lag_steps + run.early_feedback
    if fl.hold_window_steps > 0:  # in order, also when the hold becomes longer
        n = max(n, fl.heard_step)
        fl.heard_step = n
    newly, lost, newest_loss, by_rto = 0.0, 0.0, np.int64(-1), False
    if n >= 1:
        newly = acknowledge(ev, fl, i, rings, n, k, here.dt_s, tie_bytes)
        if newly > 0.0 and fl.hold_window_steps > 0:
            adjust_hold(fl, k)
        if newly > 0.0 and run.monitoring == 1:
            count_ack(a.monitors[here.first_flow + i], fl, newly, here.mss_bytes, k)
        lost, newest_loss, by_rto = find_losses(fl, rings, n, k, run.oracle_loss == 1, here.rto_min_steps, here.mss_bytes)
        fl.lost_since_decision_bytes += lost
        if run.compute_beliefs == 1 and n > fl.start_step:
            update_beliefs(
                fl, rings, n, here.dt_s, here.inv_dt, here.mss_bytes, tie_bytes, here.loss_proves, a.settings[0],
                run.reciprocals_at,
            )  # fmt: skip
    inflight = max(0.0, fl.A - fl.acked_bytes - fl.found_lost_bytes)
    update_queue_bound(fl, fl.sent_bytes, inflight, here.dt_s)
    which = cca_of(a, fl)
    if which >= 0:
        b, row = here.b, here.first_flow + i
        if newly > 0.0:
            fill_ack(a.acks[b], fl, rings, n, k, run.early_feedback, here.dt_s, here.mss_bytes, newly, inflight)
        if lost > 0.0:
            fill_loss(a.losses[b], fl, k, here.dt_s, here.mss_bytes, lost, newest_loss, by_rto, inflight)
        react(
            ev, fl, a.states[row], a.ticks[b], i, k, newly, lost, inflight,
            a.sender_calls[which, ON_ACK], a.sender_calls[which, ON_LOSS], a.sender_calls[which, ON_TICK],
            run.states_at + row * run.states_bytes,
            (run.ack_at + b * run.ack_bytes, run.loss_at + b * run.loss_bytes, run.tick_at + b * run.tick_bytes),
        )  # fmt: skip
    if run.recording == 1:
        log = a.flow_log[here.b, k, i]
        log.C_L = fl.C_L_Bps
        log.C_U = fl.C_U_Bps
        log.C_L_lambda = fl.C_L_lambda_Bps
        log.q_U = fl.q_U_bytes
        log.qdel_L = fl.qdel_L_s
        log.qdel_U = fl.qdel_U_s
        log.rtt_s = fl.rtt_now_steps * here.dt_s


@kernel(inline="always")
def decide(a, run, ev, fl, here, i, k):
    """Let flow i's program or policy choose the rate of the next interval; for other senders only count intervals."""
    if fl.sender_kind == _PROGRAM:
        start_row, main_row = a.first_rows[fl.sender_index, START_ROW], a.first_rows[fl.sender_index, MAIN_ROW]
        decide_by_program(ev, fl, i, k, start_row, main_row, run.nodes_at, here.inputs_at)
    elif fl.sender_kind == _MLP:
        row, policy = here.first_flow + i, a.policies[fl.sender_index]
        if policy.beliefs_only == 1:
            fl.rate_Bps = choose_rate_far(run.choose_rate_at, (
                ev, fl, k, policy, a.policy_weights, a.policy_memory[row], a.observations[here.scratch],
                a.policy_scratch[here.scratch],
            ))  # fmt: skip
        elif decide_by_policy_far(run.decide_by_policy_at, (
            ev, fl, k, policy, a.policy_weights, a.policy_memory[row], a.monitors[row], a.measures[here.scratch],
            a.signals[here.scratch], a.policy_scratch[here.scratch], here.rto_min_steps,
        )) and policy.inner >= 0:  # fmt: skip
            a.states[row].cwnd_bytes = fl.cwnd_bytes
            a.states[row].pacing_rate_Bps = fl.rate_Bps
    elif fl.sender_kind == _SHIELD:
        fl.rate_Bps = choose_inside_far(run.choose_inside_at, (
            ev, fl, ev.seed, ev.env_key, i, k, a.first_rows[fl.sender_index, MAIN_ROW], run.nodes_at, here.inputs_at,
            a.policies[fl.chooser_index], a.policy_weights, a.policy_memory[here.first_flow + i],
            a.observations[here.scratch], a.policy_scratch[here.scratch],
        ))  # fmt: skip
    else:
        close_interval(fl, k)


class KernelArrays(NamedTuple):
    """The arrays of a batch of B environments with N flows.

    Attributes:
        run: (1,) RUN_DTYPE, what holds for all of the batch.
        env: (B,) ENV_DTYPE.
        flow: (B N,) FLOW_DTYPE.
        rate_changes: (B, changes, 2) step after which a link rate holds, and the rate.
        states, state_words: (B N,) states of the classic CCAs, as records and as (B N, STATE_SLOTS) words.
        templates: (n, STATE_SLOTS) their initial states, by sender_index.
        sender_calls: (n, 4) addresses of their init, on_ack, on_loss, on_tick.
        acks, losses, ticks: (B,) scratch for their signals.
        views: (B,) what scripted adversaries see.
        flow_moves: (B N,) MOVE, moves in force.
        adversary_calls: (n, 2) addresses of init and play of the scripted adversaries.
        moves: (B, 2 + 2 N) moves from outside.
        recorded: (1 or B, steps, 2 + 2 N) moves of recorded adversaries.
        first_rows: (n, 2) rows of belief programs, by sender_index.
        observations: (B, ...) scratch for what policies see.
        policies, policy_weights: policies of senders (``pack_policies``).
        policy_memory: (B N, words) what flows with a policy remember.
        policy_scratch: (B, ...) scratch of their networks.
        monitors: (B N,) MONITOR_DTYPE.
        measures, signals: (B,) scratch of a decision.
        mlp_scratch: (B, 2, width) scratch of the network's policies.
        adversary_weights, adversary_shapes, adversary_outputs: policies of the network, and what their outputs are.
        settings: (1,) SETTINGS_DTYPE of the beliefs.
        flow_log: (B, rows, N) log of the flows.
        env_log: (B, rows) log of the environments.
    """

    run: np.ndarray
    env: np.ndarray
    flow: np.ndarray
    rate_changes: np.ndarray
    states: np.ndarray
    state_words: np.ndarray
    templates: np.ndarray
    sender_calls: np.ndarray
    acks: np.ndarray
    losses: np.ndarray
    ticks: np.ndarray
    views: np.ndarray
    flow_moves: np.ndarray
    adversary_calls: np.ndarray
    moves: np.ndarray
    recorded: np.ndarray
    first_rows: np.ndarray
    observations: np.ndarray
    policies: np.ndarray
    policy_weights: np.ndarray
    policy_memory: np.ndarray
    policy_scratch: np.ndarray
    monitors: np.ndarray
    measures: np.ndarray
    signals: np.ndarray
    mlp_scratch: np.ndarray
    adversary_weights: np.ndarray
    adversary_shapes: np.ndarray
    adversary_outputs: np.ndarray
    settings: np.ndarray
    flow_log: np.ndarray
    env_log: np.ndarray


@kernel(nogil=True)
def advance_range(first, last, arrays):
    """Advance environments first .. last - 1 by run.n_steps."""
    a = unowned(arrays)
    run = a.run[0]
    for b in range(first, last):
        ev = a.env[b]
        here = locate(a, run, ev, b, first)
        for step in range(run.n_steps):
            k = ev.step + 1
            keep_env_cursors(ev, k, here.mask)
            move_network(a, run, ev, here, k, step == 0)
            set_link_rate(a, run, ev, here, k)
            X, arrived_bytes = send_flows(a, run, ev, here, k)
            G = admit(a, run, ev, here, k, X)
            drop_tail(a, ev, here, k, X, arrived_bytes, G)
            serve(a, run, ev, here, k, G)
            for i in range(here.n_flows):
                fl = a.flow[here.first_flow + i]
                if k > fl.start_step:
                    give_feedback(a, run, ev, fl, here, i, k)
                    if k >= fl.decision_step:
                        decide(a, run, ev, fl, here, i, k)
            ev.step = k
