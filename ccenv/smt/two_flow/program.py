"""Two flows of one belief program on a CCAC bottleneck: what must hold where no belief moves, and in what repeats for ever.

A flow's C_L is the largest rate that its own bytes were delivered at, a true bound on C for any number of flows; its windows with
a full link bound its share and not C, so programs that read C_U have no meaning here. Both flows see the delay of the newest byte
that the link delivered. C_L only rises, so what is asked concerns traces on which neither flow's C_L moves: one number per flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ccenv.programs import Program, decide
from ccenv.smt.claims import properties
from ccenv.smt.network.setting import Setting
from ccenv.smt.network.view import View
from ccenv.smt.senders import program as programs
from ccenv.smt.solver.algebra import Formula, Term, all_of, any_of, larger, same_truth
from ccenv.smt.two_flow.encode import Control, Flow, TwoFlow, TwoFlowQuestion, in_numbers
from ccenv.smt.two_flow.exact import ExactControl, Seen, check_two

INPUTS = frozenset({"C_L", "rate", "MSS/Rm", "MSS", "qdel_L", "Rm"})
"""What programs of two flows may read."""


def program_control(program: Program) -> Control:
    """Return a belief program as a sender of two flows, on traces on which its C_L does not move."""

    def control(view: View, flow: Flow, t: int) -> Iterator[Formula]:
        n, lower = view.setting.samples, flow.memory[0]
        own = replace(view, rate=flow.control, C_L=[lower] * n)
        if t == 1:
            yield lower >= view.alpha
            yield from (flow.S[end] - flow.S[start] <= lower * reach for start, end, reach in _windows(view.setting))
        yield flow.control[t] == larger(programs.rule_rate(program.rule, own, t - 1), view.alpha)
        yield flow.sent[t] == flow.control[t]
        yield flow.memory[t] == lower

    return control


def _windows(setting: Setting) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, end - start + D) of the windows of a trace."""
    for end in range(1, setting.samples):
        for start in range(end):
            yield start, end, end - start + setting.jitter_steps


def exact_program(program: Program, jitter_steps: int) -> ExactControl:
    """Return the program in exact numbers; C_L is computed from what was delivered, whether or not it moves."""

    def control(seen: Seen) -> tuple[Fraction, Fraction, Fraction]:
        rate = Fraction(decide(program, inputs_of(seen, jitter_steps)).rate)
        return rate, seen.memory, rate

    return control


def inputs_of(seen: Seen, jitter_steps: int) -> dict[str, Fraction]:
    """Return what a program reads in a step."""
    served = seen.served
    ends = range(1, len(served))
    rates = [(served[end] - served[start]) / (end - start + jitter_steps) for end in ends for start in range(end)]
    return {
        "C_L": max([seen.memory, *rates]),
        "rate": seen.control,
        "MSS/Rm": seen.alpha,
        "MSS": seen.alpha,
        "Rm": Fraction(1),
        "qdel_L": Fraction(max(0, seen.delay - jitter_steps)),
    }


def still_and_right(pair: TwoFlow) -> Formula:
    """Return that both flows' C_L are true and stay what they are."""
    parts = []
    for flow in pair.flows:
        lower = flow.memory[0]
        parts += [pair.view.alpha <= lower, lower <= 1]
        parts += [flow.S[end] - flow.S[start] <= lower * reach for start, end, reach in _windows(pair.view.setting)]
    return all_of(parts)


