"""Run fluid scenarios, one with traces or many in parallel, and compute their metrics ([BBR-fluid] section 4.3).

From scenarios to the kernels' records, and from these to metrics.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccenv.base.errors import EngineError, InputError, unknown_name
from ccenv.base.kernels.threads import most_threads, share
from ccenv.engine.fluid.parameters import (
    CCA_CODES,
    CONFIG,
    DISCIPLINE_CODES,
    FLOW,
    FLOW_TRACE,
    FORM_CODES,
    LINK,
    LINK_TRACE,
    Parameters,
)
from ccenv.engine.fluid.scenario import Flow, Scenario, Start
from ccenv.network.metrics.measures import jain_or_one, percent

_MEMORY_BYTES = 2 << 30  # of ring buffers in one run
_RATE_LIMIT = 1e6  # a sending rate this many times the fastest link counts as divergence


@dataclass
class Arrays:
    """The records of one configuration; flows are in order of agent number, so that listing order has no effect."""

    cfg: np.ndarray  # (1,) CONFIG
    flows: np.ndarray  # (N,) FLOW
    links: np.ndarray  # (L,) LINK
    hop_link: np.ndarray  # (H,) link index of each hop
    hop_steps: np.ndarray  # (H,) delay of the pipe to each hop, in steps
    order: list[int]  # (N,) position in the scenario of each flow record


def assemble(scenario: Scenario, trace_every: int = 0) -> Arrays:
    """Build the records of a scenario in its initial state; ``trace_every`` are steps between two trace rows, 0 for no trace."""
    constants = scenario.constants
    step_s = scenario.step_ms * 1e-3
    order = sorted(range(len(scenario.flows)), key=lambda i: scenario.agents[i])
    flows = np.zeros(len(order), FLOW)
    hop_link: list[int] = []
    hop_steps: list[int] = []
    row = 0
    for slot, index in enumerate(order):
        flow = scenario.flows[index]
        path = scenario.path_links(flow)
        delays_s = [flow.access_delay_ms * 1e-3] + [scenario.links[k].delay_s for k in path]
        steps = [max(1, round(delay / step_s)) for delay in delays_s]
        back = max(1, round(sum(delays_s) / step_s))
        record = flows[slot]
        record["cca"], record["hops"], record["hop_start"], record["row"] = CCA_CODES[flow.cca], len(path), len(hop_link), row
        record["return_steps"] = steps[-1] + back
        record["rtt_prop_s"] = (sum(steps) + back) * step_s
        if constants.form == "code":
            record["lag_steps"] = round(constants.cubic_lag_rtts * (sum(steps) + back))
        row += 1 + 2 * len(path)
        hop_link += path
        hop_steps += steps[:-1]
        _start_flow(record, scenario, flow, scenario.agents[index], constants)
    if constants.form == "code":
        _start_as_code(flows, [scenario.flows[index].start for index in order], constants)
    links = _links(scenario, step_s)
    cfg = _config(scenario, constants, trace_every)
    slowest = flows["rtt_prop_s"].max() + (links["buffer_bytes"] / links["capacity_Bps"]).sum()
    cfg["ring"] = 1 << math.ceil(math.log2(max(slowest / step_s, flows["lag_steps"].max()) + len(links) + 8))
    _check_memory(int(cfg["ring"][0]) * (row + 3 * len(links)), f"{slowest:.4g} s of history (RTT and full queues)")
    return Arrays(cfg, flows, links, np.array(hop_link, np.int64), np.array(hop_steps, np.int64), order)


def _check_memory(numbers: int, what: str) -> None:
    if 8 * numbers > _MEMORY_BYTES:
        raise InputError(
            f"{what} needs {8 * numbers / 2**30:.3g} GiB per run, at most {_MEMORY_BYTES / 2**30:g} are allowed: "
            "choose a larger step_ms, smaller buffers or fewer flows"
        )


def _start_flow(record: np.ndarray, scenario: Scenario, flow: Flow, agent: int, constants: Parameters) -> None:
    start, count = flow.start, len(scenario.flows)
    path = scenario.path_links(flow)
    users = [sum(k in scenario.path_links(other) for other in scenario.flows) for k in range(len(scenario.links))]
    tight = min(path, key=lambda k: scenario.links[k].capacity_Bps / users[k])
    bottleneck = scenario.links[tight]
    share = start.x_btl_share if start.x_btl_share is not None else 1.0 / users[tight]
    record["x_btl_Bps"] = share * bottleneck.capacity_Bps
    record["x_max_Bps"] = share * bottleneck.capacity_Bps
    if start.x_max_share is not None:
        record["x_max_Bps"] = start.x_max_share * bottleneck.capacity_Bps
    record["tau_min_s"] = start.tau_min_ms * 1e-3 if start.tau_min_ms is not None else record["rtt_prop_s"]
    bdp = record["x_btl_Bps"] * record["rtt_prop_s"]
    beyond = max(bottleneck.buffer_bdp - constants.hi_start_knee_bdp, 0.0)
    hi_bdp = constants.hi_start * (1.0 + constants.hi_start_slope * beyond)
    record["w_hi_bytes"] = bdp * (start.inflight_hi_bdp if start.inflight_hi_bdp is not None else hi_bdp)
    record["w_lo_bytes"] = record["w_hi_bytes"]
    record["cwnd_bytes"] = record["w_max_bytes"] = max(start.cwnd_bdp * bdp, scenario.mss_bytes)
    record["w_est_bytes"] = record["cwnd_bytes"]
    plateau = record["w_max_bytes"] / scenario.mss_bytes * constants.cubic_b / constants.cubic_c
    if constants.form == "print":
        record["since_loss_s"] = plateau ** (1.0 / 3.0)
    first = interval = constants.probe_rtt_interval_s
    if flow.cca == "bbr2":
        interval = constants.bbr2_probe_rtt_interval_s
        first = min(constants.bbr2_probe_rtt_first_s, interval)
    record["prt_interval_s"] = interval
    record["t_prt_s"] = start.probe_rtt_timer_s if start.probe_rtt_timer_s is not None else first
    record["t_pbw_s"] = start.period_time_s or 0.0
    number = agent - 1 if constants.form == "code" else agent  # the code counts from 0
    record["phase"] = number % 6
    record["period_s"] = constants.period_base_s + constants.period_spread_s * number / count
    record["tau_s"] = record["rtt_seen_s"] = record["rtt_prop_s"]


def _start_as_code(flows: np.ndarray, starts: list[Start], constants: Parameters) -> None:
    """Change the initial state to that of the published simulator.

    Its estimates are shares of the BDP over the RTT of the first flow; CUBIC starts below its plateau, BBRv2 in cruise with
    w_lo at its share, at a random time in its period: it seeds Python's generator with 1, draws the access delays of all flows,
    and then these times.
    """
    draws = random.Random(1)
    for _ in starts:
        draws.random()
    for record, start in zip(flows, starts, strict=True):
        spread_s = constants.start_phase_spread_s * draws.random()
        share_bytes = float(record["x_btl_Bps"] * record["rtt_prop_s"])
        record["v_bytes"] = share_bytes
        record["w_max_bytes"] = constants.cubic_start_w_max * record["cwnd_bytes"]
        scale = record["rtt_prop_s"] / flows[0]["rtt_prop_s"]
        if start.x_btl_share is None:
            record["x_btl_Bps"] *= scale
        if start.x_btl_share is None and start.x_max_share is None:
            record["x_max_Bps"] *= scale
        record["x_last_Bps"] = record["x_next_Bps"] = record["x_max_Bps"]
        if record["cca"] == CCA_CODES["bbr2"] and start.period_time_s is None:
            record["t_pbw_s"] = constants.start_phase_rtts * record["rtt_prop_s"] + spread_s
            record["m_crs"] = 1.0
            record["w_lo_bytes"] = share_bytes


def _links(scenario: Scenario, step_s: float) -> np.ndarray:
    links = np.zeros(len(scenario.links), LINK)
    for record, link in zip(links, scenario.links, strict=True):
        buffer = link.buffer_bytes(scenario.mss_bytes)
        record["discipline"] = DISCIPLINE_CODES[link.discipline]
        record["capacity_Bps"], record["buffer_bytes"] = link.capacity_Bps, buffer
        record["q0_bytes"], record["q1_bytes"], record["p1"] = link.red.q0 * buffer, link.red.q1 * buffer, link.red.p1
        record["average_gain"] = _part(step_s, link.red.averaging_s) if link.red.averaging_s > 0 else 1.0
    return links


def _part(step_s: float, time_constant_s: float) -> float:
    return -math.expm1(-step_s / time_constant_s)


def _config(scenario: Scenario, constants: Parameters, trace_every: int) -> np.ndarray:
    cfg = np.zeros(1, CONFIG)
    step_s, mss = scenario.step_ms * 1e-3, float(scenario.mss_bytes)
    slowest_Bps = min(link.capacity_Bps for link in scenario.links)
    fastest_Bps = max(link.capacity_Bps for link in scenario.links)
    values: dict[str, float] = {
        "form": FORM_CODES[constants.form],
        "steps": round(scenario.duration_s / step_s),
        "measure_step": round(scenario.measure_from_s / step_s),
        "trace_every": trace_every,
        "step_s": step_s,
        "mss_bytes": mss,
        "jitter_interval_s": mss * len(scenario.flows) / slowest_Bps,
        "rate_limit_Bps": _RATE_LIMIT * fastest_Bps,
        "k_rate": constants.sharpness * 1e-3 / mss,
        "k_time": constants.sharpness * 1e3,
        "k_pulse": constants.pulse_sharpness * 1e3,
        "k_loss": constants.sharpness,
        "drain_tolerance_bytes": mss / constants.sharpness,
        "tau_part": _part(step_s, constants.tau_min_time_constant_s),
        "max_growth_part": _part(step_s, constants.x_max_growth_time_constant_s),
        "max_reset_part": _part(step_s, constants.x_max_reset_time_constant_s),
        "btl_part": _part(step_s, constants.x_btl_time_constant_s),
        "lo_part": _part(step_s, constants.w_lo_time_constant_s),
        "code_part": _part(step_s, constants.code_time_constant_s),
    }
    shared = set(Parameters.model_fields) & set(CONFIG.fields or ()) - {"form"}  # constants that the kernels take as they are
    values |= {name: getattr(constants, name) for name in shared}
    for name, value in values.items():
        cfg[name] = value
    return cfg


@dataclass(frozen=True)
class LinkMetrics:
    """One link over the measured time: loss = lost/arrived, occupancy = mean queue/buffer, utilisation = departed/(C T)."""

    loss_pct: float
    occupancy_pct: float
    utilisation_pct: float


@dataclass(frozen=True)
class Metrics:
    """A run over the measured time; the names of one value for the whole run are those of ``ccenv.network.metrics.table``."""

    jain: float  # Jain's index over mean sending rates (1/N to 1)
    loss_pct: float  # lost over sent-to-links bytes, all links
    occupancy_pct: float  # mean queue over buffer of the first link
    utilisation_pct: float  # of the first link
    jitter_ms: float  # mean |RTT difference|, RTT sampled every mss N / C (the virtual packet rate of section 4.3.5)
    rate_Bps: tuple[float, ...]  # (N,) mean sending rates
    delivered_Bps: tuple[float, ...]  # (N,) mean rates at the egress of the last links
    rtt_ms: tuple[float, ...]  # (N,) mean RTTs
    links: tuple[LinkMetrics, ...]
    # largest relative imbalance of arrived = lost + departed + queued, over links and whole run, and of the flows' accepted bytes
    # against the links'
    conservation_error: float


def metrics_of(arrays: Arrays) -> Metrics:
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
    """A finished run."""

    scenario: Scenario
    metrics: Metrics
    time_s: np.ndarray  # (T,) time of each trace row, s; empty without a trace
    flow_trace: np.ndarray  # (T, N, len(FLOW_TRACE)), flows in the scenario's order
    link_trace: np.ndarray  # (T, L, len(LINK_TRACE))

    def flow(self, name: str) -> np.ndarray:
        """Return one traced quantity of all flows, (T, N). Raises UnknownNameError."""
        return self.flow_trace[:, :, _column(name, FLOW_TRACE)]

    def link(self, name: str) -> np.ndarray:
        """Return one traced quantity of all links, (T, L). Raises UnknownNameError."""
        return self.link_trace[:, :, _column(name, LINK_TRACE)]


def _column(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise unknown_name("trace column", name, names)
    return list(names).index(name)


def simulate(scenario: Scenario, trace_interval_s: float = 0.0) -> Run:
    """Run one scenario; ``trace_interval_s`` is the time between two trace rows, at least one step, or 0 for no trace.

    Raises EngineError if the run diverges; names flow and time.
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

    By default there are NUMBA_NUM_THREADS threads, or as many as cores. Raises EngineError if a run diverges; names scenario,
    flow and time.
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
