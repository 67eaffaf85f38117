"""The capacity of a link of varying rate, as one table that the packet engine reads.

There are two kinds. ``rate``: from the time of a row to the next row the link serves at the row's rate. ``opportunities``: at
the time of a row, and only then, so many bytes may leave; an unused opportunity is lost, as in Mahimahi's files (mm-link(1):
each line is one opportunity of 1500 bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ccenv.base.errors import InputError

Kind = Literal["rate", "opportunities"]
# Columns of a row: its time; rate or bytes; what could be carried before it; delay that the link adds from it on.
ROW_TIME_S, ROW_VALUE, ROW_BEFORE_BYTES, ROW_DELAY_S = range(4)
ROW_WIDTH = 4
PEAK_WINDOW_S = 0.1  # the peak rate is that of the best window of this length
LONGEST_DELAY_S = 10.0
MAX_RATE_Bps = 1.25e11  # 1 Tbit/s


@dataclass(frozen=True, eq=False)
class LinkTrace:
    """A trace of a link: rows (n, ROW_WIDTH) in order of time, the first at >= 0 s, that repeat after ``length_s``."""

    kind: Kind
    rows: np.ndarray
    length_s: float

    @cached_property
    def total_bytes(self) -> float:
        """Bytes that one period can carry."""
        last = self.rows[-1]
        seconds = self.length_s - last[ROW_TIME_S] if self.kind == "rate" else 1.0
        return float(last[ROW_BEFORE_BYTES] + last[ROW_VALUE] * seconds)

    @property
    def mean_Bps(self) -> float:
        """Mean rate in bytes/s."""
        return self.total_bytes / self.length_s

    @cached_property
    def peak_Bps(self) -> float:
        """Largest mean rate of any PEAK_WINDOW_S that begins at a row, and at least the mean rate."""
        begin_s = self.rows[:, ROW_TIME_S]
        carried = self.carried_bytes(begin_s + PEAK_WINDOW_S) - self.rows[:, ROW_BEFORE_BYTES]
        return max(self.mean_Bps, float(carried.max()) / PEAK_WINDOW_S)

    @property
    def has_delays(self) -> bool:
        """Whether it adds delays to the link's own."""
        return bool((self.rows[:, ROW_DELAY_S] > 0.0).any())

    def carried_bytes(self, times_s: np.ndarray) -> np.ndarray:
        """Return the bytes that the link could have carried by times >= 0, (n,); an opportunity counts from its time on."""
        rounds = np.floor(times_s / self.length_s)
        within_s = times_s - rounds * self.length_s
        row = np.searchsorted(self.rows[:, ROW_TIME_S], within_s, "right") - 1
        first = np.maximum(row, 0)
        gone = within_s - self.rows[first, ROW_TIME_S] if self.kind == "rate" else 1.0
        inside = self.rows[first, ROW_BEFORE_BYTES] + self.rows[first, ROW_VALUE] * gone
        carried: np.ndarray = rounds * self.total_bytes + np.where(row >= 0, inside, 0.0)
        return carried

    def summary(self) -> dict[str, Any]:
        """Return a summary: length, rates in Mbit/s, outages and delays."""
        step_s = max(PEAK_WINDOW_S, self.length_s / 1e6)
        edges = np.arange(0.0, self.length_s, step_s)
        rates = np.diff(self.carried_bytes(edges)) / step_s * 8e-6 if len(edges) > 1 else np.array([self.mean_Bps * 8e-6])
        return {
            "kind": self.kind,
            "rows": len(self.rows),
            "length_s": self.length_s,
            "mean_mbps": self.mean_Bps * 8e-6,
            "peak_mbps": self.peak_Bps * 8e-6,
            "p5_mbps": float(np.percentile(rates, 5)),
            "p50_mbps": float(np.percentile(rates, 50)),
            "p95_mbps": float(np.percentile(rates, 95)),
            "longest_outage_s": self.longest_outage_s,
            "largest_delay_s": float(self.rows[:, ROW_DELAY_S].max()),
        }

    @cached_property
    def longest_outage_s(self) -> float:
        """Longest time for which nothing can leave, including the wrap from end to start."""
        times = self.rows[:, ROW_TIME_S]
        if self.kind == "opportunities":
            used = times[self.rows[:, ROW_VALUE] > 0]
            return float(np.diff(np.append(used, used[0] + self.length_s)).max())
        ends = np.append(times[1:], self.length_s)
        dark = self.rows[:, ROW_VALUE] <= 0
        if not dark.any():
            return 0.0
        starts, stops = times[dark], ends[dark]
        joined = np.flatnonzero(starts[1:] > stops[:-1])
        spans = np.append(stops[joined], stops[-1]) - np.append(starts[0], starts[joined + 1])
        if dark[0] and dark[-1]:
            spans = np.append(spans, spans[0] + spans[-1])
        return float(spans.max())


def of_rates(times_s: np.ndarray, rates_Bps: np.ndarray, delays_s: np.ndarray | None, length_s: float, where: str) -> LinkTrace:
    """Return a trace of rates >= 0 from ascending times on, (n,), the first 0; ``length_s`` is above the last one.

    ``delays_s``, (n,), are additional one-way delays.

    Raises:
        InputError: for numbers out of range, or a link that never carries anything.
    """
    _require_range(rates_Bps, MAX_RATE_Bps, "a rate", "bytes/s", where)
    return _build("rate", times_s, rates_Bps, rates_Bps[:-1] * np.diff(times_s), delays_s, length_s, where)


def of_opportunities(
    times_s: np.ndarray, opportunity_bytes: np.ndarray, delays_s: np.ndarray | None, length_s: float, where: str
) -> LinkTrace:
    """Return a trace of opportunities >= 0 at times >= 0 that do not descend, (n,); those of one time count as one.

    ``length_s`` is the last time or later; of the delays of one time the last counts. Raises as :func:`of_rates`.
    """
    _require_range(opportunity_bytes, MAX_RATE_Bps, "an opportunity", "bytes", where)
    first = np.flatnonzero(np.append(True, np.diff(times_s) > 0))
    summed = np.add.reduceat(opportunity_bytes, first)
    last = np.append(first[1:] - 1, len(times_s) - 1)
    delays = None if delays_s is None else delays_s[last]
    return _build("opportunities", times_s[first], summed, summed[:-1], delays, length_s, where)


def _build(
    kind: Kind,
    times_s: np.ndarray,
    values: np.ndarray,
    carried: np.ndarray,
    delays_s: np.ndarray | None,
    length_s: float,
    where: str,
) -> LinkTrace:
    rows = np.zeros((len(times_s), ROW_WIDTH))
    rows[:, ROW_TIME_S], rows[:, ROW_VALUE] = times_s, values
    rows[1:, ROW_BEFORE_BYTES] = np.cumsum(carried)
    if delays_s is not None:
        _require_range(delays_s, LONGEST_DELAY_S, "a delay", "s", where)
        rows[:, ROW_DELAY_S] = delays_s
    trace = LinkTrace(kind, rows, float(length_s))
    if not trace.total_bytes > 0.0:
        raise InputError(f"{where}: the link's rate is 0 for ever; at least one rate or opportunity must be above 0")
    return trace


def _require_range(values: np.ndarray, largest: float, what: str, unit: str, where: str) -> None:
    wrong = ~((values >= 0.0) & (values <= largest))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{where}: {what} of {values[row]:g} {unit} in row {row + 1}; allowed are 0 to {largest:g}")
