"""Decision instants: programs and policies choose the rate of the next interval, or the network's next moves. Compiled."""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from ccenv.adversaries.observation import fill_network_observation
from ccenv.agents.callbacks import MOVE
from ccenv.agents.interface.actions import START_DOUBLES, STARTING
from ccenv.agents.interface.interface import fill_observation
from ccenv.agents.interface.signals import MEASURES, UNKNOWN_RTT_S
from ccenv.agents.programs import INPUT_INDEX
from ccenv.agents.sender import LARGE_LOSS_SEGMENTS
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.calls import call_far, store
from ccenv.engine.compiled.policies import CLOCKS, POLICY_DTYPE, act, act_on_beliefs, mlp_level, mlp_outputs
from ccenv.engine.compiled.program import evaluate_at, interval_at, rate_in
from ccenv.engine.curve.layout import (
    ADVERSARY_KINDS,
    CHOOSER_CODES,
    ENV_DTYPE,
    FLOW_DTYPE,
    MLP_EPISODE,
    MLP_FIRST_COLUMN,
    MLP_LEVELS,
    MLP_MOVES,
    MLP_STEPS,
    SENDER_KINDS,
)
from ccenv.engine.curve.monitor import MONITOR_DTYPE, fill_measures, obey
from ccenv.engine.curve.transport import ERROR_SENDER, fail
from ccenv.network.adversary import FIRST_SERVICE, RATE, WASTE

_SRTT, _RTT, _SECONDS, _ACKS, _MIN_RTT = CLOCKS.values()
_HEARD = 1.0 - 1e-12  # of the bytes that a clock of ACKs waits for: all but round-off

_RANDOM, _POLICY, _EXTERNAL = (CHOOSER_CODES[kind] for kind in ("random", "policy", "external"))
CHOICE_KEY = 1_000_000.0  # added to the flow: random choices are none of the network's random numbers

_C_L, _C_U, _C_L_LAMBDA = INPUT_INDEX["C_L"], INPUT_INDEX["C_U"], INPUT_INDEX["C_L_lambda"]
_MSS_PER_RM, _RATE, _Q_U_PER_RM = INPUT_INDEX["MSS/Rm"], INPUT_INDEX["rate"], INPUT_INDEX["q_U/Rm"]
_QDEL_L, _QDEL_U, _RM = INPUT_INDEX["qdel_L"], INPUT_INDEX["qdel_U"], INPUT_INDEX["Rm"]
_Q_U, _MSS = INPUT_INDEX["q_U"], INPUT_INDEX["MSS"]
_UTILISED, _LOSS = INPUT_INDEX["utilised"], INPUT_INDEX["loss"]


@kernel
def fill_inputs(ev, fl, inputs_at):
    """Write what a belief program may read, in the order of ``ccenv.agents.programs.INPUTS``, to an array by address."""
    store(inputs_at, _C_L, fl.C_L_Bps)
    store(inputs_at, _C_U, fl.C_U_Bps)
    store(inputs_at, _C_L_LAMBDA, fl.C_L_lambda_Bps)
    store(inputs_at, _MSS_PER_RM, ev.mss_bytes / fl.rtt_s)
    store(inputs_at, _RATE, fl.rate_Bps)
    store(inputs_at, _Q_U_PER_RM, fl.q_U_bytes / fl.rtt_s)
    store(inputs_at, _QDEL_L, fl.qdel_L_s)
    store(inputs_at, _QDEL_U, fl.qdel_U_s)
    store(inputs_at, _RM, fl.rtt_s)
    store(inputs_at, _Q_U, fl.q_U_bytes)
    store(inputs_at, _MSS, ev.mss_bytes)
    store(inputs_at, _UTILISED, float(fl.utilised))
    store(inputs_at, _LOSS, 1.0 if fl.lost_last_interval_bytes > 0.0 else 0.0)


@kernel
def close_interval(fl, k):
    """Close the counts of the interval that ends at step k; the next decision comes one Rm later."""
    fl.lost_last_interval_bytes = fl.lost_since_decision_bytes
    fl.lost_since_decision_bytes = 0.0
    fl.sent_last_interval_bytes = fl.A - fl.sent_at_decision_bytes
    fl.sent_at_decision_bytes = fl.A
    fl.decision_step = k + fl.rtt_steps


