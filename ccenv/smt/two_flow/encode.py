"""Two flows on one CCAC bottleneck ([Starvation] App. C): AIMD (s.5.4) and Algorithm 1 (s.6.3).

Totals obey the single-flow laws. FIFO without multiplying variables: whenever S(t) > E(x) every flow has had all its bytes of
sample x served, and whenever S(t) <= E(x) no flow has had more. A step's loss is split between the flows as the solver likes, at
most what each sent in the step. Both relax the continuous model, so what is proved of the relaxed one holds in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ccenv.smt.claims import properties
from ccenv.smt.claims.verifier import Verdict
from ccenv.smt.network.encode import Variables
from ccenv.smt.network.laws import network
from ccenv.smt.network.setting import Setting
from ccenv.smt.network.view import View
from ccenv.smt.replay.exact import ReplayError, number
from ccenv.smt.solver.algebra import Formula, Term, all_of, any_of, choose, implies, larger, negate
from ccenv.smt.solver.solvers import Answer, solve, to_smtlib
from ccenv.smt.solver.store import query_hash
from ccenv.smt.two_flow.exact import N_FLOWS, ExactControl, check_two, exact_aimd, exact_rate_delay


@dataclass
class Flow:
    """One flow's curves and control, index t is sample t.

    E: enqueued, S: delivered, control: cwnd or rate in (t-1, t], memory: what the sender remembers besides (AIMD: what must be
    delivered before the next halving; belief programs: C_L).
    """

    E: list[Term]
    S: list[Term]
    sent: list[Term]
    lost: list[Term]
    control: list[Term]
    memory: list[Term]


_FLOW_SERIES = ("E", "S", "sent", "lost", "control", "memory")

MIXES = (Fraction(1), Fraction(4), Fraction(1, 4))
"""Ratios of the bytes that both flows sent in a step at which exact FIFO is linear."""

Control = Callable[[View, Flow, int], Iterator[Formula]]


def aimd(view: View, flow: Flow, t: int) -> Iterator[Formula]:
    """AIMD: plus one MSS per Rm, halved once per round with loss; sends what its window allows."""
    lost_known = False if t == 1 else flow.lost[t - 1] > 0
    halves = all_of([lost_known, flow.memory[t - 1] <= flow.S[t - 1]])
    yield flow.control[t] == choose(halves, flow.control[t - 1] / 2, flow.control[t - 1] + view.alpha)
    yield flow.memory[t] == choose(halves, flow.E[t - 1], flow.memory[t - 1])
    yield flow.sent[t] == larger(0, flow.control[t] - (flow.E[t - 1] - flow.S[t - 1]))


def rate_delay(s: Fraction, rmax_steps: int, factor: Fraction = Fraction(1, 2)) -> Control:
    """Return Algorithm 1 of [Starvation]: rate + MSS/Rm below mu_minus * s^(Rmax/D - d), else times b; d read off the grid."""

    def control(view: View, flow: Flow, t: int) -> Iterator[Formula]:
        mu_minus = view.extra["mu_minus"][0]
        before = flow.control[t - 1]
        target: Term = mu_minus * s**rmax_steps
        for m in range(1, rmax_steps + 1):
            target = choose(view.late[t - 1][m], mu_minus * s ** (rmax_steps - m), target)
        yield flow.control[t] == choose(before < target, before + view.alpha, factor * before)
        yield flow.sent[t] == flow.control[t]
        yield flow.memory[t] == 0

    return control


@dataclass
class TwoFlow:
    """An encoded pair of flows: totals, flows, variables, formulas."""

    view: View
    flows: list[Flow]
    variables: Variables
    formulas: list[Formula]


def encode_two(setting: Setting, control: Control, delays: int = 0) -> TwoFlow:
    """Encode two flows of the same sender.

    Args:
        setting: model, buffer and T.
        control: the sender.
        delays: largest delay in steps that the sender reads.
    """
    n = setting.samples
    make = Variables()
    flows = [Flow(*(make.series(f"{name}_{i}", n) for name in _FLOW_SERIES)) for i in range(N_FLOWS)]
    late: list[dict[int, Formula]] = [{m: make.boolean(f"late_{t}_{m}") for m in range(1, delays + 1)} for t in range(n)]
    beta = make.real("beta") if setting.has_loss else None
    past = make.series("E_before", delays)
    view = _totals(setting, flows, make.real("alpha"), beta, make.series("G", n), past, late, make.real("mu_minus"))
    formulas = [formula for _, formula in network(view)]
    for flow in flows:
        formulas += _flow_laws(view, flow)
        for t in range(1, n):
            formulas += control(view, flow, t)
    formulas += _fifo(view, flows)
    formulas.append(view.extra["mu_minus"][0] > 0)
    return TwoFlow(view, flows, make, [f for f in formulas if f is not True])


def _totals(
    setting: Setting,
    flows: list[Flow],
    alpha: Term,
    beta: Term | None,
    G: list[Term],
    past: list[Term],
    late: list[dict[int, Formula]],
    mu_minus: Term,
) -> View:
    """Return the view of both flows together, in terms or in numbers."""
    n = setting.samples
    return View(
        setting=setting,
        alpha=alpha,
        beta=beta,
        G=G,
        E=[flows[0].E[t] + flows[1].E[t] for t in range(n)],
        S=[flows[0].S[t] + flows[1].S[t] for t in range(n)],
        E_before=past,
        sent=[None, *(flows[0].sent[t] + flows[1].sent[t] for t in range(1, n))],
        lost=[None, *(flows[0].lost[t] + flows[1].lost[t] for t in range(1, n))],
        rate=[],
        lost_at_0=False,
        loss_seen=[False] * n,
        late=late,
        first_late=[{} for _ in range(n)],
        extra={"mu_minus": [mu_minus]},
    )


def _flow_laws(view: View, flow: Flow) -> Iterator[Formula]:
    yield flow.S[0] == 0
    yield flow.control[0] >= view.alpha
    for t in range(view.setting.samples):
        yield flow.S[t] <= flow.E[t]
        if t > 0:
            yield flow.S[t] >= flow.S[t - 1]
            yield flow.lost[t] >= 0
            yield flow.lost[t] <= flow.sent[t]
            yield flow.E[t] == flow.E[t - 1] + flow.sent[t] - flow.lost[t]


def _fifo(view: View, flows: list[Flow]) -> Iterator[Formula]:
    for t in range(view.setting.samples):
        for x in range(t + 1):
            served = view.S[t] > view.E[x]
            yield implies(served, all_of(flow.S[t] >= flow.E[x] for flow in flows))
            yield implies(negate(served), all_of(flow.S[t] <= flow.E[x] for flow in flows))


def _fluid_fifo(view: View, flows: list[Flow]) -> Iterator[Formula]:
    """Yield what makes FIFO exact where that is linear.

    S ends at the arrivals of a sample, or within a step in which one flow sent nothing, or so many times what the other sent as
    MIXES says: bytes that were sent together leave together, so elsewhere the split of S would multiply variables. What waits at
    sample 0 counts as one step.
    """
    for t in range(view.setting.samples):
        places = []
        for x in range(t + 1):
            start = [flow.E[x - 1] if x else Fraction(0) for flow in flows]
            total = start[0] + start[1]
            size = [flow.E[x] - before for flow, before in zip(flows, start, strict=True)]
            mixes = [all_of(flow.S[t] == flow.E[x] for flow in flows)]
            mixes += [all_of([size[i] == 0, flows[i].S[t] == start[i]]) for i in range(N_FLOWS)]
            served = [flow.S[t] - before for flow, before in zip(flows, start, strict=True)]
            mixes += [all_of([size[1] == k * size[0], served[1] == k * served[0]]) for k in MIXES]
            places.append(all_of([total <= view.S[t], view.S[t] <= view.E[x], any_of(mixes)]))
        yield any_of(places)


@dataclass(frozen=True)
class TwoFlowResult:
    """A verdict about two flows.

    Attributes:
        verdict: three-valued.
        seconds: solver time.
        sanity: whether the twin without the property is satisfiable; None where that was not decided or not asked.
        reason: for unknown.
        values: the counterexample, replayed exactly.
        fluid: whether it obeys FIFO exactly, so that an engine can run it; the relaxed model splits a step's bytes as it likes.
        evidence: hash of the query, solver, limit.
    """

    verdict: Verdict
    seconds: float
    sanity: bool | None
    reason: str = ""
    values: Mapping[str, Any] | None = None
    fluid: bool | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TwoFlowQuestion:
    """Can two flows of a sender break a property?

    Attributes:
        name: of the sender.
        claim: the property in one line.
        setting: model, buffer and T.
        control: the sender's formulas.
        exact: the sender in exact numbers.
        delays: largest delay in steps that it reads.
        premise: of the pair.
        holds: the property of the pair.
    """

    name: str
    claim: str
    setting: Setting
    control: Control
    exact: ExactControl
    delays: int
    premise: Callable[[TwoFlow], Formula]
    holds: Callable[[TwoFlow], Formula]

    def decide(self, time_limit_s: float = 600.0, seed: int = 0) -> TwoFlowResult:
        """Decide it, with the satisfiable twin; a counterexample is checked in exact numbers, and made exactly FIFO if it can be.

        Raises:
            ReplayError: if a counterexample does not survive the exact check.
        """
        pair = encode_two(self.setting, self.control, self.delays)
        answer, evidence = self.ask(pair, time_limit_s, seed)
        if answer.status == "unknown":
            return TwoFlowResult("unknown", answer.seconds, None, answer.reason, evidence=evidence)
        if answer.status == "sat":
            ordered = [*self.violated(pair), *_fluid_fifo(pair.view, pair.flows)]
            fluid = solve(to_smtlib(ordered), "z3", time_limit_s, seed)
            values = self._confirmed(fluid.model) if fluid.status == "sat" else answer.model
            seconds = answer.seconds + fluid.seconds
            return TwoFlowResult("refuted", seconds, True, "", values, fluid.status == "sat", evidence)
        twin = self.twin(pair, time_limit_s, seed)
        seconds = answer.seconds + twin.seconds
        if twin.status != "sat":
            reason = "the model without the property is not satisfiable in time"
            return TwoFlowResult("unknown", seconds, None, reason, evidence=evidence)
        return TwoFlowResult("verified", seconds, True, evidence=evidence)

    def ask(self, pair: TwoFlow, time_limit_s: float, seed: int) -> tuple[Answer, dict[str, Any]]:
        """Ask for a counterexample; one that is found was checked in exact numbers.

        Returns:
            tuple: the solver's answer, and hash of the query, solver and limit.

        Raises:
            ReplayError: if it does not survive the exact check.
        """
        text = to_smtlib(self.violated(pair))
        answer = solve(text, "z3", time_limit_s, seed)
        if answer.status == "sat":
            self._confirmed(answer.model)
        return answer, {"sha256": query_hash(text), "solver": answer.solver, "time_limit_s": time_limit_s, "seed": seed}

    def twin(self, pair: TwoFlow, time_limit_s: float, seed: int) -> Answer:
        """Ask for any trace that satisfies the premise, without which a proof is one about nothing; checked exactly."""
        answer = solve(to_smtlib([*pair.formulas, *_kept([self.premise(pair)])]), "z3", time_limit_s, seed)
        if answer.status == "sat":
            check_two(self.setting, answer.model, self.exact)
        return answer

    def violated(self, pair: TwoFlow) -> list[Formula]:
        """Return what a counterexample satisfies."""
        return [*pair.formulas, *_kept([self.premise(pair), negate(self.holds(pair))])]

    def _confirmed(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a counterexample that obeys laws and senders in exact numbers, and breaks the property there."""
        if not self.broken_by(values):
            raise ReplayError(f"{self.name}: the replayed counterexample of two flows does not violate the property")
        return values

    def broken_by(self, values: Mapping[str, Any]) -> bool:
        """Return whether exact numbers violate the property.

        Raises:
            ReplayError: for numbers that no two flows of this sender can produce.
        """
        exact = in_numbers(self.setting, check_two(self.setting, values, self.exact), self.delays)
        return self.premise(exact) is True and self.holds(exact) is False


