"""Copa (Arun, Balakrishnan: Copa: practical delay-based congestion control for the Internet, NSDI 2018).

The window moves towards the target rate 1/(delta * d_q), d_q = RTTstanding - RTTmin, by velocity/delta segments per RTT.

Deviations: the velocity is capped so that the window at most doubles in a round trip (the paper states no cap); both
minimum filters are three-sample estimators; the smoothed RTT is weighted by bytes; the window restarts at two segments
after a time-out (the paper leaves time-outs to the transport); the initial window is that of RFC 6928.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.agents.classic.common import Cca, Parameter, initial_window, smoothed_rtt, switch, windowed_min
from ccenv.base.kernels.decorator import kernel

MIN_RTT_WINDOW_S = 10.0  # [Copa] s.2.1
STANDING_SHARE = 0.5  # RTTstanding is the minimum over srtt/2: [Copa] s.2.1
SAME_DIRECTION_ROUNDS = 3.0  # before the velocity doubles: [Copa] s.2.1
PACING_GAIN = 2.0  # of cwnd/RTTstanding: [Copa] s.2.1
EMPTY_SHARE = 0.1  # "nearly empty": d_q below this share of RTTmax - RTTmin: [Copa] s.2.2
EMPTY_ROUNDS = 5.0  # without a nearly empty queue: competitive mode: [Copa] s.2.2
MIN_CWND_MSS = 2.0

sender = Cca(
    "copa",
    __name__,
    parameters=(
        initial_window(),
        Parameter("default_delta", 0.5, above=0, high=10),  # 1/delta segments in the queue: [Copa] s.2.1
        switch("mode_switching", 1),  # compete with buffer-fillers (NSDI 2018 s.2.2); 0: always the default mode
    ),
    fields=(
        "delta",
        "slow_start",
        "velocity",
        "direction",  # of the last round: 1 up, -1 down
        "same_direction_rounds",
        "round_cwnd_bytes",  # window when this round began
        "rounds",
        "round_had_loss",
        "empty_round",  # newest round with a nearly empty queue
        "srtt_s",
        # minimum RTT over 10 s
        "min_a_s",
        "min_a_at_s",
        "min_b_s",
        "min_b_at_s",
        "min_c_s",
        "min_c_at_s",
        # standing RTT over srtt/2
        "standing_a_s",
        "standing_a_at_s",
        "standing_b_s",
        "standing_b_at_s",
        "standing_c_s",
        "standing_c_at_s",
        # largest RTT of this round and the three before
        "max_0_s",
        "max_1_s",
        "max_2_s",
        "max_3_s",
    ),
)


def init(state: Any) -> None:
    """Start in slow start and in the default mode; not paced before the first RTT sample."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    state.delta = state.default_delta
    state.slow_start = 1.0
    state.velocity = 1.0
    state.round_cwnd_bytes = state.cwnd_bytes


def on_ack(state: Any, ack: Any) -> None:
    """Move the window towards the target rate (NSDI 2018 s.2.1)."""
    share = min(1.0, ack.acked_bytes / state.cwnd_bytes)
    state.srtt_s = smoothed_rtt(state.srtt_s, ack.rtt_s, share)
    _measure(state, ack.now_s, ack.rtt_s)
    if ack.round_start > 0.0:
        _end_round(state)
    state.max_0_s = max(state.max_0_s, ack.rtt_s)
    queueing_s = max(0.0, state.standing_a_s - state.min_a_s)
    longest_s = max(state.max_0_s, state.max_1_s, state.max_2_s, state.max_3_s)
    if queueing_s <= EMPTY_SHARE * (longest_s - state.min_a_s):
        state.empty_round = state.rounds

    # cwnd/RTTstanding <= MSS/(delta * d_q), without a division by zero
    below_target = state.cwnd_bytes * state.delta * queueing_s <= state.mss_bytes * state.standing_a_s
    if state.slow_start > 0.0 and not below_target:
        state.slow_start = 0.0
    if below_target and ack.app_limited > 0.0:
        pass  # an unused window is not enlarged
    elif state.slow_start > 0.0:
        state.cwnd_bytes += ack.acked_bytes
    elif below_target:
        state.cwnd_bytes += state.velocity * state.mss_bytes * share / state.delta
    else:
        state.cwnd_bytes -= state.velocity * state.mss_bytes * share / state.delta
    state.cwnd_bytes = max(state.cwnd_bytes, MIN_CWND_MSS * state.mss_bytes)
    state.pacing_rate_Bps = PACING_GAIN * state.cwnd_bytes / state.standing_a_s


@kernel
def _measure(state: Any, now_s: float, rtt_s: float) -> None:
    s = state
    shortest = (s.min_a_s, s.min_a_at_s, s.min_b_s, s.min_b_at_s, s.min_c_s, s.min_c_at_s)
    shortest = windowed_min(shortest, now_s, rtt_s, MIN_RTT_WINDOW_S)
    s.min_a_s, s.min_a_at_s, s.min_b_s, s.min_b_at_s, s.min_c_s, s.min_c_at_s = shortest
    standing = (s.standing_a_s, s.standing_a_at_s, s.standing_b_s, s.standing_b_at_s, s.standing_c_s, s.standing_c_at_s)
    standing = windowed_min(standing, now_s, rtt_s, STANDING_SHARE * s.srtt_s)
    s.standing_a_s, s.standing_a_at_s, s.standing_b_s, s.standing_b_at_s, s.standing_c_s, s.standing_c_at_s = standing


@kernel
def _end_round(state: Any) -> None:
    _update_velocity(state)
    state.rounds += 1.0
    state.max_3_s, state.max_2_s, state.max_1_s, state.max_0_s = state.max_2_s, state.max_1_s, state.max_0_s, 0.0
    if state.mode_switching > 0.0 and state.rounds - state.empty_round > EMPTY_ROUNDS:
        if state.round_had_loss == 0.0:  # 1/delta grows by 1 per RTT: [Copa] s.2.2
            state.delta = 1.0 / (1.0 / state.delta + 1.0)
    else:
        state.delta = state.default_delta
    state.round_had_loss = 0.0


@kernel
def _update_velocity(state: Any) -> None:
    direction = 1.0 if state.cwnd_bytes > state.round_cwnd_bytes else -1.0
    if state.slow_start > 0.0:
        state.velocity = 1.0
    elif direction == state.direction:
        state.same_direction_rounds += 1.0
        if state.same_direction_rounds >= SAME_DIRECTION_ROUNDS:
            state.velocity *= 2.0
    else:
        state.same_direction_rounds = 1.0
        state.velocity = 1.0
    largest = max(1.0, state.delta * state.cwnd_bytes / state.mss_bytes)
    state.velocity = min(state.velocity, largest)
    state.direction = direction
    state.round_cwnd_bytes = state.cwnd_bytes


def on_loss(state: Any, loss: Any) -> None:
    """Halve 1/delta in competitive mode (NSDI 2018 s.2.2); the default mode does not react. Restart after a time-out."""
    if loss.new_episode > 0.0 and state.mode_switching > 0.0 and state.delta < state.default_delta:
        state.delta = min(2.0 * state.delta, state.default_delta)
    state.round_had_loss = 1.0
    if loss.timeout > 0.0:
        state.cwnd_bytes = MIN_CWND_MSS * state.mss_bytes
        state.slow_start = 1.0
        state.velocity = 1.0
        state.same_direction_rounds = 0.0
