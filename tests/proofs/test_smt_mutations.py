"""Every law matters: an encoding that lacks it loses at least one of a planted set of proofs, and the replayer notices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest

from ccenv.proofs.claims.claims import Thresholds, build_claim
from ccenv.proofs.claims.cycles import list_departures
from ccenv.proofs.claims.fairness import algorithm1_query
from ccenv.proofs.claims.lemmas import constants_of, lemma_queries, load_suite, suite_setting
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query, Verifier
from ccenv.proofs.formulas import laws
from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.setting import Setting, named_setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver.solvers import solve, to_smtlib
from ccenv.proofs.solver.terms import Formula, all_of, implies

pytest.importorskip("z3")

BELIEF_RULES = ("initial_bounds", "constant_bounds", "lower_bound", "upper_bound", "timeout", "queue_bound", "sent_lower_bound")


def claim(name: str, holds, needs: Needs | None = None) -> Property:
    return Property(name, name, holds, needs or Needs())


@cache
def planted() -> tuple[Query, ...]:
    """Queries that are proved with all laws; cheap ones first."""
    any_sender = AnySender()
    free = Setting(samples=5, buffer="large")
    late = Needs(delays=frozenset({2}))
    queries = [
        Query("small segments", free, any_sender, claim("MSS < C Rm / 4", lambda v: v.alpha < Fraction(1, 4))),
        Query("origin", free, any_sender, claim("S <= T", lambda v: v.S[v.last] <= v.setting.samples)),
        Query("buffer", free, any_sender, claim("queue <= beta", lambda v: v.queue(v.last) <= v.beta)),
        Query("large", free, any_sender, claim("beta >= 6", lambda v: v.beta >= 6)),
        Query("delivered", free, any_sender, claim("S rises", lambda v: v.S[v.last] >= v.S[1])),
        Query("tokens", free, any_sender, claim("G rises", lambda v: v.G[v.last] >= v.G[1])),
        Query("C_L >= MSS", free, any_sender, claim("C_L", lambda v: v.C_L[v.last] >= v.alpha, Needs(frozenset({"C_L"})))),
        Query("late means queued", free, any_sender, claim("late", _late_is_late, late)),
    ]
    empty = replace(free, sent_before_at_most=(Fraction(2), Fraction(0)), past_steps=3, past_start="empty")
    queries.append(Query("empty start", empty, any_sender, claim("inflight(0) <= 6", lambda v: v.inflight(0) <= 6)))
    queries += _invariants()
    queries += _lemmas("cc_probe_slow", "sound", 7, ("S.1", "S.2", "S.4", "S.5", "S.6 queue"))
    queries += _lemmas("cc_qdel", "history", 7, ("F.1", "F.5"))
    return tuple(queries)


def _late_is_late(v):
    return all_of(implies(all_of([v.late[t][2], v.S[t] > v.S[t - 1]]), v.E[t - 2] >= v.S[t]) for t in range(2, v.setting.samples))


def _invariants() -> Iterator[Query]:
    for name, samples, buffer, setting in (
        ("cc_qdel", 5, "infinite", "history"),
        ("cc_probe_fast", 7, "small", "history"),
    ):
        sender = smt_sender(name)
        chosen = named_setting(setting, Setting(samples=samples, buffer=buffer), sender.largest_rate())
        yield from build_claim("invariant", chosen, sender, Thresholds())
        yield from build_claim("full_invariant", chosen, sender, Thresholds())


def _lemmas(suite: str, setting: str, samples: int, names: tuple[str, ...]) -> Iterator[Query]:
    loaded = load_suite(suite)
    network = suite_setting(loaded, setting, samples)
    numbers = constants_of(loaded.suite, setting)
    for lemma in loaded.suite.lemmas:
        if lemma.name in names:
            yield from lemma_queries(loaded, lemma, network, numbers)


def status(query: Query, broken: frozenset[str] = frozenset()) -> str:
    """Decide a query's violation without the replay."""
    setting = replace(query.setting, broken=broken)
    encoding = replace(query, setting=setting).encoding()
    formulas = [f for f in [*encoding.formulas(), query.claim.violation(encoding.view)] if f is not True]
    if any(f is False for f in formulas):
        return "unsat"
    return solve(to_smtlib(formulas), time_limit_s=60).status


@pytest.mark.parametrize("index", range(len(planted())), ids=lambda i: planted()[i].name)
def test_planted_proofs_hold(index: int) -> None:
    assert status(planted()[index]) == "unsat"


IMPLIED = {"tokens_monotone", "service_monotone"}
"""With D = Rm these follow from S(t-1) <= G(t-1) <= S(t) <= G(t); they are stated because the paper states them."""

ALL_LAWS = sorted({law.__name__ for group in laws.LAWS_OF.values() for law in group} | set(BELIEF_RULES))


@pytest.mark.parametrize("law", sorted(set(ALL_LAWS) - IMPLIED))
def test_breaking_a_law_flips_a_verdict(law: str) -> None:
    assert any(status(query, frozenset({law})) == "sat" for query in planted())


@pytest.mark.parametrize("model", ["ideal", "cbr_delay", "ccac"])
@pytest.mark.parametrize("law", sorted(IMPLIED))
def test_implied_laws_follow_from_the_others(law: str, model: str) -> None:
    from ccenv.proofs.solver.terms import all_of

    formulas = getattr(laws, law)
    query = Query(law, Setting(model, samples=6), AnySender(), claim(law, lambda v: all_of(formulas(v))))
    assert status(query, frozenset({law})) == "unsat"


@pytest.mark.parametrize(
    "law",
    ["token_rate", "service_within_tokens", "service_within_arrivals", "jitter_bound", "no_waste_while_queued"],
)
def test_replayer_rejects_traces_of_a_broken_encoding(law: str) -> None:
    """The replayer does not share the encoder's laws: what a broken encoding lets through, it refuses."""
    refused = 0
    for query in planted():
        broken = replace(query, setting=replace(query.setting, broken=frozenset({law})))
        if status(query, frozenset({law})) != "sat":
            continue
        with pytest.raises(ReplayError):
            Verifier(60).decide(broken)
        refused += 1
        break
    assert refused == 1


def _leave_in_order(v: View) -> Formula:
    total, own = list_departures(v, 3)
    return all_of(implies(total > v.E[1], mine >= flow.E[1]) for mine, flow in zip(own, v.flows, strict=True))


@pytest.mark.parametrize(
    ("model", "law"),
    [(model, law.__name__) for model, apart in (("ccac", False), ("cbr_delay", True)) for law in laws.BETWEEN_FLOWS[apart]],
)
def test_breaking_a_law_between_flows_flips_a_verdict(model: str, law: str) -> None:
    proofs = [
        algorithm1_query(Fraction(1), 5, model=model),
        Query("in order", Setting(model, samples=5), AnySender(), claim("in order", _leave_in_order), flows=2),
    ]
    assert {status(query) for query in proofs} == {"unsat"}
    assert "sat" in {status(query, frozenset({law})) for query in proofs}
