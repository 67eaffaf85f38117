"""CUBIC (RFC 9438), with fast convergence and the Reno-friendly region.

Deviations: HyStart++ (s.4.10 recommends it, RFC 9406) with ``hystart=1`` only, no rollback of spurious reductions (s.4.9);
bytes are counted instead of ACKs; in the Reno-friendly region the window never shrinks to W_est; as in Reno, the window is
not inflated during recovery and the initial window is that of RFC 6928.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import (
    HYSTART_FIELDS,
    LOSS_WINDOW_MSS,
    MIN_SSTHRESH_MSS,
    PRR,
    PRR_FIELDS,
    Cca,
    begin_recovery,
    end_recovery,
    extend_recovery,
    in_recovery,
    initial_window,
    linux_hystart,
    lose_further,
    recover,
    slow_start,
    smoothed_rtt,
    start_hystart,
    start_window,
    switch,
)
from ccenv.base.kernels.decorator import kernel

C_MSS_PER_S3 = 0.4  # RFC 9438 s.5.1
BETA = 0.7  # RFC 9438 s.4.6
ALPHA = 3.0 * (1.0 - BETA) / (1.0 + BETA)  # RFC 9438 s.4.3, eq. (4)
MAX_GROWTH = 1.5  # RFC 9438 s.4.2: largest target in units of cwnd
NO_EPOCH = -1.0
FIRST_GROWTH = 1.05  # Linux: target in units of cwnd before the first loss, at least

sender = Cca(
    "cubic",
    __name__,
    parameters=(
        initial_window(),
        switch("fast_convergence", 1),  # release bandwidth faster to new flows (RFC 9438 s.4.7)
        switch("hystart", optional=True),  # leave slow start by HyStart++ (RFC 9406); 0: at the first loss
        # 1: tcp_cubic of Linux: its HyStart, a step of 1/20 per RTT at least before the first loss, W(t + smallest RTT) as target
        switch("linux_module", optional=True),
        PRR,
    ),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",  # fast recovery lasts until so many bytes are delivered
        "srtt_s",
        "w_max_bytes",
        "cwnd_prior_bytes",  # window before the last reduction
        "epoch_start_s",  # start of this congestion avoidance stage, NO_EPOCH before it
        "k_s",
        "origin_bytes",  # W_max of this stage
        "w_est_bytes",  # window that Reno would have
        "after_timeout",  # 1 until the stage after a time-out has begun
        "last_ack_s",
        *HYSTART_FIELDS,
        "round_start_s",
        "train_end_s",
        *PRR_FIELDS,
    ),
)


@kernel
def cubic_window_bytes(t_s: float, k_s: float, origin_bytes: float, mss_bytes: float) -> float:
    """Return W_cubic(t) in bytes (RFC 9438 eq. 1)."""
    offset_s = t_s - k_s
    return C_MSS_PER_S3 * offset_s * offset_s * offset_s * mss_bytes + origin_bytes


@kernel
def plateau_time_s(w_max_bytes: float, cwnd_bytes: float, mss_bytes: float) -> float:
    """Return K, the time from a window back to W_max (RFC 9438 eq. 2); 0 if the window is not below it."""
    return (max(0.0, w_max_bytes - cwnd_bytes) / (mss_bytes * C_MSS_PER_S3)) ** (1.0 / 3.0)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    start_window(state)
    start_hystart(state)
    state.epoch_start_s = NO_EPOCH


def on_ack(state: Any, ack: Any) -> None:
    """Grow along the cubic curve, or as Reno where that is faster (RFC 9438 s.4.2 to 4.5)."""
    state.srtt_s = smoothed_rtt(state.srtt_s, ack.rtt_s, min(1.0, ack.acked_bytes / state.cwnd_bytes))
    since_last_ack_s = ack.now_s - state.last_ack_s
    state.last_ack_s = ack.now_s
    if in_recovery(state, ack):
        recover(state, ack)
        return
    end_recovery(state)
    if ack.ecn_fraction > 0.0:  # RFC 9438 s.4.6: an ECE mark reduces as a loss does
        _reduce(state, ack.inflight_bytes + ack.acked_bytes)
        state.recover_bytes = ack.delivered_bytes + ack.inflight_bytes
        return
    if ack.app_limited > 0.0:
        if state.epoch_start_s != NO_EPOCH:  # RFC 9438 s.5.8: this time does not count
            state.epoch_start_s += since_last_ack_s
        return
    acked_bytes = ack.acked_bytes
    if state.cwnd_bytes < state.ssthresh_bytes:
        if state.linux_module > 0.0 and linux_hystart(state, ack):
            state.ssthresh_bytes = state.cwnd_bytes
        else:
            acked_bytes = slow_start(state, ack, acked_bytes)
    if acked_bytes > 0.0:
        _avoid_congestion(state, ack.now_s, min(1.0, acked_bytes / state.cwnd_bytes))


@kernel
def _avoid_congestion(state: Any, now_s: float, share: float) -> None:
    if state.epoch_start_s == NO_EPOCH:
        _start_epoch(state, now_s)
    t_s = now_s - state.epoch_start_s
    alpha = ALPHA if state.linux_module > 0.0 or state.w_est_bytes < state.cwnd_prior_bytes else 1.0  # RFC 9438 s.4.3
    state.w_est_bytes += alpha * state.mss_bytes * share
    if state.linux_module > 0.0:
        target_bytes = cubic_window_bytes(t_s + state.css_rtt_s, state.k_s, state.origin_bytes, state.mss_bytes)
        if state.w_max_bytes == 0.0:
            target_bytes = max(target_bytes, FIRST_GROWTH * state.cwnd_bytes)
        target_bytes = min(max(target_bytes, state.w_est_bytes, state.cwnd_bytes), MAX_GROWTH * state.cwnd_bytes)
        state.cwnd_bytes += (target_bytes - state.cwnd_bytes) * share
        return
    if cubic_window_bytes(t_s, state.k_s, state.origin_bytes, state.mss_bytes) < state.w_est_bytes:
        state.cwnd_bytes = max(state.cwnd_bytes, state.w_est_bytes)
        return
    target_bytes = cubic_window_bytes(t_s + state.srtt_s, state.k_s, state.origin_bytes, state.mss_bytes)
    target_bytes = min(max(target_bytes, state.cwnd_bytes), MAX_GROWTH * state.cwnd_bytes)
    state.cwnd_bytes += (target_bytes - state.cwnd_bytes) * share


@kernel
def _start_epoch(state: Any, now_s: float) -> None:
    state.epoch_start_s = now_s
    state.w_est_bytes = state.cwnd_bytes
    if state.after_timeout > 0.0 or state.w_max_bytes <= state.cwnd_bytes:  # RFC 9438 s.4.8
        state.k_s = 0.0
        state.origin_bytes = state.cwnd_bytes
    else:
        state.k_s = plateau_time_s(state.w_max_bytes, state.cwnd_bytes, state.mss_bytes)
        state.origin_bytes = state.w_max_bytes
    state.after_timeout = 0.0


@kernel
def _reduce(state: Any, flight_bytes: float) -> None:
    if state.fast_convergence > 0.0 and state.cwnd_bytes < state.w_max_bytes:  # RFC 9438 s.4.7
        state.w_max_bytes = state.cwnd_bytes * (1.0 + BETA) / 2.0
    else:
        state.w_max_bytes = state.cwnd_bytes
    state.cwnd_prior_bytes = state.cwnd_bytes
    state.ssthresh_bytes = max(BETA * flight_bytes, MIN_SSTHRESH_MSS * state.mss_bytes)
    state.cwnd_bytes = state.ssthresh_bytes
    state.epoch_start_s = NO_EPOCH


def on_loss(state: Any, loss: Any) -> None:
    """Reduce to BETA once per episode (RFC 9438 s.4.6); one segment after a time-out (s.4.8)."""
    if loss.new_episode > 0.0:
        _reduce(state, loss.inflight_bytes + loss.lost_bytes)
        begin_recovery(state, loss)
    else:
        lose_further(state, loss)
    if loss.timeout > 0.0:
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
        state.epoch_start_s = NO_EPOCH
        state.after_timeout = 1.0
        state.prr_flight_bytes = 0.0
    extend_recovery(state, loss)