def in_numbers(setting: Setting, v: Mapping[str, Any], delays: int) -> TwoFlow:
    """Return a pair with the numbers of a model for what premises and properties speak of."""
    n = setting.samples

    def series(name: str, length: int = n) -> list[Any]:
        return [number(v, f"{name}_{t}") for t in range(length)]

    flows = [Flow(*(series(f"{name}_{i}") for name in _FLOW_SERIES)) for i in range(N_FLOWS)]
    late = [{m: bool(v.get(f"late_{t}_{m}", False)) for m in range(1, delays + 1)} for t in range(n)]
    beta = number(v, "beta") if setting.has_loss else None
    return TwoFlow(_totals(setting, flows, number(v, "alpha"), beta, series("G"), series("E_before", delays), late,
                           number(v, "mu_minus")), flows, Variables(), [])  # fmt: skip


def _kept(parts: list[Formula]) -> list[Formula]:
    return [part for part in parts if part is not True]


def aimd_question(ratio: Fraction, samples: int = 11) -> TwoFlowQuestion:
    """Ask whether two AIMD flows with equal windows can end with windows further apart than a ratio, at 1 BDP of buffer.

    The windows start at what the path can hold together, C(Rm + D) + beta, at most; more would be halved in every round whatever
    the other flow does. A proved ratio means that starvation is bounded on every trace of this length ([Starvation] s.5.4: ten
    Rm).
    """
    buffer, last = Fraction(1), samples - 1

    def premise(pair: TwoFlow) -> Formula:
        first, second = pair.flows
        alike = [first.control[0] == second.control[0], first.memory[0] == 0, second.memory[0] == 0]
        return all_of([*alike, first.control[0] + second.control[0] <= 2 + buffer])

    def holds(pair: TwoFlow) -> Formula:
        return properties.fairness_ratio(pair.flows[0].control[last], pair.flows[1].control[last], ratio)

    claim = f"equal windows end at most {ratio} apart"
    return TwoFlowQuestion("aimd", claim, Setting("ccac", buffer, samples), aimd, exact_aimd, 0, premise, holds)


