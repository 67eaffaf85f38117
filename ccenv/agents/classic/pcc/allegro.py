"""PCC Allegro (Dong et al.: PCC: re-architecting congestion control for consistent high performance, NSDI 2015).

Four monitor intervals, two pairs at r(1 + eps) and r(1 - eps), decide the direction when both pairs agree on the utility
u = x (1 - L) Sigmoid(L - 0.05) - x L; then the rate moves on, faster each time, until the utility falls.

Deviations: those of ``common``; x is the rate that was set, as in the authors' Linux module; a time-out abandons the experiment
and begins a new one, as in the module (the paper has no time-outs).
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.agents.classic.common import Cca, initial_window
from ccenv.agents.classic.pcc import common as pcc
from ccenv.base.kernels.decorator import kernel

STARTING, DECIDING, ADJUSTING = 0.0, 1.0, 2.0
SIGMOID_STEEPNESS = 100.0  # NSDI 2015 s.2.2: alpha
LOSS_LIMIT = 0.05  # NSDI 2015 s.2.2: the loss rate that it tolerates
MIN_STEP = 0.01  # NSDI 2015 s.3.2: eps_min
MAX_STEP = 0.05  # NSDI 2015 s.3.2: eps_max
MIN_INTERVAL_RTTS, MAX_INTERVAL_RTTS = 1.7, 2.2  # NSDI 2015 s.3.1: uniform between

sender = Cca(
    "allegro",
    __name__,
    parameters=(initial_window(2.0),),  # NSDI 2015 s.3.2: the first rate is 2 MSS/RTT
    fields=(
        *pcc.FIELDS,
        "last_utility",
        "last_rate_Bps",
        "step",  # eps
        "direction",
        "moves",  # n, changes in this direction
        "order",  # 0 to 3: which of each pair comes first
    ),
)


@kernel
def sigmoid(y: float) -> float:
    """Return 1/(1 + e^(alpha y)) (NSDI 2015 s.2.2)."""
    return 1.0 / (1.0 + math.exp(SIGMOID_STEEPNESS * y))


@kernel
def utility(rate: float, loss: float) -> float:
    """Return u = T Sigmoid(L - 0.05) - x L with throughput T = x (1 - L), in the unit of rate (NSDI 2015 s.2.2)."""
    return rate * (1.0 - loss) * sigmoid(loss - LOSS_LIMIT) - rate * loss


def init(state: Any) -> None:
    """Start by doubling."""
    pcc.init_intervals(state)
    state.mode = STARTING
    state.last_utility = -1e300
    state.step = MIN_STEP


def on_ack(state: Any, ack: Any) -> None:
    """Collect results; decide when an experiment is complete."""
    done = pcc.receive(state, ack)
    if state.rate_Bps == 0.0:
        state.rate_Bps = pcc.bounded(state, state.cwnd_bytes / ack.rtt_s)
        _experiment(state, ack.now_s)
    elif done:
        if state.limited == 0.0 and pcc.fell_short(state):
            state.mode = DECIDING
        elif state.limited == 0.0:
            _decide(state)
        _experiment(state, ack.now_s)
    pcc.send_on(state, ack.now_s)


@kernel
def _experiment(state: Any, now_s: float) -> None:
    rate = state.rate_Bps
    length = MIN_INTERVAL_RTTS + (MAX_INTERVAL_RTTS - MIN_INTERVAL_RTTS) * pcc.draw(state)
    if state.mode != DECIDING:
        pcc.start_experiment(state, now_s, 1, length, pcc.MIN_INTERVAL_MSS, rate, rate, rate, rate)
        return
    state.order = math.floor(4.0 * pcc.draw(state))
    up, down = rate * (1.0 + state.step), rate * (1.0 - state.step)
    r0, r1 = (up, down) if state.order < 2.0 else (down, up)
    r2, r3 = (up, down) if state.order % 2.0 == 0.0 else (down, up)
    pcc.start_experiment(state, now_s, 4, length, pcc.MIN_INTERVAL_MSS, r0, r1, r2, r3)


@kernel
def _decide(state: Any) -> None:
    first = utility(state.rate_0_Bps, pcc.loss_share(state.acked_0_bytes, state.lost_0_bytes))
    if state.mode == STARTING:
        if first > state.last_utility:
            state.last_utility = first
            state.rate_Bps = pcc.bounded(state, 2.0 * state.rate_Bps)
        else:
            state.rate_Bps = pcc.bounded(state, 0.5 * state.rate_Bps)
            state.mode = DECIDING
    elif state.mode == DECIDING:
        _compare_pairs(state, first)
    elif first > state.last_utility:
        state.last_utility = first
        _move(state)
    else:  # the last step was too far
        state.rate_Bps = state.last_rate_Bps
        state.mode = DECIDING


@kernel
def _compare_pairs(state: Any, u0: float) -> None:
    """Move if both pairs agree, else try again with a larger step (NSDI 2015 s.3.2)."""
    u1 = utility(state.rate_1_Bps, pcc.loss_share(state.acked_1_bytes, state.lost_1_bytes))
    u2 = utility(state.rate_2_Bps, pcc.loss_share(state.acked_2_bytes, state.lost_2_bytes))
    u3 = utility(state.rate_3_Bps, pcc.loss_share(state.acked_3_bytes, state.lost_3_bytes))
    up_a, down_a = (u0, u1) if state.rate_0_Bps > state.rate_1_Bps else (u1, u0)
    up_b, down_b = (u2, u3) if state.rate_2_Bps > state.rate_3_Bps else (u3, u2)
    if up_a > down_a and up_b > down_b:
        state.direction = 1.0
        state.last_utility = 0.5 * (up_a + up_b)
    elif up_a < down_a and up_b < down_b:
        state.direction = -1.0
        state.last_utility = 0.5 * (down_a + down_b)
    else:
        state.step = min(state.step + MIN_STEP, MAX_STEP)
        return
    state.rate_Bps = pcc.bounded(state, state.rate_Bps * (1.0 + state.direction * state.step))
    state.step = MIN_STEP
    state.moves = 0.0
    state.mode = ADJUSTING
    _move(state)


@kernel
def _move(state: Any) -> None:
    """Change the rate by n eps_min in the direction found (NSDI 2015 s.3.2)."""
    state.moves += 1.0
    state.last_rate_Bps = state.rate_Bps
    change = min(state.moves * MIN_STEP, 0.5)  # a long way down must not pass zero
    state.rate_Bps = pcc.bounded(state, state.rate_Bps * (1.0 + state.direction * change))


def on_loss(state: Any, loss: Any) -> None:
    """Count the loss; begin a new decision after a time-out, whose experiment tells nothing."""
    pcc.count_loss(state, loss.lost_bytes)
    if loss.timeout > 0.0 and state.rate_Bps > 0.0:
        state.mode = DECIDING
        state.step = MIN_STEP
        _experiment(state, loss.now_s)


def on_tick(state: Any, tick: Any) -> None:
    """Go on to the next interval when its time has come."""
    pcc.send_on(state, tick.now_s)
