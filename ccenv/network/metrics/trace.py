"""Metrics of a trace, each a function of a :class:`Window`; ``ccenv.network.metrics.table`` lists them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ccenv.base.errors import InputError
from ccenv.network.metrics import measures
from ccenv.network.metrics.measures import UNDEFINED
from ccenv.network.trace import Trace

QUANTILE_BISECTIONS = 40


@dataclass(frozen=True, eq=False)
class Window:
    """The part of a trace that is measured, from first_row to last_row > first_row. Raises InputError for rows outside."""

    trace: Trace
    first_row: int
    last_row: int

    def __post_init__(self) -> None:
        if not 0 <= self.first_row < self.last_row <= self.trace.n_steps:
            raise InputError(
                f"window of rows {self.first_row} to {self.last_row}: a trace of {self.trace.n_steps} steps allows "
                f"0 <= first < last <= {self.trace.n_steps}"
            )

    @staticmethod
    def after(trace: Trace, warm_up_s: float) -> Window:
        """Return everything after a warm-up. Raises InputError if nothing is left."""
        return Window(trace, math.ceil(warm_up_s / trace.header.dt_s - 1e-9), trace.n_steps)

    def change(self, curve: np.ndarray) -> np.ndarray:
        return np.asarray(curve[self.last_row] - curve[self.first_row])

    @cached_property
    def delivered_bytes(self) -> np.ndarray:
        """Bytes delivered, shape (N,)."""
        return self.change(self.trace.S)

    @cached_property
    def capacity_bytes(self) -> float:
        """Bytes that the link could have carried."""
        return float(self.trace.link_rate_Bps[self.first_row + 1 : self.last_row + 1].sum() * self.trace.header.dt_s)

    @cached_property
    def delays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Queueing plus jitter delay of all delivered bytes: in each segment that of its first and its last byte, and its bytes.

        A byte's delay is the horizontal distance between its flow's curves E (entered the bottleneck) and S (delivered), both
        taken as straight between rows. Between two neighbouring corners of E and S, a segment, it changes linearly with the byte.
        """
        parts = [self._flow_delays(flow) for flow in range(self.trace.n_flows)]
        first, last, size = (np.concatenate(column) for column in zip(*parts, strict=True))
        return first, last, size

    def _flow_delays(self, flow: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        entered, delivered = self.trace.E[:, flow], self.trace.S[:, flow]
        # Bytes that entered before row 0 (only where the history is free) have no known delay.
        low, high = max(delivered[self.first_row], entered[0]), delivered[self.last_row]
        corners = np.unique(np.clip(np.concatenate((entered, delivered)), low, max(low, high)))
        size = np.diff(corners)

        def delay(share: float) -> np.ndarray:
            level = corners[:-1] + share * size
            return np.asarray(np.interp(level, delivered, self.trace.times_s) - np.interp(level, entered, self.trace.times_s))

        # Read inside the segments, where a flat part of a curve cannot make the inverse ambiguous, and extended to their ends.
        quarter, three_quarters = delay(0.25), delay(0.75)
        half_change = (three_quarters - quarter) / 2
        return np.maximum(0.0, quarter - half_change), np.maximum(0.0, three_quarters + half_change), size


def utilisation(window: Window) -> float:
    """Return the bytes delivered over the bytes that the link could have carried.

    May exceed 1 by what was queued or held at the start of a window and delivered in it, at most C*(D + queueing delay).

    Reference: [CCmatic] s.3, objective "utilisation".
    """
    return float(window.delivered_bytes.sum()) / window.capacity_bytes


def queueing_delay_mean_s(window: Window) -> float:
    """Return the mean queueing plus jitter delay of the delivered bytes; not a number if nothing was delivered.

    Reference: Little, "A Proof for the Queuing Formula L = lambda W", Operations Research 1961: the area between E and S over
        the bytes; RTT - Rm of [CCmatic] (5.1).
    """
    first, last, size = window.delays
    return float(((first + last) / 2 * size).sum() / size.sum()) if size.sum() > 0 else UNDEFINED


def queueing_delay_p95_s(window: Window) -> float:
    """Return the smallest delay that 95 % of the delivered bytes do not exceed (queueing plus jitter); not a number without any.

    Reference: the tail statistic of the Pantheon of Congestion Control, USENIX ATC 2018, s.3, there per packet.
    """
    return quantile_of_segments(*window.delays, 0.95)


def loss_fraction(window: Window) -> float:
    """Return the bytes lost, for congestion or not, over the bytes sent; not a number if nothing was sent.

    Reference: [CCmatic] s.3, objective "loss".
    """
    sent = float(window.change(window.trace.A).sum())
    return float(window.change(window.trace.L).sum()) / sent if sent > 0 else UNDEFINED


def jain_index(window: Window) -> float:
    """Return Jain's index of the bytes delivered to the flows. Reference: Jain, Chiu, Hawe 1984 (``measures.jain``)."""
    return measures.jain(window.delivered_bytes)


def starvation_ratio(window: Window) -> float:
    """Return the largest over the smallest delivery of a flow, each at least a segment; not a number for one flow.

    Reference: [Starvation] s.4.2, definition 2 (``ccenv.network.metrics.measures.starvation_ratio``).
    """
    return measures.starvation_ratio(np.maximum(window.delivered_bytes, window.trace.header.path.mss_bytes))


def power(window: Window) -> float:
    """Return utilisation * Rm / (Rm + mean queueing delay), 0 if nothing was delivered.

    Rm is the mean over the delivered bytes if flows differ. Reference: Kleinrock 1979 (``measures.power``).
    """
    delivered = window.delivered_bytes
    if delivered.sum() <= 0:
        return 0.0
    rtts = np.array([flow.rtt_s for flow in window.trace.header.path.flows])
    rtt_s = float((rtts * delivered).sum() / delivered.sum())
    return measures.power(utilisation(window), rtt_s, queueing_delay_mean_s(window))


def quantile_of_segments(first: np.ndarray, last: np.ndarray, size: np.ndarray, share: float) -> float:
    """Return the smallest value that a share, in (0, 1], of the weight does not exceed; not a number without weight.

    Values run linearly from ``first`` to ``last``, (n,), through segments of weights ``size`` >= 0. The result is exact to one
    part in 2^40 of the largest value.
    """
    total = float(size.sum())
    if not total > 0:
        return UNDEFINED
    low, high = np.minimum(first, last), np.maximum(first, last)
    width = high - low
    flat = width == 0
    width[flat] = 1.0
    below, above = 0.0, float(high.max())
    for _ in range(QUANTILE_BISECTIONS):
        value = (below + above) / 2
        reached = np.where(flat, value >= low, np.clip((value - low) / width, 0.0, 1.0))
        if float(reached @ size) < share * total:
            below = value
        else:
            above = value
    return above
