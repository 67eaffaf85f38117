"""DCTCP (RFC 8257): a reduction in proportion to the share of marked bytes, on top of Reno's growth.

Deviations: the signals carry the marks of each ACK exactly, so neither the receiver's state machine (s.3.2) nor the counters of
accurate ECN (RFC 9768) are modelled; losses act as in Reno (s.3.5), with the deviations of ``reno``.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import (
    LOSS_FACTOR,
    MIN_SSTHRESH_MSS,
    PRR,
    PRR_FIELDS,
    Cca,
    Parameter,
    grow_window,
    initial_window,
    recovers,
    reduce_in_proportion,
    start_window,
)
from ccenv.base.kernels.decorator import kernel

GAIN = 1.0 / 16.0  # RFC 8257 s.4.2: g
FIRST_ALPHA = 1.0  # s.3.3: DCTCP.Alpha starts at 1

sender = Cca(
    "dctcp",
    __name__,
    parameters=(
        initial_window(),
        Parameter("gain", GAIN, low=1e-3, high=1),  # g, weight of the newest window's share of marks
        PRR,
    ),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",  # fast recovery lasts until so many bytes are delivered
        "alpha",  # share of marked bytes, averaged
        "round_bytes",  # acknowledged in this observation window
        "round_marked_bytes",  # of them marked
        "reduced_until_bytes",  # marks reduce again from so many delivered bytes on
        *PRR_FIELDS,
    ),
)


def init(state: Any) -> None:
    """Start in slow start; DCTCP does not pace."""
    start_window(state)
    state.alpha = FIRST_ALPHA


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
    if recovers(state, ack):
        return
    if ack.ecn_fraction > 0.0 and ack.delivered_bytes >= state.reduced_until_bytes:
        state.cwnd_bytes = max(state.cwnd_bytes * (1.0 - 0.5 * state.alpha), MIN_SSTHRESH_MSS * state.mss_bytes)
        state.ssthresh_bytes = state.cwnd_bytes
        state.reduced_until_bytes = ack.delivered_bytes + ack.inflight_bytes
        return
    if ack.app_limited > 0.0:
        return
    grow_window(state, ack.acked_bytes, 1.0)


def on_loss(state: Any, loss: Any) -> None:
    """Halve once per episode, one segment after a time-out (RFC 8257 s.3.5: as any other loss)."""
    reduce_in_proportion(state, loss, LOSS_FACTOR)
