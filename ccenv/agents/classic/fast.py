"""FAST (Wei, Jin, Low, Hegde: FAST TCP: motivation, architecture, algorithms, performance, IEEE/ACM ToN 14(6), 2006).

Once per round trip the window moves a share gamma of the way to the window that keeps alpha segments in the queue:
w <- min(2w, (1 - gamma) w + gamma (baseRTT/RTT w + alpha)); at the fixed point w (1 - baseRTT/RTT) = alpha.

Deviations: the update runs once per round trip on the mean RTT over the bytes of the round (the implementation: at fixed
times, on an exponential average); slow start ends when alpha segments are queued (the papers leave its threshold open); a
loss halves the window, as the authors' implementation does; alpha is 20 by default, for links of about 100 Mbit/s (the
papers: 200 at 1 Gbit/s); the initial window is that of RFC 6928.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import Cca, Parameter, extend_recovery, in_recovery, initial_window, start_window
from ccenv.base.kernels.decorator import kernel

MAX_GROWTH = 2.0  # ToN 2006 s.IV: the window at most doubles per update
LOSS_FACTOR = 0.5
MIN_CWND_MSS = 2.0  # also the window after a time-out

sender = Cca(
    "fast",
    __name__,
    parameters=(
        initial_window(),
        Parameter("alpha_mss", 20.0, above=0, high=1e6),  # own segments to keep in the queue
        Parameter("gamma", 0.5, above=0, high=1),  # share of the way to the target window per update: ToN 2006 s.IV
    ),
    fields=(
        "slow_start",
        "ssthresh_bytes",  # ends the slow start after a time-out
        "recover_bytes",  # no change of the window until so many bytes are delivered
        "round_acked_bytes",
        "round_rtt_sum",  # sum over the round of RTT times bytes, in byte seconds
    ),
)


@kernel
def next_window(window: float, base_rtt_s: float, rtt_s: float, alpha: float, gamma: float) -> float:
    """Return the next window in the unit of window and alpha (ToN 2006 s.IV)."""
    target = base_rtt_s / rtt_s * window + alpha
    return min(MAX_GROWTH * window, (1.0 - gamma) * window + gamma * target)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    start_window(state)
    state.slow_start = 1.0


def on_ack(state: Any, ack: Any) -> None:
    """Update at the start of each round by the round before; in slow start double per round trip."""
    recovering = in_recovery(state, ack)
    if ack.round_start > 0.0 and state.round_acked_bytes > 0.0:
        if not recovering:
            _update(state, ack.min_rtt_s, state.round_rtt_sum / state.round_acked_bytes, ack.app_limited)
        state.round_acked_bytes = 0.0
        state.round_rtt_sum = 0.0
    state.round_acked_bytes += ack.acked_bytes
    state.round_rtt_sum += ack.rtt_s * ack.acked_bytes
    if state.slow_start > 0.0 and not recovering and ack.app_limited == 0.0:
        state.cwnd_bytes = min(state.cwnd_bytes + ack.acked_bytes, state.ssthresh_bytes)
        if state.cwnd_bytes >= state.ssthresh_bytes:
            state.slow_start = 0.0


@kernel
def _update(state: Any, base_rtt_s: float, rtt_s: float, app_limited: float) -> None:
    alpha_bytes = state.alpha_mss * state.mss_bytes
    if state.slow_start > 0.0:
        if state.cwnd_bytes * (1.0 - base_rtt_s / rtt_s) < alpha_bytes:
            return
        state.slow_start = 0.0
    window_bytes = next_window(state.cwnd_bytes, base_rtt_s, rtt_s, alpha_bytes, state.gamma)
    if app_limited > 0.0:
        window_bytes = min(window_bytes, state.cwnd_bytes)
    state.cwnd_bytes = max(window_bytes, MIN_CWND_MSS * state.mss_bytes)


def on_loss(state: Any, loss: Any) -> None:
    """Halve once per episode; two segments and slow start after a time-out."""
    minimum_bytes = MIN_CWND_MSS * state.mss_bytes
    if loss.new_episode > 0.0:
        state.ssthresh_bytes = max(LOSS_FACTOR * (loss.inflight_bytes + loss.lost_bytes), minimum_bytes)
        state.cwnd_bytes = max(LOSS_FACTOR * state.cwnd_bytes, minimum_bytes)
        state.slow_start = 0.0
    if loss.timeout > 0.0:
        state.cwnd_bytes = minimum_bytes
        state.slow_start = 1.0
    extend_recovery(state, loss)
