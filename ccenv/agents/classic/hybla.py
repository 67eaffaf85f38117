"""TCP Hybla (Caini, Firrincieli, 2004).

Source: TCP Hybla: a TCP enhancement for heterogeneous networks, International Journal of Satellite Communications and
Networking 22(5), 2004.

A flow of RTT grows like a Reno flow of RTT0: with rho = max(RTT/RTT0, 1), by 2^rho - 1 segments per ACK in slow start and
by rho^2/W per ACK after it.

Deviations: RTT is the smallest seen (as in the Linux module), so that queueing does not speed the growth up; rho is at most
4 in slow start, since above it one round trip's growth is a blind burst (the paper bounds it by an estimated ssthresh); bytes
are counted instead of ACKs; the initial window is that of RFC 6928 and is not multiplied by rho; no packet spacing.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ccenv.agents.callbacks import state_record
from ccenv.agents.classic.common import INITIAL_WINDOW_MSS, UNLIMITED_BYTES, classic_sender, initial_window
from ccenv.agents.sender import ClassicSender
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number

RTT0_S = 0.025  # 2004 s.3: RTT of the reference connection
MAX_SLOW_START_RHO = 4.0
LOSS_FACTOR = 0.5  # RFC 5681 eq. (4)
MIN_SSTHRESH_MSS = 2.0  # RFC 5681 eq. (4)
LOSS_WINDOW_MSS = 1.0  # RFC 5681 s.3.1

STATE = state_record(
    "initial_window_mss",  # parameter
    "rtt0_s",  # parameter
    "ssthresh_bytes",
    "recover_bytes",  # fast recovery lasts until so many bytes are delivered
)


def sender(rtt0_ms: float = 1e3 * RTT0_S, initial_window_mss: float = INITIAL_WINDOW_MSS) -> ClassicSender:
    """Build a Hybla sender.

    Args:
        rtt0_ms: RTT of the connection whose growth is imitated, in [1, 1000].
        initial_window_mss: window at the start in segments, >= 1.
    """
    return classic_sender(
        "hybla",
        sys.modules[__name__],
        STATE,
        initial_window_mss=initial_window("hybla", initial_window_mss),
        rtt0_s=1e-3 * number("hybla", "rtt0_ms", rtt0_ms, low=1, high=1000),
    )


@kernel
def relative_rtt(rtt_s: float, rtt0_s: float) -> float:
    """Return rho = max(RTT/RTT0, 1) (2004 s.3): a flow faster than the reference is left as it is."""
    return max(1.0, rtt_s / rtt0_s)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    state.ssthresh_bytes = UNLIMITED_BYTES
    state.recover_bytes = 0.0


def on_ack(state: Any, ack: Any) -> None:
    """Grow by 2^rho - 1 per byte in slow start, by rho^2 segments per window after it (2004 s.3)."""
    if ack.delivered_bytes < state.recover_bytes or ack.app_limited > 0.0:
        return
    rho = relative_rtt(ack.min_rtt_s, state.rtt0_s)
    acked_bytes = ack.acked_bytes
    if state.cwnd_bytes < state.ssthresh_bytes:
        gain = 2.0 ** min(rho, MAX_SLOW_START_RHO) - 1.0
        step_bytes = min(gain * acked_bytes, state.ssthresh_bytes - state.cwnd_bytes)
        state.cwnd_bytes += step_bytes
        acked_bytes -= step_bytes / gain
    if acked_bytes > 0.0:
        state.cwnd_bytes += rho * rho * state.mss_bytes * min(1.0, acked_bytes / state.cwnd_bytes)


def on_loss(state: Any, loss: Any) -> None:
    """Halve once per episode, as Reno (RFC 5681 s.3.2); one segment after a time-out."""
    if loss.new_episode > 0.0:
        flight_bytes = loss.inflight_bytes + loss.lost_bytes
        state.ssthresh_bytes = max(LOSS_FACTOR * flight_bytes, MIN_SSTHRESH_MSS * state.mss_bytes)
        state.cwnd_bytes = state.ssthresh_bytes
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
    else:  # these bytes were counted as in flight and will not arrive
        state.recover_bytes = max(0.0, state.recover_bytes - loss.lost_bytes)
    if loss.timeout > 0.0:
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
        state.recover_bytes = 0.0


def on_tick(state: Any, tick: Any) -> None:
    """Do nothing: Hybla acts on ACKs and losses only."""
