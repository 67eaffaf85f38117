"""Objectives for several flows of one belief program on a CCAC link, on traces that keep beliefs constant or repeat for ever.

A flow's C_L is the largest rate at which its bytes were delivered, a true bound on C for any number of flows; its windows with a
full link bound its share and not C, so programs that read C_U have no meaning here. All flows see the delay of the newest byte
that the link delivered. C_L only rises, so queries are about traces on which no flow's C_L moves: one number per flow.

The encoding lets bytes that entered in one step leave in any order: proofs hold in the continuous model, while a refuted program
may fail only in this relaxation.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from ccenv.agents.programs import Program
from ccenv.base.errors import InputError
from ccenv.proofs.claims.properties import FIRST, Property, fairness_ratio, falls
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View, require_variables
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, same_truth
from ccenv.proofs.synthesis.query.objectives import Objectives
from ccenv.proofs.synthesis.query.query import Query as SynthesisQuery

INPUTS = frozenset({"C_L", "rate", "MSS/Rm", "MSS", "qdel_L", "Rm"})
"""Inputs of programs for several flows."""

NEVER_REPEATS = "nothing repeats"
"""Claim for programs without a trace of the query's length that ends in its initial state: fairness would hold vacuously."""


def check_flows(query: SynthesisQuery) -> None:
    """Raise InputError, before any work, for a query about several flows without an encoding."""
    network, name = query.network, query.name
    if (network.model, network.buffer, network.delay_rule) != ("ccac", "infinite", "sound") or network.sent_before is not None:
        raise InputError(f"query {name!r}: two flows need network {{model: ccac, buffer: infinite, delay_rule: sound}}")
    if query.beliefs.timeouts != "none":
        raise InputError(f"query {name!r}: two flows are searched without belief time-outs")
    if query.template.rates > 3:
        raise InputError(f"query {name!r}: two flows are searched in templates of up to 3 rates")
    used = set(query.template.rate) | {item for group in query.template.conditions for item in group}
    if used - INPUTS:
        wrong = ", ".join(sorted(used - INPUTS))
        raise InputError(
            f"query {name!r}: two flows take {', '.join(sorted(INPUTS))}; {wrong} has no meaning for a share of a link"
        )


def still_and_right(v: View) -> Formula:
    """Return "every flow's C_L is true and constant"."""
    return all_of(
        part for flow in v.flows for part in (_lower(flow) <= 1, *(bound == _lower(flow) for bound in _later_bounds(flow)))
    )


def _lower(flow: View) -> Term:
    return require_variables(flow.C_L, "C_L")[0]


def _later_bounds(flow: View) -> list[Term]:
    """Return the terms of C_L after sample 0 that differ from the first: none in an encoding with constant bounds."""
    return [bound for bound in require_variables(flow.C_L, "C_L")[1:] if bound is not _lower(flow)]


def repeats(v: View) -> Formula:
    """Return "the steps from sample 1 to the last can repeat for ever": they end in the state in which they began.

    Rates, undelivered bytes of all flows, queue, stock of tokens, the delay seen and the bytes that entered before repeat, and no
    window across the seam moves a C_L.
    """
    last = v.last
    gained = v.E[last] - v.E[FIRST]
    parts: list[Formula] = [v.queue(last) == v.queue(FIRST)]
    parts += [same_truth(v.late[last][m], flag) for m, flag in v.late[FIRST].items()]
    parts += [v.enqueued(FIRST - k) + gained == v.E[last - k] for k in range(1, len(v.E_before) + 1)]
    for flow in v.flows:
        parts += [flow.rate[last] == flow.rate[FIRST], flow.inflight(last) == flow.inflight(FIRST)]
        got = flow.S[last] - flow.S[FIRST]
        parts.append(got <= _lower(flow) * (last - FIRST))
        for start in range(FIRST + 1, last):
            for end in range(FIRST + 1, start + 1):
                reach = last - start + end - FIRST + v.setting.jitter_steps
                parts.append(got - flow.S[start] + flow.S[end] <= _lower(flow) * reach)
    return all_of(parts)


def flow_queries(program: Program, setting: Setting, objectives: Objectives, flows: int) -> list[Query]:
    """Return the queries of a program, cheap ones first; the first two are about repeating traces.

    Together the flows reach the utilisation objective; no flow gets more than ``objectives.fairness`` times another's bytes (the
    flows are identical, so the first two stand for all); on any trace the bytes in flight stay small, or something falls.
    """
    sender = ProgramSmtSender(program)
    longest = max(sender.needs(setting).delays, default=0)
    needs = Needs(frozenset({"C_L"}), frozenset(range(1, longest + 1)))

    def got(v: View) -> list[Term]:
        return [flow.S[v.last] - flow.S[FIRST] for flow in v.flows]

    def utilisation(v: View) -> Formula:
        return sum(got(v)) >= objectives.utilisation * (v.last - FIRST)

    def fairness(v: View) -> Formula:
        first, second, *_ = got(v)
        return fairness_ratio(first, second, objectives.fairness or Fraction(1))

    def inflight(v: View) -> Formula:
        return any_of([objectives.inflight_met(v), falls(v)])

    def goes_on(v: View) -> Formula:
        return all_of([still_and_right(v), repeats(v)])

    def query(name: str, premise: Callable[[View], Formula], holds: Callable[[View], Formula]) -> Query:
        text = f"{name} of {flows} flows where no C_L moves"
        return Query(name, setting, sender, Property(name, text, holds, needs, premise), "constant", flows)

    return [
        query("utilisation", goes_on, utilisation),
        query("fairness", goes_on, fairness),
        query("inflight", still_and_right, inflight),
    ]
