"""Traces that return to their state at sample ``FIRST``, and so can be repeated for ever if no belief times out.

The state is all that the future depends on: queued and undelivered bytes, tokens in stock, delays and losses not yet seen, the
sender's rate, window and memory, and the beliefs. No window of the repeated cycle, however long, moves a belief; windows begin at
sample ``FIRST``, as they begin anew with every trace of a guarantee (:mod:`ccenv.proofs.claims.endless`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ccenv.proofs.claims.properties import FIRST, Property
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.beliefs import step_shows_use
from ccenv.proofs.formulas.view import View
from ccenv.proofs.senders.rate_based import FILTER_ROUNDS
from ccenv.proofs.senders.window import echo
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, implies, larger, negate, same_truth

BELIEFS_IN_CYCLES = frozenset({"C_L", "C_U"})
RETURNS = "the trace returns to its state"
"""The finding for a claim that a trace breaks for ever."""

UNDERSTOOD = ("held", "recover", "mu_minus", "hidden_", "utilised_before", "bw_before", "phase", "offered")
"""Variables of senders besides rate and window: compared memory, constants, and functions of a step's inputs."""


def returns(v: View) -> Iterator[Formula]:
    """Yield "the trace ends in the state of sample ``FIRST``", for several flows each with its own."""
    yield v.admitted(v.last) - v.S[v.last] == v.admitted(FIRST) - v.S[FIRST]
    yield v.admitted(v.last - 1) - v.S[v.last] == v.admitted(FIRST - 1) - v.S[FIRST]
    for one in [v, *v.flows]:
        for k in range(min(v.last - FIRST, len(one.E_before) + FIRST) + 1):
            yield one.enqueued(v.last - k) - one.S[v.last] == one.enqueued(FIRST - k) - one.S[FIRST]
        yield one.S[v.last] - one.S[v.last - 1] == one.S[FIRST] - one.S[FIRST - 1]
        for k in () if one.late is v.late and one is not v else (0,) if one.cwnd is None else (0, 1):
            yield from (same_truth(one.late[v.last - k][m], one.late[FIRST - k][m]) for m in one.late[FIRST])
    yield from _order_continues(v)
    for flow in v.each:
        yield flow.rate[v.last] == flow.rate[FIRST]
        compared = (flow.C_L, flow.C_U, flow.cwnd, flow.extra.get("held"))
        yield from (series[v.last] == series[FIRST] for series in compared if series is not None)
        if v.setting.has_loss:
            yield same_truth(flow.lost[v.last] > 0, flow.lost[FIRST] > 0)
            yield same_truth(flow.loss_seen[v.last], flow.loss_seen[FIRST])
        if "recover" in flow.extra:
            ends = [flow.extra["recover"][t] - flow.S[t] for t in (FIRST, v.last)]
            yield any_of([ends[0] == ends[1], all_of(end <= 0 for end in ends)])
        if "bw_before" in flow.extra:
            yield from _filter_repeats(flow)
        yield from _marks_repeat(flow)
        yield from _windows_agree(flow)


def _filter_repeats(flow: View) -> Iterator[Formula]:
    """Yield that BBR's cycle of gains and its filter repeat: whole cycles of gains, and all rates of a lap in the filter."""
    rounds = flow.last - FIRST
    yield rounds % len(flow.extra["phase"]) == 0 and rounds <= FILTER_ROUNDS
    most: Term = flow.S[flow.last] - flow.S[flow.last - 1]
    for t in range(FIRST + 1, flow.last):
        most = larger(most, flow.S[t] - flow.S[t - 1])
    yield from (before == most for before in flow.extra["bw_before"][FIRST:])


def _marks_repeat(flow: View) -> Iterator[Formula]:
    """Yield that bytes in flight bear the marks of a lap before, and are of steps whose marks are told apart."""
    known = len(flow.marked_before)
    if not known:
        return
    yield flow.enqueued(flow.last - known - 1) <= flow.S[flow.last]
    yield same_truth(echo(flow, flow.last - 1), flow.echo_before)
    yield from (same_truth(flow.step_marked(flow.last - k), flow.step_marked(FIRST - k)) for k in range(known + 1))


