"""Libra (Du et al.: A unified framework for diverse application preferences and network conditions, CoNEXT 2021).

A classic and a learning CCA propose rates, and what they achieve decides. A cycle has three stages: CUBIC goes on from the base
rate x_prev for a round trip, or until it is far from the learner (exploration); its rate and the learner's are tried for half
a round trip each, the lower first (evaluation); x_prev is sent until the results are in (exploitation). The rate of the three
with the largest utility, Vivace's with its constants, is the next base rate.

Deviations: where the paper has a policy trained by reinforcement, the learner is Vivace's step along the gradient of the same
utility, measured between the two rates tried, at least 5 % from CUBIC's so that there is one; CUBIC is its curve alone, without
the Reno-friendly region, is paced, and leaves slow start, in which nothing else is tried, when the RTT is a quarter above the
smallest; x_prev is measured while it is exploited, and its results are awaited; those of ``common``. The threshold of
exploration is the paper's as remembered.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import MIN_SSTHRESH_MSS, UNLIMITED_BYTES, Cca, initial_window
from ccenv.agents.classic.cubic import BETA, MAX_GROWTH, NO_EPOCH, cubic_window_bytes, plateau_time_s
from ccenv.agents.classic.pcc import common as pcc
from ccenv.agents.classic.pcc import vivace
from ccenv.base.kernels.decorator import kernel
from ccenv.network.path import MBPS_IN_BPS

EXPLORING, EVALUATING = 0.0, 1.0
EXPLORATION_RTTS = 1.0  # [Libra] with CUBIC
INTERVAL_RTTS = 0.5  # of each rate that is tried
FAR = 0.3  # of the base rate: candidates so far apart end exploration
SLOW_START_EXIT = 1.25  # RTT in units of the smallest
SLOW_START_KEPT = 0.5  # of the window then: what the last round trip delivered

sender = Cca(
    "libra",
    __name__,
    parameters=(initial_window(),),
    fields=(
        *pcc.FIELDS,
        "direction",  # of the learner, as in Vivace
        "same_direction",
        "bound_steps",
        "learned_Bps",  # the learner's rate
        "explored_s",  # start of the exploration
        "window_bytes",  # of CUBIC
        "ssthresh_bytes",
        "w_max_bytes",
        "epoch_start_s",
        "k_s",
    ),
)


def init(state: Any) -> None:
    """Start in CUBIC's slow start."""
    pcc.init_intervals(state)
    state.mode = EXPLORING
    state.ssthresh_bytes = UNLIMITED_BYTES
    state.epoch_start_s = NO_EPOCH


def on_ack(state: Any, ack: Any) -> None:
    """Explore, or collect results and choose when all are in."""
    s = state
    done = pcc.receive(s, ack)
    if s.rate_Bps == 0.0:
        s.rate_Bps = s.learned_Bps = pcc.bounded(s, s.cwnd_bytes / ack.rtt_s)
        _explore(s, ack.now_s)
    elif s.mode == EVALUATING and done:
        if s.limited == 0.0 and not pcc.fell_short(s):
            _choose(s)
        _explore(s, ack.now_s)
    elif s.mode == EXPLORING and ack.app_limited == 0.0:
        _grow(s, ack)
        classic_Bps = pcc.bounded(s, s.window_bytes / s.srtt_s)
        far = abs(classic_Bps - s.learned_Bps) > FAR * s.rate_Bps
        if s.ssthresh_bytes == UNLIMITED_BYTES or not (far or ack.now_s - s.explored_s >= EXPLORATION_RTTS * s.srtt_s):
            _send(s, classic_Bps)
        else:
            _evaluate(s, ack.now_s, classic_Bps)
    pcc.send_on(s, ack.now_s)


@kernel
def _explore(state: Any, now_s: float) -> None:
    """Let CUBIC go on from the base rate."""
    state.mode = EXPLORING
    state.n_intervals = 0.0
    state.explored_s = now_s
    state.window_bytes = state.rate_Bps * state.srtt_s
    _send(state, state.rate_Bps)


@kernel
def _send(state: Any, rate_Bps: float) -> None:
    state.pacing_rate_Bps = rate_Bps
    state.cwnd_bytes = max(pcc.CWND_GAIN * rate_Bps * state.srtt_s, pcc.MIN_CWND_MSS * state.mss_bytes)


