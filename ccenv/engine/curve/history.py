"""How many steps the rings of a batch must hold."""

from __future__ import annotations

import math

import numpy as np

from ccenv.engine.curve.layout import ring_length
from ccenv.engine.curve.paths import PathArrays
from ccenv.engine.curve.players import SenderTable

DEEP_BUFFER_RTTS = 24  # queue that an infinite buffer can show: the receive window keeps it within the rings


def needed_ring(p: PathArrays, senders: SenderTable, window_rtts: int, history_rtts: float | None) -> int:
    """Return the length of the rings, a power of two.

    Args:
        p: paths.
        senders: their senders.
        window_rtts: longest window of the beliefs, in Rm.
        history_rtts: length asked for, in units of the longest Rm; None: what buffers need.
    """
    rtt = _longest_lag_steps(p, senders)
    need = max(window_rtts * rtt + rtt, _reach_steps(p, senders))
    if history_rtts is not None:
        return ring_length(max(need, math.ceil(history_rtts * rtt)))
    slowest = p.slowest_rate_Bps()
    queue_s = np.minimum(p.buffer_bytes, DEEP_BUFFER_RTTS * p.link_rate_Bps * p.dt_s * rtt) / slowest
    queue_steps = math.ceil(float((queue_s / p.dt_s).max()))
    return ring_length(max(need, min(queue_steps, 4 * DEEP_BUFFER_RTTS * rtt) + 4 * rtt + 2 * int(p.jitter_steps.max()) + 3))


def least_ring(p: PathArrays, senders: SenderTable) -> int:
    """Return the length below which the rings of a built engine cannot hold other paths."""
    return max(2 * (2 * _longest_lag_steps(p, senders) + int(p.jitter_steps.max()) + 2), _reach_steps(p, senders))


def _reach_steps(p: PathArrays, senders: SenderTable) -> int:
    """Return how many steps back a step on some paths reads, queues and belief windows aside: those fit the rings."""
    probe = int(senders.probe_rtts.max()) * _longest_lag_steps(p, senders)
    return 2 * _longest_lag_steps(p, senders) + int(p.jitter_steps.max()) + probe + 2


def _longest_lag_steps(p: PathArrays, senders: SenderTable) -> int:
    """Return the longest time from delivery to feedback that the senders can have on some paths."""
    return int((p.rtt_steps.max(axis=1) + np.ceil(senders.hold_s.max() / p.dt_s)).max())
