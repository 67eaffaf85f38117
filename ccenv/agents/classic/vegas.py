"""Vegas (Brakmo, Peterson: TCP Vegas: end to end congestion avoidance on a global Internet, IEEE JSAC 13(8), 1995).

Once per round trip it compares the expected rate cwnd/BaseRTT with the actual rate cwnd/RTT; their difference times
BaseRTT is the number of its own segments in the queue, kept between alpha and beta.

Deviations: the RTT of a round is the mean over the bytes acknowledged in it, not that of one distinguished segment; the
step of one segment is taken at once instead of spread over the next round; losses are found by the engine, not by Vegas'
own fine-grained timer; the initial window is that of RFC 6928.

With ``linux_module`` it is tcp_vegas of Linux but for slow start: the smallest RTT of a round counts, the difference is divided
by BaseRTT and not by RTT, and a loss halves. The module doubles in every round; on the kernel that ends at 2.4 BDP, with the same
rule here at 4.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import Cca, Parameter, extend_recovery, in_recovery, initial_window, start_window
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel

SLOW_START_EXIT = 7.0 / 8.0  # of the window is kept on leaving slow start (the authors' implementation)
LOSS_FACTOR = 0.75  # of the window is kept after a loss (the authors' implementation)
MIN_CWND_MSS = 2.0  # also the window after a time-out


def _check_order(owner: str, values: dict[str, float]) -> None:
    if values["beta_mss"] < values["alpha_mss"]:
        raise InputError(f"{owner}: beta_mss is {values['beta_mss']:g}; it must be at least alpha_mss, {values['alpha_mss']:g}")


sender = Cca(
    "vegas",
    __name__,
    parameters=(
        initial_window(),
        Parameter("alpha_mss", 2.0, above=0),  # fewest own segments in the queue; JSAC 1995 s.IV: Vegas-2,4
        Parameter("beta_mss", 4.0, above=0),  # most
        Parameter("gamma_mss", 1.0, above=0),  # that end slow start: JSAC 1995 s.IV
        Parameter("linux_module", 0.0, low=0, high=1, whole=True, optional=True),  # 1: tcp_vegas of Linux, in its profile
    ),
    fields=(
        "slow_start",
        "growing",  # in slow start: 1 in the rounds that double, 0 in those that measure
        "ssthresh_bytes",  # ends the slow start after a time-out
        "recover_bytes",  # no change of the window until so many bytes are delivered
        "round_acked_bytes",
        "round_rtt_sum",  # sum over the round of RTT times bytes, in byte seconds
        "round_min_rtt_s",
    ),
    check=_check_order,
)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    start_window(state)
    state.slow_start = 1.0


def on_ack(state: Any, ack: Any) -> None:
    """Decide at the start of each round by the round before; in slow start grow in every other round."""
    recovering = in_recovery(state, ack)
    if ack.round_start > 0.0 and state.round_acked_bytes > 0.0:
        if not recovering:
            _decide(state, _queued_mss(state, ack.min_rtt_s), ack.app_limited)
        state.round_acked_bytes = 0.0
        state.round_rtt_sum = 0.0
    state.round_min_rtt_s = ack.rtt_s if state.round_acked_bytes == 0.0 else min(state.round_min_rtt_s, ack.rtt_s)
    state.round_acked_bytes += ack.acked_bytes
    state.round_rtt_sum += ack.rtt_s * ack.acked_bytes
    if state.slow_start > 0.0 and state.growing > 0.0 and not recovering and ack.app_limited == 0.0:
        state.cwnd_bytes = min(state.cwnd_bytes + ack.acked_bytes, state.ssthresh_bytes)
        if state.cwnd_bytes >= state.ssthresh_bytes:
            state.slow_start = 0.0


@kernel
def _queued_mss(state: Any, base_rtt_s: float) -> float:
    """Return the own segments in the queue in the round before: (expected - actual rate) BaseRTT; of the module times RTT."""
    if state.linux_module > 0.0:
        return state.cwnd_bytes * (state.round_min_rtt_s / base_rtt_s - 1.0) / state.mss_bytes
    rtt_s = state.round_rtt_sum / state.round_acked_bytes
    return state.cwnd_bytes * max(0.0, 1.0 - base_rtt_s / rtt_s) / state.mss_bytes


@kernel
def _decide(state: Any, queued_mss: float, app_limited: float) -> None:
    if state.slow_start > 0.0:
        if state.growing > 0.0:
            state.growing = 0.0
        elif queued_mss > state.gamma_mss:
            state.slow_start = 0.0
            state.cwnd_bytes *= SLOW_START_EXIT
        else:
            state.growing = 1.0
    elif queued_mss > state.beta_mss:
        state.cwnd_bytes -= state.mss_bytes
    elif queued_mss < state.alpha_mss and app_limited == 0.0:
        state.cwnd_bytes += state.mss_bytes
    state.cwnd_bytes = max(state.cwnd_bytes, MIN_CWND_MSS * state.mss_bytes)


def on_loss(state: Any, loss: Any) -> None:
    """Keep three quarters once per episode; two segments and slow start after a time-out."""
    minimum_bytes = MIN_CWND_MSS * state.mss_bytes
    if loss.new_episode > 0.0:
        state.ssthresh_bytes = max(0.5 * (loss.inflight_bytes + loss.lost_bytes), minimum_bytes)
        kept_share = 0.5 if state.linux_module > 0.0 else LOSS_FACTOR
        state.cwnd_bytes = max(kept_share * state.cwnd_bytes, minimum_bytes)
        state.slow_start = 0.0
    if loss.timeout > 0.0:
        state.cwnd_bytes = minimum_bytes
        state.slow_start = 1.0
        state.growing = 0.0
    extend_recovery(state, loss)
