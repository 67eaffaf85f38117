"""Fairness queries for several flows of one sender ([Starvation] App. C): AIMD (s.5.4) and Algorithm 1 (s.6.3).

The flows are identical, so a bound for the first two holds for any two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from ccenv.proofs.claims.cycles import list_departures, returns
from ccenv.proofs.claims.properties import FIRST, Property, fairness_ratio
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.encode import SmtSender
from ccenv.proofs.formulas.setting import BeliefRules, Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.senders.rate_based import RateDelay
from ccenv.proofs.senders.window import Aimd
from ccenv.proofs.solver.terms import Formula, all_of, any_of

APART = "cbr_delay"
"""The model in which each flow has its own delay element, as in [Starvation] s.3; on ``ccac`` all share one (App. C)."""

MIXES = (Fraction(1), Fraction(4), Fraction(1, 4))
"""Ratios of the bytes that the other flows and the first one sent in a step at which exact FIFO is linear."""

BELIEFS_OF_ONE = frozenset({"C_L_lambda", "q_U"})
"""Beliefs without a meaning for a share of a link: programs that read them have no encoding for several flows."""


def aimd_query(ratio: Fraction, samples: int = 11, flows: int = 2, model: str = APART) -> Query:
    """Ask whether AIMD flows with equal windows can end with windows further apart than a ratio, at 1 BDP of buffer.

    Together the windows start at most at what the path can hold, C(Rm + D) + beta; more would be halved in every round whatever
    the other flows do. A proved ratio bounds starvation on every trace of this length ([Starvation] s.5.4: ten Rm); a refuted one
    breaks the claim about this length.
    """
    buffer = Fraction(1)

    def premise(v: View) -> Formula:
        windows = [flow.cwnd[0] for flow in v.flows if flow.cwnd is not None]
        alike = [window == windows[0] for window in windows[1:]]
        return all_of([*alike, windows[0] >= v.alpha, sum(windows[1:], start=windows[0]) <= 2 + buffer])

    def holds(v: View) -> Formula:
        first, second = (flow.cwnd[v.last] for flow in v.flows[:2] if flow.cwnd is not None)
        return fairness_ratio(first, second, ratio)

    claim = Property("fairness", f"equal windows are at most {ratio} apart {samples - 1} Rm later", holds, premise=premise)
    return Query("fairness", Setting(model, buffer, samples), Aimd(), claim, flows=flows)


def algorithm1_query(
    ratio: Fraction, samples: int = 6, flows: int = 2, model: str = APART, sender: RateDelay | None = None
) -> Query:
    """Ask whether flows of Algorithm 1 can repeat a cycle in which one gets more than ``ratio`` times another's bytes.

    The link rate lies in the range that the map supports, mu_minus <= C/2 and C <= mu_minus * s^(Rmax/D - 2) ([Starvation]
    s.6.3).
    """
    sender = sender or RateDelay()
    supported = sender.s ** (sender.rmax_steps - 2)

    def premise(v: View) -> Formula:
        maps = [flow.extra["mu_minus"][0] for flow in v.flows]
        alike = [mu_minus == maps[0] for mu_minus in maps[1:]]
        return all_of([maps[0] <= Fraction(1, 2), maps[0] * supported >= 1, *alike])

    return _cycle(sender, ratio, Setting(model, "infinite", samples), flows, premise)


def program_query(sender: SmtSender, ratio: Fraction, samples: int = 8, flows: int = 2, model: str = APART) -> Query:
    """Ask the same of a belief program. Each flow has its own beliefs, as if it were alone, and they may differ."""
    setting = Setting(model, "infinite", samples, beliefs=BeliefRules(upper="exact"))
    return _cycle(sender, ratio, setting, flows)


def _cycle(
    sender: SmtSender, ratio: Fraction, setting: Setting, flows: int, premise: Callable[[View], Formula] = lambda v: True
) -> Query:
    """Ask whether flows can repeat a cycle (:mod:`ccenv.proofs.claims.cycles`) in which one gets more than its ratio.

    Rates start at one MSS per Rm or more. A refuted ratio is a constructive proof of starvation by it, if no belief times out;
    a proved one bounds the starvation in any cycle of this length.
    """

    def cycle(v: View) -> Formula:
        return all_of([premise(v), *(flow.rate[0] >= v.alpha for flow in v.flows), *returns(v)])

    def holds(v: View) -> Formula:
        first, second = (flow.S[v.last] - flow.S[FIRST] for flow in v.flows[:2])
        return fairness_ratio(first, second, ratio)

    text = f"in a cycle one flow gets at most {ratio} times the other's bytes"
    claim = Property("fairness", text, holds, sender.needs(setting), cycle, repeats=True)
    return Query("fairness", setting, sender, claim, flows=flows)


QUERIES: Mapping[str, Callable[[Fraction, int, int, str], Query]] = {"aimd": aimd_query, "rate_delay": algorithm1_query}
"""Senders with a fairness query, by name: (largest ratio, T, flows, model) -> query."""


def fluid_order(v: View) -> Iterator[Formula]:
    """Yield exact FIFO in cases where it is linear, so that an engine can run the trace.

    The encoding relaxes FIFO: bytes that entered in one step leave in any order. Here the bytes that left in order (S on CCAC,
    else the queue's departures) end at the arrivals of a sample, or within a step in which all flows but one sent nothing, or the
    others sent a multiple in MIXES of the first one's bytes. Bytes sent together leave together, so elsewhere the split would
    multiply variables. The backlog at sample 0 counts as one step.
    """
    flows = range(len(v.flows))
    for t in range(v.setting.samples):
        total, departures = list_departures(v, t)
        positions = []
        for x in range(t + 1):
            start = [flow.E[x - 1] if x else Fraction(0) for flow in v.flows]
            size = [flow.E[x] - before for flow, before in zip(v.flows, start, strict=True)]
            served = [departed - before for departed, before in zip(departures, start, strict=True)]
            mixes = [all_of(served[i] == size[i] for i in flows)]
            mixes += [all_of(part for i in flows if i != j for part in (size[i] == 0, served[i] == 0)) for j in flows]
            mixes += [
                all_of(part for i in flows[1:] for part in (size[i] == k * size[0], served[i] == k * served[0])) for k in MIXES
            ]
            before = v.E[x - 1] if x else Fraction(0)
            positions.append(all_of([before <= total, total <= v.E[x], any_of(mixes)]))
        yield any_of(positions)
