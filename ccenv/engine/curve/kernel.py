"""The curve engine's kernel, compiled. A step is the list of docs/curve-engine.md; the laws are in docs/traces.md.

Environments are outer, steps inner: a call advances each environment by n steps. Letters follow [CCmatic] Table 1:
A sent, L lost, E = A - L enqueued, G tokens admitted, P departed, S delivered; k is the newest step.
The plain reference is ``tests/oracles/curve.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccenv.engine.compiled.calls import unowned
from ccenv.engine.compiled.rings import keep_env_cursors
from ccenv.engine.curve.step import (
    admit,
    decide,
    drop_tail,
    give_feedback,
    locate,
    move_network,
    send_flows,
    serve,
    set_link_rate,
)
from ccenv.base.kernels.decorator import kernel


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
