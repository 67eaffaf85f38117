"""Fairness queries for several flows of one sender ([Starvation] App. C): AIMD (s.5.4) and Algorithm 1 (s.6.3).

The flows are identical, so a bound for the first two holds for any two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from ccenv.proofs.claims.cycles import list_departures, returns
from ccenv.proofs.claims.properties import FIRST, Property, fairness_ratio
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.encode import SmtSender
from ccenv.proofs.formulas.setting import BeliefRules, Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.senders.rate_based import RateDelay
from ccenv.proofs.senders.window import Aimd, Dctcp, DelayAimd
from ccenv.proofs.solver.terms import Formula, all_of, any_of, implies, negate

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
    """Ask whether flows of Algorithm 1 can repeat a cycle in which one gets more than ``ratio`` times another's bytes."""
    sender = sender or RateDelay()
    setting = Setting(model, "infinite", samples)
    return _cycle(sender, *_gain_ratio(ratio), setting, flows, lambda v: _supports_link(v, sender))


LARGEST_INCREASE = Fraction(1, 10)
"""Largest ``a`` of Algorithm 1, one MSS per Rm, as a share of the least rate of its map, mu_minus / s."""


def step_query(ratio: Fraction, name: str = "step", samples: int = 3, flows: int = 2, model: str = APART) -> Query:
    """Ask whether one decision of Algorithm 1 can drive rates further than ``ratio`` apart that were within it before.

    Flows decide together, at readings of the delay at most one step (D) apart, and stay at or above b of the map's least rate.
    """
    sender, setting = RateDelay(), Setting(model, "infinite", samples)

    def within(v: View, t: int) -> Formula:
        pairs = [(one.rate[t], other.rate[t]) for one in v.flows for other in v.flows if one is not other]
        least = [flow.rate[t] >= sender.factor * flow.extra["mu_minus"][0] / sender.s for flow in v.flows]
        return all_of([*(fairness_ratio(first, second, ratio) for first, second in pairs), *least])

    def premise(v: View) -> Formula:
        least = v.flows[0].extra["mu_minus"][0] / sender.s
        return all_of([_alike(v), v.alpha <= LARGEST_INCREASE * least, within(v, v.last - 1), _readings_agree(v, v.last - 1)])

    assumed = f"decisions together at readings at most D apart, MSS/Rm at most {LARGEST_INCREASE} of the map's least rate"
    assumed += f", rates at least {sender.factor} of it"
    text = f"rates at most {ratio} apart stay at most {ratio} apart ({assumed})"
    claim = Property("fairness", text, lambda v: within(v, v.last), sender.needs(setting), premise)
    return Query(name, setting, sender, claim, flows=flows)


def range_query(samples: int = 6, flows: int = 2, model: str = APART) -> Query:
    """Ask whether flows of Algorithm 1 can repeat a cycle in which a delay lies beyond the end of the map, Rmax."""
    sender, setting = RateDelay(), Setting(model, "infinite", samples)
    beyond = sender.rmax_steps + 1

    def within_map(v: View) -> Formula:
        return all_of(negate(flow.late[t][beyond]) for flow in v.flows for t in range(FIRST, v.setting.samples))

    text = f"in a cycle no flow's delay reaches {beyond} D above Rm, beyond the end of the map (Rmax is {sender.rmax_steps} D)"
    return _cycle(sender, within_map, text, setting, flows, lambda v: _supports_link(v, sender))


def algorithm1_claims(flows: int = 2, model: str = APART) -> list[Query]:
    """Return what can be said of Algorithm 1 beyond cycles of one length ([Starvation] s.6.3).

    1. Rates at most s apart stay at most s apart, the fairness that the map aims at: one decision breaks it.
    2. The invariant: rates at most (s + ``LARGEST_INCREASE``)/b apart stay so, at all times by induction. Only a step in which
       one flow goes up and the other down drives them apart: there r_i < s r_j, so (r_i + a)/(b r_j) < s/b + a/(b r_j), and r_j,
       at least its target, is at least mu_minus/s.
    3. Delays stay within the map in a cycle.
    """
    sender = RateDelay()
    invariant = (sender.s + LARGEST_INCREASE) / sender.factor
    named = [step_query(ratio, name, flows=flows, model=model) for name, ratio in (("step", sender.s), ("invariant", invariant))]
    return [*named, replace(range_query(flows=flows, model=model), name="range")]


