"""Two flows on one CCAC bottleneck ([Starvation] App. C): AIMD (s.5.4) and Algorithm 1 (s.6.3).

Totals obey the single-flow laws. FIFO without multiplying variables: whenever S(t) > E(x) every flow has had all its bytes of
sample x served, and whenever S(t) <= E(x) no flow has had more. A step's loss is split between the flows as the solver likes, at
most what each sent in the step. Both relax the continuous model, so what is proved of the relaxed one holds in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.smt.algebra import Formula, Term, all_of, choose, implies, larger, negate
from ccenv.smt.encode import Variables
from ccenv.smt.exact import ReplayError, number
from ccenv.smt.laws import network
from ccenv.smt.setting import Setting
from ccenv.smt.solvers import Answer, solve, to_smtlib
from ccenv.smt.verifier import Verdict
from ccenv.smt.view import View

N_FLOWS = 2


@dataclass
class Flow:
    """One flow's curves and control: index t is sample t. E: enqueued, S: delivered, control: cwnd or rate in (t-1, t]."""

    E: list[Term]
    S: list[Term]
    sent: list[Term]
    lost: list[Term]
    control: list[Term]
    recover: list[Term]


Control = Callable[[View, Flow, int], Iterator[Formula]]


def aimd(view: View, flow: Flow, t: int) -> Iterator[Formula]:
    """AIMD: plus one MSS per Rm, halved once per round with loss; sends what its window allows."""
    lost_known = False if t == 1 else flow.lost[t - 1] > 0
    halves = all_of([lost_known, flow.recover[t - 1] <= flow.S[t - 1]])
    yield flow.control[t] == choose(halves, flow.control[t - 1] / 2, flow.control[t - 1] + view.alpha)
    yield flow.recover[t] == choose(halves, flow.E[t - 1], flow.recover[t - 1])
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
        yield flow.recover[t] == 0

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
    flows = [_flow(make, i, n) for i in range(N_FLOWS)]
    E = [flows[0].E[t] + flows[1].E[t] for t in range(n)]
    S = [flows[0].S[t] + flows[1].S[t] for t in range(n)]
    view = View(
        setting=setting,
        alpha=make.real("alpha"),
        beta=make.real("beta") if setting.has_loss else None,
        G=make.series("G", n),
        E=E,
        S=S,
        E_before=make.series("E_before", delays),
        sent=[None, *(flows[0].sent[t] + flows[1].sent[t] for t in range(1, n))],
        lost=[None, *(flows[0].lost[t] + flows[1].lost[t] for t in range(1, n))],
        rate=[],
        lost_at_0=False,
        loss_seen=[False] * n,
        late=[{m: make.boolean(f"late_{t}_{m}") for m in range(1, delays + 1)} for t in range(n)],
        first_late=[{} for _ in range(n)],
        extra={"mu_minus": [make.real("mu_minus")]},
    )
    formulas = [formula for _, formula in network(view)]
    for flow in flows:
        formulas += _flow_laws(view, flow)
        for t in range(1, n):
            formulas += control(view, flow, t)
    formulas += _fifo(view, flows)
    formulas.append(view.extra["mu_minus"][0] > 0)
    return TwoFlow(view, flows, make, [f for f in formulas if f is not True])


def _flow(make: Variables, i: int, n: int) -> Flow:
    names = ("E", "S", "sent", "lost", "control", "recover")
    return Flow(*(make.series(f"{name}_{i}", n) for name in names))


def _flow_laws(view: View, flow: Flow) -> Iterator[Formula]:
    yield flow.S[0] == 0
    yield flow.control[0] >= view.alpha
    yield flow.recover[0] == 0
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


@dataclass(frozen=True)
class TwoFlowResult:
    """A verdict about two flows; ``values`` is the replayed counterexample."""

    verdict: Verdict
    seconds: float
    sanity: bool | None
    reason: str = ""
    values: Mapping[str, Any] | None = None


def decide_two(pair: TwoFlow, premise: Formula, holds: Formula, time_limit_s: float = 600.0) -> TwoFlowResult:
    """Decide premise => holds, with the satisfiable twin; a counterexample is checked in exact numbers.

    Raises:
        ReplayError: if a counterexample does not survive the exact check.
    """
    answer = solve(to_smtlib([*pair.formulas, *_kept([premise, negate(holds)])]), "z3", time_limit_s)
    if answer.status == "unknown":
        return TwoFlowResult("unknown", answer.seconds, None, answer.reason)
    if answer.status == "sat":
        return TwoFlowResult("refuted", answer.seconds, True, values=check_two(pair.view.setting, answer))
    twin = solve(to_smtlib([*pair.formulas, *_kept([premise])]), "z3", time_limit_s)
    seconds = answer.seconds + twin.seconds
    if twin.status != "sat":
        return TwoFlowResult("unknown", seconds, None, "the model without the property is not satisfiable in time")
    check_two(pair.view.setting, twin)
    return TwoFlowResult("verified", seconds, True)


