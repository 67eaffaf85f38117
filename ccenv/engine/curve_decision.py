"""Decision instants: belief programs and small policies choose the rate of the next interval. Compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from ccenv.engine.curve_network import ERROR_SENDER, fail
from ccenv.engine.layout import SENDER_KINDS
from ccenv.engine.mlp import mlp_action
from ccenv.engine.observation import fill_observation
from ccenv.programs import INPUT_INDEX
from ccenv.programs.compiled import evaluate

MLP_RANGE_LOG2 = 3.0  # an action in [-1, 1] is log2(rate / C_L) / 3

_PROGRAM, _MLP = SENDER_KINDS["program"], SENDER_KINDS["mlp"]
_C_L, _C_U, _C_L_LAMBDA = INPUT_INDEX["C_L"], INPUT_INDEX["C_U"], INPUT_INDEX["C_L_lambda"]
_MSS_PER_RM, _RATE, _Q_U_PER_RM = INPUT_INDEX["MSS/Rm"], INPUT_INDEX["rate"], INPUT_INDEX["q_U/Rm"]
_QDEL_L, _QDEL_U, _RM = INPUT_INDEX["qdel_L"], INPUT_INDEX["qdel_U"], INPUT_INDEX["Rm"]
_Q_U, _MSS = INPUT_INDEX["q_U"], INPUT_INDEX["MSS"]
_UTILISED, _LOSS = INPUT_INDEX["utilised"], INPUT_INDEX["loss"]


@njit(cache=True, error_model="numpy")
def fill_inputs(ev, fl, inputs):  # type: ignore[no-untyped-def]
    """Write what a belief program may read, in the order of ``ccenv.programs.INPUTS``."""
    inputs[_C_L] = fl.C_L_Bps
    inputs[_C_U] = fl.C_U_Bps
    inputs[_C_L_LAMBDA] = fl.C_L_lambda_Bps
    inputs[_MSS_PER_RM] = ev.mss_bytes / fl.rtt_s
    inputs[_RATE] = fl.rate_Bps
    inputs[_Q_U_PER_RM] = fl.q_U_bytes / fl.rtt_s
    inputs[_QDEL_L] = fl.qdel_L_s
    inputs[_QDEL_U] = fl.qdel_U_s
    inputs[_RM] = fl.rtt_s
    inputs[_Q_U] = fl.q_U_bytes
    inputs[_MSS] = ev.mss_bytes
    inputs[_UTILISED] = float(fl.utilised)
    inputs[_LOSS] = 1.0 if fl.lost_last_interval_bytes > 0.0 else 0.0


@njit(cache=True, error_model="numpy")
def decide(ev, fl, flow, k, inputs, observation, nodes, first_rows, mlp_weights, mlp_shapes, scratch):  # type: ignore[no-untyped-def]
    """Close the interval's counts and let a program or policy choose the rate for the next one."""
    fl.lost_last_interval_bytes = fl.lost_since_decision_bytes
    fl.lost_since_decision_bytes = 0.0
    fl.sent_last_interval_bytes = fl.A - fl.sent_at_decision_bytes
    fl.sent_at_decision_bytes = fl.A
    hold = 1.0
    floor = ev.mss_bytes / fl.rtt_s
    if fl.sender_kind == _PROGRAM:
        fill_inputs(ev, fl, inputs)
        rate, hold = evaluate(nodes, first_rows[fl.sender_index], inputs)
        fl.rate_Bps = rate
        if not rate > 0.0:
            fail(ev, ERROR_SENDER, flow, k)
            fl.rate_Bps = floor
    elif fl.sender_kind == _MLP:
        fill_observation(ev, fl, observation)
        action = mlp_action(mlp_weights, mlp_shapes, fl.sender_index, observation, scratch)
        fl.rate_Bps = max(floor, fl.C_L_Bps * 2.0 ** (MLP_RANGE_LOG2 * action))
    fl.decision_step = k + np.int64(hold) * fl.rtt_steps
