"""The delay-convergent CCA of [Starvation] Algorithm 1, on the exponential rate-delay map of its eq. (2).

Once per Rm: if the rate is below mu_minus s^((Rmax - (d - Rm))/D), it grows by a, else it is multiplied by b; d is the
newest RTT. Rates that differ by a factor s rest at delays that differ by D, so that jitter below D cannot confuse them.

Deviations: Rmax is the largest queueing delay, as in Algorithm 1 (eq. 2 has the delay d itself in its exponent, and Rmax
includes Rm); Rm is the smallest RTT seen where it is not given (the paper leaves its discovery open); an update needs an
ACK, so that the rate rests while nothing is heard; the rate never falls below mu_minus/100; a and b are chosen here, for the
paper gives none. As in the paper there is no window and no reaction to loss (s.6.3).
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.agents.classic.common import UNLIMITED_BYTES, Cca, Parameter
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.network.path import MBPS_IN_BPS

FLOOR_SHARE = 0.01  # of mu_minus
MAX_LOG_RANGE = 60.0  # natural logarithm of the largest ratio of rates that may be asked for


def _check_range(owner: str, values: dict[str, float]) -> None:
    ratio = values["max_queueing_ms"] / values["jitter_ms"]
    if ratio * math.log(values["fairness"]) > MAX_LOG_RANGE:
        power = f"{values['fairness']:g}^{ratio:g}"
        raise InputError(f"{owner}: fairness^(max_queueing_ms/jitter_ms) is {power}; it must be at most e^{MAX_LOG_RANGE:g}")
    if values["decrease"] == 1.0:
        raise InputError(f"{owner}: decrease is 1; it must be below 1")


sender = Cca(
    "exp_delay",
    __name__,
    parameters=(
        # mu_minus, the rate at the largest delay; rates of the Internet start below 100 kbit/s: [Starvation] s.6.3
        Parameter("min_rate_mbps", 0.1, above=0, high=1e6, field="min_rate_Bps", scale=MBPS_IN_BPS),
        # s, ratio of rates that are one jitter apart, and D, the jitter to withstand: [Starvation] s.6.3
        Parameter("fairness", 2.0, above=1, high=1e6),
        Parameter("jitter_ms", 10.0, above=0, high=1e6, field="jitter_s", scale=1e-3),
        # Rmax, the largest queueing delay; [Starvation] s.6.3: Rmax = Rm + 100 ms
        Parameter("max_queueing_ms", 100.0, above=0, high=1e6, field="max_queueing_s", scale=1e-3),
        # a, added per Rm
        Parameter("increase_mbps", 0.5, above=0, high=1e6, field="increase_Bps", scale=MBPS_IN_BPS),
        # b, share of the rate that is kept, below 1
        Parameter("decrease", 0.9, above=0, high=1),
        # propagation RTT, if known; 0: the smallest RTT seen
        Parameter("rm_ms", 0.0, low=0, high=1e6, field="rm_s", scale=1e-3),
    ),
    fields=(
        "rate_Bps",  # mu
        "next_update_s",
    ),
    check=_check_range,
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
