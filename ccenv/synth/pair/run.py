"""Queries about two flows of a program: generator, two-flow verifier, and replay of each counterexample against all that remain.

Splitting a step's bytes freely between the flows relaxes FIFO: what is proved holds in the continuous model; a refuted program
may fail only where bytes that were sent together leave in any order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.errors import InputError
from ccenv.programs import Program
from ccenv.smt.network.setting import Setting
from ccenv.smt.senders import program as programs
from ccenv.smt.solver.solvers import solve, to_smtlib
from ccenv.smt.two_flow.encode import encode_two
from ccenv.smt.two_flow.program import INPUTS, PairGoals, broken_question, pair_questions
from ccenv.synth.pair.replay import replay_pair
from ccenv.synth.prove import Decision
from ccenv.synth.query.query import Query
from ccenv.synth.run import WAVE, Progress, Run, decide_in_waves
from ccenv.workers import Workers

NEVER_REPEATS = "nothing repeats"
"""Claim of programs that no trace of the query's length ends in the state in which it began: there is nothing to be fair in."""


@dataclass(frozen=True)
class PairTask:
    """One program, asked about as two flows; plain data for a worker."""

    setting: Setting
    goals: PairGoals
    program: Program
    seconds: float
    seed: int = 0


@dataclass
class PairDecision(Decision):
    """A decision with the numbers of its counterexample, as the solver names them."""

    values: Mapping[str, Any] | None = None


def pair_goals(query: Query) -> PairGoals:
    """Return what a query asks of two flows.

    Raises:
        InputError: for a query that the two-flow encoding does not cover.
    """
    check_pair(query)
    wanted, D = query.objectives, query.setting().jitter_steps
    most = wanted.inflight
    return PairGoals(wanted.utilisation, Fraction(wanted.fairness or 1), most.bdp + most.rtt / (1 + D), most.mss)


def check_pair(query: Query) -> None:
    """Raise InputError, before any work, where a query about two flows asks for what has no two-flow encoding."""
    network, name = query.network, query.name
    if (network.model, network.buffer, network.delay_rule) != ("ccac", "infinite", "sound") or network.sent_before is not None:
        raise InputError(f"query {name!r}: two flows need network {{model: ccac, buffer: infinite, delay_rule: sound}}")
    if query.beliefs.timeouts != "none":
        raise InputError(f"query {name!r}: two flows are searched without belief time-outs")
    if query.template.rates > 3:
        raise InputError(f"query {name!r}: two flows are searched in templates of up to 3 rates")
    used = set(query.template.rate) | {item for group in query.template.conditions for item in group}
    if used - INPUTS:
        wrong = ", ".join(sorted(used - INPUTS))
        raise InputError(
            f"query {name!r}: two flows take {', '.join(sorted(INPUTS))}; {wrong} has no meaning for a share of a link"
        )


def decide_pair(task: PairTask) -> PairDecision:
    """Decide one program: objectives in what repeats, that something repeats, and bytes in flight.

    Raises:
        ReplayError: if a counterexample does not survive the exact check.
    """
    out = PairDecision("proved")
    questions = pair_questions(task.program, task.setting, task.goals)
    for number, question in enumerate(questions):
        pair = encode_two(question.setting, question.control, question.delays)
        answer, evidence = question.ask(pair, task.seconds, task.seed)
        out.calls += 1
        out.seconds += answer.seconds
        if answer.status != "unsat":
            out.claim, out.reason = question.claim, answer.reason
            out.status = "refuted" if answer.status == "sat" else "unknown"
            out.values = answer.model if answer.status == "sat" else None
            return out
        out.queries.append({"name": question.claim, "sha256": evidence["sha256"], "seconds": round(answer.seconds, 3)})
        if number > 0:
            continue
        # Programs that never repeat would pass for want of a trace.
        twin = question.twin(pair, task.seconds, task.seed)
        out.calls += 1
        out.seconds += twin.seconds
        if twin.status != "sat":
            out.claim, out.reason = NEVER_REPEATS, twin.reason
            out.status = "refuted" if twin.status == "unsat" else "unknown"
            return out
    return out


