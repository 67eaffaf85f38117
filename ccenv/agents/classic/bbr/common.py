"""Code shared by BBRv2 and BBRv3: constants, the bandwidth filter, the short-term bounds, aggregation, RTTs, targets.

Section numbers are those of [BBR-draft-02] (``bbr2``), then those of draft-ietf-ccwg-bbr-06 (``bbr3``). The functions work on
the states of both.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import UNLIMITED_BYTES, windowed_min
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform

STARTUP, DRAIN, DOWN, CRUISE, REFILL, UP, PROBE_RTT = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0

LOSS_THRESHOLD = 0.02  # 2.6; s.2.8: LossThresh
BETA = 0.7  # 2.6; s.2.8: Beta
HEADROOM = 0.15  # 2.6; s.2.8: Headroom
MIN_CWND_MSS = 4.0  # 2.7; s.2.8: MinPipeCwnd
CWND_GAIN = 2.0  # 2.5; s.2.6: DefaultCwndGain
UP_PACING_GAIN = 1.25  # 4.3.3.4; s.5.3.3.5
PACING_MARGIN = 0.01  # 2.4; s.2.5: PacingMarginPercent
FULL_PIPE_GROWTH = 1.25  # 4.3.1.2; s.5.3.1.2
FULL_PIPE_ROUNDS = 3.0  # 4.3.1.2; s.5.3.1.2
MIN_RTT_WINDOW_S = 10.0  # 2.14.1; s.2.16.1: MinRTTFilterLen
PROBE_RTT_INTERVAL_S = 5.0  # 2.14.2; s.2.16.2: ProbeRTTInterval
PROBE_RTT_CWND_GAIN = 0.5  # 2.14.2; s.2.16.2: ProbeRTTCwndGain
PROBE_RTT_S = 0.2  # 2.14.2; s.2.16.2: ProbeRTTDuration
PROBE_WAIT_S = 2.0  # 4.3.3.5; s.5.3.3.8.3: bw_probe_wait is 2 to 3 s
MAX_RENO_ROUNDS = 63.0  # 4.3.3.5; s.5.3.3.8.3: probe at least as often as Reno with so large a BDP would
EXTRA_ACKED_ROUNDS = 10.0  # 2.11; s.2.12: ExtraAckedFilterLen
MAX_SLOPE_DOUBLINGS = 30.0  # 4.3.3.6; s.5.3.3.9: RaiseInflightLongtermSlope
QUANTUM_MAX_BYTES = 65_536.0  # 4.6.3; s.5.6.3
QUANTUM_S = 0.001  # 4.6.3; s.5.6.3
QUANTA = 3.0  # 4.6.4.2; s.5.5.8.1: offload_budget of TCP
UP_EXTRA_MSS = 2.0  # 4.6.4.2; s.5.6.4.2: QuantizationBudget


FIELDS = (
    "mode",
    "pacing_gain",
    "cwnd_gain",
    "rounds",
    "round_end_bytes",  # the round ends when so many bytes are delivered (next_round_delivered)
    "max_bandwidth_Bps",
    "cycle_bandwidth_Bps",  # largest of this and of the cycle before (MaxBwFilterLen = 2)
    "last_cycle_bandwidth_Bps",
    "latest_bandwidth_Bps",  # bw_latest: largest of this round
    "latest_inflight_bytes",  # inflight_latest: largest delivered in a round trip, this round
    "bandwidth_Bps",  # bw: in use
    "low_bandwidth_Bps",  # bw_shortterm
    "low_inflight_bytes",  # inflight_shortterm
    "high_inflight_bytes",  # inflight_longterm
    "ack_phase",
    "samples_probe",  # is_bw_probe_sample: losses may lower high_inflight_bytes
    "min_rtt_s",
    "min_rtt_at_s",
    "probe_min_rtt_s",  # probe_rtt_min_delay
    "probe_min_rtt_at_s",
    "probe_rtt_done_s",  # 0: in flight not yet down to the minimum
    "probe_rtt_round_done",
    "extra_start_s",
    "extra_bytes",  # delivered since extra_start_s
    # maximum of the extra bytes acknowledged over 10 rounds, stored negated
    "extra_a",
    "extra_a_at",
    "extra_b",
    "extra_b_at",
    "extra_c",
    "extra_c_at",
    "full_pipe",  # full_bw_reached
    "full_bandwidth_Bps",
    "full_rounds",  # full_bw_count
    "probe_wait_s",  # bw_probe_wait
    "rounds_since_probe",
    "saved_cwnd_bytes",  # prior_cwnd
    "limited_until_bytes",  # samples of data sent in PROBE_RTT count as application-limited
    "recover_bytes",  # fast recovery lasts until so many bytes are delivered
)


@kernel
def enter(state: Any, mode: float, pacing_gain: float, cwnd_gain: float) -> None:
    """Enter a mode with its gains of the bandwidth and of the BDP."""
    state.mode = mode
    state.pacing_gain = pacing_gain
    state.cwnd_gain = cwnd_gain


@kernel
def enter_cruise(state: Any) -> None:
    """Send at the bandwidth, with headroom (4.3.3.2; s.5.3.3.2)."""
    enter(state, CRUISE, 1.0, CWND_GAIN)


@kernel
def draw_probe_wait(state: Any) -> None:
    """Draw when to probe again: 2 to 3 s, and whether the rounds until then begin at 0 or 1 (4.3.3.5; s.5.3.3.9)."""
    counter = state.draws
    state.rounds_since_probe = 1.0 if uniform(state.seed, state.env, state.flow, counter) < 0.5 else 0.0
    state.probe_wait_s = PROBE_WAIT_S + uniform(state.seed, state.env, state.flow, counter + 1.0)
    state.draws += 2.0


@kernel
def take_bandwidth(state: Any, rate_Bps: float, limited: bool) -> None:
    """Put a delivery rate into the bandwidth filter; a limited one only if it is no less (4.5.2.3; s.5.5.5)."""
    if rate_Bps > 0.0 and (rate_Bps >= state.max_bandwidth_Bps or not limited):
        state.cycle_bandwidth_Bps = max(state.cycle_bandwidth_Bps, rate_Bps)
        state.max_bandwidth_Bps = max(state.cycle_bandwidth_Bps, state.last_cycle_bandwidth_Bps)


@kernel
def advance_bandwidth_filter(state: Any) -> None:
    """Begin a new cycle of the bandwidth filter, which holds two (4.5.2.4; s.5.5.6)."""
    if state.cycle_bandwidth_Bps > 0.0:
        state.last_cycle_bandwidth_Bps = state.cycle_bandwidth_Bps
        state.cycle_bandwidth_Bps = 0.0
        state.max_bandwidth_Bps = state.last_cycle_bandwidth_Bps


@kernel
def adapt_lower_bounds(state: Any) -> None:
    """Once per round with loss: what was delivered, or BETA of the bound (4.5.10.3; s.5.5.10.3)."""
    if state.low_bandwidth_Bps == UNLIMITED_BYTES:
        state.low_bandwidth_Bps = state.max_bandwidth_Bps
    if state.low_inflight_bytes == UNLIMITED_BYTES:
        state.low_inflight_bytes = state.cwnd_bytes
    state.low_bandwidth_Bps = max(state.latest_bandwidth_Bps, BETA * state.low_bandwidth_Bps)
    state.low_inflight_bytes = max(state.latest_inflight_bytes, BETA * state.low_inflight_bytes)


@kernel
def reset_lower_bounds(state: Any) -> None:
    """Forget the short-term bounds (4.5.10.3; s.5.5.10.3: ResetShortTermModel)."""
    state.low_bandwidth_Bps = UNLIMITED_BYTES
    state.low_inflight_bytes = UNLIMITED_BYTES


@kernel
def update_extra(state: Any, ack: Any, window_rounds: float) -> None:
    """Estimate by how much ACKs run ahead of the bandwidth: aggregation (4.5.5; s.5.5.9)."""
    expected_bytes = state.bandwidth_Bps * (ack.now_s - state.extra_start_s)
    if state.extra_bytes <= expected_bytes:
        state.extra_bytes = 0.0
        state.extra_start_s = ack.now_s
        expected_bytes = 0.0
    state.extra_bytes += ack.acked_bytes
    extra_bytes = min(state.extra_bytes - expected_bytes, state.cwnd_bytes)
    s = state
    largest = (s.extra_a, s.extra_a_at, s.extra_b, s.extra_b_at, s.extra_c, s.extra_c_at)
    largest = windowed_min(largest, s.rounds, -extra_bytes, window_rounds)
    s.extra_a, s.extra_a_at, s.extra_b, s.extra_b_at, s.extra_c, s.extra_c_at = largest


@kernel
def update_min_rtt(state: Any, ack: Any) -> bool:
    """Keep the smallest RTT of 10 s, refreshed by one of 5 s (4.3.4.4; s.5.3.4.3); return whether that one has expired."""
    expired = state.probe_min_rtt_s > 0.0 and ack.now_s > state.probe_min_rtt_at_s + PROBE_RTT_INTERVAL_S
    if state.probe_min_rtt_s == 0.0 or ack.rtt_s < state.probe_min_rtt_s or expired:
        state.probe_min_rtt_s = ack.rtt_s
        state.probe_min_rtt_at_s = ack.now_s
    min_expired = ack.now_s > state.min_rtt_at_s + MIN_RTT_WINDOW_S
    if state.min_rtt_s == 0.0 or state.probe_min_rtt_s < state.min_rtt_s or min_expired:
        state.min_rtt_s = state.probe_min_rtt_s
        state.min_rtt_at_s = state.probe_min_rtt_at_s
    return bool(expired)


@kernel
def bdp_bytes(state: Any, bandwidth_Bps: float, gain: float) -> float:
    """Return gain times BDP; before the first RTT the initial window (4.6.4.2; s.5.6.4.2: BDPMultiple)."""
    if state.min_rtt_s <= 0.0:
        return state.initial_window_mss * state.mss_bytes
    return gain * bandwidth_Bps * state.min_rtt_s


@kernel
def quantised_bytes(state: Any, inflight_bytes: float, least_quantum_mss: float) -> float:
    """Return at least three send quanta and four segments (4.6.3, 4.6.4.2; s.5.6.3, s.5.6.4.2: QuantizationBudget)."""
    quantum_bytes = max(min(state.pacing_rate_Bps * QUANTUM_S, QUANTUM_MAX_BYTES), least_quantum_mss * state.mss_bytes)
    budget = max(inflight_bytes, QUANTA * quantum_bytes, MIN_CWND_MSS * state.mss_bytes)
    if state.mode == UP:
        budget += UP_EXTRA_MSS * state.mss_bytes
    return budget


@kernel
def inflight_with_headroom(state: Any) -> float:
    """Return the long-term bound less a share for others (4.5.10.2; s.5.3.3.9)."""
    if state.high_inflight_bytes == UNLIMITED_BYTES:
        return UNLIMITED_BYTES
    headroom_bytes = max(state.mss_bytes, HEADROOM * state.high_inflight_bytes)
    return max(state.high_inflight_bytes - headroom_bytes, MIN_CWND_MSS * state.mss_bytes)


@kernel
def probe_rtt_cwnd_bytes(state: Any) -> float:
    """Return half a BDP, at least four segments (4.3.4.3; s.5.6.4.5)."""
    return max(bdp_bytes(state, state.bandwidth_Bps, PROBE_RTT_CWND_GAIN), MIN_CWND_MSS * state.mss_bytes)


@kernel
def save_cwnd(state: Any, in_recovery: bool) -> None:
    """Remember the window for after PROBE_RTT or recovery (4.6.4.4; s.5.6.4.4)."""
    if not in_recovery and state.mode != PROBE_RTT:
        state.saved_cwnd_bytes = state.cwnd_bytes
    else:
        state.saved_cwnd_bytes = max(state.saved_cwnd_bytes, state.cwnd_bytes)
