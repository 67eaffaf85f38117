"""PCC Allegro as the authors' Linux module runs it (repository PCC-Kernel, branch master, module tcp_pcc).

Utility and trials are those of ``allegro``. Differences from the paper: the first rate is 512 KiB/s; an interval lasts one RTT
and at least 40 segments; in the starting state the rate grows by the bytes that an interval delivered, for as long as the
utility per rate rises, which it hardly ever does; eps, 1 to 5 %, grows by a point with every decision like the one before
(a tie counts as one) and with every step in one direction, and is the size of trials and steps alike.

Deviations: those of ``common``; the module leaves out the first and last five segments of an interval, which here are told apart.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.agents.classic.common import Cca, initial_window
from ccenv.agents.classic.pcc import common as pcc
from ccenv.agents.classic.pcc.allegro import utility
from ccenv.base.kernels.decorator import kernel

STARTING, DECIDING, ADJUSTING = 0.0, 1.0, 2.0
FIRST_RATE_Bps = 512 * 1024.0
MIN_STEP, MAX_STEP = 0.01, 0.05
MIN_INTERVAL_MSS = 40.0
INTERVAL_RTTS = 1.0

sender = Cca(
    "allegro_linux",
    __name__,
    parameters=(initial_window(),),
    fields=(
        *pcc.FIELDS,
        "last_utility",  # of the interval before; per rate in the starting state
        "last_rate_Bps",
        "step",  # eps
        "direction",  # of the last decision: 1 up, -1 down, 0 undecided
    ),
)


def init(state: Any) -> None:
    """Start at the module's first rate."""
    pcc.init_intervals(state)
    state.pacing_rate_Bps = FIRST_RATE_Bps
    state.mode = STARTING
    state.last_utility = -1e300
    state.last_rate_Bps = FIRST_RATE_Bps
    state.step = MIN_STEP
    state.direction = 1.0


def on_ack(state: Any, ack: Any) -> None:
    """Collect results; decide when an experiment is complete."""
    done = pcc.receive(state, ack)
    if state.rate_Bps == 0.0:
        state.rate_Bps = FIRST_RATE_Bps
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
    if state.mode != DECIDING:
        pcc.start_experiment(state, now_s, 1, INTERVAL_RTTS, MIN_INTERVAL_MSS, rate, rate, rate, rate)
        return
    order = math.floor(4.0 * pcc.draw(state))
    up, down = rate * (1.0 + state.step), rate * (1.0 - state.step)
    r0, r1 = (up, down) if order < 2.0 else (down, up)
    r2, r3 = (up, down) if order % 2.0 == 0.0 else (down, up)
    pcc.start_experiment(state, now_s, 4, INTERVAL_RTTS, MIN_INTERVAL_MSS, r0, r1, r2, r3)


@kernel
def _decide(state: Any) -> None:
    loss = pcc.loss_share(state.acked_0_bytes, state.lost_0_bytes)
    if state.mode == STARTING:
        per_rate = utility(1.0, loss)
        if per_rate > state.last_utility:
            state.last_utility = per_rate
            state.last_rate_Bps = state.rate_Bps
            state.rate_Bps = pcc.bounded(state, state.rate_Bps + min(state.acked_0_bytes, state.rate_Bps))
        else:
            state.rate_Bps = state.last_rate_Bps
            state.mode = DECIDING
        return
    first = utility(state.rate_0_Bps, loss)
    if state.mode == DECIDING:
        _compare_pairs(state, first)
    elif first > state.last_utility:
        state.step = min(state.step + MIN_STEP, MAX_STEP)
        _move(state)
    else:
        state.rate_Bps = state.last_rate_Bps
        state.step = MIN_STEP
        state.mode = DECIDING
    state.last_utility = first


@kernel
def _compare_pairs(state: Any, u0: float) -> None:
    """Move if both pairs agree; set eps by whether the decision is that of before."""
    u1 = utility(state.rate_1_Bps, pcc.loss_share(state.acked_1_bytes, state.lost_1_bytes))
    u2 = utility(state.rate_2_Bps, pcc.loss_share(state.acked_2_bytes, state.lost_2_bytes))
    u3 = utility(state.rate_3_Bps, pcc.loss_share(state.acked_3_bytes, state.lost_3_bytes))
    up_a = (u0 > u1) == (state.rate_0_Bps > state.rate_1_Bps)
    up_b = (u2 > u3) == (state.rate_2_Bps > state.rate_3_Bps)
    decision = 0.0
    if up_a == up_b:
        decision = 1.0 if up_a else -1.0
        state.rate_Bps = pcc.bounded(state, state.rate_Bps * (1.0 + decision * state.step))
        state.mode = ADJUSTING
    state.step = min(state.step + MIN_STEP, MAX_STEP) if decision == state.direction else MIN_STEP
    state.direction = decision
    if decision != 0.0:
        _move(state)


@kernel
def _move(state: Any) -> None:
    """Change the rate by eps in the direction found."""
    state.last_rate_Bps = state.rate_Bps
    state.rate_Bps = pcc.bounded(state, state.rate_Bps * (1.0 + state.direction * state.step))


def on_loss(state: Any, loss: Any) -> None:
    """Count the loss; begin a new decision after a time-out, whose experiment tells nothing."""
    pcc.count_loss(state, loss.lost_bytes)
    if loss.timeout > 0.0 and state.rate_Bps > 0.0:
        state.mode = DECIDING
        _experiment(state, loss.now_s)


def on_tick(state: Any, tick: Any) -> None:
    """Go on to the next interval when its time has come."""
    pcc.send_on(state, tick.now_s)
