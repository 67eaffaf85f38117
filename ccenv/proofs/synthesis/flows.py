"""Move replay for several flows: a counterexample's network moves against another program, in exact numbers.

The moves are where tokens and service went and how a step's bytes were split between the flows; each is clamped to what is legal
for the program, and to what keeps all beliefs where they are while that is possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import advance, arrive, observe, replay, update_beliefs
from ccenv.proofs.replay.run import Run
from ccenv.proofs.synthesis.prove import values_of

BOUNDS = frozenset({"C_L"})


def broken_query(moves: View, queries: list[Query]) -> str | None:
    """Return the name of the query, if any, that a program breaks on the moves of another program's counterexample.

    Raises:
        ReplayError: if what was played breaks a law (a bug).
    """
    played = replay_moves(moves, queries[0])
    if played is None:
        return None
    first = queries[0]
    exact = replay(first.setting, values_of(played), BOUNDS, 1, first.sender.decider(), first.flows)
    return next((query.name for query in queries if query.claim.violation(exact) is True), None)


def replay_moves(moves: View, query: Query) -> View | None:
    """Run several flows of a query's program on the moves of a counterexample, on an infinite buffer.

    Args:
        moves: the counterexample.
        query: names the setting, the program, how many flows it has, and the delays that are told apart.

    Returns:
        View: in exact numbers, or None where no service is legal.
    """
    run = Run(query.setting, _start(moves, query), BOUNDS, query.flows)
    decide = query.sender.decider()
    states: list[dict[str, Any]] = [{} for _ in run.flows]
    for t in range(1, query.setting.samples):
        states = [advance(flow, t, decide, state) for flow, state in zip(run.flows, states, strict=True)]
        arrive(run, t)
        most = run.G[t - 1] + 1
        run.G[t] = most if run.E[t] >= most else min(max(run.G[t], run.G[t - 1], run.E[t]), most)
        shares = next(_shares(run, t), None)
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
    """Return the counterexample's numbers as the query's program reads them.

    Delays that the counterexample does not tell apart are as short as they may be; E of older samples is as of the oldest one.
    """
    delays = query.claim.needs.delays
    values: dict[str, Any] = values_of(moves)
    newest = max([m for m, late in moves.late[0].items() if late], default=0)
    past = [*moves.E_before]
    past += [past[-1] if past else moves.E[0]] * (len(delays) - len(past))
    values = {name: value for name, value in values.items() if not name.startswith(("late_", "E_before_"))}
    values |= {f"late_0_{m}": newest >= m for m in delays}
    return values | {f"E_before_{k}": past[k] for k in range(len(delays))}


def _shares(run: Run, t: int) -> Iterator[list[Fraction]]:
    """Yield how S may go on: where the counterexample put it, as far as legal, and so that beliefs stay where they can."""
    first = run.G[t - run.d] if t >= run.d else run.G[0] - run.d
    low, high = max(run.S[t - 1], first), min(run.G[t], run.E[t])
    if low > high:
        return
    wanted = min(max(run.S[t], low), high)
    still = [min(flow.S[s] + flow.beliefs["C_L"][0] * (t - s + run.d) for s in range(t)) for flow in run.flows]
    for total, caps in (
        (wanted, still),
        (min(max(low, min(high, sum(still, start=Fraction(0)))), wanted), still),
        (low, still),
        (wanted, [flow.E[t] for flow in run.flows]),
    ):
        shares = _split(run, t, total, caps)
        if shares is not None:
            yield shares


def _split(run: Run, t: int, total: Fraction, caps: list[Fraction]) -> list[Fraction] | None:
    """Return the flows' parts of ``total``, first in, first out, each near the counterexample's; None where caps forbid it."""
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
