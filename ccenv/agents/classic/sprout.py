"""Sprout (Winstein, Sivaraman, Balakrishnan: Stochastic forecasts achieve high throughput and low delay, NSDI 2013).

The link delivers packets as a Poisson process whose rate wanders as Brownian motion (s.3.1). Every 20 ms the belief about the
rate is widened by the motion and updated with the packets that came (s.3.2); the window is what will be delivered, with 95 %
probability, in the time a packet may take (s.3.3, 3.5).

Deviations: the belief is kept by its mean and variance instead of 256 bins: the count's mean and variance are matched (a Kalman
step), quantiles are those of a gamma variable of the same mean and variance (Wilson and Hilferty), rates are not capped at
1,000 packets/s and there is no outage state. Packets in flight count as queued in the paper, whose traces have short
propagation; here the 100 ms are granted on top of the smallest RTT. Where the sender has not kept the queue filled, a count is
a lower bound, as with the paper's time-to-next: the queue is taken for empty within a tick of the smallest RTT. The sender
observes what the paper's receiver observes, through the ACKs. As in the paper there is no reaction to loss.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ccenv.agents.classic.common import Cca, Parameter
from ccenv.base.kernels.decorator import kernel

TICK_S = 0.02  # [Sprout] s.3.2
FIRST_MEAN, FIRST_VARIANCE = 500.0, 1000.0**2 / 12.0  # packets/s: uniform between 0 and 1,000 (s.3.2)
MIN_MEAN = 1.0  # packets/s: below it nothing would be sent to learn from
MIN_WINDOW_MSS = 2.0
MAX_TICKS = 50.0  # without a signal that are caught up with one by one

sender = Cca(
    "sprout",
    __name__,
    parameters=(
        # sigma of the Brownian motion, packets per second and square root of a second; 200 in s.3.1
        Parameter("volatility", 200.0, low=0, high=1e5),
        # how long a packet may be queued (s.3.5)
        Parameter("delay_ms", 100.0, above=0, high=1e4, field="delay_s", scale=1e-3),
        Parameter("risk", 0.05, low=0.001, high=0.5),  # chance of less than the forecast (s.3.3)
        # largest rate that is believed, packets/s, 1,000 in the paper (s.3.1); 0: none
        Parameter("most_pps", 0.0, low=0, high=1e9, optional=True),
    ),
    fields=(
        "rate_pps",  # mean of the belief about the rate, packets/s
        "variance_pps2",
        "quantile",  # of a standard normal variable at the risk
        "tick_at_s",  # end of the tick that is counted
        "count_mss",  # delivered in it
        "queued",  # the queue was filled throughout
    ),
)


@kernel
def normal_quantile(risk: float) -> float:
    """Return z with P(Z < z) = risk for a standard normal Z, by bisection."""
    low, high = -8.0, 8.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if 0.5 * math.erfc(-middle / math.sqrt(2.0)) < risk:
            low = middle
        else:
            high = middle
    return low


@kernel
def forecast_mss(mean: float, variance: float, volatility: float, ahead_s: float, quantile: float) -> float:
    """Return the packets that are delivered within a time at least, but for the chance of the quantile.

    The count over t has mean m t and variance m t (Poisson) + v t^2 (belief) + sigma^2 t^3/3 (integrated Brownian motion).
    """
    expected = mean * ahead_s
    spread = expected + variance * ahead_s * ahead_s + volatility * volatility * ahead_s**3 / 3.0
    shape = expected * expected / spread
    root = 1.0 - 1.0 / (9.0 * shape) + quantile / (3.0 * math.sqrt(shape))
    return float(expected * max(0.0, root) ** 3)


@kernel
def update(mean: float, variance: float, volatility: float, count: float, full: float) -> tuple[float, float]:
    """Return mean and variance of the rate after a tick with this count; not full: with at least this count."""
    variance += volatility * volatility * TICK_S
    expected, spread = mean * TICK_S, mean * TICK_S + variance * TICK_S * TICK_S
    seen, left = count, 0.0
    if full == 0.0:  # mean and variance of a normal count, given that it is at least as large
        deviation = math.sqrt(spread)
        x = (count - expected) / deviation
        tail = 0.5 * math.erfc(x / math.sqrt(2.0))
        if tail > 1e-12:
            hazard = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi) / tail
            seen = expected + deviation * hazard
            left = spread * max(0.0, 1.0 + x * hazard - hazard * hazard)
    gain = variance * TICK_S / spread
    updated = max(mean + gain * (seen - expected), MIN_MEAN)
    # of a gamma belief after a Poisson count, and what the unknown count leaves
    return updated, variance * updated / (mean + variance * TICK_S) + gain * gain * left


def init(state: Any) -> None:
    """Start with the prior; the first window is its forecast for the delay alone."""
    state.rate_pps, state.variance_pps2 = FIRST_MEAN, FIRST_VARIANCE
    state.quantile = normal_quantile(state.risk)
    state.pacing_rate_Bps = np.inf
    state.queued = 1.0
    _set_window(state, 0.0)


@kernel
def _set_window(state: Any, min_rtt_s: float) -> None:
    ahead_s = min_rtt_s + state.delay_s
    window_mss = forecast_mss(state.rate_pps, state.variance_pps2, state.volatility, ahead_s, state.quantile)
    state.cwnd_bytes = max(window_mss, MIN_WINDOW_MSS) * state.mss_bytes


def on_ack(state: Any, ack: Any) -> None:
    """Count what was delivered; at the end of a tick update the belief and forecast anew."""
    if state.tick_at_s == 0.0:
        state.tick_at_s = ack.now_s + TICK_S
    if ack.now_s >= state.tick_at_s:
        whole = 1.0 + math.floor((ack.now_s - state.tick_at_s) / TICK_S)
        ticks = min(whole, MAX_TICKS)
        full = state.queued
        for _ in range(int(ticks)):  # after a silence the count is spread over its ticks
            state.rate_pps, state.variance_pps2 = update(
                state.rate_pps, state.variance_pps2, state.volatility, state.count_mss / ticks, full
            )
        if state.most_pps > 0.0:
            state.rate_pps = min(state.rate_pps, state.most_pps)
        state.count_mss = 0.0
        state.queued = 1.0
        state.tick_at_s += whole * TICK_S
        _set_window(state, ack.min_rtt_s)
    state.count_mss += ack.acked_bytes / state.mss_bytes
    if ack.app_limited > 0.0 or ack.rtt_s < ack.min_rtt_s + TICK_S:
        state.queued = 0.0


def on_loss(state: Any, loss: Any) -> None:
    """After a time-out start over from the prior; other losses change nothing."""
    if loss.timeout > 0.0:
        state.rate_pps, state.variance_pps2 = FIRST_MEAN, FIRST_VARIANCE
        state.count_mss = 0.0
        state.tick_at_s = 0.0
        _set_window(state, 0.0)
