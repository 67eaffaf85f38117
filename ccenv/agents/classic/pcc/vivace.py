"""PCC Vivace (Dong et al.: PCC Vivace: online-learning congestion control, NSDI 2018).

Two monitor intervals at r(1 + eps) and r(1 - eps), in random order, give the gradient of the utility
u(x) = x^0.9 - b x dRTT/dT - c x L; the rate follows it, the faster the longer it goes in one direction.

Deviations: those of ``common``; an interval is one smoothed RTT or ten segments long; a falling RTT earns nothing, as in the
authors' user-space code.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import Cca, initial_window
from ccenv.agents.classic.pcc import common as pcc
from ccenv.base.kernels.decorator import kernel
from ccenv.network.path import MBPS_IN_BPS

STARTING, PROBING = 0.0, 1.0
EXPONENT = 0.9  # NSDI 2018 s.4: t
LATENCY_COEFFICIENT = 900.0  # NSDI 2018 s.4: b
LOSS_COEFFICIENT = 11.35  # NSDI 2018 s.4: c
PROBE_STEP = 0.05  # NSDI 2018 s.5: eps
STEP_SCALE = 1.0  # NSDI 2018 s.5: theta_0, Mbit/s per unit of gradient
FIRST_BOUND = 0.05  # NSDI 2018 s.5: omega_0, largest change in units of the rate
BOUND_STEP = 0.1  # NSDI 2018 s.5: delta, growth of the bound
LINEAR_ROUNDS = 3.0  # NSDI 2018 s.5: the amplifier is tau up to here, then 2 tau - 3
SLOPE_TOLERANCE = 0.01  # NSDI 2018 s.4.2: smaller slopes of the RTT are noise
TIMEOUT_FACTOR = 0.5  # NSDI 2018 s.4.3: results that do not come halve the rate
INTERVAL_RTTS = 1.0  # NSDI 2018 s.5

sender = Cca(
    "vivace",
    __name__,
    parameters=(initial_window(),),
    fields=(
        *pcc.FIELDS,
        "last_utility",
        "direction",  # of the last change
        "same_direction",  # changes in a row
        "bound_steps",  # k of the bound omega_0 + k delta
        "checking",  # 1: the experiment repeats one whose outcome made no sense
        "doubted_gradient",  # of that one
    ),
)


@kernel
def utility(rate_Bps: float, slope: float, loss: float) -> float:
    """Return u(x), x in Mbit/s (NSDI 2018 s.4)."""
    x = rate_Bps / MBPS_IN_BPS
    return float(x**EXPONENT - LATENCY_COEFFICIENT * x * filtered(slope) - LOSS_COEFFICIENT * x * loss)


@kernel
def filtered(slope: float) -> float:
    """Return the slope of the RTT, 0 where it is noise (NSDI 2018 s.4.3) or falls, which the utility does not reward."""
    return slope if slope >= SLOPE_TOLERANCE else 0.0


@kernel
def amplifier(same_direction: float) -> float:
    """Return m(tau) (NSDI 2018 s.5): tau, then 2 tau - 3."""
    if same_direction <= LINEAR_ROUNDS:
        return same_direction
    return 2.0 * same_direction - LINEAR_ROUNDS


def init(state: Any) -> None:
    """Start by doubling."""
    pcc.init_intervals(state)
    state.mode = STARTING
    state.last_utility = -1e300


def on_ack(state: Any, ack: Any) -> None:
    """Collect results; decide when an experiment is complete."""
    done = pcc.receive(state, ack)
    if state.rate_Bps == 0.0:
        state.rate_Bps = pcc.bounded(state, state.cwnd_bytes / ack.rtt_s)
        _experiment(state, ack.now_s)
    elif done:
        if state.limited == 0.0 and pcc.fell_short(state):
            state.mode = PROBING
        elif state.limited == 0.0:
            _decide(state)
        _experiment(state, ack.now_s)
    pcc.send_on(state, ack.now_s)


@kernel
def _experiment(state: Any, now_s: float) -> None:
    rate = state.rate_Bps
    if state.mode == STARTING:
        pcc.start_experiment(state, now_s, 1, INTERVAL_RTTS, pcc.MIN_INTERVAL_MSS, rate, rate, rate, rate)
        return
    sign = 1.0 if pcc.draw(state) < 0.5 else -1.0
    first, second = rate * (1.0 + sign * PROBE_STEP), rate * (1.0 - sign * PROBE_STEP)
    pcc.start_experiment(state, now_s, 2, INTERVAL_RTTS, pcc.MIN_INTERVAL_MSS, first, second, rate, rate)


@kernel
def _decide(state: Any) -> None:
    loss_0 = pcc.loss_share(state.acked_0_bytes, state.lost_0_bytes)
    first = utility(state.rate_0_Bps, state.slope_0, loss_0)
    if state.mode == STARTING:
        if first > state.last_utility:
            state.last_utility = first
            state.rate_Bps = pcc.bounded(state, 2.0 * state.rate_Bps)
        else:
            state.mode = PROBING
            state.rate_Bps = pcc.bounded(state, 0.5 * state.rate_Bps)
        return
    loss_1 = pcc.loss_share(state.acked_1_bytes, state.lost_1_bytes)
    second = utility(state.rate_1_Bps, state.slope_1, loss_1)
    faster = (state.rate_0_Bps - state.rate_1_Bps) / MBPS_IN_BPS
    gradient = (first - second) / faster
    # Sending faster does not cause shorter queues: measured again, and the mean taken if that says the same. Losses are no
    # such sign: random ones often fall into the slower interval.
    abnormal = faster * (filtered(state.slope_0) - filtered(state.slope_1)) < 0.0
    if abnormal and state.checking == 0.0:
        state.checking = 1.0
        state.doubted_gradient = gradient
        return
    if abnormal:
        gradient = 0.5 * (gradient + state.doubted_gradient)
    state.checking = 0.0
    follow(state, gradient)


@kernel
def follow(state: Any, gradient: float) -> None:
    """Change the rate by m theta_0 gradient, at most by (omega_0 + k delta) of it (NSDI 2018 s.5)."""
    direction = 1.0 if gradient > 0.0 else -1.0
    if direction == state.direction:
        state.same_direction += 1.0
    else:
        state.direction = direction
        state.same_direction = 1.0
        state.bound_steps = 0.0
    wanted_Bps = amplifier(state.same_direction) * STEP_SCALE * abs(gradient) * MBPS_IN_BPS
    allowed_Bps = (FIRST_BOUND + state.bound_steps * BOUND_STEP) * state.rate_Bps
    if wanted_Bps > allowed_Bps:
        wanted_Bps = allowed_Bps
        state.bound_steps += 1.0
    else:  # k falls back to the smallest that allows this change
        while state.bound_steps > 0.0 and wanted_Bps <= (FIRST_BOUND + (state.bound_steps - 1.0) * BOUND_STEP) * state.rate_Bps:
            state.bound_steps -= 1.0
    # A bound above 1 must not turn the rate negative.
    state.rate_Bps = pcc.bounded(state, state.rate_Bps + direction * wanted_Bps)


def on_loss(state: Any, loss: Any) -> None:
    """Count the loss; halve the rate and begin anew after a time-out."""
    pcc.count_loss(state, loss.lost_bytes)
    if loss.timeout > 0.0 and state.rate_Bps > 0.0:
        state.rate_Bps = pcc.bounded(state, TIMEOUT_FACTOR * state.rate_Bps)
        state.mode = PROBING
        state.checking = 0.0
        _experiment(state, loss.now_s)


def on_tick(state: Any, tick: Any) -> None:
    """Go on to the next interval when its time has come."""
    pcc.send_on(state, tick.now_s)