def algorithm1_question(
    fairness: Fraction, samples: int = 6, s: Fraction = Fraction(2), rmax_steps: int = 4, factor: Fraction = Fraction(1, 2)
) -> TwoFlowQuestion:
    """Ask whether two flows of Algorithm 1 can repeat a cycle in which one gets more than ``fairness`` times the other's bytes.

    The cycle: rates, queue and undelivered bytes of both flows are at the end what they were at sample 1. The link rate lies in
    the range that the map supports, mu_minus <= C/2 and C <= mu_minus * s^(Rmax/D - 2) ([Starvation] s.6.3).
    """
    last = samples - 1

    def premise(pair: TwoFlow) -> Formula:
        view, mu = pair.view, pair.view.extra["mu_minus"][0]
        cycle = [view.queue(last) == view.queue(1), mu <= Fraction(1, 2), mu * s ** (rmax_steps - 2) >= 1]
        for flow in pair.flows:
            cycle += [flow.control[last] == flow.control[1], flow.E[last] - flow.S[last] == flow.E[1] - flow.S[1]]
        return all_of(cycle)

    def holds(pair: TwoFlow) -> Formula:
        got = [flow.S[last] - flow.S[1] for flow in pair.flows]
        return properties.fairness_ratio(got[0], got[1], fairness)

    control, exact = rate_delay(s, rmax_steps, factor), exact_rate_delay(s, rmax_steps, factor)
    claim = f"in a cycle one flow gets at most {fairness} times the other's bytes"
    setting = Setting("ccac", "infinite", samples)
    return TwoFlowQuestion("rate_delay", claim, setting, control, exact, rmax_steps, premise, holds)


QUESTIONS: Mapping[str, Callable[[Fraction, int], TwoFlowQuestion]] = {"aimd": aimd_question, "rate_delay": algorithm1_question}
"""Senders with a two-flow fairness question, by name."""
