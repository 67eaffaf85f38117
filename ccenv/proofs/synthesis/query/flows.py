"""What several flows of one belief program must achieve on a CCAC link: where no belief moves, and in what repeats for ever.

A flow's C_L is the largest rate that its own bytes were delivered at, a true bound on C for any number of flows; its windows with
a full link bound its share and not C, so programs that read C_U have no meaning here. All flows see the delay of the newest byte
that the link delivered. C_L only rises, so what is asked concerns traces on which no flow's C_L moves: one number per flow.

The encoding lets bytes that entered in one step leave in any order: what is proved holds in the continuous model; a refuted
program may fail only there.
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
from ccenv.proofs.formulas.view import View, known
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, same_truth
from ccenv.proofs.synthesis.query.objectives import Objectives
from ccenv.proofs.synthesis.query.query import Query as SynthesisQuery

INPUTS = frozenset({"C_L", "rate", "MSS/Rm", "MSS", "qdel_L", "Rm"})
"""What programs of several flows may read."""

NEVER_REPEATS = "nothing repeats"
"""Claim of programs that no trace of the query's length ends in the state in which it began: there is nothing to be fair in."""


def check_flows(query: SynthesisQuery) -> None:
    """Raise InputError, before any work, where a query about several flows asks for what has no encoding."""
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
    """Return that every flow's C_L is true and stays what it is."""
    return all_of(part for flow in v.flows for part in (_lower(flow) <= 1, *(bound == _lower(flow) for bound in _moved(flow))))


def _lower(flow: View) -> Term:
    return known(flow.C_L, "C_L")[0]


def _moved(flow: View) -> list[Term]:
    """Return the values of C_L after sample 0 that are not the same term: none in an encoding with constant bounds."""
    return [bound for bound in known(flow.C_L, "C_L")[1:] if bound is not _lower(flow)]


def repeats(v: View) -> Formula:
    """Return that the steps from sample 1 to the last one can go on for ever: the state after them is the state before.

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
    """Return what a program must pass, cheap queries first; the first two are about what repeats.

    Together the flows use the link as the objective says; no flow gets more than ``objectives.fairness`` times another's bytes
    (the flows are alike, so the first two stand for all); on any trace the bytes in flight stay small, or something falls.
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
