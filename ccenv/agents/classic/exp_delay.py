"""The delay-convergent CCA of [Starvation] Algorithm 1, on the exponential rate-delay map of its eq. (2).

Once per Rm: if the rate is below mu_minus s^((Rmax - (d - Rm))/D), it grows by a, else it is multiplied by b; d is the
newest RTT. Rates that differ by a factor s rest at delays that differ by D, so that jitter below D cannot confuse them.

Deviations: Rmax is the largest queueing delay, as in Algorithm 1 (eq. 2 has the delay d itself in its exponent, and Rmax
includes Rm); Rm is the smallest RTT seen where it is not given (the paper leaves its discovery open); an update needs an
ACK, so that the rate rests while nothing is heard; the rate never falls below mu_minus/100; a and b are chosen here, for the
paper gives none. As in the paper there is no window and no reaction to loss.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from ccenv.agents.callbacks import state_record
from ccenv.agents.classic.common import UNLIMITED_BYTES, classic_sender
from ccenv.agents.sender import ClassicSender
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number
from ccenv.network.path import MBPS_IN_BPS

MIN_RATE_MBPS = 0.1  # [Starvation] s.6.3: rates of the Internet start below 100 kbit/s
FAIRNESS = 2.0  # [Starvation] s.6.3: the example s = 2
JITTER_MS = 10.0  # [Starvation] s.6.3: the example D = 10 ms
MAX_QUEUEING_MS = 100.0  # [Starvation] s.6.3: Rmax = Rm + 100 ms
INCREASE_MBPS = 0.5
DECREASE = 0.9
FLOOR_SHARE = 0.01  # of mu_minus
MAX_LOG_RANGE = 60.0  # natural logarithm of the largest ratio of rates that may be asked for

STATE = state_record(
    "min_rate_Bps",  # parameter mu_minus
    "fairness",  # parameter s
    "jitter_s",  # parameter D
    "max_queueing_s",  # parameter Rmax
    "increase_Bps",  # parameter a
    "decrease",  # parameter b
    "rm_s",  # parameter; 0: the smallest RTT seen
    "rate_Bps",  # mu
    "next_update_s",
)


def sender(
    min_rate_mbps: float = MIN_RATE_MBPS,
    fairness: float = FAIRNESS,
    jitter_ms: float = JITTER_MS,
    max_queueing_ms: float = MAX_QUEUEING_MS,
    increase_mbps: float = INCREASE_MBPS,
    decrease: float = DECREASE,
    rm_ms: float = 0.0,
) -> ClassicSender:
    """Build the sender of [Starvation] Algorithm 1.

    Args:
        min_rate_mbps: mu_minus, the rate at the largest delay, > 0.
        fairness: s, ratio of rates that are one jitter apart, > 1.
        jitter_ms: D, the jitter to withstand, > 0.
        max_queueing_ms: Rmax, the largest queueing delay, > 0.
        increase_mbps: a, added per Rm, > 0.
        decrease: b, share of the rate that is kept, in (0, 1).
        rm_ms: propagation RTT, if known; 0: the smallest RTT seen.
    """
    s = number("exp_delay", "fairness", fairness, above=1, high=1e6)
    jitter = number("exp_delay", "jitter_ms", jitter_ms, above=0, high=1e6)
    longest = number("exp_delay", "max_queueing_ms", max_queueing_ms, above=0, high=1e6)
    if longest / jitter * math.log(s) > MAX_LOG_RANGE:
        power = f"{s:g}^{longest / jitter:g}"
        raise InputError(f"exp_delay: fairness^(max_queueing_ms/jitter_ms) is {power}; it must be at most e^{MAX_LOG_RANGE:g}")
    share = number("exp_delay", "decrease", decrease, above=0, high=1)
    if share == 1.0:
        raise InputError("exp_delay: decrease is 1; it must be below 1")
    return classic_sender(
        "exp_delay",
        sys.modules[__name__],
        STATE,
        min_rate_Bps=number("exp_delay", "min_rate_mbps", min_rate_mbps, above=0, high=1e6) * MBPS_IN_BPS,
        fairness=s,
        jitter_s=1e-3 * jitter,
        max_queueing_s=1e-3 * longest,
        increase_Bps=number("exp_delay", "increase_mbps", increase_mbps, above=0, high=1e6) * MBPS_IN_BPS,
        decrease=share,
        rm_s=1e-3 * number("exp_delay", "rm_ms", rm_ms, low=0, high=1e6),
    )


@kernel
def rate_of_delay(queueing_s: float, min_rate: float, fairness: float, jitter_s: float, max_queueing_s: float) -> float:
    """Return the rate that belongs to a queueing delay, in the unit of min_rate ([Starvation] eq. 2)."""
    return min_rate * fairness ** ((max_queueing_s - queueing_s) / jitter_s)


def init(state: Any) -> None:
    """Start at mu_minus; the window never binds ([Starvation] s.6.3: no cwnd cap)."""
    state.cwnd_bytes = UNLIMITED_BYTES
    state.rate_Bps = state.min_rate_Bps
    state.pacing_rate_Bps = state.rate_Bps
    state.next_update_s = 0.0


def on_ack(state: Any, ack: Any) -> None:
    """Compare the rate with the map once per Rm ([Starvation] Algorithm 1)."""
    if ack.now_s < state.next_update_s:
        return
    rm_s = state.rm_s if state.rm_s > 0.0 else ack.min_rtt_s
    state.next_update_s = max(state.next_update_s + rm_s, ack.now_s + 0.5 * rm_s)  # keeps to the grid unless far behind
    queueing_s = max(0.0, ack.rtt_s - rm_s)
    if state.rate_Bps < rate_of_delay(queueing_s, state.min_rate_Bps, state.fairness, state.jitter_s, state.max_queueing_s):
        if ack.app_limited == 0.0:
            state.rate_Bps += state.increase_Bps
    else:
        state.rate_Bps = max(state.decrease * state.rate_Bps, FLOOR_SHARE * state.min_rate_Bps)
    state.pacing_rate_Bps = state.rate_Bps


def on_loss(state: Any, loss: Any) -> None:
    """Do nothing ([Starvation] s.6.3: it does not slow down in the presence of loss)."""


def on_tick(state: Any, tick: Any) -> None:
    """Do nothing: the rate changes with what is heard."""