def _alike(v: View) -> Formula:
    """All flows have the same map."""
    maps = [flow.extra["mu_minus"][0] for flow in v.flows]
    return all_of([mu_minus == maps[0] for mu_minus in maps[1:]])


def _supports_link(v: View, sender: RateDelay) -> Formula:
    """The link rate lies in the map's range: mu_minus <= C/2 and C <= mu_minus * s^(Rmax/D - 2) ([Starvation] s.6.3)."""
    mu_minus = v.flows[0].extra["mu_minus"][0]
    return all_of([_alike(v), mu_minus <= Fraction(1, 2), mu_minus * sender.s ** (sender.rmax_steps - 2) >= 1])


def _readings_agree(v: View, t: int) -> Formula:
    """The delays that the flows read at a sample are at most one step, D, apart."""
    readings = [flow.late[t] for flow in v.flows]
    pairs = [(one, other) for one in readings for other in readings if one is not other]
    return all_of(implies(one[m + 1], other[m]) for one, other in pairs for m in one if m + 1 in one)


def program_query(sender: SmtSender, ratio: Fraction, samples: int = 8, flows: int = 2, model: str = APART) -> Query:
    """Ask the same of a belief program. Each flow has its own beliefs, as if it were alone, and they may differ."""
    setting = Setting(model, "infinite", samples, beliefs=BeliefRules(upper="exact"))
    return _cycle(sender, *_gain_ratio(ratio), setting, flows)


def _gain_ratio(ratio: Fraction) -> tuple[Callable[[View], Formula], str]:
    """Return the claim that the first flow gets 1/``ratio`` of the second one's bytes or more, and its text."""

    def holds(v: View) -> Formula:
        first, second = (flow.S[v.last] - flow.S[FIRST] for flow in v.flows[:2])
        return fairness_ratio(first, second, ratio)

    return holds, f"in a cycle one flow gets at most {ratio} times the other's bytes"


def _cycle(
    sender: SmtSender,
    holds: Callable[[View], Formula],
    text: str,
    setting: Setting,
    flows: int,
    premise: Callable[[View], Formula] = lambda v: True,
) -> Query:
    """Ask whether flows can repeat a cycle (:mod:`ccenv.proofs.claims.cycles`) that breaks a claim.

    Rates start at one MSS per Rm or more. A refuted ratio is a constructive proof of starvation by it, if no belief times out;
    a proved one bounds the starvation in any cycle of this length.
    """

    def cycle(v: View) -> Formula:
        return all_of([premise(v), *(flow.rate[0] >= v.alpha for flow in v.flows), *returns(v)])

    claim = Property("fairness", text, holds, sender.needs(setting), cycle, repeats=True)
    return Query("fairness", setting, sender, claim, flows=flows)


def dctcp_query(ratio: Fraction, samples: int = 8, flows: int = 2, model: str = APART) -> Query:
    """Ask whether two flows that react to one bit of ECN can repeat a cycle in which one starves ([Starvation] s.6.4)."""
    return _cycle(Dctcp(), *_gain_ratio(ratio), Setting(model, "infinite", samples), flows)


def delay_aimd_query(ratio: Fraction, samples: int = 7, flows: int = 2, model: str = APART) -> Query:
    """Ask whether two flows of AIMD on delay can repeat a cycle in which one starves ([Starvation] s.6.2)."""
    return _cycle(DelayAimd(), *_gain_ratio(ratio), Setting(model, "infinite", samples), flows)


QUERIES: Mapping[str, Callable[[Fraction, int, int, str], Query]] = {
    "aimd": aimd_query,
    "aimd_delay": delay_aimd_query,
    "rate_delay": algorithm1_query,
    "dctcp": dctcp_query,
}
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
