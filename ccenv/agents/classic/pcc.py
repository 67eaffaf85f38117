"""Monitor intervals of PCC Allegro and PCC Vivace: send at trial rates one after the other, then see what came of them.

An experiment is one to four intervals in a row, each at its own rate. A signal belongs to the interval in which the
acknowledged bytes were sent. While the results of an experiment are on their way the sender keeps its base rate.

Deviations (both papers): an experiment's results are awaited before the next begins, as in the Linux module, instead of
overlapping with it; the rate of an interval is the one that was set, not a count of packets; a loss belongs to the interval
whose ACKs are arriving when it is found; the window is two BDP of the current rate and smoothed RTT (the papers have none);
a time-out halves the rate; an experiment that sent less than three quarters of what was planned lowers the rate to what it
sent, or to half, and decides nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ccenv.agents.classic.common import smoothed_rtt
from ccenv.engine.rng import uniform

MIN_INTERVAL_MSS = 10.0  # Allegro s.3.1: an interval is long enough for ten packets
CWND_GAIN = 2.0
MIN_CWND_MSS = 4.0
MAX_RATE_Bps = 1e12  # far above any link: keeps an unlimited start finite
TIMEOUT_FACTOR = 0.5
SENT_SHARE = 0.75  # of what was planned, below which an experiment decides nothing

FIELDS = (
    "initial_window_mss",  # parameter
    "mode",
    "rate_Bps",  # base rate
    "srtt_s",
    "n_intervals",  # of the experiment
    "sending",  # interval being sent; n_intervals: all sent
    "receiving",  # interval whose ACKs arrive
    "interval_s",
    "limited",  # 1 if the application limited the experiment
    "planned_bytes",  # of the intervals received: rate times length
    "measured_bytes",  # of the intervals received: acknowledged or lost
    "edge_0_s",  # start of each interval, end of the last
    "edge_1_s",
    "edge_2_s",
    "edge_3_s",
    "edge_4_s",
    "rate_0_Bps",
    "rate_1_Bps",
    "rate_2_Bps",
    "rate_3_Bps",
    "loss_0",  # share of the bytes of each interval that was lost
    "loss_1",
    "loss_2",
    "loss_3",
    "slope_0",  # dRTT/dT of each interval, seconds per second
    "slope_1",
    "slope_2",
    "slope_3",
    # sums over the interval being received, weighted by bytes; times are since its start
    "sum_acked_bytes",
    "sum_lost_bytes",
    "sum_t",
    "sum_tt",
    "sum_rtt",
    "sum_t_rtt",
    "base_rtt_s",  # of the sums: the first RTT of the interval
)


@njit(cache=True, error_model="numpy")
def draw(state: Any) -> float:
    """Return the next random number in [0, 1)."""
    state.draws += 1.0
    return float(uniform(state.seed, state.env, state.flow, state.draws - 1.0))


@njit(cache=True, error_model="numpy")
def start_experiment(state: Any, now_s: float, n: int, length_rtts: float, r0: float, r1: float, r2: float, r3: float) -> None:
    """Begin n intervals at rates r0, r1, ... (bytes/s), each so many smoothed RTTs long."""
    state.n_intervals = n
    state.sending = 0.0
    state.receiving = 0.0
    state.limited = 0.0
    state.planned_bytes = 0.0
    state.measured_bytes = 0.0
    state.edge_0_s = now_s
    state.rate_0_Bps, state.rate_1_Bps, state.rate_2_Bps, state.rate_3_Bps = r0, r1, r2, r3
    state.interval_s = max(length_rtts * state.srtt_s, MIN_INTERVAL_MSS * state.mss_bytes / state.rate_Bps)
    _clear_sums(state)
    _set_rate(state, r0)


@njit(cache=True, error_model="numpy")
def _clear_sums(state: Any) -> None:
    state.sum_acked_bytes = 0.0
    state.sum_lost_bytes = 0.0
    state.sum_t = 0.0
    state.sum_tt = 0.0
    state.sum_rtt = 0.0
    state.sum_t_rtt = 0.0


@njit(cache=True, error_model="numpy")
def _set_rate(state: Any, rate_Bps: float) -> None:
    state.pacing_rate_Bps = rate_Bps
    state.cwnd_bytes = max(CWND_GAIN * rate_Bps * state.srtt_s, MIN_CWND_MSS * state.mss_bytes)


@njit(cache=True, error_model="numpy")
def bounded(state: Any, rate_Bps: float) -> float:
    """Return the rate within one segment per smoothed RTT and MAX_RATE_Bps."""
    return min(max(rate_Bps, state.mss_bytes / state.srtt_s), MAX_RATE_Bps)


@njit(cache=True, error_model="numpy")
def send_on(state: Any, now_s: float) -> None:
    """Go on to the next interval's rate, or to the base rate after the last, when the time has come."""
    if state.n_intervals == 0.0 or state.sending >= state.n_intervals:
        return
    s = state
    start_s = _edge_s(s, s.sending)
    if now_s < start_s + s.interval_s:
        return
    s.sending += 1.0
    if s.sending == 1.0:
        s.edge_1_s = now_s
    elif s.sending == 2.0:
        s.edge_2_s = now_s
    elif s.sending == 3.0:
        s.edge_3_s = now_s
    else:
        s.edge_4_s = now_s
    rate_Bps = s.rate_Bps
    if s.sending < s.n_intervals:
        rate_Bps = s.rate_1_Bps if s.sending == 1.0 else (s.rate_2_Bps if s.sending == 2.0 else s.rate_3_Bps)
    _set_rate(s, rate_Bps)


