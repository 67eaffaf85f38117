"""Belief programs and policies per packet: ``ccenv.engine.compiled.beliefs`` on a grid of STEPS_PER_RTT steps per Rm of the flow.

At each step the curves are read off the packets: A is what was sent, L what the network has lost (known one Rm later, as in
the curve engine), S(t) the transmissions acknowledged by t + Rm. A whole packet arrives when its last byte does, at most
MSS/C later than its bytes would. Without jitter, one step of D covers that where an Rm carries at least STEPS_PER_RTT packets;
with jitter D stays what it is, and the bounds hold up to one packet per window. D holds all that may delay feedback: the jitter
box, the receiver's ACK policy, ACKs collected on their way. The first packet of a flow finds none of its own in the path: where
its RTT exceeds Rm + D, the Rm that the flow was told is refuted. The true one is that RTT less at most D, so the flow goes by
that RTT less D, and D counts twice, from then on. Decisions are those of ``ccenv.engine.curve.decision``, once per Rm.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import carray
from numba.core.errors import NumbaExperimentalFeatureWarning

from ccenv.agents.callbacks import make_record, state_record
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.sender import ClassicSender, PolicySender, ProgramSender, ShieldSender
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.beliefs import (
    BeliefSettings,
    at,
    flow_rings,
    keep_flow_cursors,
    reciprocal_table,
    reset_beliefs,
    settings_record,
    store_served,
    update_beliefs,
    update_queue_bound,
)
from ccenv.engine.compiled.calls import load, pointer_at, store
from ccenv.engine.compiled.policies import MAX_WIDTH, POLICY_DTYPE, SCRATCH_ROWS, has_belief_interface, pack_policies
from ccenv.engine.curve.decision import choose_inside, choose_rate, run_program
from ccenv.engine.curve.layout import FLOW_DTYPE as CURVE_FLOW_DTYPE
from ccenv.engine.curve.players import chooser_of, stack_senders

# BELIEFS_DTYPE begins with the curve engine's fields on purpose: a kernel compiled for those serves both.
warnings.filterwarnings("ignore", message=".*considered a subtype of Record", category=NumbaExperimentalFeatureWarning)

STEPS_PER_RTT = 8
PACKET_STEPS = 1  # of jitter at least, for a packet's own time on the link
ROUNDING = 1e-9  # steps: times that are whole steps up to rounding are
MAX_SHORTFALL_RTTS = 8  # a told Rm that is too short by more stays too short
HISTORY_RTTS = 24  # of the rings: belief windows and the queueing delay over which L_free and S can be apart

# Beliefs, their settings, and what the grid needs besides.
BELIEFS_DTYPE = np.dtype(
    CURVE_FLOW_DTYPE.descr
    + settings_record(BeliefSettings()).dtype.descr
    + make_record(
        """
        f8 mss_bytes dt_s start_s
        f8 path_rtt_s  # without what a proxy adds
        i8 rounding_steps  # of a delay in whole steps that D has no room for
        f8 shortfall_s  # what it was shown to be too short by
        i8 step mask ring_at reciprocals_at loss_proves
        # of programs
        i8 nodes_at inputs_at start_row main_row
        # of shields: what keys their random choices
        f8 seed
        # of policies
        i8 weights_at n_weights policy_at memory_at memory_words observation_at scratch_at
        """
    ).descr
)


def hold_rate(state: Any) -> None:
    """Start with one segment; the grid, whose first step follows at once, sets the rate and opens the window."""
    state.cwnd_bytes = 1.0
    state.pacing_rate_Bps = np.inf


def ignore(state: Any, signal: Any) -> None:
    """Do nothing: programs and policies act on their grid."""


RATE_HOLDER = ClassicSender("rate holder", state_record("unused"), hold_rate, ignore, ignore, ignore)


@kernel
def rtt_shortfall_steps(delay_steps, jitter_steps):
    """Return by what a told Rm is too short at least, given the first delay beyond it; 0 where D explains that delay."""
    if delay_steps <= jitter_steps + ROUNDING:
        return 0.0
    return min(delay_steps - jitter_steps, float(MAX_SHORTFALL_RTTS * STEPS_PER_RTT))


@kernel
def take_step(beliefs, flow):
    """Advance a flow's curves and beliefs by one step of its grid; return the step."""
    if beliefs.step < 0:
        reset_beliefs(beliefs, beliefs.mss_bytes)
        beliefs.rate_Bps = beliefs.C_L_Bps
    beliefs.step += 1
    k = beliefs.step
    rings = flow_rings(beliefs.ring_at, 0, beliefs.mask)
    ring, mask = rings.ring, rings.mask
    lost_bytes = flow.dropped_bytes + flow.random_lost_bytes
    beliefs.sent_bytes = flow.sent_bytes - beliefs.A
    beliefs.A = flow.sent_bytes
    beliefs.acked_bytes = flow.acked_count * beliefs.mss_bytes
    keep_flow_cursors(beliefs, rings, k)
    store(ring, at(rings.e_at, k, mask), flow.sent_bytes - lost_bytes)
    store(ring, at(rings.l_at, k, mask), lost_bytes)
    # What a proxy holds ACKs for beyond (or below) the Rm that the sender goes by: known, as in the curve engine.
    shift_s = beliefs.path_rtt_s + beliefs.shortfall_s + flow.hold_s - beliefs.rtt_s
    n = k - beliefs.rtt_steps - np.int64(math.ceil(shift_s / beliefs.dt_s - ROUNDING))
    if n > beliefs.heard_step:
        served = beliefs.acked_bytes
        first = beliefs.heard_step + 1
        before = load(ring, at(rings.s_at, first - 1, mask))
        for x in range(first, n + 1):  # more than one where a hold has become shorter
            value = served if x == n else before + (served - before) * (x - first + 1) / (n - first + 1)
            store_served(rings, x, value)
        beliefs.heard_step = n
        if served > before:  # else the newest byte is that of an earlier step, and so is its delay
            p = beliefs.ack_sent_step
            while p < n and load(ring, at(rings.e_at, p, mask)) < served:
                p += 1
            beliefs.ack_sent_step = p
            beliefs.delay_floor_steps = max(0, n - p - beliefs.rounding_steps)
        seen_steps = (flow.rtt_s - shift_s) / beliefs.dt_s + (beliefs.lag_steps - beliefs.rtt_steps)
        beliefs.rtt_now_steps = max(float(beliefs.lag_steps), seen_steps)
        if not np.isfinite(beliefs.rtt_min_steps) and np.isfinite(flow.min_rtt_s):
            beliefs.shortfall_s = (
                rtt_shortfall_steps(seen_steps - beliefs.lag_steps, beliefs.jitter_steps + beliefs.rounding_steps) * beliefs.dt_s
            )
            if beliefs.shortfall_s > 0.0:  # the true Rm lies between this one and D more; what a wrong one proved is void
                beliefs.jitter_steps *= 2
                beliefs.jitter_s = beliefs.jitter_steps * beliefs.dt_s
                reset_beliefs(beliefs, beliefs.mss_bytes)
                beliefs.q_U_bytes = np.inf  # all that is in flight
                beliefs.timeout_step = n
                beliefs.judged_step = n
        beliefs.rtt_min_steps = flow.min_rtt_s / beliefs.dt_s
        learnt_lost_bytes = load(ring, at(rings.l_at, n, mask))
        beliefs.lost_since_decision_bytes += learnt_lost_bytes - beliefs.found_lost_bytes
        beliefs.found_lost_bytes = learnt_lost_bytes
        update_beliefs(
            beliefs, rings, n, beliefs.dt_s, 1.0 / beliefs.dt_s, beliefs.mss_bytes, beliefs.mss_bytes, beliefs.loss_proves == 1,
            beliefs, beliefs.reciprocals_at,
        )  # fmt: skip
    update_queue_bound(beliefs, beliefs.sent_bytes, flow.inflight_bytes, beliefs.dt_s)
    return k


