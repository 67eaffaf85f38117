"""DCTCP (RFC 8257): a reduction in proportion to the share of marked bytes, on top of Reno's growth.

Deviations: the signals carry the marks of each ACK exactly, so neither the receiver's state machine (s.3.2) nor the counters of
accurate ECN (RFC 9768) are modelled; losses act as in Reno (s.3.5), with the deviations of ``reno``.
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

GAIN = 1.0 / 16.0  # RFC 8257 s.4.2: g
FIRST_ALPHA = 1.0  # s.3.3: DCTCP.Alpha starts at 1
LOSS_FACTOR = 0.5  # RFC 5681 eq. (4)
MIN_WINDOW_MSS = 2.0  # RFC 5681 eq. (4)
LOSS_WINDOW_MSS = 1.0  # RFC 5681 s.3.1

STATE = state_record(
    "initial_window_mss",  # parameters
    "gain",
    "ssthresh_bytes",
    "recover_bytes",  # fast recovery lasts until so many bytes are delivered
    "alpha",  # share of marked bytes, averaged
    "round_bytes",  # acknowledged in this observation window
    "round_marked_bytes",  # of them marked
    "reduced_until_bytes",  # marks reduce again from so many delivered bytes on
)


def sender(initial_window_mss: float = INITIAL_WINDOW_MSS, gain: float = GAIN) -> ClassicSender:
    """Build a DCTCP sender.

    Args:
        initial_window_mss: window at the start in segments, >= 1.
        gain: g, weight of the newest window's share of marks, in (0, 1].
    """
    return classic_sender(
        "dctcp",
        sys.modules[__name__],
        STATE,
        initial_window_mss=initial_window("dctcp", initial_window_mss),
        gain=number("dctcp", "gain", gain, low=1e-3, high=1),
    )


def init(state: Any) -> None:
    """Start in slow start; DCTCP does not pace."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    state.ssthresh_bytes = UNLIMITED_BYTES
    state.recover_bytes = 0.0
    state.alpha = FIRST_ALPHA
    state.round_bytes = 0.0
    state.round_marked_bytes = 0.0
    state.reduced_until_bytes = 0.0


@kernel
def average(alpha: float, marked: float, gain: float) -> float:
    """Return the new alpha after a window with a share of marked bytes (RFC 8257 s.3.3, step 5)."""
    return (1.0 - gain) * alpha + gain * marked


def on_ack(state: Any, ack: Any) -> None:
    """Average the marks once per window, reduce at most once per window, else grow as Reno (RFC 8257 s.3.3, 3.4)."""
    state.round_bytes += ack.acked_bytes
    state.round_marked_bytes += ack.ecn_fraction * ack.acked_bytes
    if ack.round_start > 0.0:
        state.alpha = average(state.alpha, state.round_marked_bytes / state.round_bytes, state.gain)
        state.round_bytes = 0.0
        state.round_marked_bytes = 0.0
    if ack.delivered_bytes < state.recover_bytes:
        return
    if ack.ecn_fraction > 0.0 and ack.delivered_bytes >= state.reduced_until_bytes:
        state.cwnd_bytes = max(state.cwnd_bytes * (1.0 - 0.5 * state.alpha), MIN_WINDOW_MSS * state.mss_bytes)
        state.ssthresh_bytes = state.cwnd_bytes
        state.reduced_until_bytes = ack.delivered_bytes + ack.inflight_bytes
        return
    if ack.app_limited > 0.0:
        return
    acked_bytes = ack.acked_bytes
    if state.cwnd_bytes < state.ssthresh_bytes:
        step_bytes = min(acked_bytes, state.ssthresh_bytes - state.cwnd_bytes)
        state.cwnd_bytes += step_bytes
        acked_bytes -= step_bytes
    if acked_bytes > 0.0:
        state.cwnd_bytes += state.mss_bytes * min(1.0, acked_bytes / state.cwnd_bytes)


def on_loss(state: Any, loss: Any) -> None:
    """Halve once per episode, one segment after a time-out (RFC 8257 s.3.5: as any other loss)."""
    if loss.new_episode > 0.0:
        flight_bytes = loss.inflight_bytes + loss.lost_bytes
        state.ssthresh_bytes = max(LOSS_FACTOR * flight_bytes, MIN_WINDOW_MSS * state.mss_bytes)
        state.cwnd_bytes = state.ssthresh_bytes
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
    else:  # these bytes were counted as in flight and will not arrive
        state.recover_bytes = max(0.0, state.recover_bytes - loss.lost_bytes)
    if loss.timeout > 0.0:
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
        state.recover_bytes = 0.0


def on_tick(state: Any, tick: Any) -> None:
    """Do nothing: DCTCP acts on ACKs and losses only."""
