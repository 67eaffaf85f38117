"""Cells: one run of one sender against one adversary on one path. A cell's numbers depend on nothing but the cell."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ccenv.adversaries import make_adversary
from ccenv.adversary import ExternalAdversary, RecordedAdversary, ScriptedAdversary
from ccenv.agents import make_sender
from ccenv.benchmarks.hashing import adversary_hash, code_hash, hash_of, sender_hash
from ccenv.benchmarks.suite import Suite
from ccenv.engine.curve import CurveEngine
from ccenv.errors import CcenvError, EngineError, InputError
from ccenv.legality import check_trace
from ccenv.metrics import METRICS, Window, measure
from ccenv.path import Path, grid_of
from ccenv.sender import ClassicSender, ExternalSender, MlpSender, ProgramSender, bare
from ccenv.trace import Trace

_KINDS: dict[type, str] = {
    ClassicSender: "classic",
    ProgramSender: "program",
    MlpSender: "policy",
    ScriptedAdversary: "scripted",
    RecordedAdversary: "recorded",
}


@dataclass(frozen=True)
class Player:
    """A sender or adversary of a run.

    Attributes:
        label: how tables call it.
        kind: ``classic``, ``program`` or ``policy`` for senders, ``scripted`` or ``recorded`` for adversaries.
        spec: what builds it.
        sha256: hash of what it is, so that a changed file is noticed.
    """

    label: str
    kind: str
    spec: str
    sha256: str


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

    @property
    def name(self) -> str:
        """What ``--only`` matches: scenario/agent/adversary/seed."""
        return f"{self.scenario}/{self.agent.label}/{self.adversary.label}/{self.seed}"

    @cached_property
    def key(self) -> str:
        """Hash of the cell and of the code that plays it: results of anything else are never taken for it."""
        # Where a player's file lies and what a table calls it decide nothing.
        data = asdict(self)
        for player in (data["agent"], data["adversary"], *data["competitors"]):
            del player["spec"]
        return hash_of({**data, "code": code_hash()})[:32]


def agent_player(spec: str, label: str | None = None) -> Player:
    """Return the player of a sender spec. Raises InputError for senders that only an environment can drive."""
    sender = make_sender(spec)
    if isinstance(sender, ExternalSender):
        raise InputError(f"agent {spec!r} has no rule of its own: it cannot be benchmarked")
    return Player(label or sender.name, _KINDS[type(bare(sender))], spec, sender_hash(sender))


def adversary_player(spec: str) -> Player:
    """Return the player of an adversary spec. Raises InputError for one that only an environment can drive."""
    adversary = make_adversary(spec)
    if isinstance(adversary, ExternalAdversary):
        raise InputError(f"adversary {spec!r} has no rule of its own: it cannot be benchmarked")
    return Player(spec, _KINDS[type(adversary)], spec, adversary_hash(adversary))


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
                            metrics=tuple(name for name in METRICS if name in suite.metrics),
                        )
                    )
    return out


def play(cell: Cell) -> Trace:
    """Play a cell in an engine of its own and return the legal trace.

    One engine per cell, not one per batch: ring lengths and random keys of a batch would depend on its other members, and a
    cell's numbers could then change with the backend, a filter or a resumed run.

    Raises:
        InputError: if a player's file changed since the cell was made.
        EngineError: if the trace breaks a law of its model: such a number would mean nothing.
    """
    flows = [cell.agent] * cell.n_flows + list(cell.competitors)
    senders = []
    for player in flows:
        sender = make_sender(player.spec)
        if sender_hash(sender) != player.sha256:
            raise InputError(f"agent {player.spec!r} changed while the benchmark ran: run it again")
        senders.append(sender)
    engine = CurveEngine(
        [Path.from_dict(cell.path)],
        model=cell.model,
        senders=senders,
        adversary=make_adversary(cell.adversary.spec),
        steps_per_rtt=cell.steps_per_rtt,
        seed=cell.engine_seed,
        record=True,
    )
    try:
        engine.advance(cell.steps)
    except CcenvError as error:
        raise EngineError(f"cell {cell.name}: {error}") from None
    trace = engine.trace(0)
    violations = check_trace(trace)
    if violations:
        raise EngineError(f"cell {cell.name}: the trace is not legal: {violations[0].message}")
    return trace


def values_of(cell: Cell, trace: Trace) -> dict[str, float | None]:
    """Return the metrics of a cell's trace after the warm-up; None where one is undefined."""
    values = measure(Window(trace, cell.first_row, cell.steps), cell.metrics)
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def run_cell(cell: Cell) -> dict[str, Any]:
    """Play a cell and return its record: what it was and its metrics."""
    return {
        "key": cell.key,
        "code_sha256": code_hash(),
        "agent_sha256": cell.agent.sha256,
        "scenario": cell.scenario,
        "agent": cell.agent.label,
        "adversary": cell.adversary.label,
        "seed": cell.seed,
        "engine_seed": cell.engine_seed,
        "model": cell.model,
        "path": cell.path,
        "metrics": values_of(cell, play(cell)),
    }