def recheck_pair(task: PairTask, solver: str) -> dict[str, Any]:
    """Decide all questions of a proved program again with a second solver, as ``ccenv.synth.prove.recheck``."""
    seconds, said = 0.0, []
    for question in pair_questions(task.program, task.setting, task.goals):
        pair = encode_two(question.setting, question.control, question.delays)
        answer = solve(to_smtlib(question.violated(pair)), solver, task.seconds, task.seed)
        seconds += answer.seconds
        said.append(answer.status)
    return {"solver": solver, "confirmed": all(status == "unsat" for status in said), "seconds": round(seconds, 3)}


def pair_task(run: Run, number: int) -> PairTask:
    """Return the question about one class of a run."""
    program = run.space.program(run.candidate(number), f"class{number}")
    return PairTask(run.simulator.setting, pair_goals(run.query), program, run.query.limits.call_s, run.query.seed)


def timed_decide_pair(task: PairTask) -> tuple[PairDecision, float]:
    """Decide a program and measure the CPU time (a function of a module: workers import it)."""
    begin = time.process_time()
    decision = decide_pair(task)
    return decision, time.process_time() - begin


def solve_pairs(run: Run, workers: Workers, progress: Progress | None = None) -> None:
    """Decide every class of a query about two flows, or as many as the budget allows."""
    run.after_simulation = len(run.simulator.rows)
    decide_in_waves(run, workers, _wave, progress)


def _wave(run: Run, workers: Workers) -> None:
    open_ = run.undecided
    # Spread over the list: neighbours are alike and fall to the same trace.
    chosen = [int(open_[(i * len(open_)) // WAVE]) for i in range(WAVE)] if len(open_) > WAVE else [int(n) for n in open_]
    answers = list(workers.map(timed_decide_pair, [pair_task(run, number) for number in chosen]))
    _record(run, chosen, answers)


def _record(run: Run, chosen: list[int], answers: list[tuple[PairDecision, float]]) -> None:
    """Replay what the solver found and store a wave in one line, so that a kill keeps all of it or nothing."""
    items, begin, alive = [], time.process_time(), run.simulator.alive
    for number, (decision, _) in zip(chosen, answers, strict=True):
        item: dict[str, Any] = {"class": number, "status": decision.status, "calls": decision.calls, "claim": decision.claim}
        item |= {"reason": decision.reason, "queries": decision.queries, "dropped": []}
        if decision.values is not None:
            item["dropped"] = broken_by(run, decision.values, alive[alive != number])
            alive = alive[~np.isin(alive, item["dropped"])]
        items.append(item)
    replay_s, solver_s = time.process_time() - begin, sum(cpu_s for _, cpu_s in answers)
    line = {"kind": "pairs", "cpu_s": round(solver_s, 3), "replay_s": round(replay_s, 3), "call_s": run.query.limits.call_s}
    line["decisions"] = items
    run.journal.add(line)
    note_pairs(run, line)


def note_pairs(run: Run, line: dict[str, Any]) -> None:
    """Take over a wave: verdicts of the solver, and what its counterexamples broke besides."""
    run.cpu_s["solver"] += line["cpu_s"]
    run.cpu_s["simulated"] += line["replay_s"]
    simulator = run.simulator
    for item in line["decisions"]:
        number = item["class"]
        run.z3_calls += item["calls"]
        if item["status"] == "proved":
            run.proved[number] = item
        elif item["status"] == "unknown":
            run.note_unknown(number, item["reason"], line["call_s"])
        else:
            run.refuted[number] = item["claim"]
            run.counterexamples += item["claim"] != NEVER_REPEATS
            simulator.alive = simulator.alive[simulator.alive != number]
        simulator.alive = simulator.alive[~np.isin(simulator.alive, item["dropped"])]
    run.settle()


def broken_by(run: Run, moves: Mapping[str, Any], classes: np.ndarray) -> list[int]:
    """Return which classes a counterexample's moves break, each replayed and checked in exact numbers."""
    setting, goals = run.simulator.setting, pair_goals(run.query)
    out = []
    for number in map(int, classes):
        program = run.space.program(run.candidate(number), f"class{number}")
        delays = max(programs.delay_thresholds(program, setting.jitter_steps), default=0)
        values = replay_pair(setting, moves, program, delays)
        if values is not None and broken_question(pair_questions(program, setting, goals), values) is not None:
            out.append(number)
    return out
