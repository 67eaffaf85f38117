"""The state of a synthesis run: classes that are still possible, what was decided of the others, and the budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.proofs.replay.run import ReplayError
from ccenv.proofs.synthesis.journal import Journal
from ccenv.proofs.synthesis.prove import Task
from ccenv.proofs.synthesis.query.query import Query
from ccenv.proofs.synthesis.query.template import Candidate, Space
from ccenv.proofs.synthesis.search.search import Simulator
from ccenv.base.workers import Workers

if TYPE_CHECKING:
    from ccenv.proofs.synthesis.search.families import Families

WAVE = 4
"""Groups that the solver decides before their counterexamples are replayed; fixed, so that jobs change nothing."""

Progress = Callable[[int, int], None]


@dataclass
class Run:
    """State of a run.

    Attributes:
        query: the query.
        space: its candidates.
        simulator: classes that are still possible.
        journal: what was found.
        proved: class numbers, with their evidence.
        unknown: class numbers, with the reason.
        refuted: class numbers that the solver refuted itself, with the claim.
        still: class numbers proved for traces on which no bound moves; with belief time-outs that is only half the proof.
        z3_calls: solver calls.
        counterexamples: traces found by simulation and solver.
        cpu_s: CPU seconds per phase, workers included.
        after_simulation: classes that no simulated trace broke.
        families: of a template of four rates: what its functions stand for.
    """

    query: Query
    space: Space
    simulator: Simulator
    journal: Journal
    proved: dict[int, dict[str, Any]] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    refuted: dict[int, str] = field(default_factory=dict)
    still: set[int] = field(default_factory=set)
    z3_calls: int = 0
    counterexamples: int = 0
    cpu_s: dict[str, float] = field(default_factory=lambda: {"simulated": 0.0, "solver": 0.0})
    after_simulation: int = 0
    families: Families | None = None

    def candidate(self, number: int) -> Candidate:
        """Return a class's representative."""
        return candidate_of(self.simulator.rows[number], self.query.template.rates)

    @property
    def timed(self) -> bool:
        """Whether beliefs may time out, so that survivors of the static encoding go on to the full one."""
        return self.query.beliefs.timeouts != "none"

    @property
    def undecided(self) -> np.ndarray:
        """Numbers of the classes that are neither refuted nor decided by the solver."""
        alive = self.simulator.alive
        return alive[~np.isin(alive, [*self.proved, *self.unknown])]

    def task(self, number: int) -> Task:
        """Return the question about one class."""
        program, limits = self.space.program(self.candidate(number), f"class{number}"), self.query.limits
        any_start = self.query.beliefs.start == "any"
        setting, goals = self.simulator.setting, self.simulator.objectives
        return Task(setting, goals, program, limits.call_s, self.query.seed, self.timed, any_start, self.query.flows)

    def note_unknown(self, number: int, reason: str, call_s: float) -> None:
        """Take a class as undecided, unless a solver call may now take longer than the one that was cut off."""
        if call_s >= self.query.limits.call_s:
            self.unknown[number] = reason

    def settle(self) -> None:
        """Forget that classes were unknown which a later trace broke or a later call proved.

        Raises:
            ReplayError: if a trace breaks a class that the solver proved.
        """
        alive = self.simulator.alive
        wrong = np.setdiff1d(list(self.proved), alive)
        if len(wrong):
            raise ReplayError(f"class {int(wrong[0])} is proved, and broken by a counterexample")
        kept = {int(n) for n in np.intersect1d(list(self.unknown), alive)} - set(self.proved)
        self.unknown = {n: reason for n, reason in self.unknown.items() if n in kept}


def candidate_of(row: np.ndarray, rates: int) -> Candidate:
    """Return a simulator row as a candidate."""
    return Candidate(tuple(int(c) for c in row[: rates - 1]), tuple(int(e) for e in row[rates - 1 :]))


def decide_in_waves(run: Run, workers: Workers, wave: Callable[[Run, Workers], None], progress: Progress | None) -> None:
    """Decide wave by wave until nothing is open or the budget is used up."""
    total, begin = len(run.simulator.rows), time.monotonic()
    with workers:
        while len(run.undecided):
            if progress is not None:
                progress(total - len(run.undecided), total)
            if _over_budget(run, begin):
                break
            wave(run, workers)
    if progress is not None:
        progress(total, total)


def _over_budget(run: Run, begin: float) -> bool:
    """Return whether the budget is used up since ``begin`` (monotonic); what is left is then unknown."""
    budget_s = run.query.limits.budget_s
    if sum(run.cpu_s.values()) <= budget_s and time.monotonic() - begin <= budget_s:
        return False
    for number in run.undecided:
        run.unknown[int(number)] = f"the budget of {budget_s:g} s is used up"
    return True