@kernel
def _grow(state: Any, ack: Any) -> None:
    """Grow CUBIC's window by what an ACK acknowledges (RFC 9438 s.4.2)."""
    s = state
    if s.window_bytes < s.ssthresh_bytes:
        s.window_bytes += ack.acked_bytes
        if s.ssthresh_bytes == UNLIMITED_BYTES and ack.rtt_s > SLOW_START_EXIT * ack.min_rtt_s:
            s.window_bytes *= SLOW_START_KEPT
            s.ssthresh_bytes = s.window_bytes
            s.rate_Bps = s.learned_Bps = pcc.bounded(s, s.window_bytes / s.srtt_s)
        return
    if s.epoch_start_s == NO_EPOCH:
        s.epoch_start_s = ack.now_s
        s.w_max_bytes = max(s.w_max_bytes, s.window_bytes)
        s.k_s = plateau_time_s(s.w_max_bytes, s.window_bytes, s.mss_bytes)
    target_bytes = cubic_window_bytes(ack.now_s - s.epoch_start_s + s.srtt_s, s.k_s, s.w_max_bytes, s.mss_bytes)
    target_bytes = min(max(target_bytes, s.window_bytes), MAX_GROWTH * s.window_bytes)
    s.window_bytes += (target_bytes - s.window_bytes) * min(1.0, ack.acked_bytes / s.window_bytes)


@kernel
def _evaluate(state: Any, now_s: float, classic_Bps: float) -> None:
    """Try both candidates, the lower first, then the base rate."""
    s = state
    s.mode = EVALUATING
    if abs(s.learned_Bps - classic_Bps) < vivace.PROBE_STEP * classic_Bps:
        sign = 1.0 if s.learned_Bps > classic_Bps or (s.learned_Bps == classic_Bps and pcc.draw(s) < 0.5) else -1.0
        s.learned_Bps = pcc.bounded(s, classic_Bps * (1.0 + sign * vivace.PROBE_STEP))
    low, high = min(classic_Bps, s.learned_Bps), max(classic_Bps, s.learned_Bps)
    pcc.start_experiment(s, now_s, 4, INTERVAL_RTTS, pcc.MIN_INTERVAL_MSS, low, high, s.rate_Bps, s.rate_Bps)


@kernel
def _choose(state: Any) -> None:
    """Take the rate with the largest utility; let the learner step from it along the gradient."""
    s = state
    low = vivace.utility(s.rate_0_Bps, s.slope_0, pcc.loss_share(s.acked_0_bytes, s.lost_0_bytes))
    high = vivace.utility(s.rate_1_Bps, s.slope_1, pcc.loss_share(s.acked_1_bytes, s.lost_1_bytes))
    loss = pcc.loss_share(s.acked_2_bytes + s.acked_3_bytes, s.lost_2_bytes + s.lost_3_bytes)
    best = vivace.utility(s.rate_2_Bps, 0.5 * (s.slope_2 + s.slope_3), loss)
    if max(low, high) <= best:  # the base rate stays, and nothing confirms larger steps
        s.same_direction = s.bound_steps = 0.0
    else:
        s.rate_Bps = s.rate_1_Bps if high > low else s.rate_0_Bps
    base_Bps = s.rate_Bps
    if s.rate_1_Bps > s.rate_0_Bps:
        vivace.follow(s, (high - low) * MBPS_IN_BPS / (s.rate_1_Bps - s.rate_0_Bps))
    s.learned_Bps, s.rate_Bps = s.rate_Bps, base_Bps


def on_loss(state: Any, loss: Any) -> None:
    """Count the loss, and reduce CUBIC's window once per episode; halve the base rate and begin anew after a time-out."""
    s = state
    pcc.count_loss(s, loss.lost_bytes)
    if loss.new_episode > 0.0 and s.rate_Bps > 0.0:
        s.w_max_bytes = s.window_bytes
        if s.ssthresh_bytes == UNLIMITED_BYTES:
            s.rate_Bps = s.learned_Bps = pcc.bounded(s, BETA * s.window_bytes / s.srtt_s)
        s.window_bytes = s.ssthresh_bytes = max(BETA * s.window_bytes, MIN_SSTHRESH_MSS * s.mss_bytes)
        s.epoch_start_s = NO_EPOCH
    if loss.timeout > 0.0 and s.rate_Bps > 0.0:
        s.rate_Bps = s.learned_Bps = pcc.bounded(s, vivace.TIMEOUT_FACTOR * s.rate_Bps)
        _explore(s, loss.now_s)


def on_tick(state: Any, tick: Any) -> None:
    """Go on to the next interval when its time has come."""
    pcc.send_on(state, tick.now_s)