def _kept(parts: list[Formula]) -> list[Formula]:
    return [part for part in parts if part is not True]


def check_two(setting: Setting, answer: Answer) -> Mapping[str, Any]:
    """Check a two-flow model in plain rational arithmetic: conservation, drop-tail, tokens, jitter and FIFO. Returns its values.

    Raises:
        ReplayError: naming the law and the sample.
    """
    v = answer.model
    n, d = setting.samples, setting.jitter_steps
    E = [[number(v, f"E_{i}_{t}") for t in range(n)] for i in range(N_FLOWS)]
    S = [[number(v, f"S_{i}_{t}") for t in range(n)] for i in range(N_FLOWS)]
    G = [number(v, f"G_{t}") for t in range(n)]
    total_E, total_S = [sum(x) for x in zip(*E, strict=True)], [sum(x) for x in zip(*S, strict=True)]
    room = number(v, "beta") if setting.has_loss else None
    for t in range(1, n):
        sent = [number(v, f"sent_{i}_{t}") for i in range(N_FLOWS)]
        lost = [E[i][t - 1] + sent[i] - E[i][t] for i in range(N_FLOWS)]
        offered = total_E[t - 1] + sum(sent)
        entered = offered if room is None else min(offered, G[t] + room)
        checks = {
            "no flow loses more than it sent": all(0 <= lost[i] <= sent[i] for i in range(N_FLOWS)),
            "drop-tail": total_E[t] == entered,
            "token rate": 0 <= G[t] - G[t - 1] <= 1,
            "no waste while bytes queue": G[t] == G[t - 1] + 1 or total_E[t] <= G[t],
            "service": G[t - d] <= total_S[t] <= min(G[t], total_E[t]),
            "service per flow": all(S[i][t - 1] <= S[i][t] <= E[i][t] for i in range(N_FLOWS)),
            "FIFO": all(
                all(S[i][t] >= E[i][x] for i in range(N_FLOWS))
                if total_S[t] > total_E[x]
                else all(S[i][t] <= E[i][x] for i in range(N_FLOWS))
                for x in range(t + 1)
            ),
        }
        broken = [name for name, fine in checks.items() if not fine]
        if broken:
            raise ReplayError(f"two-flow replay: the solver's trace breaks {broken[0]!r} at sample {t}")
    return v


def aimd_starvation(ratio: Fraction, samples: int = 11, time_limit_s: float = 600.0) -> TwoFlowResult:
    """Ask whether two AIMD flows with equal windows can end with windows further apart than a ratio, at 1 BDP of buffer.

    The windows start at what the path can hold together, C(Rm + D) + beta, at most; more would be halved in every round whatever
    the other flow does. A proved ratio means that starvation is bounded on every trace of this length ([Starvation] s.5.4: ten
    Rm).
    """
    buffer = Fraction(1)
    pair = encode_two(Setting("ccac", buffer, samples), aimd)
    first, second = pair.flows
    last = samples - 1
    fits = first.control[0] + second.control[0] <= 2 + buffer
    holds = second.control[last] <= ratio * first.control[last]
    return decide_two(pair, all_of([first.control[0] == second.control[0], fits]), holds, time_limit_s)


def algorithm1_fairness(
    fairness: Fraction,
    samples: int = 6,
    s: Fraction = Fraction(2),
    rmax_steps: int = 4,
    time_limit_s: float = 600.0,
) -> TwoFlowResult:
    """Ask whether two flows of Algorithm 1 can repeat a cycle in which one gets more than ``fairness`` times the other's bytes.

    The cycle: rates, queue and undelivered bytes of both flows are at the end what they were at sample 1. The link rate lies in
    the range that the map supports, mu_minus <= C/2 and C <= mu_minus * s^(Rmax/D - 2) ([Starvation] s.6.3).
    """
    pair = encode_two(Setting("ccac", "infinite", samples), rate_delay(s, rmax_steps), rmax_steps)
    view, (first, second) = pair.view, pair.flows
    last, mu = samples - 1, pair.view.extra["mu_minus"][0]
    cycle = [view.queue(last) == view.queue(1), mu <= Fraction(1, 2), mu * s ** (rmax_steps - 2) >= 1]
    for flow in pair.flows:
        cycle += [flow.control[last] == flow.control[1], flow.E[last] - flow.S[last] == flow.E[1] - flow.S[1]]
    holds = second.S[last] - second.S[1] <= fairness * (first.S[last] - first.S[1])
    return decide_two(pair, all_of(cycle), holds, time_limit_s)
