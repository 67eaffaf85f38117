"""Answer a query: simulate, replay each counterexample against all remaining classes, and prove or refute the survivors."""

from __future__ import annotations

import time
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.files import locked
from ccenv.base.provenance import code_hash
from ccenv.base.workers import Workers
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.synthesis.exchange import trace_of_view, view_of_trace
from ccenv.proofs.synthesis.flows import flow_wave, note_flows
from ccenv.proofs.synthesis.journal import Journal, list_classes, trace_data, trace_from
from ccenv.proofs.synthesis.prove import Decision, broken_parts, recheck, require_consistent_beliefs
from ccenv.proofs.synthesis.query.classes import MOST_SAMPLES, class_rows
from ccenv.proofs.synthesis.query.flows import check_flows
from ccenv.proofs.synthesis.query.objectives import Objectives
from ccenv.proofs.synthesis.query.query import Query
from ccenv.proofs.synthesis.query.template import Space
from ccenv.proofs.synthesis.search.cegis import WAVE, Progress, Run, decide_in_waves, make_candidate
from ccenv.proofs.synthesis.search.groups import LARGEST_CHOICE, GroupTask, boxes, decide_group, reads_time
from ccenv.proofs.synthesis.search.search import Simulator


def start(query: Query, folder: FilePath, reuse: bool = True, progress: Progress | None = None) -> Run:
    """Open a run and replay its journal. A template of four rates is searched by simulation here.

    Raises:
        InputError: for a template with no candidates or too many, before any work.
        CcenvError: if another process uses the folder.
    """
    space = query.space()
    query.check_size(space)
    if query.flows > 1:
        check_flows(query)
    with locked(folder, "synthesis"):
        return _open_run(query, space, folder, reuse, progress)


def _open_run(query: Query, space: Space, folder: FilePath, reuse: bool, progress: Progress | None) -> Run:
    """Open a run in a locked folder."""
    journal = Journal(folder, query.fingerprint(), reuse, code_hash(start, solve_query))
    families = None
    if query.template.rates == 4:
        from ccenv.proofs.synthesis.search.factored import search_families

        families = search_families(query, space, journal, confirm_break, progress)
    rows = class_rows(space) if families is None else families.rows
    simulator = Simulator(query.setting(), query.goals(), space, rows, query.beliefs.start == "any")
    run = Run(query, space, simulator, journal, families=families)
    if families is not None:
        run.counterexamples, run.cpu_s["covered"] = families.counterexamples, families.cpu_s
    _restore(run)
    return run


def _restore(run: Run) -> None:
    """Replay the journal."""
    if run.query.flows == 1 and not run.journal.of_kind("simulated"):
        # An interrupted search starts again from its seed, with the same traces.
        run.journal.drop("counterexample")
    n_classes = len(run.simulator.rows)
    for line in run.journal.lines:
        wrong = [number for number in list_classes(line) if number >= n_classes]
        if wrong:
            raise InputError(f"{run.journal.file}: class {wrong[0]}; the query has {n_classes}: --fresh starts anew")
        if line["kind"] == "counterexample":
            run.simulator.apply(trace_from(line["trace"]))
            run.counterexamples += 1
        elif line["kind"] == "group":
            _note_group(run, line)
        elif line["kind"] == "pairs":
            note_flows(run, line)
        elif line["kind"] == "simulated":
            run.after_simulation = len(run.simulator.alive)
            run.cpu_s["simulated"] = line["cpu_s"]
        elif line["kind"] == "foundation":
            run.z3_calls += line["calls"]


def _note_group(run: Run, line: dict[str, Any]) -> None:
    """Apply the solver's answers about a group."""
    run.cpu_s["solver"] += line["cpu_s"]
    for item in line["decisions"]:
        number = item["class"]
        run.z3_calls += item["calls"]
        if item["status"] == "proved" and line.get("still"):
            run.still.add(number)
        elif item["status"] == "proved":
            run.proved[number] = item
        elif item["status"] == "unknown":
            run.note_unknown(number, item["reason"], line.get("call_s", 0.0))
        else:
            run.refuted[number] = item["claim"]
            run.simulator.alive = run.simulator.alive[run.simulator.alive != number]
            run.counterexamples += 1
        if item.get("trace") is not None:
            run.simulator.apply(trace_from(item["trace"]))
    run.settle()


