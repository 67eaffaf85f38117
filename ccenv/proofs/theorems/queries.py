"""The queries of a theorem's lemmas: one per conclusion, about one trace of T samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ccenv.proofs.certificates.theorem import HISTORY
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, all_of
from ccenv.proofs.theorems.compose import at_most, feature, number
from ccenv.proofs.theorems.language import Comparison, Joined, Node, beliefs_in, conjuncts, list_features_read, on_trace
from ccenv.proofs.theorems.theorem import LoadedTheorem, ReadLemma


@dataclass(frozen=True)
class LemmaQuery:
    """One query of a lemma."""

    lemma: str
    part: int
    query: Query


def all_lemmas(loaded: LoadedTheorem) -> tuple[ReadLemma, ...]:
    """Return the lemmas of a theorem; with ``past: history`` also the one that carries the past from trace to trace."""
    limit = loaded.setting.sent_before_at_most
    if limit is None:
        return loaded.lemmas
    limit_kept = at_most(feature("peak_sent"), number(limit[0]).plus(feature("MSS", limit[1])))
    text = "a sender that was within its largest rate before the trace is within it in the trace"
    return (*loaded.lemmas, ReadLemma(HISTORY, text, loaded.invariant, loaded.history_granted, (limit_kept,)))


def lemma_queries(loaded: LoadedTheorem) -> Iterator[LemmaQuery]:
    """Yield the queries of all lemmas in order.

    A query encodes the beliefs that the sender, the conclusion, granted lemmas and compound parts of the premise read; other
    comparisons of the premise with beliefs are left out, which makes the claim stronger. Beliefs time out at the end of a trace
    only if the conclusion reads C_L or C_U there.
    """
    for lemma in all_lemmas(loaded):
        yield from build_queries(loaded, lemma)


def build_queries(loaded: LoadedTheorem, lemma: ReadLemma) -> Iterator[LemmaQuery]:
    """Yield the queries of one lemma."""
    for part, conclusion in enumerate(lemma.conclusions, start=1):
        yield LemmaQuery(lemma.name, part, _build_query(loaded, lemma, part, conclusion))


def _build_query(loaded: LoadedTheorem, lemma: ReadLemma, part: int, conclusion: Node) -> Query:
    sender_needs = loaded.sender.needs(loaded.setting)
    read = sender_needs.bounds | beliefs_in(conclusion) | beliefs_in(Joined("all", lemma.granted))
    pieces = list(conjuncts(lemma.premise))
    read |= frozenset().union(*(beliefs_in(piece) for piece in pieces if not isinstance(piece, Comparison)))
    times_out = bool(list_features_read(conclusion) & {"C_L'", "C_U'"})
    setting = loaded.setting if times_out else loaded.setting.without_timeout()
    if times_out and setting.beliefs.timeout is not None:
        read |= {"C_L", "C_U"}
    assumed = [piece for piece in pieces if beliefs_in(piece) <= read]

    premise = partial(_all_hold, (*assumed, *lemma.granted))
    claim = Property(lemma.name, lemma.text, lambda v: on_trace(conclusion, v), sender_needs | Needs(read), premise)
    name = lemma.name if len(lemma.conclusions) == 1 else f"{lemma.name} ({part})"
    return Query(name, setting, loaded.sender, claim)


def possibilities(loaded: LoadedTheorem) -> Iterator[tuple[str, Query]]:
    """Yield what some trace has to satisfy, or the theorem would be vacuous: start, invariant and premises.

    Each is the premise of a query with all beliefs of the theorem, without a conclusion.
    """
    premises: list[tuple[str, tuple[Node, ...]]] = [("start", (loaded.start,)), ("invariant", (loaded.invariant,))]
    for claim in loaded.claims:
        if list(conjuncts(claim.when)):
            premises.append((f"claims.{claim.name}.when", (loaded.start, claim.when)))
    premises += [(f"lemmas.{lemma.name}.if", (lemma.premise, *lemma.granted)) for lemma in all_lemmas(loaded)]
    needs = loaded.sender.needs(loaded.setting) | Needs(loaded.held_beliefs())
    for name, nodes in premises:
        claim_possible = Property(name, "it is possible", lambda v: False, needs, partial(_all_hold, nodes))
        yield name, Query(name, loaded.setting.without_timeout(), loaded.sender, claim_possible)


def _all_hold(nodes: tuple[Node, ...], v: View) -> Formula:
    return all_of(on_trace(node, v) for node in nodes)