def step_program(grid: Any, beliefs: Any, flow: Any) -> None:
    """Take a step; at a decision instant let the flow's belief program choose the rate."""
    k = take_step(beliefs, flow)
    if k >= beliefs.decision_step:
        beliefs.rate_Bps = run_program(
            beliefs, beliefs, k, beliefs.start_row, beliefs.main_row, beliefs.nodes_at, beliefs.inputs_at
        )
    grid.rate_Bps = beliefs.rate_Bps
    grid.next_s = beliefs.start_s + (k + 1) * beliefs.dt_s


def step_policy(grid: Any, beliefs: Any, flow: Any) -> None:
    """Take a step; at a decision instant let the flow's policy choose the rate."""
    k = take_step(beliefs, flow)
    if k >= beliefs.decision_step:
        beliefs.rate_Bps = choose_rate(
            beliefs,
            beliefs,
            k,
            carray(pointer_at(beliefs.policy_at), 1, POLICY_DTYPE)[0],
            carray(pointer_at(beliefs.weights_at), beliefs.n_weights, np.float64),
            carray(pointer_at(beliefs.memory_at), beliefs.memory_words, np.float64),
            carray(pointer_at(beliefs.observation_at), N_OBSERVATION, np.float64),
            carray(pointer_at(beliefs.scratch_at), (SCRATCH_ROWS, MAX_WIDTH), np.float64),
        )
    grid.rate_Bps = beliefs.rate_Bps
    grid.next_s = beliefs.start_s + (k + 1) * beliefs.dt_s


def step_shield(grid: Any, beliefs: Any, flow: Any) -> None:
    """Take a step; at a decision instant let the chooser of the flow's shield choose the rate."""
    k = take_step(beliefs, flow)
    if k >= beliefs.decision_step:
        beliefs.rate_Bps = choose_inside(
            beliefs,
            beliefs,
            beliefs.seed,
            0.0,
            float(flow.index),
            k,
            beliefs.main_row,
            beliefs.nodes_at,
            beliefs.inputs_at,
            carray(pointer_at(beliefs.policy_at), 1, POLICY_DTYPE)[0],
            carray(pointer_at(beliefs.weights_at), beliefs.n_weights, np.float64),
            carray(pointer_at(beliefs.memory_at), beliefs.memory_words, np.float64),
            carray(pointer_at(beliefs.observation_at), N_OBSERVATION, np.float64),
            carray(pointer_at(beliefs.scratch_at), (SCRATCH_ROWS, MAX_WIDTH), np.float64),
        )
    grid.rate_Bps = beliefs.rate_Bps
    grid.next_s = beliefs.start_s + (k + 1) * beliefs.dt_s


