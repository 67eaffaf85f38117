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
from ccenv.proofs.synthesis.prove import claims, collect_values
from ccenv.proofs.synthesis.search.cegis import Run as SearchRun
from ccenv.proofs.synthesis.search.cegis import spread
from ccenv.proofs.synthesis.search.groups import timed_decide

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


def flow_wave(run: SearchRun, workers: Workers) -> None:
    """Decide a few classes with the solver, then replay its counterexamples in order."""
    chosen = spread([int(number) for number in run.undecided])
    answers = list(workers.map(timed_decide, [run.task(number) for number in chosen]))
    items, begin, alive = [], time.process_time(), run.simulator.alive
    for number, ((_, decision),) in zip(chosen, (decisions for decisions, _ in answers), strict=True):
        dropped = [] if decision.view is None else find_broken(run, decision.view, alive[alive != number])
        alive = alive[~np.isin(alive, dropped)]
        items.append(decision.to_dict(number) | {"dropped": dropped})
    replay_s, solver_s = time.process_time() - begin, sum(cpu_s for _, cpu_s in answers)
    run.record("pairs", items, cpu_s=round(solver_s, 3), replay_s=round(replay_s, 3), call_s=run.query.limits.call_s)


def find_broken(run: SearchRun, moves: View, classes: np.ndarray) -> list[int]:
    """Return the classes that a counterexample's moves break, each replayed in exact numbers."""
    return [number for number in map(int, classes) if broken_query(moves, claims(run.task(number))) is not None]
