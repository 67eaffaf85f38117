"""Reno: slow start, congestion avoidance, fast recovery (RFC 5681, RFC 6582).

Deviations: the window is not inflated by duplicate ACKs (RFC 5681 s.3.2 step 3), because the engines take lost bytes out of
flight as RFC 6675 does; bytes are counted instead of ACKs (RFC 3465), by default with no limit L on the bytes per ACK, so that
one large and many small signals act alike; with ``limit_mss=1`` an ACK counts as one segment at most, whatever it covers, as in
RFC 5681 eqs. (2) and (3) and in ns-3; the initial window is that of RFC 6928.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import (
    HYSTART_FIELDS,
    LOSS_FACTOR,
    LOSS_WINDOW_MSS,
    MIN_SSTHRESH_MSS,
    PRR,
    PRR_FIELDS,
    Cca,
    Parameter,
    begin_recovery,
    extend_recovery,
    initial_window,
    lose_further,
    recovers,
    slow_start,
    start_hystart,
    start_window,
    switch,
)

NO_LIMIT_MSS = 1e6  # more than any ACK covers

sender = Cca(
    "reno",
    __name__,
    parameters=(
        initial_window(),
        # most segments that one ACK counts for (L of RFC 3465): where a signal is one ACK, as in the packet engine
        Parameter("limit_mss", NO_LIMIT_MSS, low=1e-3, high=NO_LIMIT_MSS),
        switch("hystart", optional=True),  # leave slow start by HyStart++ (RFC 9406); 0: at the first loss
        PRR,
    ),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",  # fast recovery lasts until so many bytes are delivered
        *HYSTART_FIELDS,
        *PRR_FIELDS,
    ),
)


def init(state: Any) -> None:
    """Start in slow start; Reno does not pace."""
    start_window(state)
    start_hystart(state)


def on_ack(state: Any, ack: Any) -> None:
    """Grow: by the bytes acknowledged in slow start (RFC 5681 eq. 2), by one segment per window after it (eq. 3)."""
    if recovers(state, ack):
        return
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
        begin_recovery(state, loss)
    else:
        lose_further(state, loss)
    if loss.timeout > 0.0:
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
        state.prr_flight_bytes = 0.0
    extend_recovery(state, loss)
