"""Endless misbehaviour: a trace that ends in the state in which it begins can be repeated for ever.

The state is all that the future depends on: what is queued, undelivered and in stock, the last samples of the past, delays and
losses that were not yet seen, the last rate, and the beliefs. A trace that returns to its state and is worse than a claim refutes
the claim: the run that repeats it starts as the theorem allows, obeys every law, and is worse in every repetition.
"""

from __future__ import annotations

from collections.abc import Iterator

from ccenv.smt.claims.properties import Property
from ccenv.smt.claims.verifier import Query
from ccenv.smt.network.encode import Needs
from ccenv.smt.network.view import View
from ccenv.smt.solver.algebra import Formula, all_of, same_truth
from ccenv.smt.theorems.compose import beliefs_in, good
from ccenv.smt.theorems.features import on_trace
from ccenv.smt.theorems.language import Joined
from ccenv.smt.theorems.theorem import LoadedTheorem, ReadClaim


def lasso_query(loaded: LoadedTheorem, claim: ReadClaim) -> Query:
    """Return the query for a trace that returns to its state, from a start that the theorem allows, and is not good.

    What the trace owes or saves by the claim's potential is nothing, since it ends as it begins.
    """
    wanted = good(claim, loaded)
    allowed = Joined("all", (loaded.start, loaded.invariant, claim.when))
    needs = loaded.sender.needs(loaded.setting) | Needs(beliefs_in(wanted) | beliefs_in(allowed))

    def premise(v: View) -> Formula:
        return all_of([on_trace(allowed, v), *returns(v)])

    text = f"no trace that returns to its state is worse than {claim.name} {claim.bound}"
    name = f"lasso {claim.name}"
    return Query(name, loaded.setting, loaded.sender, Property(name, text, lambda v: on_trace(wanted, v), needs, premise))


def returns(v: View) -> Iterator[Formula]:
    """Yield what it means that a trace ends in the state in which it begins."""
    last, setting = v.last, v.setting
    gain = v.S[last]
    for k in range(min(len(v.E_before), last) + 1):
        yield v.enqueued(last - k) - gain == v.enqueued(-k)
    for k in range(setting.past_steps + 1):
        yield v.admitted(last - k) - gain == v.admitted(-k)
        yield v.delivered(last - k) - gain == v.delivered(-k)
        for now, before in ((v.newest_late(last - k), v.newest_late(-k)), (v.oldest_late(last - k), v.oldest_late(-k))):
            yield from (same_truth(now[m], before[m]) for m in now)
    if setting.has_loss:
        yield from (same_truth(v.lost_in_past(k), v.lost[last - k] > 0) for k in setting.losses_before)
    yield v.rate[last] == v.rate[0]
    for series in (v.C_L, v.C_U, v.C_L_lambda, v.q_U, v.extra.get("held")):
        if series is not None:
            yield series[last] == series[0]
