"""Cells of the packet engine, one run of one network each; the code hash of all cells."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents.identity import adversary_hash
from ccenv.base.errors import CcenvError, EngineError, InputError
from ccenv.base.provenance import code_hash
from ccenv.benchmarks.cells.cell import NO_ADDITIONS, Cell, Player, UserAdditions, agent_player, build_sender, nan_to_none
from ccenv.benchmarks.cells.curve import AttackCell, CurveCell
from ccenv.benchmarks.suite.packet import NETWORK, WHOLE, PacketCase, PacketSuite, parse_metric
from ccenv.benchmarks.suite.template import AGENT, Spans, expand, substitute
from ccenv.network.links.reading import load_trace
from ccenv.network.metrics.packet import RunWindow, slowdowns
from ccenv.network.metrics.table import measure_run
from ccenv.network.metrics.user import OwnMetric, require_metric
from ccenv.network.path import MBPS_IN_BPS
from ccenv.simulation import Result, Scenario, read_scenario, simulate

FIXED = Player("network", "network", "", "0" * 64)
"""Placeholder for the sender under test in scenarios that name all their senders."""
QUANTILES = 101


@dataclass(frozen=True, kw_only=True)
class PacketCell(Cell):
    """A run of the packet engine."""

    family: str  # name of the scenario
    parameters: dict[str, Any]  # of the case, with the drawn ones
    network: dict[str, Any]  # the scenario as data; `$agent` where the sender under test belongs
    windows: Spans  # spans by name, for metrics
    others: dict[str, str]  # spec or name -> hash of every other sender, adversary and link trace
    series_s: float  # interval of the rates over time that are kept; 0: none
    rules: int  # of the suite

    @property
    def opponent(self) -> str:
        return NETWORK

    def run(self) -> dict[str, Any]:
        """Play the cell and return its record, with rates over time where they are kept."""
        for user_metric in self.own_metrics:
            require_metric(user_metric)
        result = self.play()
        measured, metrics = result.measured(service_waits=self.rules == 1), {}
        for name in self.metrics:
            plain, group, window = parse_metric(name)
            metrics[name] = measure_run(measured, plain, self.windows[window], group)
        series = {"series": _series(result, self.series_s)} if self.series_s > 0 else {}
        kept = {"slowdowns": _slowdowns(result)} if result.transfers else {}
        path = _path(result.scenario)
        return self.record("packet", path, parameters=self.parameters, metrics=nan_to_none(metrics), **series, **kept)

    def play(self) -> Result:
        """Play the cell.

        Raises InputError if the sender's file changed since the cell was made, or cannot run per packet; EngineError if a sender
        leaves the positive numbers.
        """
        senders = {} if self.agent == FIXED else {self.agent.spec: build_sender(self.agent)}
        try:
            return simulate(self.scenario_data(), senders=senders)
        except EngineError as error:
            raise EngineError(f"cell {self.name}: {error}") from None
        except CcenvError as error:
            raise InputError(f"cell {self.name}: {error}") from None

    def scenario_data(self) -> Scenario:
        """Return the scenario with the sender under test in its place. Raises InputError."""
        under_test = {"sender": self.agent.spec}
        flows = [
            {"name": "agent", **flow, **under_test} if flow.get("sender") == AGENT else flow for flow in self.network["flows"]
        ]
        network: dict[str, Any] = {**self.network, "flows": flows}
        if self.rules == 1:
            network = {"phase_jitter": 0.0, **network, "flows": [{"recovery": "flight", **flow} for flow in flows]}
        return read_scenario(network, f"scenario {self.scenario}")


def make_packet_cells(
    suite: PacketSuite, agents: list[Player], additions: UserAdditions = NO_ADDITIONS, seeds: Sequence[int] | None = None
) -> list[PacketCell]:
    """Return all cells of a suite, or of these seeds, in its order.

    Raises InputError for a network that cannot be, or unknown senders.
    """
    if additions.adversaries:
        raise InputError(f"suite {suite.name!r} plays networks packet by packet: it takes no --adversary")
    out = []
    for case in suite.cases:
        for agent in agents if case.scenario.uses_agent else [FIXED]:
            for seed in suite.seeds if seeds is None else seeds:
                out.append(_cell(suite, case, agent, seed, additions.metrics))
    return out


def _cell(suite: PacketSuite, case: PacketCase, agent: Player, seed: int, user_metrics: tuple[OwnMetric, ...]) -> PacketCell:
    key = suite.run_key(case.name, seed)
    values = case.values(key)
    duration_s, warm_up_s = suite.times(case.scenario)
    try:
        network, windows = expand(substitute(case.scenario.network, values), duration_s, key)
    except InputError as error:
        raise InputError(f"suite {suite.name}, scenario {case.name}: {error}") from None
    network = {"name": case.name, **network, "duration_s": duration_s, "warmup_s": warm_up_s, "log_s": suite.log_s, "seed": key}
    windows = {WHOLE: [(warm_up_s, duration_s)], **{n: list(s) for n, s in case.scenario.windows.items()}, **windows}
    names = {flow.get("name") or ("agent" if flow["sender"] == AGENT else flow["sender"]) for flow in network["flows"]}
    metrics = []
    for name in suite.metrics:
        _, group, window = parse_metric(name)
        if (group is None or group in names) and window in windows:
            metrics.append(name)
    cell = PacketCell(
        suite=f"{suite.name}/{suite.version}",
        suite_sha256=suite.sha256,
        family=case.scenario.name,
        scenario=case.name,
        seed=seed,
        engine_seed=key,
        parameters=values,
        network=network,
        windows=windows,
        agent=agent,
        others=_hash_others(network),
        metrics=(*metrics, *(metric.name for metric in user_metrics)),
        own_metrics=user_metrics,
        series_s=suite.series_s if seed == suite.seeds[0] else 0.0,
        rules=suite.rules,
    )
    cell.scenario_data()  # refuses an invalid scenario before anything runs
    return cell


def _hash_others(network: dict[str, Any]) -> dict[str, str]:
    hashes: dict[str, str] = {}
    for flow in network["flows"]:
        spec = flow["sender"]
        if spec != AGENT and spec not in hashes:
            hashes[spec] = agent_player(spec).sha256
        jitter = flow.get("jitter", {})
        player = jitter.get("adversary") if isinstance(jitter, dict) else None
        if player and player not in hashes:
            hashes[player] = adversary_hash(make_adversary(player))
    for link in network["links"]:
        if isinstance(trace := link.get("trace"), str):
            table = load_trace(trace)
            hashes[trace] = hashlib.sha256(f"{table.kind} {table.length_s!r} ".encode() + table.rows.tobytes()).hexdigest()
    return hashes


def _path(scenario: Scenario) -> dict[str, Any]:
    """Return the bottleneck as the curve engine's records have it."""
    link = scenario.links[0]
    return {
        "link_rate_Bps": link.rate_Bps,
        "buffer_bytes": link.buffer_bytes if math.isfinite(link.buffer_bytes) else "inf",
        "flows": [{"rtt_s": rtt_s} for rtt_s in sorted({flow.rtt_s for flow in scenario.flows})],
    }


