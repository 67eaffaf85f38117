"""Answer a query about several flows: decide classes one by one, and replay each counterexample against all that remain."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ccenv.proofs.formulas.view import View
from ccenv.proofs.synthesis.query.flows import NEVER_REPEATS
from ccenv.proofs.synthesis.flows import broken_query
from ccenv.proofs.synthesis.prove import Decision, Task, claims, decide
from ccenv.proofs.synthesis.search.state import WAVE, Run
from ccenv.base.workers import Workers


def timed_decide_one(task: Task) -> tuple[Decision, float]:
    """Decide a program and measure the CPU time (a function of a module: workers import it)."""
    begin = time.process_time()
    decision = decide(task)
    return decision, time.process_time() - begin


def flow_wave(run: Run, workers: Workers) -> None:
    """Let the solver decide a few classes, then replay what it found, in order."""
    open_ = run.undecided
    # Spread over the list: neighbours are alike and fall to the same trace.
    chosen = [int(open_[(i * len(open_)) // WAVE]) for i in range(WAVE)] if len(open_) > WAVE else [int(n) for n in open_]
    answers = list(workers.map(timed_decide_one, [run.task(number) for number in chosen]))
    _record(run, chosen, answers)


def _record(run: Run, chosen: list[int], answers: list[tuple[Decision, float]]) -> None:
    """Replay what the solver found and store a wave in one line, so that a kill keeps all of it or nothing."""
    items, begin, alive = [], time.process_time(), run.simulator.alive
    for number, (decision, _) in zip(chosen, answers, strict=True):
        item: dict[str, Any] = {"class": number, "status": decision.status, "calls": decision.calls, "claim": decision.claim}
        item |= {"reason": decision.reason, "queries": decision.queries, "dropped": []}
        if decision.view is not None:
            item["dropped"] = broken_by(run, decision.view, alive[alive != number])
            alive = alive[~np.isin(alive, item["dropped"])]
        items.append(item)
    replay_s, solver_s = time.process_time() - begin, sum(cpu_s for _, cpu_s in answers)
    line = {"kind": "pairs", "cpu_s": round(solver_s, 3), "replay_s": round(replay_s, 3), "call_s": run.query.limits.call_s}
    line["decisions"] = items
    run.journal.add(line)
    note_flows(run, line)


def note_flows(run: Run, line: dict[str, Any]) -> None:
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


def broken_by(run: Run, moves: View, classes: np.ndarray) -> list[int]:
    """Return which classes a counterexample's moves break, each replayed and checked in exact numbers."""
    return [number for number in map(int, classes) if broken_query(moves, claims(run.task(number))) is not None]
