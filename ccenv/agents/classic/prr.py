"""Proportional Rate Reduction: in fast recovery send in proportion to what arrives, down to ssthresh (RFC 9937).

Deviations: no ACK is safe (SafeACK of s.6): the cumulative acknowledgement advances when the first retransmission arrives, which
is when recovery ends here. What was sent follows from what is in flight.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.base.kernels.decorator import kernel

PRR_FIELDS = (
    "prr",  # parameter: 1: in use
    "prr_delivered_bytes",
    "prr_sent_bytes",  # prr_out
    "prr_flight_bytes",  # RecoverFS
    "prr_inflight_bytes",  # in flight at the newest signal
)


@kernel
def begin_recovery(state: Any, loss: Any) -> None:
    """Begin fast recovery: the lost segment may be sent again at once (RFC 9937 s.6)."""
    if state.prr == 0.0:
        return
    state.prr_delivered_bytes = 0.0
    state.prr_sent_bytes = 0.0
    state.prr_flight_bytes = loss.inflight_bytes + loss.lost_bytes
    state.prr_inflight_bytes = loss.inflight_bytes
    state.cwnd_bytes = loss.inflight_bytes + state.mss_bytes


@kernel
def lose_further(state: Any, loss: Any) -> None:
    """Take a further loss of the same recovery."""
    state.prr_inflight_bytes -= loss.lost_bytes


@kernel
def recover(state: Any, ack: Any) -> None:
    """Set the window for what an ACK in fast recovery lets go (RFC 9937 s.6)."""
    if state.prr == 0.0:
        return
    state.prr_sent_bytes += max(0.0, ack.inflight_bytes + ack.acked_bytes - state.prr_inflight_bytes)
    state.prr_delivered_bytes += ack.acked_bytes
    state.prr_inflight_bytes = ack.inflight_bytes
    if ack.inflight_bytes > state.ssthresh_bytes:
        due_mss = math.ceil(state.prr_delivered_bytes * state.ssthresh_bytes / state.prr_flight_bytes / state.mss_bytes)
        send_bytes = due_mss * state.mss_bytes - state.prr_sent_bytes
    else:
        send_bytes = max(state.prr_delivered_bytes - state.prr_sent_bytes, ack.acked_bytes)
        send_bytes = min(send_bytes, state.ssthresh_bytes - ack.inflight_bytes)
    state.cwnd_bytes = max(ack.inflight_bytes + max(0.0, send_bytes), state.mss_bytes)


@kernel
def end_recovery(state: Any) -> None:
    """End fast recovery: the window is ssthresh (RFC 9937 s.6)."""
    if state.prr_flight_bytes > 0.0:
        state.prr_flight_bytes = 0.0
        state.cwnd_bytes = state.ssthresh_bytes