@kernel
def run_program(ev, fl, k, start_row, main_row, nodes_at, inputs_at):
    """Return the rate that a belief program chooses at step k; it may hold it for several intervals.

    Until the first large loss the program at start_row decides, then that at main_row; they are the same for most senders.
    """
    close_interval(fl, k)
    if fl.lost_last_interval_bytes > LARGE_LOSS_SEGMENTS * ev.mss_bytes:
        fl.program_stage = 1
    fill_inputs(ev, fl, inputs_at)
    rate, hold = evaluate_at(nodes_at, start_row if fl.program_stage == 0 else main_row, inputs_at)
    fl.decision_step = k + np.int64(hold) * fl.rtt_steps
    return rate


@kernel
def decide_by_program(ev, fl, flow, k, start_row, main_row, nodes_at, inputs_at):
    """Let a belief program choose the rate of the next interval."""
    rate = run_program(ev, fl, k, start_row, main_row, nodes_at, inputs_at)
    if not rate > 0.0:
        fail(ev, ERROR_SENDER, flow, k)
        rate = ev.mss_bytes / fl.rtt_s
    fl.rate_Bps = rate


@kernel
def choose_inside(ev, fl, seed, env_key, flow, k, row, nodes_at, inputs_at, policy, weights, memory, observation, scratch):
    """Return the rate that a shield's chooser takes at step k; an external one takes it when the next step begins."""
    close_interval(fl, k)
    if fl.chooser == _POLICY:
        fill_observation(ev, fl, observation)
        fl.position = 0.5 * (act_on_beliefs(policy, weights, observation, memory, scratch) + 1.0)
    elif fl.chooser == _RANDOM:
        fl.position = uniform(seed, env_key, CHOICE_KEY + flow, k)
    fill_inputs(ev, fl, inputs_at)
    fl.lo_Bps, fl.hi_Bps, hold = interval_at(nodes_at, row, inputs_at)
    fl.decision_step = k + np.int64(hold) * fl.rtt_steps
    if fl.chooser == _EXTERNAL:
        fl.choice_due = 1
        return fl.rate_Bps
    return rate_in(fl.lo_Bps, fl.hi_Bps, fl.position)


@kernel
def take_choice(fl):
    """Take the rate at the position that an external chooser has set since the newest decision instant."""
    fl.rate_Bps = rate_in(fl.lo_Bps, fl.hi_Bps, fl.position)
    fl.choice_due = 0


@kernel
def choose_rate(ev, fl, k, policy, weights, memory, observation, scratch):
    """Return the rate that a policy with the belief interface chooses at step k for the next interval."""
    close_interval(fl, k)
    fill_observation(ev, fl, observation)
    a = act_on_beliefs(policy, weights, observation, memory, scratch)
    return max(ev.mss_bytes / fl.rtt_s, fl.C_L_Bps * 2.0 ** (policy.first * a))


@kernel
def decide_by_policy(ev, fl, k, policy, weights, memory, monitor, m, signals, scratch, rto_min_steps):
    """Let a policy with a monitor set rate and window at step k; return whether it decided.

    A clock of ACKs is looked at in every step, and waits for them for an RTO (RFC 6298) at most.
    """
    waits = fl.acked_bytes < _HEARD * monitor.due_bytes and k < monitor.deadline_step
    if policy.clock == _ACKS and monitor.decisions > 0 and waits:
        fl.decision_step = k + 1
        return False
    close_interval(fl, k)
    fill_measures(ev, fl, monitor, k, m)
    obey(fl, monitor, policy.action, policy.first, policy.second, act(policy, weights, m, memory, signals, scratch), m)
    if policy.clock == _ACKS:
        monitor.due_bytes = fl.acked_bytes + policy.count * ev.mss_bytes
        monitor.deadline_step = k + np.int64(max(rto_min_steps, fl.srtt_steps + 4.0 * fl.rttvar_steps))
        fl.decision_step = k + 1
        return True
    unit = 1.0 / ev.dt_s
    if policy.clock == _RTT or (policy.clock == _SRTT and fl.srtt_steps == 0.0):
        unit = float(fl.rtt_steps)
    elif policy.clock == _SRTT:
        unit = fl.srtt_steps
    elif policy.clock == _MIN_RTT:
        unit = fl.rtt_min_steps if np.isfinite(fl.rtt_min_steps) else UNKNOWN_RTT_S / ev.dt_s
    wait = policy.count * unit
    if np.isfinite(fl.rtt_min_steps):
        wait = max(wait, policy.least_rtts * fl.rtt_min_steps)
    if policy.action in START_DOUBLES and monitor.starting == STARTING:
        wait = fl.srtt_steps if fl.srtt_steps > 0.0 else float(fl.rtt_steps)
    fl.decision_step = k + max(1, np.int64(wait + 0.5))
    return True


