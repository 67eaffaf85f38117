"""A run of the packet engine as plain data, and the part of it that a metric speaks about."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ccenv.base.errors import InputError
from ccenv.network.metrics.measures import UNDEFINED


@dataclass(frozen=True)
class RunFlow:
    """What metrics know about a flow of a run.

    Attributes:
        name: of its group; flows of the same name are measured together.
        rtt_s: propagation round-trip time Rm.
        start_s: when it starts.
        stop_s: when it stops sending; infinite: never.
        workload: kind of what its application offers; ``finite`` and ``batches`` are transfers that end.
        size_bytes: of each transfer.
        every_s: between two transfers of ``batches``.
        finished_s: when a finite transfer was acknowledged; infinite: not.
        transfers: of a flow that stands for many that come and go: (n, 3) bytes, begin and end in seconds; NaN: not done.
        link_Bps: rate of the slowest link of its route.
    """

    name: str
    rtt_s: float
    start_s: float
    stop_s: float
    workload: str
    size_bytes: float
    every_s: float
    finished_s: float
    transfers: np.ndarray | None = None
    link_Bps: float = math.inf


@dataclass(frozen=True)
class AppRun:
    """What an application of a run was worth.

    Attributes:
        kind: of the application.
        name: of its flows.
        flows: their indices.
        values: over the whole run, by name (``ccenv.simulation.applications.play``).
        series: rows of time and values over time, by name.
    """

    kind: str
    name: str
    flows: tuple[int, ...]
    values: dict[str, float]
    series: dict[str, list[list[float]]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PacketRun:
    """What metrics know about a run.

    Attributes:
        flow_log: (rows, flows) records: newest values and cumulative counts, row k at time k * log_s.
        link_log: (rows, links) records.
        flows: one for each column of flow_log.
        log_s: interval of the logs.
        duration_s: length of the run.
        mss_bytes: size of a segment.
        buffer_bytes: of the first link; infinite where it is unlimited.
        applications: what they were worth.
    """

    flow_log: np.ndarray
    link_log: np.ndarray
    flows: tuple[RunFlow, ...]
    log_s: float
    duration_s: float
    mss_bytes: float
    buffer_bytes: float
    applications: tuple[AppRun, ...] = ()

    @property
    def time_s(self) -> np.ndarray:
        """Time of the rows, (rows,) in seconds."""
        return np.arange(len(self.flow_log)) * self.log_s


@dataclass(frozen=True, eq=False)
class RunWindow:
    """The part of a run that is measured: some flows during some spans of time.

    Attributes:
        run: what is measured.
        spans_s: (from, to) in seconds; rates and delays are over all of them together.
        flows: indices of the flows.
    """

    run: PacketRun
    spans_s: tuple[tuple[float, float], ...]
    flows: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.flows or not self.spans_s:
            raise InputError("a window needs at least one flow and one span of time")
        for first, last in self.rows():
            if not first < last:
                raise InputError(f"a span of the window is shorter than the log's interval of {self.run.log_s:g} s")

    def rows(self, flow: int | None = None) -> list[tuple[int, int]]:
        """Return the log rows of the spans, cut to the time in which a flow was to send where one is given."""
        run, n = self.run, len(self.run.flow_log) - 1
        low, high = 0.0, math.inf
        if flow is not None:
            low, high = run.flows[flow].start_s, run.flows[flow].stop_s
        out = []
        for begin, end in self.spans_s:
            first, last = round(max(begin, low) / run.log_s), round(min(end, high, run.duration_s) / run.log_s)
            if flow is None or first < last:
                out.append((min(n, first), min(n, last)))
        return out

    def grown(self, flow: int, name: str) -> float:
        """Return how much a cumulative field of the flow log grew over the window."""
        log = self.run.flow_log[name][:, flow]
        return float(sum(log[last] - log[first] for first, last in self.rows(flow)))

    def total(self, name: str) -> float:
        """Return the growth of a field over all flows of the window."""
        return sum(self.grown(flow, name) for flow in self.flows)

    def seconds(self, flow: int) -> float:
        """Return for how long a flow was to send within the window."""
        return sum(last - first for first, last in self.rows(flow)) * self.run.log_s

    @property
    def span_s(self) -> float:
        """Length of all spans together."""
        return sum(last - first for first, last in self.rows()) * self.run.log_s

    @cached_property
    def rates_Bps(self) -> np.ndarray:
        """Throughput of each flow while it was to send, (N,) bytes/s; not a number for a flow without such time."""
        seconds = [self.seconds(flow) for flow in self.flows]
        return np.array(
            [self.grown(f, "goodput_bytes") / s if s > 0 else UNDEFINED for f, s in zip(self.flows, seconds, strict=True)]
        )

    def link(self, name: str, index: int = 0) -> np.ndarray:
        """Return a link's logged field in the window, the rows of all spans one after the other."""
        log = self.run.link_log[name][:, index]
        return np.concatenate([log[first:last] for first, last in self.rows()])

    def link_grown(self, name: str, index: int = 0) -> float:
        """Return how much a cumulative field of a link's log grew over the window."""
        log = self.run.link_log[name][:, index]
        return float(sum(log[last] - log[first] for first, last in self.rows()))

    @property
    def capacity_bytes(self) -> float:
        """Bytes that the first link could have carried."""
        return float(self.link("rate_Bps").sum()) * self.run.log_s

    @property
    def rtt_s(self) -> float:
        """Propagation RTT, the mean over the delivered bytes where flows differ."""
        rtts = np.array([self.run.flows[flow].rtt_s for flow in self.flows])
        weights = np.array([self.grown(flow, "goodput_bytes") for flow in self.flows])
        return float(rtts @ weights / weights.sum()) if weights.sum() > 0 else float(rtts.min())

    @cached_property
    def delays(self) -> tuple[np.ndarray, np.ndarray]:
        """RTT minus Rm per flow and log interval as the mean of its ACKs, and how many they were."""
        values, weights = [], []
        for flow in self.flows:
            log, base_s = self.run.flow_log[:, flow], self.run.flows[flow].rtt_s
            for first, last in self.rows(flow):
                samples, summed = np.diff(log["rtt_samples"][first : last + 1]), np.diff(log["rtt_sum_s"][first : last + 1])
                some = samples > 0
                values.append(np.maximum(0.0, summed[some] / samples[some] - base_s))
                weights.append(samples[some])
        return (np.concatenate(values), np.concatenate(weights)) if values else (np.zeros(0), np.zeros(0))
