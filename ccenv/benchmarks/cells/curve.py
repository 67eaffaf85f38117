"""Cells of the curve engine: runs of a sender against an adversary on a path, and attacks, in which the adversary searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ccenv.attacks.catalog import SEARCHES, make_search
from ccenv.attacks.run import Finding, attack
from ccenv.base.errors import CcenvError, EngineError
from ccenv.base.files import hash_value
from ccenv.benchmarks.cells.cell import (
    FILE,
    NO_ADDITIONS,
    Player,
    TraceCell,
    UserAdditions,
    adversary_player,
    agent_player,
    build_adversary,
    build_sender,
    trace_cells,
)
from ccenv.benchmarks.suite.curve import Suite
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import Adversary
from ccenv.network.laws import check_trace
from ccenv.network.metrics.trace import Window
from ccenv.network.path import Path, make_grid
from ccenv.network.trace import Trace


@dataclass(frozen=True, kw_only=True)
class CurveCell(TraceCell):
    """A run of the curve engine; ``first_row`` is where the warm-up ends, ``n_flows`` counts those of the sender under test."""

    steps: int
    first_row: int
    n_flows: int
    competitors: tuple[Player, ...]

    per_task: ClassVar[int] = 8  # few enough to lose little when a worker dies, enough to hide the exchange with it

    def run(self) -> dict[str, Any]:
        return self.record(self.model, self.path, metrics=self.values(self.trace()))

    def trace(self, adversary: Adversary | None = None) -> Trace:
        """Play the cell and return its legal trace. Raises as :meth:`run`.

        Each cell has its own engine: ring lengths and random keys of a batch depend on all members, so the numbers of a cell
        would change with the backend, a filter or a resumed run.
        """
        flows = [self.agent] * self.n_flows + list(self.competitors)
        engine = CurveEngine(
            [Path.from_dict(self.path)],
            model=self.model,
            senders=[build_sender(player) for player in flows],
            adversary=adversary or build_adversary(self.adversary),
            steps_per_rtt=self.steps_per_rtt,
            seed=self.engine_seed,
            record=True,
        )
        try:
            engine.advance(self.steps)
            trace = engine.trace(0)
            violations = check_trace(trace)
        except CcenvError as error:
            raise EngineError(f"cell {self.name}: {error}") from None
        if violations:
            raise EngineError(f"cell {self.name}: the trace is not legal: {violations[0].message}")
        return trace

    def window(self, trace: Trace) -> Window:
        return Window(trace, self.first_row, self.steps)


def make_curve_cells(
    suite: Suite, agents: list[Player], additions: UserAdditions = NO_ADDITIONS, seeds: Sequence[int] | None = None
) -> list[CurveCell]:
    """Return all cells of a suite, or of these seeds, in its order.

    Raises InputError for unknown players, or a path that does not fit the grid.
    """
    adversaries = [*(adversary_player(spec) for spec in additions.without(suite.adversaries)), *additions.adversaries]
    competitors = {s.name: tuple(agent_player(spec, spec) for spec in s.competitors) for s in suite.scenarios}
    out = []
    for case, path, fields in trace_cells(suite, agents, adversaries, additions.metrics, seeds=seeds):
        scenario = case.scenario
        steps, first_row = suite.rows(make_grid(path, suite.steps_per_rtt).dt_s)
        others = competitors[scenario.name]
        out.append(CurveCell(**fields, steps=steps, first_row=first_row, n_flows=scenario.n_flows, competitors=others))
    return out


ATTACK_SEEDS = 1_000_000  # searches take seeds below it


@dataclass(frozen=True, kw_only=True)
class AttackCell(TraceCell):
    """An attack; its path is that of the attacked flows, and its seed keys search and sender."""

    warm_up_rtts: int  # Rm before the measured window; the attack runs already
    window_rtts: int  # Rm measured
    budget_flow_steps: int  # limit of a search; constructions and scripted adversaries ignore it
    goal: str  # objective of searches

    def run(self) -> dict[str, Any]:
        """Attack and return the record: the metrics of the worst trace, and which preconditions of a proof held."""
        finding = self._find()
        conditions = {"preconditions": finding.preconditions} if finding.preconditions else {}
        return self.record(self.model, self.path, metrics=self.values(finding.trace), **conditions)

    def trace(self) -> Trace:
        """Attack and return the worst trace. Raises as :meth:`run`."""
        return self._find().trace

    def window(self, trace: Trace) -> Window:
        """Return the rows after the warm-up; all rows where a construction chose a trace shorter than the warm-up."""
        first = self.warm_up_rtts * self.steps_per_rtt
        return Window(trace, first if first < trace.n_steps else 0, trace.n_steps)

    def _find(self) -> Finding:
        sender = build_sender(self.agent)
        if self.adversary.kind == FILE:
            build_adversary(self.adversary)  # refuses a file that has changed
        try:
            result = attack(
                sender,
                path=Path.from_dict(self.path),
                model=self.model,
                adversaries=[self.adversary.spec],
                budget_flow_steps=self.budget_flow_steps,
                seed=self.engine_seed,
                steps_per_rtt=self.steps_per_rtt,
                warmup_rtts=self.warm_up_rtts,
                window_rtts=self.window_rtts,
                goal=self.goal,
            )
        except CcenvError as error:
            raise type(error)(f"cell {self.name}: {error}") from None
        if not result.legal:
            raise EngineError(f"cell {self.name}: the trace is not legal: {result.worst.violations[0]}")
        return result.worst


def search_player(spec: str) -> Player:
    """Return the player of an adversary that searches, or of a scripted one. Raises UnknownNameError or InputError."""
    make_search(spec, code=False)  # raises for an unknown name or parameter
    if spec.partition(":")[0] not in SEARCHES:
        return adversary_player(spec)
    return Player(spec, "search", spec, hash_value({"kind": "search", "spec": spec}))


def make_attack_cells(suite: Suite, agents: list[Player], additions: UserAdditions = NO_ADDITIONS) -> list[AttackCell]:
    """Return all attacks of a suite, in its order. Raises InputError for unknown agents or adversaries."""
    adversaries = [*(search_player(spec) for spec in additions.without(suite.adversaries)), *additions.adversaries]
    warm_up = round(suite.warm_up_rtts or 0)
    window = round(suite.duration_rtts or 0) - warm_up
    spent = suite.budget_flow_steps or 0
    return [
        AttackCell(**fields, warm_up_rtts=warm_up, window_rtts=window, budget_flow_steps=spent, goal=case.scenario.goal)
        for case, _, fields in trace_cells(suite, agents, adversaries, additions.metrics, ATTACK_SEEDS)
    ]
