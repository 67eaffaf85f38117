"""Monitor intervals of PCC Allegro and PCC Vivace: send at trial rates one after the other, then evaluate the results.

An experiment is one to four intervals in a row, each at its own rate. An acknowledged byte belongs to the interval in which
it was sent, and so does a loss: it is found when three later segments are acknowledged. While the results of an experiment
are on their way the sender keeps its base rate.

Deviations (both papers): an experiment's results are awaited before the next begins, as in the authors' Linux module, instead
of overlapping with it; the rate of an interval is the one that was set, not a count of packets; the window is two BDP of the
current rate and smoothed RTT (that of the module; the papers have none); an experiment that sent less than three quarters of
what was planned lowers the rate to what it sent, or to half, and decides nothing (the authors' user-space code does so
where more than 10 Mbit/s are missing).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.agents.classic.common import smoothed_rtt
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform

MIN_INTERVAL_MSS = 10.0  # NSDI 2015 s.3.1: an interval is long enough for ten packets
CWND_GAIN = 2.0
MIN_CWND_MSS = 4.0
MAX_RATE_Bps = 1e12  # far above any link: keeps an unlimited start finite
LATER_MSS = 3.0  # acknowledged later: RFC 6675 DupThresh
SENT_SHARE = 0.75  # of what was planned, below which an experiment decides nothing
SMALLEST_SHARE = 0.5  # of the rate, that one such experiment leaves

FIELDS = (
    "mode",
    "rate_Bps",  # base rate
    "srtt_s",
    "n_intervals",  # of the experiment
    "sending",  # interval being sent; n_intervals: all sent
    "receiving",  # interval whose ACKs arrive
    "interval_s",
    "settling",  # interval to which losses that are found belong; n_intervals: all results are in
    "limited",  # 1 if the application limited the experiment
    "edge_0_s",  # start of each interval, end of the last
    "edge_1_s",
    "edge_2_s",
    "edge_3_s",
    "edge_4_s",
    "rate_0_Bps",
    "rate_1_Bps",
    "rate_2_Bps",
    "rate_3_Bps",
    "acked_0_bytes",  # of the bytes of each interval
    "acked_1_bytes",
    "acked_2_bytes",
    "acked_3_bytes",
    "lost_0_bytes",
    "lost_1_bytes",
    "lost_2_bytes",
    "lost_3_bytes",
    "slope_0",  # dRTT/dT of each interval, seconds per second
    "slope_1",
    "slope_2",
    "slope_3",
    # sums over the interval being received, weighted by bytes; times are since its start
    "sum_acked_bytes",
    "sum_t",
    "sum_tt",
    "sum_rtt",
    "sum_t_rtt",
    "base_rtt_s",  # of the sums: the first RTT of the interval
)


@kernel
def draw(state: Any) -> float:
    """Return the next random number in [0, 1)."""
    state.draws += 1.0
    return float(uniform(state.seed, state.env, state.flow, state.draws - 1.0))


@kernel
def start_experiment(
    state: Any, now_s: float, n: int, length_rtts: float, length_mss: float, r0: float, r1: float, r2: float, r3: float
) -> None:
    """Begin n intervals at rates r0, r1, ... (bytes/s), each at least so many smoothed RTTs and segments long."""
    state.n_intervals = n
    state.sending = 0.0
    state.receiving = 0.0
    state.settling = 0.0
    state.limited = 0.0
    state.edge_0_s = now_s
    state.rate_0_Bps, state.rate_1_Bps, state.rate_2_Bps, state.rate_3_Bps = r0, r1, r2, r3
    state.acked_0_bytes = state.acked_1_bytes = state.acked_2_bytes = state.acked_3_bytes = 0.0
    state.lost_0_bytes = state.lost_1_bytes = state.lost_2_bytes = state.lost_3_bytes = 0.0
    state.interval_s = max(length_rtts * state.srtt_s, length_mss * state.mss_bytes / state.rate_Bps)
    _clear_sums(state)
    _set_rate(state, r0)


@kernel
def _clear_sums(state: Any) -> None:
    state.sum_acked_bytes = 0.0
    state.sum_t = 0.0
    state.sum_tt = 0.0
    state.sum_rtt = 0.0
    state.sum_t_rtt = 0.0


@kernel
def _set_rate(state: Any, rate_Bps: float) -> None:
    state.pacing_rate_Bps = rate_Bps
    state.cwnd_bytes = max(CWND_GAIN * rate_Bps * state.srtt_s, MIN_CWND_MSS * state.mss_bytes)


@kernel
def bounded(state: Any, rate_Bps: float) -> float:
    """Return the rate within one segment per smoothed RTT and MAX_RATE_Bps."""
    return min(max(rate_Bps, state.mss_bytes / state.srtt_s), MAX_RATE_Bps)


@kernel
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


@kernel
def _edge_s(state: Any, i: float) -> float:
    if i == 0.0:
        return float(state.edge_0_s)
    if i == 1.0:
        return float(state.edge_1_s)
    if i == 2.0:
        return float(state.edge_2_s)
    return float(state.edge_3_s) if i == 3.0 else float(state.edge_4_s)


@kernel
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
    if state.settling < state.receiving and state.sum_acked_bytes > LATER_MSS * state.mss_bytes:
        state.settling = state.receiving
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
    return bool(state.settling >= state.n_intervals)


@kernel
def _close_interval(state: Any) -> None:
    """Set acknowledged bytes and RTT slope (linear regression over the bytes: Vivace s.4.3) of the interval received."""
    s = state
    slope = 0.0
    if s.sum_acked_bytes > 0.0:
        spread = s.sum_tt - s.sum_t * s.sum_t / s.sum_acked_bytes
        if spread > 1e-9 * s.sum_tt:
            slope = (s.sum_t_rtt - s.sum_t * s.sum_rtt / s.sum_acked_bytes) / spread
    s.settling = s.receiving
    if s.receiving == 0.0:
        s.acked_0_bytes, s.slope_0 = s.sum_acked_bytes, slope
    elif s.receiving == 1.0:
        s.acked_1_bytes, s.slope_1 = s.sum_acked_bytes, slope
    elif s.receiving == 2.0:
        s.acked_2_bytes, s.slope_2 = s.sum_acked_bytes, slope
    else:
        s.acked_3_bytes, s.slope_3 = s.sum_acked_bytes, slope
    s.receiving += 1.0
    _clear_sums(s)


@kernel
def loss_share(acked_bytes: float, lost_bytes: float) -> float:
    """Return the share of an interval's bytes that was lost."""
    return lost_bytes / (acked_bytes + lost_bytes) if lost_bytes > 0.0 else 0.0


