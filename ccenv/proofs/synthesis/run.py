"""Answer a query: simulate, replay each counterexample against all remaining classes, and prove or refute the survivors."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np

from ccenv.agents.programs import Program
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import locked
from ccenv.base.provenance import code_hash
from ccenv.base.workers import Workers
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View, require_variables
from ccenv.proofs.replay.exact import ReplayError, replay
from ccenv.proofs.senders.program import program_decider
from ccenv.proofs.synthesis.flows import flow_wave
from ccenv.proofs.synthesis.journal import Journal, list_classes, trace_data, trace_from
from ccenv.proofs.synthesis.prove import BOUNDS, Decision, broken_parts, recheck, require_consistent_beliefs
from ccenv.proofs.synthesis.query.classes import (
    CONDITION,
    GOAL,
    LARGEST,
    MOST_SAMPLES,
    PAST,
    RATE,
    TRACE,
    class_rows,
    windows_code,
)
from ccenv.proofs.synthesis.query.flows import check_flows
from ccenv.proofs.synthesis.query.query import Query
from ccenv.proofs.synthesis.search.cegis import WAVE, Progress, Run, decide_in_waves, make_candidate, spread
from ccenv.proofs.synthesis.search.groups import LARGEST_CHOICE, GroupTask, boxes, reads_time, timed_decide
from ccenv.proofs.synthesis.search.search import Simulator


def start(query: Query, folder: FilePath, reuse: bool = True, progress: Progress | None = None) -> Run:
    """Open a run and replay its journal. A template of four rates is searched by simulation here.

    Raises InputError for a template with no candidates or too many, before any work; CcenvError if another process uses the
    folder.
    """
    space = query.space()
    query.check_size(space)
    if query.flows > 1:
        check_flows(query)
    with locked(folder, "synthesis"):
        journal = Journal(folder, query.fingerprint(), reuse, code_hash(start, solve_query))
        families = None
        if query.template.rates == 4:
            from ccenv.proofs.synthesis.search.factored import search_families

            families = search_families(query, space, journal, confirm_break, progress)
        rows = class_rows(space) if families is None else families.rows
        simulator = Simulator(query.setting(), query.objectives, space, rows, query.beliefs.start == "any")
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
        elif line["kind"] in ("group", "pairs"):
            run.apply(line)
        elif line["kind"] == "simulated":
            run.after_simulation = len(run.simulator.alive)
            run.cpu_s["simulated"] = line["cpu_s"]
        elif line["kind"] == "foundation":
            run.z3_calls += line["calls"]


def solve_query(run: Run, jobs: int = 1, backend: str = "processes", progress: Progress | None = None) -> None:
    """Decide every class, or as many as the budget allows.

    Raises CcenvError if beliefs of this network may become wrong, another process uses the folder, or a worker dies; stored work
    is kept.
    """
    workers = Workers(jobs, backend)
    with locked(run.journal.file.parent, "synthesis"):
        if run.query.flows > 1:
            run.after_simulation = len(run.simulator.rows)
            decide_in_waves(run, workers, flow_wave, progress)
            return
        if not run.journal.of_kind("foundation"):
            base = require_consistent_beliefs(run.query)
            run.z3_calls += base.calls
            run.journal.append({"kind": "foundation", "calls": base.calls, "seconds": round(base.seconds, 3)})
        if not run.journal.of_kind("simulated"):
            _simulate(run)
        decide_in_waves(run, workers, _decide_wave, progress)


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
    if not broken_parts(simulator.objectives, view_of_trace(trace, simulator.setting, program, curves)):
        raise ReplayError(f"class {number}: the simulator reports a violation that the exact replay does not show")


def _decide_wave(run: Run, workers: Workers) -> None:
    """Decide a few groups of candidates with the solver, then replay its counterexamples in order."""
    full = run.timed and not len(run.undecided[~np.isin(run.undecided, [*run.still])])
    groups = _groups(run, full)
    tasks = [_make_group(run, numbers, method, full) for numbers, method in spread(groups)]
    # Decide the whole wave before recording: a kill then keeps complete waves.
    for decisions, cpu_s in list(workers.map(timed_decide, tasks)):
        items = [_describe(number, decision) for number, decision in decisions]
        run.record("group", items, cpu_s=round(cpu_s, 3), call_s=run.query.limits.call_s, still=run.timed and not full)


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


def _describe(number: int, decision: Decision) -> dict[str, Any]:
    trace = None if decision.view is None else trace_of_view(decision.view)
    return decision.to_dict(number) | ({} if trace is None else {"trace": trace_data(trace)})


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
    """Load the solver and compile the simulator, of many programs and of one, to exclude both from a run's times."""
    from ccenv.proofs.synthesis.search.kernel import CURVES, score, simulate

    require_extra("z3", "verify")
    import z3
    from numba import typeof

    z3.Solver().check()
    tables = np.zeros(0, CONDITION), np.zeros(0, RATE)
    score(np.zeros(0, TRACE), np.zeros(0, GOAL), 2, np.zeros((0, 3), np.int16), *tables, np.zeros((0, 0), np.int8))
    one = np.zeros(1, TRACE)[0], np.zeros(1, GOAL)[0], 2, np.zeros(3, np.int16), *tables, np.zeros((CURVES, 1), np.int64)
    simulate.compile(tuple(map(typeof, one)))  # after score, which has its parts: in a third of the time