def list_departures(v: View, t: int) -> tuple[Term, list[Term]]:
    """Return the bytes that left the queue (on CCAC the path) by a sample, in total and per flow."""
    if v.setting.delays_flows_apart:
        return v.G[t], [flow.departed[t] for flow in v.flows]
    return v.S[t], [flow.S[t] for flow in v.flows]


def _order_continues(v: View) -> Iterator[Formula]:
    """Yield that bytes of successive laps leave in the order in which they entered, within two further laps."""
    gains = [flow.S[v.last] - flow.S[FIRST] for flow in v.flows]
    lap_bytes = v.S[v.last] - v.S[FIRST]
    for t in range(FIRST, v.setting.samples if v.flows else FIRST):
        total, departures = list_departures(v, t)
        ends = list_departures(v, v.last)
        if t == FIRST:
            yield from (last - first == gain for last, first, gain in zip(ends[1], departures, gains, strict=True))
            yield total + 2 * lap_bytes >= v.E[v.last]
        for lap in (1, 2):
            for x in range(FIRST, v.setting.samples):
                left = total + lap * lap_bytes > v.E[x]
                reached = [
                    (departed + lap * gain, flow.E[x]) for departed, gain, flow in zip(departures, gains, v.flows, strict=True)
                ]
                yield implies(left, all_of(departed >= entered for departed, entered in reached))
                yield implies(negate(left), all_of(departed <= entered for departed, entered in reached))


def _windows_agree(flow: View) -> Iterator[Formula]:
    """Yield "no window of the repeated cycle, however long, moves a belief of the flow".

    Windows of up to two cycles are tested one by one. A longer one adds whole cycles, which agree if a whole cycle does without
    the credit of D.
    """
    cycle, d = flow.last - FIRST, flow.setting.jitter_steps
    gain = flow.S[flow.last] - flow.S[FIRST]

    def delivered(start: int, length: int) -> Term:
        laps, rest = divmod(start - FIRST + length, cycle)
        return flow.S[FIRST + rest] + laps * gain - flow.S[start]

    paper = flow.setting.beliefs.upper == "paper"
    begin, less = (FIRST + 1, 0) if paper else (FIRST, d)  # with the exact rule step FIRST is step last of the lap before
    laps_steps = range(begin, begin + cycle) if flow.C_U is not None else range(0)
    used = {x: step_shows_use(flow, x) if paper else flow.step_utilised(x) for x in laps_steps}
    for start in range(FIRST, flow.last):
        for length in range(1, 2 * cycle + 1):
            if flow.C_L is not None:
                yield delivered(start, length) <= (length + d) * flow.C_L[flow.last]
            if flow.C_U is not None and length > d:
                steps = {begin + (x - begin) % cycle for x in range(start + 1, start + length - less + 1)}
                yield implies(
                    all_of(used[x] for x in sorted(steps)), delivered(start, length) >= (length - d) * flow.C_U[flow.last]
                )
    if flow.C_L is not None:
        yield gain <= cycle * flow.C_L[flow.last]
    if flow.C_U is not None:
        yield implies(all_of(used.values()), gain >= cycle * flow.C_U[flow.last])


def cycle_query(query: Query) -> Query | str:
    """Return the query for a repeating trace that breaks the claim of another query, or why there is none."""
    claim, setting, needs = query.claim, query.setting, query.sender.needs(query.setting)
    repeated = claim.repeated
    if repeated is None or not setting.plain_grid or setting.beliefs.timeout is not None or setting.loss_detection != "oracle":
        return "not asked: beliefs time out, or losses are found by the sender"
    if reads := needs.bounds - BELIEFS_IN_CYCLES:
        return f"not asked: the sender reads {', '.join(sorted(reads))}"
    text = f"for ever, where no belief times out: {claim.text}"
    needs |= replace(claim.needs, bounds=needs.bounds)  # beliefs that the sender does not read change nothing
    returning = Property(claim.name, text, repeated, needs, lambda v: all_of([claim.premise(v), *returns(v)]), repeats=True)
    asked = replace(query, name=f"{query.name}, repeated", claim=returning, bounds="full")
    memory = {name for name in asked.encoding().view.extra if not name.startswith(UNDERSTOOD)}
    return f"not asked: the sender remembers {', '.join(sorted(memory))}" if memory else asked