@kernel
def fell_short(state: Any) -> bool:
    """Lower the base rate to what a finished experiment really sent; return whether that was much less than planned.

    A sender held up by the receive window measures nothing but its own pauses. One experiment halves the rate at most.
    """
    s = state
    planned_bytes = s.rate_0_Bps * (s.edge_1_s - s.edge_0_s)
    sent_bytes = s.acked_0_bytes + s.lost_0_bytes
    if s.n_intervals > 1.0:
        planned_bytes += s.rate_1_Bps * (s.edge_2_s - s.edge_1_s)
        sent_bytes += s.acked_1_bytes + s.lost_1_bytes
    if s.n_intervals > 2.0:
        planned_bytes += s.rate_2_Bps * (s.edge_3_s - s.edge_2_s) + s.rate_3_Bps * (s.edge_4_s - s.edge_3_s)
        sent_bytes += s.acked_2_bytes + s.lost_2_bytes + s.acked_3_bytes + s.lost_3_bytes
    if sent_bytes >= SENT_SHARE * planned_bytes:
        return False
    s.rate_Bps = bounded(s, max(sent_bytes / planned_bytes, SMALLEST_SHARE) * s.rate_Bps)
    return True


@kernel
def init_intervals(state: Any) -> None:
    """Send the initial window unpaced: the first RTT sample sets the rate."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf


@kernel
def count_loss(state: Any, lost_bytes: float) -> None:
    """Charge a loss to the interval in which it was sent, as far as the ACKs so far tell."""
    s = state
    if s.n_intervals == 0.0 or (s.receiving == 0.0 and s.sum_acked_bytes <= LATER_MSS * s.mss_bytes):
        return  # sent before the experiment
    if s.settling == 0.0:
        s.lost_0_bytes += lost_bytes
    elif s.settling == 1.0:
        s.lost_1_bytes += lost_bytes
    elif s.settling == 2.0:
        s.lost_2_bytes += lost_bytes
    elif s.settling == 3.0:
        s.lost_3_bytes += lost_bytes
