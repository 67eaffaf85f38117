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

import math
from typing import Any

from ccenv.agents.classic.common import (
    LOSS_FACTOR,
    PRR,
    PRR_FIELDS,
    Cca,
    Parameter,
    initial_window,
    recovers,
    reduce_in_proportion,
    start_window,
    switch,
)
from ccenv.base.kernels.decorator import kernel

MAX_SLOW_START_RHO = 4.0

sender = Cca(
    "hybla",
    __name__,
    parameters=(
        initial_window(),
        # RTT of the connection whose growth is imitated: 2004 s.3
        Parameter("rtt0_ms", 25.0, low=1, high=1000, field="rtt0_s", scale=1e-3),
        # 1: tcp_hybla of Linux, in its profile: it counts ACKs, and one of two segments grows the window as one of one does
        switch("delayed_acks", optional=True),
        PRR,
    ),
    fields=(
        "ssthresh_bytes",
        "recover_bytes",  # fast recovery lasts until so many bytes are delivered
        *PRR_FIELDS,
    ),
)


@kernel
def relative_rtt(rtt_s: float, rtt0_s: float) -> float:
    """Return rho = max(RTT/RTT0, 1) (2004 s.3): a flow faster than the reference is left as it is."""
    return max(1.0, rtt_s / rtt0_s)


def init(state: Any) -> None:
    """Start in slow start; not paced."""
    start_window(state)


def on_ack(state: Any, ack: Any) -> None:
    """Grow by 2^rho - 1 per byte in slow start, by rho^2 segments per window after it (2004 s.3)."""
    if recovers(state, ack) or ack.app_limited > 0.0:
        return
    rho = relative_rtt(ack.min_rtt_s, state.rtt0_s)
    if state.delayed_acks > 0.0:
        _grow_per_ack(state, relative_rtt(ack.handshake_s or ack.min_rtt_s, state.rtt0_s))
        return
    acked_bytes = ack.acked_bytes
    if state.cwnd_bytes < state.ssthresh_bytes:
        gain = 2.0 ** min(rho, MAX_SLOW_START_RHO) - 1.0
        step_bytes = min(gain * acked_bytes, state.ssthresh_bytes - state.cwnd_bytes)
        state.cwnd_bytes += step_bytes
        acked_bytes -= step_bytes / gain
    if acked_bytes > 0.0:
        state.cwnd_bytes += rho * rho * state.mss_bytes * min(1.0, acked_bytes / state.cwnd_bytes)


@kernel
def _grow_per_ack(state: Any, rho: float) -> None:
    """Grow as tcp_hybla does, by an ACK of any length: rho in eighths, rounded down, the growth in 1/128 segment."""
    rho = max(1.0, math.floor(8.0 * rho) / 8.0)
    if state.cwnd_bytes < state.ssthresh_bytes:
        gain = 2.0 ** min(rho, MAX_SLOW_START_RHO) - 1.0
        state.cwnd_bytes = min(state.cwnd_bytes + gain * state.mss_bytes, state.ssthresh_bytes)
    else:
        window_mss = math.floor(state.cwnd_bytes / state.mss_bytes)
        steps = math.floor(128.0 * rho * rho / window_mss)
        state.cwnd_bytes += max(steps / 128.0, 1.0 / window_mss if steps == 0.0 else 0.0) * state.mss_bytes


def on_loss(state: Any, loss: Any) -> None:
    """Halve once per episode, as Reno (RFC 5681 s.3.2); one segment after a time-out."""
    reduce_in_proportion(state, loss, LOSS_FACTOR)
