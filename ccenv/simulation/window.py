"""The part of a run that a metric speaks about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ccenv.errors import InputError
from ccenv.metrics.measures import UNDEFINED
from ccenv.simulation.result import Result


@dataclass(frozen=True, eq=False)
class RunWindow:
    """The part of a run that is measured: some flows during some spans of time.

    Attributes:
        result: the run.
        spans_s: (from, to) in seconds; rates and delays are over all of them together.
        flows: indices of the flows.
    """

    result: Result
    spans_s: tuple[tuple[float, float], ...]
    flows: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.flows or not self.spans_s:
            raise InputError("a window needs at least one flow and one span of time")
        for first, last in self.rows():
            if not first < last:
                raise InputError(f"a span of the window is shorter than the log's interval of {self.result.scenario.log_s:g} s")

    def rows(self, flow: int | None = None) -> list[tuple[int, int]]:
        """Return the log rows of the spans, cut to the time in which a flow was to send where one is given."""
        scenario, n = self.result.scenario, len(self.result.flow_log) - 1
        low, high = 0.0, math.inf
        if flow is not None:
            low, high = scenario.flows[flow].start_s, scenario.flows[flow].stop_s
        out = []
        for begin, end in self.spans_s:
            first, last = round(max(begin, low) / scenario.log_s), round(min(end, high, scenario.duration_s) / scenario.log_s)
            if flow is None or first < last:
                out.append((min(n, first), min(n, last)))
        return out

    def grown(self, flow: int, name: str) -> float:
        """Return how much a cumulative field of the flow log grew over the window."""
        log = self.result.flow_log[name][:, flow]
        return float(sum(log[last] - log[first] for first, last in self.rows(flow)))

    def total(self, name: str) -> float:
        """Return the growth of a field over all flows of the window."""
        return sum(self.grown(flow, name) for flow in self.flows)

    def seconds(self, flow: int) -> float:
        """Return for how long a flow was to send within the window."""
        return sum(last - first for first, last in self.rows(flow)) * self.result.scenario.log_s

    @cached_property
    def rates_Bps(self) -> np.ndarray:
        """Throughput of each flow over the time in which it was to send, (N,) bytes/s; not a number if that is none."""
        seconds = [self.seconds(flow) for flow in self.flows]
        return np.array(
            [self.grown(f, "goodput_bytes") / s if s > 0 else UNDEFINED for f, s in zip(self.flows, seconds, strict=True)]
        )

    def link(self, name: str, index: int = 0) -> np.ndarray:
        """Return a link's logged field in the window, the rows of all spans one after the other."""
        log = self.result.link_log[name][:, index]
        return np.concatenate([log[first:last] for first, last in self.rows()])

    @property
    def capacity_bytes(self) -> float:
        """Bytes that the first link could have carried."""
        return float(self.link("rate_Bps").sum()) * self.result.scenario.log_s

    @property
    def rtt_s(self) -> float:
        """Propagation RTT, the mean over the delivered bytes where flows differ."""
        rtts = np.array([self.result.scenario.flows[flow].rtt_s for flow in self.flows])
        weights = np.array([self.grown(flow, "goodput_bytes") for flow in self.flows])
        return float(rtts @ weights / weights.sum()) if weights.sum() > 0 else float(rtts.min())

    @cached_property
    def delays(self) -> tuple[np.ndarray, np.ndarray]:
        """RTT minus Rm per flow and log interval as the mean of its ACKs, and how many they were."""
        values, weights = [], []
        for flow in self.flows:
            log, base_s = self.result.flow_log[:, flow], self.result.scenario.flows[flow].rtt_s
            for first, last in self.rows(flow):
                samples, summed = np.diff(log["rtt_samples"][first : last + 1]), np.diff(log["rtt_sum_s"][first : last + 1])
                some = samples > 0
                values.append(np.maximum(0.0, summed[some] / samples[some] - base_s))
                weights.append(samples[some])
        return (np.concatenate(values), np.concatenate(weights)) if values else (np.zeros(0), np.zeros(0))