def step_watch(grid: Any, beliefs: Any, flow: Any) -> None:
    """Take a step; what the flow does is decided elsewhere."""
    k = take_step(beliefs, flow)
    grid.next_s = beliefs.start_s + (k + 1) * beliefs.dt_s


# what decides -> how a grid of it steps
STEPS = {ProgramSender: step_program, PolicySender: step_policy, ShieldSender: step_shield}


def belief_templates(senders: Sequence[Any], keep: list[np.ndarray]) -> np.ndarray:
    """Return what the beliefs of each sender's flows begin with: BELIEFS_DTYPE records, (max(1, n),).

    Senders are without their proxies; those without a belief program or policy get what watching needs. ``keep`` takes the arrays
    that the records point into.
    """
    templates = np.zeros(max(1, len(senders)), BELIEFS_DTYPE)

    def at(array: np.ndarray) -> int:
        keep.append(array)
        return int(array.ctypes.data)

    settings = settings_record(BeliefSettings())
    for name in settings.dtype.names or ():
        templates[name] = settings[name]
    templates["reciprocals_at"] = at(reciprocal_table())
    templates["probe_window_steps"] = STEPS_PER_RTT
    for template, sender in zip(templates, senders, strict=False):
        policy = sender.policy if isinstance(sender, ShieldSender) else sender
        if isinstance(sender, (ProgramSender, ShieldSender)):
            nodes, rows = stack_senders([sender])
            template["nodes_at"], (template["start_row"], template["main_row"]) = at(nodes), rows[0]
            template["probe_window_steps"] = sender.program.probe_window_rtts * STEPS_PER_RTT
        if isinstance(sender, ShieldSender):
            template["chooser"], template["chooser_index"], template["position"] = chooser_of(sender, 0)
            template["policy_at"] = at(np.zeros(1, POLICY_DTYPE))
        if isinstance(policy, PolicySender) and has_belief_interface(policy):
            weights, policies = pack_policies([policy])
            template["weights_at"], template["n_weights"], template["policy_at"] = at(weights), len(weights), at(policies)
            template["memory_words"] = policies["memory_words"][0]
    return templates


@kernel
def sender_rtt_s(fl):
    """Return the Rm that a flow's sender goes by, behind a proxy that of the proxy (``HeldSender.rtt_s``)."""
    if fl.hold_window_s > 0.0:
        return max(fl.hold_target_s, fl.path_rtt_s)
    return fl.hold_s + fl.path_rtt_s if fl.hold_s > 0.0 else fl.told_rtt_s


@kernel
def begin_beliefs(beliefs, fl, mss_bytes, loss_proves):
    """Set up the beliefs of a flow, a copy of a template, before the flow begins; return how many steps their rings hold."""
    rtt_s = sender_rtt_s(fl)
    dt_s = rtt_s / STEPS_PER_RTT
    wait_s = fl.ack_timeout_s if fl.ack_every > 1 else 0.0
    jitter_s = fl.jitter_s + fl.late_s + (wait_s + fl.ack_aggregate_s)
    whole_steps = math.ceil(jitter_s / dt_s - ROUNDING)
    jitter_steps = max(PACKET_STEPS, whole_steps)
    # From delivery to feedback: at first a proxy may hold ACKs for longer than the Rm that the sender goes by.
    held_s = fl.told_rtt_s + fl.hold_s - rtt_s
    lag_steps = STEPS_PER_RTT + max(0, math.ceil(held_s / dt_s - ROUNDING))
    beliefs.rtt_steps = STEPS_PER_RTT
    beliefs.lag_steps = lag_steps
    beliefs.jitter_steps = jitter_steps
    beliefs.rounding_steps = whole_steps + PACKET_STEPS - jitter_steps
    beliefs.path_rtt_s = fl.told_rtt_s
    beliefs.rtt_known = fl.rtt_known
    beliefs.rtt_s = rtt_s
    beliefs.jitter_s = jitter_steps * dt_s
    beliefs.dt_s = dt_s
    beliefs.mss_bytes = mss_bytes
    beliefs.start_s = fl.start_s
    beliefs.rtt_min_steps = np.inf
    beliefs.rtt_now_steps = STEPS_PER_RTT
    beliefs.step = -1
    beliefs.loss_proves = loss_proves
    steps = (HISTORY_RTTS + MAX_SHORTFALL_RTTS) * STEPS_PER_RTT + 2 * beliefs.probe_window_steps + lag_steps + 2 * jitter_steps
    length = 8
    while length < steps:
        length *= 2
    beliefs.mask = length - 1
    return length
