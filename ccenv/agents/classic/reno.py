"""Reno: slow start, congestion avoidance, fast recovery (RFC 5681, RFC 6582).

Deviations: the window is not inflated by duplicate ACKs (RFC 5681 s.3.2 step 3), because the engines take lost bytes out of
flight as RFC 6675 does; bytes are counted instead of ACKs (RFC 3465), by default with no limit L on the bytes per ACK, so that
one large and many small signals act alike; with ``limit_mss=1`` an ACK counts as one segment at most, whatever it covers, as in
RFC 5681 eqs. (2) and (3) and in ns-3; the initial window is that of RFC 6928.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ccenv.agents.callbacks import state_record
from ccenv.agents.classic.common import (
    FIELDS,
    INITIAL_WINDOW_MSS,
    PRR_FIELDS,
    UNLIMITED_BYTES,
    begin,
    begin_recovery,
    chosen,
    classic_sender,
    end_recovery,
    initial_window,
    lose_further,
    recover,
    slow_start,
)
from ccenv.agents.sender import ClassicSender
from ccenv.base.registry import number

LOSS_FACTOR = 0.5  # RFC 5681 eq. (4)
MIN_SSTHRESH_MSS = 2.0  # RFC 5681 eq. (4)
NO_LIMIT_MSS = 1e6  # more than any ACK covers
LOSS_WINDOW_MSS = 1.0  # RFC 5681 s.3.1: the window after a time-out

STATE = state_record(
    "initial_window_mss",  # parameters
    "limit_mss",
    "ssthresh_bytes",
    "recover_bytes",  # fast recovery lasts until so many bytes are delivered
    *FIELDS,
    *PRR_FIELDS,
)


def sender(
    initial_window_mss: float = INITIAL_WINDOW_MSS, limit_mss: float = NO_LIMIT_MSS, hystart: int = 0, prr: int = 0
) -> ClassicSender:
    """Build a Reno sender.

    Args:
        initial_window_mss: window at the start in segments, >= 1.
        limit_mss: most that one ACK counts for, in segments, in [0.001, 1e6] (L of RFC 3465); it means something only where a
            signal is one ACK, as in the packet engine.
        hystart: 1: leave slow start by HyStart++ (RFC 9406); 0: at the first loss.
        prr: 1: reduce the window in proportion to what arrives (RFC 9937); 0: at once.
    """
    window = initial_window("reno", initial_window_mss)
    limit = number("reno", "limit_mss", limit_mss, low=1e-3, high=NO_LIMIT_MSS)
    early = number("reno", "hystart", hystart, low=0, high=1, whole=True)
    return classic_sender(
        "reno",
        sys.modules[__name__],
        STATE,
        initial_window_mss=window,
        limit_mss=limit,
        **chosen(hystart=early, prr=number("reno", "prr", prr, low=0, high=1, whole=True)),
    )


def init(state: Any) -> None:
    """Start in slow start; Reno does not pace."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    state.ssthresh_bytes = UNLIMITED_BYTES
    state.recover_bytes = 0.0
    begin(state)


def on_ack(state: Any, ack: Any) -> None:
    """Grow: by the bytes acknowledged in slow start (RFC 5681 eq. 2), by one segment per window after it (eq. 3)."""
    if ack.delivered_bytes < state.recover_bytes:
        recover(state, ack)
        return
    end_recovery(state)
    if ack.ecn_fraction > 0.0:  # RFC 3168 s.6.1.2: as a loss, at most once per window
        state.ssthresh_bytes = max(LOSS_FACTOR * (ack.inflight_bytes + ack.acked_bytes), MIN_SSTHRESH_MSS * state.mss_bytes)
        state.cwnd_bytes = state.ssthresh_bytes
        state.recover_bytes = ack.delivered_bytes + ack.inflight_bytes
        return
    if ack.app_limited > 0.0:  # RFC 7661: an unused window is not validated
        return
    acked_bytes = min(ack.acked_bytes, state.limit_mss * state.mss_bytes)
    if state.cwnd_bytes < state.ssthresh_bytes:
        acked_bytes = slow_start(state, ack, acked_bytes)
    if acked_bytes > 0.0:
        state.cwnd_bytes += state.mss_bytes * min(1.0, acked_bytes / state.cwnd_bytes)


def on_loss(state: Any, loss: Any) -> None:
    """Halve once per episode (RFC 5681 s.3.2); one segment after a time-out (s.3.1)."""
    if loss.new_episode > 0.0:
        flight_bytes = loss.inflight_bytes + loss.lost_bytes
        state.ssthresh_bytes = max(LOSS_FACTOR * flight_bytes, MIN_SSTHRESH_MSS * state.mss_bytes)
        state.cwnd_bytes = state.ssthresh_bytes
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
        begin_recovery(state, loss)
    else:  # these bytes were counted as in flight and will not arrive
        lose_further(state, loss)
        state.recover_bytes = max(0.0, state.recover_bytes - loss.lost_bytes)
    if loss.timeout > 0.0:
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
        state.recover_bytes = 0.0
        state.prr_flight_bytes = 0.0


def on_tick(state: Any, tick: Any) -> None:
    """Do nothing: Reno acts on ACKs and losses only."""
