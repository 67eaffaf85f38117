"""TCP-Illinois (Liu, Basar, Srikant, 2008).

Source: TCP-Illinois: a loss- and delay-based congestion control algorithm for high-speed networks, Performance Evaluation
65(6-7), 2008.

Reno whose increase alpha per round trip falls and whose decrease beta on a loss grows with the average queueing delay.

Deviations: the average delay of a round is weighted by bytes; bytes are counted instead of ACKs; the initial window is that
of RFC 6928; during recovery the window does not grow.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import (
    PRR,
    PRR_FIELDS,
    Cca,
    grow_window,
    initial_window,
    recovers,
    reduce_in_proportion,
    start_window,
)
from ccenv.base.kernels.decorator import kernel

ALPHA_MIN, ALPHA_MAX = 0.3, 10.0  # 2008 s.3.3: default parameters
BETA_MIN, BETA_MAX = 0.125, 0.5  # 2008 s.3.3
ETA_1, ETA_2, ETA_3 = 0.01, 0.1, 0.8  # 2008 s.3.3: d_i = eta_i d_m
WINDOW_THRESHOLD_MSS = 15.0  # 2008 s.3.3: below it alpha = 1, beta = 1/2
LOW_DELAY_ROUNDS = 5.0  # 2008 s.3.3: theta, rounds of low delay before alpha returns to its maximum; at first none (Linux module)

sender = Cca(
    "illinois",
    __name__,
    parameters=(initial_window(), PRR),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",  # fast recovery lasts until so many bytes are delivered
        "alpha",  # segments per round trip
        "beta",  # share of the window taken away by a loss
        "max_rtt_s",
        "low_delay_rounds",  # in a row; LOW_DELAY_ROUNDS while the delay was never high
        "round_acked_bytes",
        "round_rtt_sum",  # sum over the round of RTT times bytes, in byte seconds
        *PRR_FIELDS,
    ),
)


@kernel
def alpha_of_delay(delay_s: float, max_delay_s: float) -> float:
    """Return alpha: ALPHA_MAX up to d_1, then kappa_1/(kappa_2 + d_a), ALPHA_MIN at d_m (2008 eq. 3)."""
    low_s = ETA_1 * max_delay_s
    if delay_s <= low_s:
        return ALPHA_MAX
    kappa_2 = (max_delay_s - low_s) * ALPHA_MIN / (ALPHA_MAX - ALPHA_MIN) - low_s
    kappa_1 = (max_delay_s - low_s) * ALPHA_MIN * ALPHA_MAX / (ALPHA_MAX - ALPHA_MIN)
    return kappa_1 / (kappa_2 + delay_s)


@kernel
def beta_of_delay(delay_s: float, max_delay_s: float) -> float:
    """Return beta: BETA_MIN up to d_2, BETA_MAX from d_3, linear between (2008 eq. 4)."""
    if delay_s <= ETA_2 * max_delay_s:
        return BETA_MIN
    if delay_s >= ETA_3 * max_delay_s:
        return BETA_MAX
    return BETA_MIN + (BETA_MAX - BETA_MIN) * (delay_s / max_delay_s - ETA_2) / (ETA_3 - ETA_2)


def init(state: Any) -> None:
    """Start in slow start with Reno's alpha and beta; not paced."""
    start_window(state)
    state.alpha = 1.0
    state.beta = BETA_MAX
    state.low_delay_rounds = LOW_DELAY_ROUNDS


def on_ack(state: Any, ack: Any) -> None:
    """Grow by alpha segments per round trip; set alpha and beta once per round trip (2008 s.3)."""
    state.max_rtt_s = max(state.max_rtt_s, ack.rtt_s)
    if ack.round_start > 0.0 and state.round_acked_bytes > 0.0:
        max_delay_s = state.max_rtt_s - ack.min_rtt_s
        delay_s = state.round_rtt_sum / state.round_acked_bytes - ack.min_rtt_s
        _set_alpha_beta(state, min(max(0.0, delay_s), max_delay_s), max_delay_s)
        state.round_acked_bytes = 0.0
        state.round_rtt_sum = 0.0
    state.round_acked_bytes += ack.acked_bytes
    state.round_rtt_sum += ack.rtt_s * ack.acked_bytes
    if recovers(state, ack) or ack.app_limited > 0.0:
        return
    grow_window(state, ack.acked_bytes, state.alpha)


@kernel
def _set_alpha_beta(state: Any, delay_s: float, max_delay_s: float) -> None:
    if state.cwnd_bytes < WINDOW_THRESHOLD_MSS * state.mss_bytes:
        state.alpha = 1.0
        state.beta = BETA_MAX
        return
    state.beta = beta_of_delay(delay_s, max_delay_s)
    if delay_s > ETA_1 * max_delay_s:
        state.low_delay_rounds = 0.0
        state.alpha = alpha_of_delay(delay_s, max_delay_s)
        return
    state.low_delay_rounds += 1.0  # one quiet round may be noise: 2008 s.3.3
    if state.low_delay_rounds >= LOW_DELAY_ROUNDS:
        state.alpha = ALPHA_MAX


def on_loss(state: Any, loss: Any) -> None:
    """Take beta of the window away once per episode (2008 s.3); one segment, alpha 1 and beta 1/2 after a time-out."""
    reduce_in_proportion(state, loss, 1.0 - state.beta)
    if loss.timeout > 0.0:
        state.alpha = 1.0
        state.beta = BETA_MAX
        state.low_delay_rounds = LOW_DELAY_ROUNDS