def trace_of_view(view: View) -> np.ndarray | None:
    """Return a counterexample as moves for every candidate, or None if its numbers are too large for integers.

    Service and tokens are stored as positions, clamped to the legal range of each candidate; delays that the rule leaves open as
    preferences. Beliefs are held if the counterexample held them.
    """
    setting = view.setting
    numbers = [view.alpha, view.E[0], view.C_L[0], view.C_U[0], *view.G, *view.S, *view.E_before]  # type: ignore[index]
    numbers += [view.beta] if view.beta is not None else []
    numbers += [view.C_L_lambda[0], view.q_U[0]] if view.C_L_lambda is not None and view.q_U is not None else []
    # Windows are 1 to T samples long, and rates are halves.
    scale = math.lcm(*(Fraction(x).denominator for x in numbers)) * 2 * math.lcm(*range(1, setting.samples + 1))
    largest = max(abs(Fraction(x)) for x in [*numbers, *view.E]) * scale
    if largest > LARGEST or setting.samples > MOST_SAMPLES:
        return None

    def units(x: Fraction) -> int:
        return int(Fraction(x) * scale)

    out = np.zeros((), dtype=TRACE)
    n = setting.samples
    out["samples"], out["jitter"], out["link"] = n, setting.jitter_steps, scale
    out["exact_waste"] = setting.model != "ccac"
    out["past_known"] = setting.delay_rule == "sound"
    out["alpha"], out["beta"] = units(view.alpha), -1 if view.beta is None else units(view.beta)
    out["G"], out["E"] = units(view.G[0]), units(view.E[0])
    out["C_L"], out["C_U"] = units(view.C_L[0]), units(view.C_U[0])  # type: ignore[index]
    out["lost"], out["seen"] = bool(view.lost_at_0), bool(view.loss_seen[0])
    if view.C_L_lambda is not None and view.q_U is not None:
        slack = setting.jitter_steps + setting.beliefs.lambda_extra_steps + 1
        out["probes"], out["C_L_lambda"], out["q_U"] = 1, units(view.C_L_lambda[0]), units(view.q_U[0])
        out["late_kept"] = setting.beliefs.lambda_delay == "kept"
        out["first_late"] = bool(view.first_late[0][slack])
    out["windows"] = windows_code(setting.beliefs)
    is_held = _is_held(view)
    out["hold"] = is_held
    past = [units(x) for x in view.E_before]
    limit = setting.sent_before_at_most
    # Older bytes came all at once, or as fast as the query allows.
    most = None if limit is None else math.floor((limit[0] + limit[1] * view.alpha) * scale)
    while len(past) < PAST:
        past.append(min([-LARGEST, *past]) if most is None else past[-1] - most)
    out["E_before"] = past[:PAST]
    out["waste"][:], out["serve"][:] = -1, -1
    out["G_at"][:n] = [units(x) for x in view.G]
    out["S_at"][:n] = [units(x) for x in view.S]
    delays = [max([m for m, flag in flags.items() if flag], default=0) for flags in view.late]
    out["delay"] = delays[0]
    out["delay_at"][:n] = delays
    return out[()]


def _is_held(view: View) -> bool:
    """Return whether no bound moved, apart from a time-out at the last sample."""
    lower, upper = require_variables(view.C_L, "C_L"), require_variables(view.C_U, "C_U")
    still = all(x == lower[0] for x in lower[:-1]) and all(x == upper[0] for x in upper[:-1])
    if view.setting.beliefs.timeout is None:
        return still and lower[-1] == lower[0] and upper[-1] == upper[0]
    return still and lower[-1] <= lower[0] and upper[-1] >= upper[0]


def view_of_trace(trace: np.ndarray, setting: Setting, program: Program, curves: np.ndarray) -> View:
    """Replay a simulated trace in exact rational numbers with ``ccenv.proofs.replay.exact``, which checks every law.

    ``curves`` (CURVES, MOST_SAMPLES) are those of ``simulate`` for the program. Raises ReplayError if simulator and replayer
    disagree.
    """
    n, link = setting.samples, int(trace["link"])
    G, E, S, delays, _, _, lower, upper, first_late, _, probed, queue, _ = curves

    def part(x: Any) -> Fraction:
        return Fraction(int(x), link)

    values: dict[str, Fraction | bool] = {"alpha": part(trace["alpha"]), "rate_0": part(trace["alpha"])}
    if setting.has_loss:
        values["beta"] = part(trace["beta"])
        values["lost_at_0"] = bool(trace["lost"])
        values["loss_seen_at_0"] = bool(trace["seen"])
    values |= {f"G_{t}": part(G[t]) for t in range(n)} | {f"S_{t}": part(S[t]) for t in range(n)}
    values |= {f"E_{t}": part(E[t]) for t in range(n)}
    values |= {f"C_L_{t}": part(lower[t]) for t in range(n)} | {f"C_U_{t}": part(upper[t]) for t in range(n)}
    bounds = BOUNDS
    if trace["probes"]:
        bounds |= {"C_L_lambda", "q_U"}
        values |= {f"C_L_lambda_{t}": part(probed[t]) for t in range(n)} | {f"q_U_{t}": part(queue[t]) for t in range(n)}
        m = setting.jitter_steps + setting.beliefs.lambda_extra_steps + 1
        values |= {f"first_late_{t}_{m}": bool(first_late[t]) for t in range(n)}
    longest = n if setting.delay_rule == "artefact" else PAST - (setting.sent_before_at_most is not None)
    told_apart = range(1, longest + 1)
    values |= {f"late_{t}_{m}": bool(delays[t] >= m) for t in range(n) for m in told_apart}
    if setting.delay_rule == "sound":
        values |= {f"E_before_{k}": part(trace["E_before"][k]) for k in range(PAST)}
    else:
        values |= {f"E_before_{k}": part(trace["E_before"][min(k, PAST - 1)]) for k in range(max(longest, PAST))}
    return replay(setting, values, frozenset(bounds), 1, program_decider(program))