@kernel
def play_policy(ev, flow, moves, first_row, n_flows, step, weights, shapes, outputs, observation, scratch):
    """Let a policy choose the network's moves at its decision instants; in between they stay.

    ``flow`` and ``moves`` are those of the whole batch, ``outputs`` rows of ``AdversaryTable.mlp_moves``.
    """
    which = ev.adversary_index
    per_rtt = flow[first_row].rtt_steps
    for i in range(1, n_flows):
        per_rtt = min(per_rtt, flow[first_row + i].rtt_steps)
    every = outputs[which, MLP_STEPS] if outputs[which, MLP_STEPS] > 0 else per_rtt
    if step % every != 0:
        return
    share_over = min(1.0, step / (outputs[which, MLP_EPISODE] * per_rtt))
    fill_network_observation(ev, flow, first_row, n_flows, share_over, observation)
    row = mlp_outputs(weights, shapes, which, observation, scratch)
    for i in range(n_flows):
        move = moves[first_row + i]
        move.waste = 1.0
        move.rate = 1.0
        move.service = 1.0
        move.loss = 0.0
    for j in range(outputs[which, MLP_MOVES]):
        column = outputs[which, MLP_FIRST_COLUMN + j]
        if outputs[which, MLP_LEVELS] == 0:
            value = min(1.0, max(0.0, scratch[row, j]))
        else:
            value = mlp_level(scratch[row], j, outputs[which, MLP_LEVELS])
        if column == WASTE:
            moves[first_row].waste = value
        elif column == RATE:
            moves[first_row].rate = value
        elif column < FIRST_SERVICE + n_flows:
            moves[first_row + column - FIRST_SERVICE].service = value
        else:
            moves[first_row + column - FIRST_SERVICE - n_flows].loss = value


_record = numba.from_dtype
_WORDS, _ROWS = (types.Array(types.float64, dimensions, "C") for dimensions in (1, 2))
_FLOWS, _MOVES = (types.Array(_record(dtype), 1, "C", aligned=False) for dtype in (FLOW_DTYPE, MOVE))
_STEP, _POLICY_RECORD = types.int64, _record(POLICY_DTYPE)
_WHOSE = (_record(ENV_DTYPE), _record(FLOW_DTYPE))
_OF_POLICY = (_POLICY_RECORD, _WORDS, _WORDS)
# What few batches need, by the field of RUN_DTYPE that holds its address (0: not needed), with its signature.
FAR = {
    "choose_rate_at": (choose_rate, types.float64(*_WHOSE, _STEP, *_OF_POLICY, _WORDS, _ROWS)),
    "decide_by_policy_at": (
        decide_by_policy,
        types.boolean(*_WHOSE, _STEP, *_OF_POLICY, _record(MONITOR_DTYPE), _record(MEASURES), _WORDS, _ROWS, types.float64),
    ),
    "choose_inside_at": (
        choose_inside,
        types.float64(*_WHOSE, types.float64, types.float64, *[types.int64] * 5, *_OF_POLICY, _WORDS, _ROWS),
    ),
    "play_policy_at": (
        play_policy,
        types.none(_WHOSE[0], _FLOWS, _MOVES, *[types.int64] * 3, _WORDS, *[types.Array(types.int64, 2, "C")] * 2, _WORDS, _ROWS),
    ),
}
choose_rate_far, decide_by_policy_far, choose_inside_far, play_policy_far = (call_far(signature) for _, signature in FAR.values())


def far_addresses(kinds: np.ndarray, policies: np.ndarray, adversary_kinds: np.ndarray) -> dict[str, int]:
    """Return the addresses of FAR, of what the players of a batch need, compiled; 0 for the others."""
    has_policy = (kinds == SENDER_KINDS["mlp"]).any()
    needed = {
        "choose_rate_at": has_policy and (policies["beliefs_only"] == 1).any(),
        "decide_by_policy_at": has_policy and (policies["beliefs_only"] == 0).any(),
        "choose_inside_at": (kinds == SENDER_KINDS["shield"]).any(),
        "play_policy_at": (adversary_kinds == ADVERSARY_KINDS["mlp"]).any(),
    }
    return {name: function.address(*signature.args) if needed[name] else 0 for name, (function, signature) in FAR.items()}