def _slowdowns(result: Result) -> list[float | None]:
    """Return 101 quantiles of the slowdown of transfers in rising order; None for unfinished ones."""
    window = RunWindow(result.measured(), ((result.scenario.warmup_s, result.scenario.duration_s),), tuple(result.transfers))
    sorted_slowdowns = np.sort(np.nan_to_num(slowdowns(window)[1], nan=np.inf))
    rows: list[int] = (
        np.round(np.linspace(0, len(sorted_slowdowns) - 1, QUANTILES)).astype(np.int64).tolist() if len(sorted_slowdowns) else []
    )
    return [float(f"{sorted_slowdowns[place]:.4g}") if math.isfinite(sorted_slowdowns[place]) else None for place in rows]


def _series(result: Result, every_s: float) -> dict[str, Any]:
    """Return throughput per flow name over time in Mbit/s, flows of one name added, to four digits."""
    every = max(1, round(every_s / result.scenario.log_s))
    rows = np.arange(0, len(result.flow_log), every)
    rates = np.diff(result.flow_log["goodput_bytes"][rows], axis=0) / (every * result.scenario.log_s) / MBPS_IN_BPS
    names = [flow.name or flow.sender for flow in result.scenario.flows]
    plain = result.names() if len(names) <= 8 else names
    summed = {
        name: rates[:, [i for i, flow_name in enumerate(plain) if flow_name == name]].sum(axis=1) for name in dict.fromkeys(plain)
    }
    rounded = {name: [float(f"{value:.4g}") for value in row] for name, row in summed.items()}
    return {"every_s": every * result.scenario.log_s, "throughput_mbps": rounded}


def cells_code() -> str:
    """Return the code hash in records of suites and of the board."""
    return code_hash(CurveCell, PacketCell, AttackCell)
