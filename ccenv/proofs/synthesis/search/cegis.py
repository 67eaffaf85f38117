"""The state of a synthesis run, and plain CEGIS: propose, verify with moving beliefs, prune ([CCmatic] s.5, App. C).

Plain CEGIS is the slow cross-check of the pipeline: no simulation, no replay over other candidates, no static-belief reduction,
no groups. A counterexample prunes the candidates that make the same sending choices on it (C.4), a proof only its own function.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.agents.programs import to_data
from ccenv.base.errors import InputError
from ccenv.base.workers import Workers
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.senders.program import TIME_INPUTS
from ccenv.proofs.synthesis.journal import Journal, trace_from
from ccenv.proofs.synthesis.prove import Task, decide
from ccenv.proofs.synthesis.query.classes import class_rows, members
from ccenv.proofs.synthesis.query.flows import NEVER_REPEATS
from ccenv.proofs.synthesis.query.query import Query
from ccenv.proofs.synthesis.query.template import CONSTANT_INPUTS, Candidate, Space, Terms
from ccenv.proofs.synthesis.search.search import Simulator

if TYPE_CHECKING:
    from ccenv.proofs.synthesis.search.factored import Families

WAVE = 4
"""Groups that the solver decides before their counterexamples are replayed; fixed, so that results do not depend on jobs."""

Progress = Callable[[int, int], None]


@dataclass
class Run:
    """State of a run."""

    query: Query
    space: Space
    simulator: Simulator  # holds the classes that are still possible
    journal: Journal
    proved: dict[int, dict[str, Any]] = field(default_factory=dict)  # class number -> evidence
    unknown: dict[int, str] = field(default_factory=dict)  # class number -> reason
    refuted: dict[int, str] = field(default_factory=dict)  # class number -> claim that the solver refuted itself
    # class numbers proved for traces on which no bound moves; with belief time-outs that is only half the proof
    still: set[int] = field(default_factory=set)
    z3_calls: int = 0
    counterexamples: int = 0  # traces found by simulation and solver
    # CPU seconds per phase, workers included
    cpu_s: dict[str, float] = field(default_factory=lambda: {"simulated": 0.0, "solver": 0.0})
    after_simulation: int = 0  # classes that no simulated trace broke
    families: Families | None = None  # functions of a template of four rates and their candidates

    def candidate(self, number: int) -> Candidate:
        return make_candidate(self.simulator.rows[number], self.query.template.rates)

    @property
    def timed(self) -> bool:
        """Whether beliefs may time out, so that survivors of the static encoding need the full one."""
        return self.query.beliefs.timeouts != "none"

    @property
    def undecided(self) -> np.ndarray:
        """Numbers of the classes that are neither refuted nor decided by the solver."""
        alive = self.simulator.alive
        return alive[~np.isin(alive, [*self.proved, *self.unknown])]

    def task(self, number: int) -> Task:
        program, limits = self.space.program(self.candidate(number), f"class{number}"), self.query.limits
        any_start = self.query.beliefs.start == "any"
        setting, goals = self.simulator.setting, self.simulator.objectives
        return Task(setting, goals, program, limits.call_s, self.query.seed, self.timed, any_start, self.query.flows)

    def record(self, kind: str, decisions: list[dict[str, Any]], **about: Any) -> None:
        """Store decisions of the solver in one line, so that a kill keeps all of them or nothing; then apply them."""
        line = {"kind": kind, **about, "decisions": decisions}
        self.journal.append(line)
        self.apply(line)

    def apply(self, line: dict[str, Any]) -> None:
        """Apply the solver's decisions of a line, and what their counterexamples break.

        A class that was open counts as undecided unless the limit per solver call has grown since.
        """
        self.cpu_s["solver"] += line["cpu_s"]
        self.cpu_s["simulated"] += line.get("replay_s", 0.0)
        simulator = self.simulator
        for item in line["decisions"]:
            number = item["class"]
            self.z3_calls += item["calls"]
            if item["status"] == "proved" and line.get("still"):
                self.still.add(number)
            elif item["status"] == "proved":
                self.proved[number] = item
            elif item["status"] == "refuted":
                self.refuted[number] = item["claim"]
                self.counterexamples += item["claim"] != NEVER_REPEATS
                simulator.alive = simulator.alive[simulator.alive != number]
            elif line.get("call_s", 0.0) >= self.query.limits.call_s:
                self.unknown[number] = item["reason"]
            if item.get("trace") is not None:
                simulator.apply(trace_from(item["trace"]))
            simulator.alive = simulator.alive[~np.isin(simulator.alive, item.get("dropped", ()))]
        self.settle()

    def settle(self) -> None:
        """Drop unknown classes that a later trace broke or a later call proved.

        Raises ReplayError if a trace breaks a class that the solver proved.
        """
        alive = self.simulator.alive
        wrong = np.setdiff1d(list(self.proved), alive)
        if len(wrong):
            raise ReplayError(f"class {int(wrong[0])} is proved, and broken by a counterexample")
        still_unknown = {int(n) for n in np.intersect1d(list(self.unknown), alive)} - set(self.proved)
        self.unknown = {n: reason for n, reason in self.unknown.items() if n in still_unknown}


def make_candidate(row: np.ndarray, rates: int) -> Candidate:
    return Candidate(tuple(int(c) for c in row[: rates - 1]), tuple(int(e) for e in row[rates - 1 :]))


def decide_in_waves(run: Run, workers: Workers, wave: Callable[[Run, Workers], None], progress: Progress | None) -> None:
    """Decide wave by wave until no class is open or the budget is used up."""
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


def spread(items: list[Any]) -> list[Any]:
    """Return at most WAVE items of a list, spread over it: neighbours are similar and fall to the same trace."""
    return [items[(i * len(items)) // WAVE] for i in range(WAVE)] if len(items) > WAVE else items


def _over_budget(run: Run, begin: float) -> bool:
    """Return whether the budget is used up since ``begin`` (monotonic), and mark open classes as unknown if so."""
    budget_s = run.query.limits.budget_s
    if sum(run.cpu_s.values()) <= budget_s and time.monotonic() - begin <= budget_s:
        return False
    for number in run.undecided:
        run.unknown[int(number)] = f"the budget of {budget_s:g} s is used up"
    return True


def cegis(query: Query, budget_s: float) -> dict[str, Any]:
    """Answer a query of one or two rates by generator and verifier, within CPU seconds.

    Raises InputError for larger templates, and for other beliefs than C_L and C_U.

    Returns:
        dict: keys, raw, canonical, iterations, undecided, cpu_seconds, complete, and solutions as programs.
    """
    space = query.space()
    if query.flows != 1:
        raise InputError(
            f"plain CEGIS takes one flow, {query.name!r} has {query.flows}; the search for two flows is generator and verifier"
        )
    if query.template.rates > 2:
        raise InputError(f"plain CEGIS takes templates of up to 2 rates, {query.name!r} has {query.template.rates}")
    sent = space.template.inputs() - {"C_L", "C_U"} - CONSTANT_INPUTS - TIME_INPUTS
    if sent:
        raise InputError(f"plain CEGIS takes C_L, C_U and delays; {query.name!r} has {', '.join(sorted(sent))}")
    query.check_size(space)
    wrong_start = query.beliefs.start == "any"
    # Classes rest on C_L <= C_U, which wrong beliefs may violate: then every candidate is its own class.
    rows = raw_rows(space) if wrong_start else class_rows(space)
    possible = np.ones(len(rows), dtype=bool)
    proved, unknown, iterations = [], 0, 0
    begin = time.process_time()
    while possible.any() and time.process_time() - begin < budget_s:
        number = int(possible.argmax())
        program = space.program(make_candidate(rows[number], query.template.rates), "proposal")
        decision = decide(Task(query.setting(), query.objectives, program, query.limits.call_s, query.seed, True, wrong_start))
        iterations += 1
        possible[number] = False
        if decision.status == "proved":
            proved.append(number)
        elif decision.view is None:
            unknown += 1
        else:
            possible &= ~same_choices(space, rows, decision.view, number)
    solutions = [
        candidate
        for number in proved
        for candidate in ([make_candidate(rows[number], query.template.rates)] if wrong_start else members(space, rows[number]))
    ]
    return {
        "query": query.name,
        "keys": len({space.key(candidate) for candidate in solutions}),
        "raw": len(solutions),
        "canonical": len(proved),
        "iterations": iterations,
        "undecided": unknown + int(possible.sum()),
        "complete": not unknown and not possible.any(),
        "cpu_seconds": round(time.process_time() - begin, 3),
        "solutions": [to_data(space.program(candidate, f"{query.name}.{i + 1}")) for i, candidate in enumerate(solutions)],
    }


def raw_rows(space: Space) -> np.ndarray:
    """Return every candidate of a template of one or two rates as a row."""
    rates = range(len(space.rates))
    if space.template.rates == 1:
        return np.array([(a,) for a in rates], dtype=np.int16)
    return np.array([(c, a, b) for c in range(len(space.conditions)) for a in rates for b in rates], dtype=np.int16)


def same_choices(space: Space, rows: np.ndarray, view: View, number: int) -> np.ndarray:
    """Return which rows decide every rate of a trace as its sender, row ``number``, did, given the same beliefs.

    With the sound rule a trace distinguishes only the delays that its sender reads; rows with other delay conditions differ.
    """
    n = space.template.rates
    same = np.ones(len(rows), dtype=bool)
    if n > 1 and view.setting.delay_rule == "sound":
        timed = np.array([any(name in TIME_INPUTS for name, _ in terms) for terms in space.conditions])[rows[:, 0]]
        same &= ~timed | (space.condition_class[rows[:, 0]] == space.condition_class[rows[number, 0]])
    for t in range(1, view.setting.samples):
        inputs = _inputs(view, t - 1)
        matches = np.array([max(_value(terms, inputs), view.alpha) == view.rate[t] for terms in space.rates])
        if n == 1:
            same &= matches[rows[:, 0]]
            continue
        holds = np.array([_value(terms, inputs) > 0 for terms in space.conditions])[rows[:, 0]]
        same &= np.where(holds, matches[rows[:, 1]], matches[rows[:, 2]])
    return same


def _inputs(view: View, t: int) -> dict[str, Fraction]:
    steps = max([m for m, flag in view.late[t].items() if flag], default=0)
    delay = Fraction(max(0, steps - view.setting.jitter_steps))
    inputs = {"MSS/Rm": Fraction(view.alpha), "Rm": Fraction(1), "qdel_L": delay}
    return inputs | {"C_L": view.C_L[t], "C_U": view.C_U[t]}  # type: ignore[index]


def _value(terms: Terms, inputs: dict[str, Fraction]) -> Fraction:
    return sum((c * inputs[name] for name, c in terms), start=Fraction(0))
