"""Queries about several flows: decide classes one by one, and replay each counterexample's moves against all that remain.

The moves are the positions of tokens and service and the split of a step's bytes between the flows. Each is clamped to the legal
range of the program, and to values that keep all beliefs constant while possible. Replays are in exact numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.base.workers import Workers
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import Run, advance, arrive, observe, replay, update_beliefs
from ccenv.proofs.synthesis.prove import Decision, Task, claims, collect_values, decide
from ccenv.proofs.synthesis.query.flows import NEVER_REPEATS
from ccenv.proofs.synthesis.search.cegis import WAVE
from ccenv.proofs.synthesis.search.cegis import Run as SearchRun

BOUNDS = frozenset({"C_L"})


def broken_query(moves: View, queries: list[Query]) -> str | None:
    """Return the name of the query, if any, that a program breaks on the moves of another program's counterexample.

    Raises ReplayError if the replayed trace breaks a law (a bug).
    """
    played = replay_moves(moves, queries[0])
    if played is None:
        return None
    first = queries[0]
    exact = replay(first.setting, collect_values(played), BOUNDS, 1, first.sender.decider(), first.flows)
    return next((query.name for query in queries if query.claim.violation(exact) is True), None)


def replay_moves(moves: View, query: Query) -> View | None:
    """Run the flows of a query's program on the moves of a counterexample, on an infinite buffer; None if no service is legal."""
    run = Run(query.setting, _start(moves, query), BOUNDS, query.flows)
    decide = query.sender.decider()
    states: list[dict[str, Any]] = [{} for _ in run.flows]
    for t in range(1, query.setting.samples):
        states = [advance(flow, t, decide, state) for flow, state in zip(run.flows, states, strict=True)]
        arrive(run, t)
        most = run.G[t - 1] + 1
        run.G[t] = most if run.E[t] >= most else min(max(run.G[t], run.G[t - 1], run.E[t]), most)
        shares = next(_candidate_shares(run, t), None)
        if shares is None:
            return None
        for flow, served in zip(run.flows, shares, strict=True):
            flow.S[t] = served
        run.S[t] = sum(shares, start=Fraction(0))
        observe(run, t)
        for flow in run.flows:
            update_beliefs(flow, t, 1)
    return run.view()


def _start(moves: View, query: Query) -> dict[str, Any]:
    """Return the counterexample's values for the query's program.

    Delays that the counterexample does not distinguish are as short as possible; E of older samples is that of the oldest one.
    """
    delays = query.claim.needs.delays
    values: dict[str, Any] = collect_values(moves)
    newest = max([m for m, late in moves.late[0].items() if late], default=0)
    past = [*moves.E_before]
    past += [past[-1] if past else moves.E[0]] * (len(delays) - len(past))
    values = {name: value for name, value in values.items() if not name.startswith(("late_", "E_before_"))}
    values |= {f"late_0_{m}": newest >= m for m in delays}
    return values | {f"E_before_{k}": past[k] for k in range(len(delays))}


def _candidate_shares(run: Run, t: int) -> Iterator[list[Fraction]]:
    """Yield candidates for S(t): the counterexample's as far as legal, with beliefs constant first."""
    first = run.G[t - run.d] if t >= run.d else run.G[0] - run.d
    low, high = max(run.S[t - 1], first), min(run.G[t], run.E[t])
    if low > high:
        return
    preferred = min(max(run.S[t], low), high)
    caps_held = [min(flow.S[s] + flow.beliefs["C_L"][0] * (t - s + run.d) for s in range(t)) for flow in run.flows]
    for total, caps in (
        (preferred, caps_held),
        (min(max(low, min(high, sum(caps_held, start=Fraction(0)))), preferred), caps_held),
        (low, caps_held),
        (preferred, [flow.E[t] for flow in run.flows]),
    ):
        shares = _split(run, t, total, caps)
        if shares is not None:
            yield shares


def _split(run: Run, t: int, total: Fraction, caps: list[Fraction]) -> list[Fraction] | None:
    """Return the flows' parts of ``total`` in FIFO order, each near the counterexample's; None where caps forbid it."""
    step = next(x for x in range(t + 1) if total <= run.E[x])
    least = [max(flow.E[step - 1] if step else Fraction(0), flow.S[t - 1]) for flow in run.flows]
    most = [min(flow.E[step], cap) for flow, cap in zip(run.flows, caps, strict=True)]
    shares: list[Fraction] = []
    for i, flow in enumerate(run.flows):
        left = total - sum(shares)
        low, high = max(least[i], left - sum(most[i + 1 :])), min(most[i], left - sum(least[i + 1 :]))
        if low > high:
            return None
        shares.append(min(max(flow.S[t], low), high))
    return shares


def timed_decide_one(task: Task) -> tuple[Decision, float]:
    """Decide a program and measure the CPU time (a function of a module: workers import it)."""
    begin = time.process_time()
    decision = decide(task)
    return decision, time.process_time() - begin


def flow_wave(run: SearchRun, workers: Workers) -> None:
    """Decide a few classes with the solver, then replay its counterexamples in order."""
    undecided = run.undecided
    # Spread over the list: neighbours are similar and fall to the same trace.
    chosen = (
        [int(undecided[(i * len(undecided)) // WAVE]) for i in range(WAVE)]
        if len(undecided) > WAVE
        else [int(n) for n in undecided]
    )
    answers = list(workers.map(timed_decide_one, [run.task(number) for number in chosen]))
    _record(run, chosen, answers)


def _record(run: SearchRun, chosen: list[int], answers: list[tuple[Decision, float]]) -> None:
    """Replay the solver's counterexamples and store a wave in one line, so that a kill keeps all of it or nothing."""
    items, begin, alive = [], time.process_time(), run.simulator.alive
    for number, (decision, _) in zip(chosen, answers, strict=True):
        item: dict[str, Any] = {"class": number, "status": decision.status, "calls": decision.calls, "claim": decision.claim}
        item |= {"reason": decision.reason, "queries": decision.queries, "dropped": []}
        if decision.view is not None:
            item["dropped"] = find_broken(run, decision.view, alive[alive != number])
            alive = alive[~np.isin(alive, item["dropped"])]
        items.append(item)
    replay_s, solver_s = time.process_time() - begin, sum(cpu_s for _, cpu_s in answers)
    line = {"kind": "pairs", "cpu_s": round(solver_s, 3), "replay_s": round(replay_s, 3), "call_s": run.query.limits.call_s}
    line["decisions"] = items
    run.journal.append(line)
    note_flows(run, line)


def note_flows(run: SearchRun, line: dict[str, Any]) -> None:
    """Apply a wave: verdicts of the solver, and further classes that its counterexamples broke."""
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


def find_broken(run: SearchRun, moves: View, classes: np.ndarray) -> list[int]:
    """Return the classes that a counterexample's moves break, each replayed in exact numbers."""
    return [number for number in map(int, classes) if broken_query(moves, claims(run.task(number))) is not None]
