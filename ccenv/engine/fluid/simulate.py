"""Run fluid scenarios, one with traces or many in parallel, and compute their metrics ([BBR-fluid] section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ccenv.base.errors import EngineError, InputError
from ccenv.base.kernels.threads import most_threads, share
from ccenv.engine.fluid.assemble import Arrays, assemble
from ccenv.engine.fluid.parameters import FLOW_TRACE, LINK_TRACE
from ccenv.engine.fluid.scenario import Scenario
from ccenv.network.metrics.measures import jain_or_one, percent


@dataclass(frozen=True)
class LinkMetrics:
    """One link over the measured time: loss = lost/arrived, occupancy = mean queue/buffer, utilisation = departed/(C T)."""

    loss_pct: float
    occupancy_pct: float
    utilisation_pct: float


@dataclass(frozen=True)
class Metrics:
    """A run over the measured time; the names of one value for the whole run are those of ``ccenv.network.metrics.table``.

    Attributes:
        jain: Jain's index over mean sending rates (1/N to 1).
        loss_pct: lost over sent-to-links bytes, all links.
        occupancy_pct: mean queue over buffer of the first link.
        utilisation_pct: of the first link.
        jitter_ms: mean |RTT difference|, RTT sampled every mss N / C (the virtual packet rate of section 4.3.5).
        rate_Bps: mean sending rate of each flow.
        delivered_Bps: mean rate of each flow at the egress of its last link.
        rtt_ms: mean RTT of each flow.
        links: each link.
        conservation_error: largest relative imbalance of arrived = lost + departed + queued, over links and whole run,
            and of the flows' accepted bytes against the links'.
    """

    jain: float
    loss_pct: float
    occupancy_pct: float
    utilisation_pct: float
    jitter_ms: float
    rate_Bps: tuple[float, ...]
    delivered_Bps: tuple[float, ...]
    rtt_ms: tuple[float, ...]
    links: tuple[LinkMetrics, ...]
    conservation_error: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def metrics_of(arrays: Arrays) -> Metrics:
    """Compute the metrics from the sums that the kernel kept."""
    cfg, flows, links = arrays.cfg[0], arrays.flows, arrays.links
    n_steps = int(cfg["steps"] - cfg["measure_step"])
    time_s = n_steps * float(cfg["step_s"])
    back = np.argsort(arrays.order)
    per_link = tuple(
        LinkMetrics(
            loss_pct=percent(link["lost_sum_bytes"], link["arrived_sum_bytes"]),
            occupancy_pct=percent(link["queue_sum_bytes"] / n_steps, link["buffer_bytes"]),
            utilisation_pct=percent(link["departed_sum_bytes"], link["capacity_Bps"] * time_s),
        )
        for link in links
    )
    sent = flows["sent_bytes"][back]
    return Metrics(
        jain=jain_or_one(sent),
        loss_pct=percent(links["lost_sum_bytes"].sum(), links["arrived_sum_bytes"].sum()),
        occupancy_pct=per_link[0].occupancy_pct,
        utilisation_pct=per_link[0].utilisation_pct,
        jitter_ms=1e3 * float(np.mean(flows["jitter_sum_s"] / np.maximum(flows["jitter_samples"], 1.0))),
        rate_Bps=tuple(float(x) for x in sent / time_s),
        delivered_Bps=tuple(float(x) for x in flows["delivered_bytes"][back] / time_s),
        rtt_ms=tuple(float(x) for x in 1e3 * flows["rtt_sum_s"][back] / n_steps),
        links=per_link,
        conservation_error=_conservation_error(flows, links),
    )


def _conservation_error(flows: np.ndarray, links: np.ndarray) -> float:
    arrived = np.maximum(links["all_arrived_bytes"], 1.0)
    balance = links["all_arrived_bytes"] - links["all_lost_bytes"] - links["departed_bytes"] - links["queue_bytes"]
    lost = np.abs(flows["all_lost_bytes"].sum() - links["all_lost_bytes"].sum()) / arrived.sum()
    return float(max(np.max(np.abs(balance) / arrived), lost))


@dataclass
class Run:
    """A finished run.

    Attributes:
        scenario: what ran.
        metrics: of the measured part.
        time_s: (T,) time of each trace row, s; empty without a trace.
        flow_trace: (T, N, len(FLOW_TRACE)), flows in the scenario's order.
        link_trace: (T, L, len(LINK_TRACE)).
    """

    scenario: Scenario
    metrics: Metrics
    time_s: np.ndarray
    flow_trace: np.ndarray
    link_trace: np.ndarray

    def flow(self, name: str) -> np.ndarray:
        """Return one traced quantity of all flows, (T, N). Raises UnknownNameError."""
        return self.flow_trace[:, :, _column(name, FLOW_TRACE)]

    def link(self, name: str) -> np.ndarray:
        """Return one traced quantity of all links, (T, L). Raises UnknownNameError."""
        return self.link_trace[:, :, _column(name, LINK_TRACE)]


def _column(name: str, names: Sequence[str]) -> int:
    from ccenv.base.errors import unknown_name

    if name not in names:
        raise unknown_name("trace column", name, names)
    return list(names).index(name)


def simulate(scenario: Scenario, trace_interval_s: float = 0.0) -> Run:
    """Run one scenario.

    Args:
        scenario: what to simulate.
        trace_interval_s: time between two trace rows, at least one step; 0 for no trace.

    Raises:
        EngineError: if the run diverges; names flow and time.
    """
    from ccenv.engine.fluid.kernel import run_one

    step_s = scenario.step_ms * 1e-3
    if trace_interval_s < 0 or 0 < trace_interval_s < step_s * (1 - 1e-9):
        raise InputError(f"trace_interval_s must be 0 or at least the step {step_s:g} (got {trace_interval_s:g})")
    every = round(trace_interval_s / step_s)
    arrays = assemble(scenario, every)
    rows = int(arrays.cfg["steps"][0]) // every if every else 0
    flow_trace = np.zeros((rows, len(arrays.flows), len(FLOW_TRACE)))
    link_trace = np.zeros((rows, len(arrays.links), len(LINK_TRACE)))
    stopped = run_one(arrays.cfg[0], arrays.flows, arrays.links, arrays.hop_link, arrays.hop_steps, flow_trace, link_trace)
    _check(scenario, arrays, *stopped)
    in_order = np.empty_like(flow_trace)
    in_order[:, arrays.order] = flow_trace
    time_s = (np.arange(rows) + 1) * every * step_s
    return Run(scenario, metrics_of(arrays), time_s, in_order, link_trace)


def simulate_batch(scenarios: Sequence[Scenario], threads: int | None = None) -> list[Metrics]:
    """Run many scenarios and return their metrics; the result does not depend on the number of threads.

    Args:
        scenarios: what to simulate.
        threads: at most this many threads (default: NUMBA_NUM_THREADS, or the cores).

    Raises:
        EngineError: if a run diverges; names scenario, flow and time.
    """
    from ccenv.engine.fluid.kernel import run_range

    if not scenarios:
        raise InputError("a batch needs at least one scenario (got none)")
    most = most_threads()
    if threads is not None and not 1 <= threads <= most:
        raise InputError(f"threads must be in 1..{most} (got {threads})")
    parts = [assemble(scenario) for scenario in scenarios]
    cfgs = np.concatenate([p.cfg for p in parts])
    flows, flow_start = _join([p.flows for p in parts])
    links, link_start = _join([p.links for p in parts])
    hop_link, hop_start = _join([p.hop_link for p in parts])
    hop_steps, _ = _join([p.hop_steps for p in parts])
    stopped = np.zeros((len(parts), 2), np.int64)
    tables = (stopped, cfgs, flows, flow_start, links, link_start, hop_link, hop_steps, hop_start)
    share(lambda first, last: run_range(first, last, *tables), len(parts), threads or most, len(parts))
    out = []
    for b, (scenario, part) in enumerate(zip(scenarios, parts, strict=True)):
        part.flows[:] = flows[flow_start[b] : flow_start[b + 1]]
        part.links[:] = links[link_start[b] : link_start[b + 1]]
        _check(scenario, part, int(stopped[b, 0]), int(stopped[b, 1]))
        out.append(metrics_of(part))
    return out


def _join(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    start = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)
    return np.concatenate(parts), start


def _check(scenario: Scenario, arrays: Arrays, step: int, slot: int) -> None:
    if step:
        index = arrays.order[slot]
        record = arrays.flows[slot]
        raise EngineError(
            f"scenario {scenario.title!r} diverged: flow {index + 1} ({scenario.flows[index].cca}) reached a sending rate of "
            f"{float(record['x_Bps']):g} bytes/s at {step * scenario.step_ms * 1e-3:g} s, "
            f"allowed up to {float(arrays.cfg['rate_limit_Bps'][0]):g}"
        )