@njit(cache=True, error_model="numpy")
def _edge_s(state: Any, i: float) -> float:
    if i == 0.0:
        return float(state.edge_0_s)
    if i == 1.0:
        return float(state.edge_1_s)
    if i == 2.0:
        return float(state.edge_2_s)
    return float(state.edge_3_s) if i == 3.0 else float(state.edge_4_s)


@njit(cache=True, error_model="numpy")
def receive(state: Any, ack: Any) -> bool:
    """Take an ACK; return whether all results of the experiment are in."""
    state.srtt_s = smoothed_rtt(state.srtt_s, ack.rtt_s, min(1.0, ack.acked_bytes / state.cwnd_bytes))
    if state.n_intervals == 0.0:
        return False
    if ack.app_limited > 0.0:
        state.limited = 1.0
    sent_s = ack.now_s - ack.rtt_s
    while (
        state.receiving < state.n_intervals
        and state.receiving < state.sending
        and sent_s >= _edge_s(state, state.receiving + 1.0)
    ):
        _close_interval(state)
    if state.receiving >= state.n_intervals:
        return True
    t_s = sent_s - _edge_s(state, state.receiving)
    if t_s >= 0.0:
        if state.sum_acked_bytes == 0.0:
            state.base_rtt_s = ack.rtt_s
        rtt_s = ack.rtt_s - state.base_rtt_s  # differences keep the sums exact where the RTT is constant
        state.sum_acked_bytes += ack.acked_bytes
        state.sum_t += ack.acked_bytes * t_s
        state.sum_tt += ack.acked_bytes * t_s * t_s
        state.sum_rtt += ack.acked_bytes * rtt_s
        state.sum_t_rtt += ack.acked_bytes * t_s * rtt_s
    return False


@njit(cache=True, error_model="numpy")
def _close_interval(state: Any) -> None:
    """Set loss share and RTT slope (linear regression over the bytes: Vivace s.4.2) of the interval received."""
    s = state
    loss = 0.0
    if s.sum_lost_bytes > 0.0:
        loss = s.sum_lost_bytes / (s.sum_lost_bytes + s.sum_acked_bytes)
    slope = 0.0
    if s.sum_acked_bytes > 0.0:
        spread = s.sum_tt - s.sum_t * s.sum_t / s.sum_acked_bytes
        if spread > 1e-9 * s.sum_tt:
            slope = (s.sum_t_rtt - s.sum_t * s.sum_rtt / s.sum_acked_bytes) / spread
    rate_Bps = s.rate_0_Bps if s.receiving == 0.0 else (s.rate_1_Bps if s.receiving == 1.0 else s.rate_2_Bps)
    if s.receiving == 3.0:
        rate_Bps = s.rate_3_Bps
    s.planned_bytes += rate_Bps * (_edge_s(s, s.receiving + 1.0) - _edge_s(s, s.receiving))
    s.measured_bytes += s.sum_acked_bytes + s.sum_lost_bytes
    if s.receiving == 0.0:
        s.loss_0, s.slope_0 = loss, slope
    elif s.receiving == 1.0:
        s.loss_1, s.slope_1 = loss, slope
    elif s.receiving == 2.0:
        s.loss_2, s.slope_2 = loss, slope
    else:
        s.loss_3, s.slope_3 = loss, slope
    s.receiving += 1.0
    _clear_sums(s)


@njit(cache=True, error_model="numpy")
def fell_short(state: Any) -> bool:
    """Lower the base rate to what a finished experiment really sent; return whether that was much less than planned.

    A sender held up by the receive window measures nothing but its own pauses. One experiment halves the rate at most.
    """
    if state.measured_bytes >= SENT_SHARE * state.planned_bytes:
        return False
    share = max(state.measured_bytes / state.planned_bytes, TIMEOUT_FACTOR)
    state.rate_Bps = bounded(state, share * state.rate_Bps)
    return True


@njit(cache=True, error_model="numpy")
def init_intervals(state: Any) -> None:
    """Send the initial window unpaced: the first RTT sample sets the rate."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    state.n_intervals = 0.0
    state.rate_Bps = 0.0
    state.srtt_s = 0.0


@njit(cache=True, error_model="numpy")
def count_loss(state: Any, lost_bytes: float) -> None:
    """Charge a loss to the interval being received, if its first byte may have arrived."""
    if state.n_intervals > 0.0 and state.receiving < state.n_intervals and state.sum_acked_bytes > 0.0:
        state.sum_lost_bytes += lost_bytes
