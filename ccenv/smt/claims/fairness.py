"""What several flows of one sender get of a link ([Starvation] App. C): AIMD (s.5.4) and Algorithm 1 (s.6.3).

The flows are alike, so what the first two of them cannot do to each other no two can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from ccenv.smt.claims.properties import FIRST, Property, fairness_ratio
from ccenv.smt.claims.verifier import Query
from ccenv.smt.network.encode import SmtSender
from ccenv.smt.network.setting import BeliefRules, Setting
from ccenv.smt.network.view import View
from ccenv.smt.senders.aimd import Aimd
from ccenv.smt.senders.rate_delay import RateDelay
from ccenv.smt.solver.algebra import Formula, Term, all_of, any_of, implies, same_truth

MIXES = (Fraction(1), Fraction(4), Fraction(1, 4))
"""Ratios of the bytes that the other flows and the first one sent in a step at which exact FIFO is linear."""

BELIEFS_OF_ONE = frozenset({"C_L_lambda", "q_U"})
"""Beliefs that mean nothing for a share of a link: programs that read them have no encoding for several flows."""


def aimd_query(ratio: Fraction, samples: int = 11, flows: int = 2) -> Query:
    """Ask whether AIMD flows with equal windows can end with windows further apart than a ratio, at 1 BDP of buffer.

    The windows start at what the path can hold together, C(Rm + D) + beta, at most; more would be halved in every round whatever
    the other flows do. A proved ratio means that starvation is bounded on every trace of this length ([Starvation] s.5.4: ten
    Rm).
    """
    buffer = Fraction(1)

    def premise(v: View) -> Formula:
        windows = [flow.cwnd[0] for flow in v.flows if flow.cwnd is not None]
        alike = [window == windows[0] for window in windows[1:]]
        return all_of([*alike, windows[0] >= v.alpha, sum(windows[1:], start=windows[0]) <= 2 + buffer])

    def holds(v: View) -> Formula:
        first, second = (flow.cwnd[v.last] for flow in v.flows[:2] if flow.cwnd is not None)
        return fairness_ratio(first, second, ratio)

    claim = Property("fairness", f"equal windows end at most {ratio} apart", holds, premise=premise)
    return Query("fairness", Setting("ccac", buffer, samples), Aimd(), claim, flows=flows)


def algorithm1_query(fairness: Fraction, samples: int = 6, flows: int = 2, sender: RateDelay | None = None) -> Query:
    """Ask whether flows of Algorithm 1 can repeat a cycle in which one gets more than ``fairness`` times another's bytes.

    The cycle: rates, queue and undelivered bytes of the flows are at the end what they were at sample 1. Rates start at one MSS
    per Rm or more. The link rate lies in the range that the map supports, mu_minus <= C/2 and C <= mu_minus * s^(Rmax/D - 2)
    ([Starvation] s.6.3).
    """
    sender = sender or RateDelay()
    supported = sender.s ** (sender.rmax_steps - 2)

    def premise(v: View) -> Formula:
        maps = [flow.extra["mu_minus"][0] for flow in v.flows]
        parts = [v.queue(v.last) == v.queue(FIRST), maps[0] <= Fraction(1, 2), maps[0] * supported >= 1]
        parts += [mu_minus == maps[0] for mu_minus in maps[1:]]
        for flow in v.flows:
            parts += [
                flow.rate[0] >= v.alpha,
                flow.rate[v.last] == flow.rate[FIRST],
                flow.inflight(v.last) == flow.inflight(FIRST),
            ]
        return all_of(parts)

    def holds(v: View) -> Formula:
        first, second = (flow.S[v.last] - flow.S[FIRST] for flow in v.flows[:2])
        return fairness_ratio(first, second, fairness)

    text = f"in a cycle one flow gets at most {fairness} times the other's bytes"
    return Query(
        "fairness", Setting("ccac", "infinite", samples), sender, Property("fairness", text, holds, premise=premise), flows=flows
    )


def _windows_agree(flow: View) -> Iterator[Formula]:
    """Yield what it means that no window of the repeated cycle, however long, moves a belief of a flow.

    Windows of up to two cycles are asked one by one. A longer one has whole cycles more, which agree if a whole cycle does
    without the credit of D.
    """
    cycle, d = flow.last - FIRST, flow.setting.jitter_steps
    gain = flow.S[flow.last] - flow.S[FIRST]

    def delivered(start: int, length: int) -> Term:
        laps, rest = divmod(start - FIRST + length, cycle)
        return flow.S[FIRST + rest] + laps * gain - flow.S[start]

    used = {x: flow.step_utilised(x) for x in range(FIRST, flow.last)} if flow.C_U is not None else {}
    for start in range(FIRST, flow.last):
        for length in range(1, 2 * cycle + 1):
            if flow.C_L is not None:
                yield delivered(start, length) <= (length + d) * flow.C_L[flow.last]
            if flow.C_U is not None and length > d:
                steps = {FIRST + (x - FIRST) % cycle for x in range(start + 1, start + length - d + 1)}
                yield implies(
                    all_of(used[x] for x in sorted(steps)), delivered(start, length) >= (length - d) * flow.C_U[flow.last]
                )
    if flow.C_L is not None:
        yield gain <= cycle * flow.C_L[flow.last]
    if flow.C_U is not None:
        yield implies(all_of(used.values()), gain >= cycle * flow.C_U[flow.last])


def program_query(sender: SmtSender, fairness: Fraction, samples: int = 8, flows: int = 2) -> Query:
    """Ask whether flows of a belief program can repeat a cycle in which one gets more than ``fairness`` times another's bytes.

    Each flow has beliefs of its own, as if it were alone, and they may differ. From sample 1 on the trace is a cycle: what is
    queued, undelivered, in stock and delayed, rates and beliefs are at the end what they were there, and no window of the
    repeated cycle moves a belief. So it can be repeated for ever, unless beliefs time out. A refuted ratio is a constructive
    proof of starvation by it; a proved one says that no cycle of this length starves a flow more.
    """

    def premise(v: View) -> Formula:
        parts: list[Formula] = [v.admitted(v.last) - v.S[v.last] == v.admitted(FIRST) - v.S[FIRST]]
        for k in range(min(v.last - FIRST, len(v.E_before) + FIRST) + 1):
            parts.append(v.enqueued(v.last - k) - v.S[v.last] == v.enqueued(FIRST - k) - v.S[FIRST])
        parts.append(v.admitted(v.last - 1) - v.S[v.last] == v.admitted(FIRST - 1) - v.S[FIRST])
        parts += [same_truth(v.late[v.last][m], v.late[FIRST][m]) for m in v.late[FIRST]]
        for flow in v.flows:
            parts += [flow.rate[0] >= v.alpha, flow.rate[v.last] == flow.rate[FIRST]]
            parts += [flow.enqueued(v.last - k) - flow.S[v.last] == flow.enqueued(FIRST - k) - flow.S[FIRST] for k in (0, 1)]
            parts.append(flow.S[v.last] - flow.S[v.last - 1] == flow.S[FIRST] - flow.S[FIRST - 1])
            kept = (flow.C_L, flow.C_U, flow.extra.get("held"))
            parts += [series[v.last] == series[FIRST] for series in kept if series is not None]
            parts += _windows_agree(flow)
        return all_of(parts)

    def holds(v: View) -> Formula:
        first, second = (flow.S[v.last] - flow.S[FIRST] for flow in v.flows[:2])
        return fairness_ratio(first, second, fairness)

    text = f"in a cycle one flow gets at most {fairness} times the other's bytes"
    setting = Setting("ccac", "infinite", samples, beliefs=BeliefRules(upper="exact"))
    needs = sender.needs(setting)
    return Query("fairness", setting, sender, Property("fairness", text, holds, needs, premise), flows=flows)


QUERIES: Mapping[str, Callable[[Fraction, int, int], Query]] = {"aimd": aimd_query, "rate_delay": algorithm1_query}
"""Senders with a fairness query, by name: (largest ratio, T, flows) -> query."""


def fluid_order(v: View) -> Iterator[Formula]:
    """Yield what makes FIFO exact where that is linear, so that an engine can run the trace.

    The encoding relaxes FIFO: bytes that entered in one step leave in any order.
    S ends at the arrivals of a sample, or within a step in which all flows but one sent nothing, or the others so many times what
    the first one sent as MIXES says: bytes that were sent together leave together, so elsewhere the split of S would multiply
    variables. What waits at sample 0 counts as one step.
    """
    flows = range(len(v.flows))
    for t in range(v.setting.samples):
        places = []
        for x in range(t + 1):
            start = [flow.E[x - 1] if x else Fraction(0) for flow in v.flows]
            size = [flow.E[x] - before for flow, before in zip(v.flows, start, strict=True)]
            served = [flow.S[t] - before for flow, before in zip(v.flows, start, strict=True)]
            mixes = [all_of(served[i] == size[i] for i in flows)]
            mixes += [all_of(part for i in flows if i != j for part in (size[i] == 0, served[i] == 0)) for j in flows]
            mixes += [
                all_of(part for i in flows[1:] for part in (size[i] == k * size[0], served[i] == k * served[0])) for k in MIXES
            ]
            before = v.E[x - 1] if x else Fraction(0)
            places.append(all_of([before <= v.S[t], v.S[t] <= v.E[x], any_of(mixes)]))
        yield any_of(places)