def solve_query(run: Run, jobs: int = 1, backend: str = "processes", progress: Progress | None = None) -> None:
    """Decide every class, or as many as the budget allows.

    Raises:
        CcenvError: if beliefs of this network may become wrong, another process uses the folder, or a worker dies; stored work is
            kept.
    """
    workers = Workers(jobs, backend)
    with locked(run.journal.file.parent, "synthesis"):
        if run.query.flows > 1:
            run.after_simulation = len(run.simulator.rows)
            decide_in_waves(run, workers, flow_wave, progress)
            return
        _prove_foundation(run)
        if not run.journal.of_kind("simulated"):
            _simulate(run)
        decide_in_waves(run, workers, _decide_wave, progress)


def _prove_foundation(run: Run) -> None:
    if run.journal.of_kind("foundation"):
        return
    base = require_consistent_beliefs(run.query)
    run.z3_calls += base.calls
    run.journal.append({"kind": "foundation", "calls": base.calls, "seconds": round(base.seconds, 3)})


def _simulate(run: Run) -> None:
    begin = time.process_time()
    simulator = run.simulator

    def found(trace: np.ndarray, dropped: np.ndarray) -> None:
        confirm_break(simulator, trace, dropped)
        run.counterexamples += 1
        run.journal.append({"kind": "counterexample", "class": int(dropped[0]), "trace": trace_data(trace)})

    simulator.attack(run.query.seed, found)
    run.after_simulation = len(simulator.alive)
    run.cpu_s["simulated"] = round(time.process_time() - begin, 3)
    run.journal.append({"kind": "simulated", "left": len(simulator.alive), "cpu_s": run.cpu_s["simulated"]})


def confirm_break(simulator: Simulator, trace: np.ndarray, broken: np.ndarray) -> None:
    """Run the first program that a trace breaks and replay it in rational numbers. Raises ReplayError without a violation."""
    from ccenv.proofs.synthesis.search.kernel import CURVES, simulate

    number, rates = int(broken[0]), simulator.space.template.rates
    curves = np.zeros((CURVES, MOST_SAMPLES), np.int64)
    row = simulator.rows[number]
    simulate(trace, simulator.goal(trace), rates, row, simulator.conditions, simulator.rates, curves)
    program = simulator.space.program(make_candidate(row, rates), f"class{number}")
    check_breaks(simulator.objectives, view_of_trace(trace, simulator.setting, program, curves), f"class {number}")


def check_breaks(objectives: Objectives, view: View, what: str) -> None:
    """Raise ReplayError unless an exact trace violates the invariant."""
    if not broken_parts(objectives, view):
        raise ReplayError(f"{what}: the simulator reports a violation that the exact replay does not show")


