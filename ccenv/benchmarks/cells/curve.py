"""Cells of the curve engine: one run of one sender against one adversary on one path. Its numbers depend on nothing else."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ccenv.adversaries import make_adversary
from ccenv.benchmarks.cells.players import Player, adversary_player, agent_player, sender_of
from ccenv.benchmarks.suite.curve import Suite
from ccenv.document import hash_of
from ccenv.engine.curve.engine import CurveEngine
from ccenv.errors import CcenvError, EngineError
from ccenv.metrics.table import OF_TRACE, measure
from ccenv.metrics.trace import Window
from ccenv.network.adversary import Adversary
from ccenv.network.laws import check_trace
from ccenv.network.path import Path, grid_of
from ccenv.network.trace import Trace
from ccenv.provenance import code_hash


@dataclass(frozen=True)
class Cell:
    """Everything that decides one run.

    Attributes:
        suite: name and version of the suite, and its hash.
        scenario: name of the case.
        seed: the suite's seed.
        engine_seed: keys the random numbers; follows from suite, case and seed.
        model: network model.
        path: the path as data.
        steps_per_rtt, steps, first_row: grid, length, and where the warm-up ends.
        agent: the sender under test and n_flows, how many flows it has.
        competitors: senders of the other flows.
        adversary: the network's player.
        metrics: names.
    """

    suite: str
    suite_sha256: str
    scenario: str
    seed: int
    engine_seed: int
    model: str
    path: dict[str, Any]
    steps_per_rtt: int
    steps: int
    first_row: int
    agent: Player
    n_flows: int
    competitors: tuple[Player, ...]
    adversary: Player
    metrics: tuple[str, ...]

    per_task = 8  # few enough to lose little when a worker dies, enough to hide the exchange with it

    @property
    def name(self) -> str:
        """What ``--only`` matches: scenario/agent/adversary/seed."""
        return f"{self.scenario}/{self.agent.label}/{self.adversary.label}/{self.seed}"

    def run(self) -> dict[str, Any]:
        """Play the cell and return its record: what it was and its metrics."""
        return {
            "key": self.key,
            "code_sha256": code_hash(),
            "agent_sha256": self.agent.sha256,
            "scenario": self.scenario,
            "agent": self.agent.label,
            "adversary": self.adversary.label,
            "seed": self.seed,
            "engine_seed": self.engine_seed,
            "model": self.model,
            "path": self.path,
            "metrics": values_of(self, play(self)),
        }

    @cached_property
    def key(self) -> str:
        """Hash of the cell and of the code that plays it: results of anything else are never taken for it."""
        # Where a player's file lies and what a table calls it decide nothing.
        data = asdict(self)
        for player in (data["agent"], data["adversary"], *data["competitors"]):
            del player["spec"]
        return hash_of({**data, "code": code_hash()})[:32]


def cells_of(suite: Suite, agents: list[Player]) -> list[Cell]:
    """Return all cells of a suite for some agents, in the order of the suite.

    Raises:
        InputError: for unknown agents or adversaries, or a path that does not fit the grid.
    """
    adversaries = [adversary_player(spec) for spec in suite.adversaries]
    out = []
    for case in suite.cases:
        competitors = tuple(agent_player(spec, spec) for spec in case.scenario.competitors)
        for agent in agents:
            for adversary in adversaries:
                for seed in suite.seeds:
                    key = suite.run_key(case.name, seed)
                    path = case.path(key)
                    steps, first_row = suite.rows(grid_of(path, suite.steps_per_rtt).dt_s)
                    out.append(
                        Cell(
                            suite=f"{suite.name}/{suite.version}",
                            suite_sha256=suite.sha256,
                            scenario=case.name,
                            seed=seed,
                            engine_seed=key,
                            model=case.scenario.model,
                            path=path.to_dict(),
                            steps_per_rtt=suite.steps_per_rtt,
                            steps=steps,
                            first_row=first_row,
                            agent=agent,
                            n_flows=case.scenario.n_flows,
                            competitors=competitors,
                            adversary=adversary,
                            metrics=tuple(name for name in OF_TRACE if name in suite.metrics),
                        )
                    )
    return out


def play(cell: Cell, adversary: Adversary | None = None) -> Trace:
    """Play a cell in an engine of its own and return the legal trace.

    One engine per cell, not one per batch: ring lengths and random keys of a batch would depend on its other members, and a
    cell's numbers could then change with the backend, a filter or a resumed run.

    Args:
        cell: what to play.
        adversary: plays instead of the cell's own.

    Raises:
        InputError: if a player's file changed since the cell was made.
        EngineError: if the trace breaks a law of its model: such a number would mean nothing.
    """
    flows = [cell.agent] * cell.n_flows + list(cell.competitors)
    engine = CurveEngine(
        [Path.from_dict(cell.path)],
        model=cell.model,
        senders=[sender_of(player) for player in flows],
        adversary=adversary or make_adversary(cell.adversary.spec),
        steps_per_rtt=cell.steps_per_rtt,
        seed=cell.engine_seed,
        record=True,
    )
    try:
        engine.advance(cell.steps)
        trace = engine.trace(0)
        violations = check_trace(trace)
    except CcenvError as error:
        raise EngineError(f"cell {cell.name}: {error}") from None
    if violations:
        raise EngineError(f"cell {cell.name}: the trace is not legal: {violations[0].message}")
    return trace


def values_of(cell: Cell, trace: Trace) -> dict[str, float | None]:
    """Return the metrics of a cell's trace after the warm-up; None where one is undefined."""
    values = measure(Window(trace, cell.first_row, cell.steps), cell.metrics)
    return {name: None if math.isnan(value) else value for name, value in values.items()}
