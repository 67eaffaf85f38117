"""Cells of the curve engine: one run of one sender against one adversary on one path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ccenv.benchmarks.cells.cell import NOTHING_OWN, Own, TraceCell, trace_cells
from ccenv.benchmarks.cells.players import Player, adversary_of, adversary_player, agent_player, sender_of
from ccenv.benchmarks.suite.curve import Suite
from ccenv.engine.curve.engine import CurveEngine
from ccenv.base.errors import CcenvError, EngineError
from ccenv.network.metrics.trace import Window
from ccenv.network.adversary import Adversary
from ccenv.network.laws import check_trace
from ccenv.network.path import Path, grid_of
from ccenv.network.trace import Trace


@dataclass(frozen=True, kw_only=True)
class CurveCell(TraceCell):
    """A run of the curve engine.

    Attributes:
        steps, first_row: length, and where the warm-up ends.
        n_flows: how many flows the sender under test has.
        competitors: senders of the other flows.
    """

    steps: int
    first_row: int
    n_flows: int
    competitors: tuple[Player, ...]

    per_task: ClassVar[int] = 8  # few enough to lose little when a worker dies, enough to hide the exchange with it

    def run(self) -> dict[str, Any]:
        """Play the cell and return its record: what it was and its metrics."""
        return self.record(self.model, self.path, metrics=self.values(self.trace()))

    def trace(self, adversary: Adversary | None = None) -> Trace:
        """Play the cell in an engine of its own and return the legal trace.

        One engine per cell, not one per batch: ring lengths and random keys of a batch would depend on its other members, and a
        cell's numbers could then change with the backend, a filter or a resumed run.

        Raises:
            InputError: if a player's file changed since the cell was made.
            EngineError: if the trace breaks a law of its model: such a number would mean nothing.
        """
        flows = [self.agent] * self.n_flows + list(self.competitors)
        engine = CurveEngine(
            [Path.from_dict(self.path)],
            model=self.model,
            senders=[sender_of(player) for player in flows],
            adversary=adversary or adversary_of(self.adversary),
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
        """Return what comes after the warm-up."""
        return Window(trace, self.first_row, self.steps)


def curve_cells_of(suite: Suite, agents: list[Player], own: Own = NOTHING_OWN) -> list[CurveCell]:
    """Return all cells of a suite for some agents and what else a user brings, in the order of the suite.

    Raises:
        InputError: for unknown agents or adversaries, or a path that does not fit the grid.
    """
    adversaries = [*(adversary_player(spec) for spec in own.without(suite.adversaries)), *own.adversaries]
    competitors = {s.name: tuple(agent_player(spec, spec) for spec in s.competitors) for s in suite.scenarios}
    out = []
    for case, path, fields in trace_cells(suite, agents, adversaries, own.metrics):
        scenario = case.scenario
        steps, first_row = suite.rows(grid_of(path, suite.steps_per_rtt).dt_s)
        others = competitors[scenario.name]
        out.append(CurveCell(**fields, steps=steps, first_row=first_row, n_flows=scenario.n_flows, competitors=others))
    return out