def _decide_wave(run: Run, workers: Workers) -> None:
    """Decide a few groups of candidates with the solver, then replay its counterexamples in order."""
    full = run.timed and not len(run.undecided[~np.isin(run.undecided, [*run.still])])
    groups = _groups(run, full)
    # Spread over the list: neighbours are similar and fall to the same trace.
    chosen = [groups[(i * len(groups)) // WAVE] for i in range(WAVE)] if len(groups) > WAVE else groups
    tasks = [_make_group(run, numbers, method, full) for numbers, method in chosen]
    # Decide the whole wave before recording: a kill then keeps complete waves.
    for decisions, cpu_s in list(workers.map(timed_decide, tasks)):
        _record(run, decisions, cpu_s, still=run.timed and not full)


def _groups(run: Run, full: bool) -> list[tuple[list[int], Literal["choice", "hull"]]]:
    """Return the numbers of the undecided classes in groups that share a query: by choice, or by equal conditions.

    With time-outs classes first pass the static encoding, whose refutations remain valid, and then the full one.
    """
    # Programs that read no delays have one rate while no bound moves: many are no harder than one.
    free: list[int] = []
    timed: dict[tuple[int, ...], dict[int, tuple[int, ...]]] = {}
    constant = run.simulator.objectives.transient == "none"
    for number in map(int, run.undecided):
        if run.timed and not full and number in run.still:
            continue
        candidate = run.candidate(number)
        if constant and not full and not reads_time(run.space.program(candidate, "p")):
            free.append(number)
        else:
            timed.setdefault(candidate.conditions, {})[number] = candidate.rates
    # Four lists, so that a wave finds up to four counterexamples.
    size = min(LARGEST_CHOICE, max(-(-len(free) // WAVE), 8))
    groups: list[tuple[list[int], Literal["choice", "hull"]]] = [
        (free[i : i + size], "choice") for i in range(0, len(free), size)
    ]
    return groups + [(numbers, "hull") for rates in timed.values() for numbers in boxes(rates)]


def _make_group(run: Run, numbers: list[int], method: Literal["choice", "hull"], full: bool) -> GroupTask:
    programs = tuple(run.space.program(run.candidate(number), f"class{number}") for number in numbers)
    limits = run.query.limits
    setting, any_start = run.simulator.setting, full and run.query.beliefs.start == "any"
    # Without time-outs a violation has constant beliefs, so it is one with time-outs, too.
    setting = setting if full else setting.without_timeout()
    return GroupTask(
        setting, run.simulator.objectives, tuple(numbers), programs, method, limits.call_s, run.query.seed, full, any_start
    )


def timed_decide(group: GroupTask) -> tuple[list[tuple[int, Decision]], float]:
    """Decide candidates of a group and measure the CPU time (a function of a module: workers import it)."""
    begin = time.process_time()
    decisions = decide_group(group)
    return decisions, time.process_time() - begin


def _record(run: Run, decisions: list[tuple[int, Decision]], cpu_s: float, *, still: bool) -> None:
    """Store the solver's answers about a group in one line, so that a kill keeps all of it or nothing; then apply them."""
    items = []
    for number, decision in decisions:
        item: dict[str, Any] = {"class": number, "status": decision.status, "calls": decision.calls, "claim": decision.claim}
        item |= {"reason": decision.reason, "queries": decision.queries}
        trace = None if decision.view is None else trace_of_view(decision.view)
        items.append(item if trace is None else item | {"trace": trace_data(trace)})
    line = {"kind": "group", "cpu_s": round(cpu_s, 3), "call_s": run.query.limits.call_s, "still": still}
    line["decisions"] = items
    run.journal.append(line)
    _note_group(run, line)


def recheck_solutions(run: Run, solver: str) -> dict[str, Any]:
    """Prove every solution with a second solver; returns the number confirmed, the unconfirmed ones (``open``) and seconds."""
    unconfirmed, seconds = [], 0.0
    for number in sorted(run.proved):
        answer = recheck(run.task(number), solver)
        seconds += answer["seconds"]
        if not answer["confirmed"]:
            unconfirmed.append(number)
    return {"solver": solver, "confirmed": len(run.proved) - len(unconfirmed), "open": unconfirmed, "seconds": round(seconds, 3)}


def warm_up() -> None:
    """Load the solver and compile the simulator, to exclude both from a run's times."""
    from ccenv.base.errors import require_extra
    from ccenv.proofs.synthesis.query.classes import CONDITION, GOAL, RATE, TRACE
    from ccenv.proofs.synthesis.search.kernel import score

    require_extra("z3", "verify")
    import z3

    z3.Solver().check()
    none = np.zeros((0, 0), np.int8)
    score(np.zeros(0, TRACE), np.zeros(0, GOAL), 2, np.zeros((0, 3), np.int16), np.zeros(0, CONDITION), np.zeros(0, RATE), none)