def repeats(pair: TwoFlow) -> Formula:
    """Return that the steps from sample 1 to the last one can go on for ever: the state after them is the state before.

    Rates, undelivered bytes of both flows, queue, stock of tokens, the delay seen and the bytes that entered before repeat, and
    no window across the seam moves a C_L.
    """
    view, first, last = pair.view, properties.FIRST, pair.view.last
    gained = view.E[last] - view.E[first]
    parts: list[Formula] = [view.queue(last) == view.queue(first)]
    parts += [same_truth(view.late[last][m], flag) for m, flag in view.late[first].items()]
    parts += [view.enqueued(first - k) + gained == view.E[last - k] for k in range(1, len(view.E_before) + 1)]
    for flow in pair.flows:
        parts += [flow.control[last] == flow.control[first], flow.E[last] - flow.S[last] == flow.E[first] - flow.S[first]]
        got, lower = flow.S[last] - flow.S[first], flow.memory[0]
        parts.append(got <= lower * (last - first))
        for start in range(first + 1, last):
            for end in range(first + 1, start + 1):
                reach = last - start + end - first + view.setting.jitter_steps
                parts.append(got - flow.S[start] + flow.S[end] <= lower * reach)
    return all_of(parts)


@dataclass(frozen=True)
class PairGoals:
    """What two flows of a program must achieve.

    Attributes:
        utilisation: least fraction of the link that both use together in what repeats.
        fairness: in what repeats no flow gets more than so many times the other's bytes.
        inflight_bdp: most bytes in flight of both, in C*(Rm + D), on any trace, unless a rate, bytes in flight or the queue fall.
        inflight_mss: further bytes in flight, in MSS.
    """

    utilisation: Fraction
    fairness: Fraction
    inflight_bdp: Fraction
    inflight_mss: Fraction = Fraction(0)


def _steps(pair: TwoFlow) -> list[tuple[Term, Term]]:
    """Return rates, bytes in flight and queue at the first decision and at the end."""
    view, first, last = pair.view, properties.FIRST, pair.view.last
    totals = [(view.inflight(first), view.inflight(last)), (view.queue(first), view.queue(last))]
    return [*((flow.control[first], flow.control[last]) for flow in pair.flows), *totals]


def pair_questions(program: Program, setting: Setting, goals: PairGoals) -> list[TwoFlowQuestion]:
    """Return what a program must pass, cheap questions first; the first two are about what repeats."""
    control, exact = program_control(program), exact_program(program, setting.jitter_steps)
    delays = max(programs.delay_thresholds(program, setting.jitter_steps), default=0)

    def goes_on(pair: TwoFlow) -> Formula:
        return all_of([still_and_right(pair), repeats(pair)])

    def got(pair: TwoFlow) -> list[Term]:
        return [flow.S[pair.view.last] - flow.S[properties.FIRST] for flow in pair.flows]

    def utilisation(pair: TwoFlow) -> Formula:
        first, second = got(pair)
        return first + second >= goals.utilisation * (pair.view.last - properties.FIRST)

    def fairness(pair: TwoFlow) -> Formula:
        first, second = got(pair)
        return properties.fairness_ratio(first, second, goals.fairness)

    def inflight(pair: TwoFlow) -> Formula:
        view = pair.view
        most = goals.inflight_bdp * (1 + setting.jitter_steps) + goals.inflight_mss * view.alpha
        small = all_of(view.inflight(t) <= most for t in range(properties.FIRST, setting.samples))
        return any_of([small, *(end < start for start, end in _steps(pair))])

    def question(claim: str, premise, holds) -> TwoFlowQuestion:  # type: ignore[no-untyped-def]
        return TwoFlowQuestion(program.name, claim, setting, control, exact, delays, premise, holds)

    return [
        question("utilisation", goes_on, utilisation),
        question("fairness", goes_on, fairness),
        question("inflight", still_and_right, inflight),
    ]


def broken_question(questions: list[TwoFlowQuestion], values: Mapping[str, Any]) -> str | None:
    """Return which question exact numbers of a program's two flows break, if any.

    Raises:
        ReplayError: for numbers that two flows of this program cannot produce.
    """
    first = questions[0]
    exact = in_numbers(first.setting, check_two(first.setting, values, first.exact), first.delays)
    for question in questions:
        if question.premise(exact) is True and question.holds(exact) is False:
            return question.claim
    return None
