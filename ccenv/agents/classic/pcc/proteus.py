"""PCC Proteus (Meng, Rozen Schiff, Godfrey, Schapira: PCC Proteus: scavenger transport and beyond, SIGCOMM 2020).

Vivace's rate control with two utilities (s.4): the primary one, u_P(x) = x^0.9 - b x max(0, dRTT/dT) - c x L, and the
scavenger's, u_S(x) = u_P(x) - d x sigma, where sigma is the standard deviation of the RTT in a monitor interval: other flows
show as fluctuation of the delay before they show as a longer one.

Deviations: those of ``common`` and ``vivace``, whose steps it takes; two pairs of intervals instead of three, which must agree
(the paper: the majority of three); noise is what Vivace ignores, slopes below 1 %, and a deviation that the regression error
explains is not subtracted (the paper learns thresholds for both from moving averages, s.5); no hybrid mode.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.agents.classic.common import Cca, initial_window, switch
from ccenv.agents.classic.pcc import common as pcc
from ccenv.agents.classic.pcc import vivace
from ccenv.base.kernels.decorator import kernel
from ccenv.network.path import MBPS_IN_BPS

STARTING, PROBING = 0.0, 1.0
DEVIATION_COEFFICIENT = 1500.0  # [Proteus] s.4: d, per second

sender = Cca(
    "proteus",
    __name__,
    parameters=(initial_window(), switch("scavenger")),  # 1: Proteus-S, which yields; 0: Proteus-P
    fields=(
        *pcc.FIELDS,
        "last_utility",
        "direction",
        "same_direction",
        "bound_steps",
        "deviation_0_s",  # standard deviation of the RTT of each interval
        "deviation_1_s",
        "deviation_2_s",
        "deviation_3_s",
        "sum_rtt_rtt",  # of the interval being received, about base_rtt_s
    ),
)


def init(state: Any) -> None:
    """Start by doubling."""
    pcc.init_intervals(state)
    state.mode = STARTING
    state.last_utility = -1e300


def on_ack(state: Any, ack: Any) -> None:
    """Collect results; decide when an experiment is complete."""
    before, acked, mean, square = state.receiving, state.sum_acked_bytes, state.sum_rtt, state.sum_rtt_rtt
    done = pcc.receive(state, ack)
    if state.receiving > before:
        _keep_deviation(state, before, acked, mean, square)
        state.sum_rtt_rtt = 0.0
    if state.sum_acked_bytes > 0.0:
        state.sum_rtt_rtt += ack.acked_bytes * (ack.rtt_s - state.base_rtt_s) ** 2
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
def _keep_deviation(state: Any, interval: float, acked_bytes: float, sum_rtt: float, sum_rtt_rtt: float) -> None:
    deviation_s = 0.0
    if acked_bytes > 0.0:
        mean_s = sum_rtt / acked_bytes
        deviation_s = math.sqrt(max(0.0, sum_rtt_rtt / acked_bytes - mean_s * mean_s))
    if interval == 0.0:
        state.deviation_0_s = deviation_s
    elif interval == 1.0:
        state.deviation_1_s = deviation_s
    elif interval == 2.0:
        state.deviation_2_s = deviation_s
    else:
        state.deviation_3_s = deviation_s


@kernel
def _experiment(state: Any, now_s: float) -> None:
    rate = state.rate_Bps
    state.sum_rtt_rtt = 0.0
    state.deviation_0_s = state.deviation_1_s = state.deviation_2_s = state.deviation_3_s = 0.0
    if state.mode == STARTING:
        pcc.start_experiment(state, now_s, 1, vivace.INTERVAL_RTTS, pcc.MIN_INTERVAL_MSS, rate, rate, rate, rate)
        return
    first = 1.0 if pcc.draw(state) < 0.5 else -1.0
    second = 1.0 if pcc.draw(state) < 0.5 else -1.0
    r0, r1 = rate * (1.0 + first * vivace.PROBE_STEP), rate * (1.0 - first * vivace.PROBE_STEP)
    r2, r3 = rate * (1.0 + second * vivace.PROBE_STEP), rate * (1.0 - second * vivace.PROBE_STEP)
    pcc.start_experiment(state, now_s, 4, vivace.INTERVAL_RTTS, pcc.MIN_INTERVAL_MSS, r0, r1, r2, r3)


@kernel
def utility(scavenger: float, rate_Bps: float, slope: float, deviation_s: float, acked_bytes: float, lost_bytes: float) -> float:
    """Return u_P, or u_S for a scavenger, at a rate ([Proteus] s.4)."""
    primary = vivace.utility(rate_Bps, slope, pcc.loss_share(acked_bytes, lost_bytes))
    return float(primary - scavenger * DEVIATION_COEFFICIENT * rate_Bps / MBPS_IN_BPS * deviation_s)


@kernel
def _decide(state: Any) -> None:
    s = state
    u0 = utility(s.scavenger, s.rate_0_Bps, s.slope_0, s.deviation_0_s, s.acked_0_bytes, s.lost_0_bytes)
    if s.mode == STARTING:
        if u0 > s.last_utility:
            s.last_utility = u0
            s.rate_Bps = pcc.bounded(s, 2.0 * s.rate_Bps)
        else:
            s.mode = PROBING
            s.rate_Bps = pcc.bounded(s, 0.5 * s.rate_Bps)
        return
    u1 = utility(s.scavenger, s.rate_1_Bps, s.slope_1, s.deviation_1_s, s.acked_1_bytes, s.lost_1_bytes)
    u2 = utility(s.scavenger, s.rate_2_Bps, s.slope_2, s.deviation_2_s, s.acked_2_bytes, s.lost_2_bytes)
    u3 = utility(s.scavenger, s.rate_3_Bps, s.slope_3, s.deviation_3_s, s.acked_3_bytes, s.lost_3_bytes)
    first = (u0 - u1) / ((s.rate_0_Bps - s.rate_1_Bps) / MBPS_IN_BPS)
    second = (u2 - u3) / ((s.rate_2_Bps - s.rate_3_Bps) / MBPS_IN_BPS)
    if first * second > 0.0:
        vivace.follow(s, 0.5 * (first + second))


def on_loss(state: Any, loss: Any) -> None:
    """Count the loss; halve the rate and begin anew after a time-out."""
    pcc.count_loss(state, loss.lost_bytes)
    if loss.timeout > 0.0 and state.rate_Bps > 0.0:
        state.rate_Bps = pcc.bounded(state, vivace.TIMEOUT_FACTOR * state.rate_Bps)
        state.mode = PROBING
        _experiment(state, loss.now_s)


def on_tick(state: Any, tick: Any) -> None:
    """Go on to the next interval when its time has come."""
    pcc.send_on(state, tick.now_s)
