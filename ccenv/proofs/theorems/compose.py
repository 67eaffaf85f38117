"""The composition of a theorem, one solver query per implication, and the queries of its lemmas, one per conclusion.

A run is a sequence of traces of T samples that join end to end. The implications are about the state at a cut, the state at the
next one (primed), and the trace in between; each lemma is one fact about these numbers. Units: C = Rm = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from ccenv.proofs.certificates.theorem import HISTORY
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.setting import LARGE_BUFFER_RTTS, LARGEST_ALPHA, SMALL_BUFFER
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, all_of
from ccenv.proofs.theorems.language import (
    START,
    Comparison,
    Joined,
    Linear,
    Node,
    beliefs_in,
    conjuncts,
    list_features_read,
    on_trace,
)
from ccenv.proofs.theorems.theorem import LoadedTheorem, ReadClaim, ReadLemma, ReadRank

KEPT = "the invariant is kept"


@dataclass(frozen=True)
class Implication:
    """One step of a composition."""

    name: str
    facts: tuple[Node, ...]
    goal: Node


def at_most(left: Linear, right: Linear) -> Comparison:
    """Return left <= right."""
    return Comparison(left.plus(right, Fraction(-1)), strict=False)


def below(left: Linear, right: Linear) -> Comparison:
    return Comparison(left.plus(right, Fraction(-1)), strict=True)


def feature(name: str, times: Fraction | int = 1) -> Linear:
    return Linear(((name, Fraction(times)),), Fraction(0))


def number(value: Fraction | int) -> Linear:
    return Linear((), Fraction(value))


def primed(node: Node) -> Node:
    """Return a formula about a trace's start for its end."""
    if isinstance(node, Joined):
        return Joined(node.how, tuple(primed(part) for part in node.parts))
    return Comparison(primed_linear(node.left), node.strict)


def primed_linear(expression: Linear) -> Linear:
    terms = ((f"{name}'" if name in START else name, c) for name, c in expression.terms)
    return Linear(tuple(sorted(terms)), expression.constant)


def both(*parts: Node) -> Node:
    return Joined("all", parts)


def either(*parts: Node) -> Node:
    return Joined("any", parts)


def implied(premise: Node, conclusion: Node) -> Node:
    """Return premise => conclusion."""
    return either(Joined("not", (premise,)), conclusion)


def plain_facts(loaded: LoadedTheorem) -> tuple[Node, ...]:
    """Return the laws of MSS, the buffer, and sums and peaks of losses."""
    facts: list[Node] = [below(number(0), feature("MSS")), below(feature("MSS"), number(LARGEST_ALPHA))]
    setting = loaded.setting
    if setting.has_loss:
        rtts = setting.rtts
        facts += [at_most(number(0), feature("lost")), at_most(feature("lost"), feature("peak_loss", rtts))]
        buffer = setting.buffer
        if buffer == "arbitrary":
            facts.append(below(number(0), feature("buffer")))
        elif buffer == "large":
            facts.append(at_most(number(LARGE_BUFFER_RTTS * (1 + setting.jitter)), feature("buffer")))
        else:
            size = SMALL_BUFFER if buffer == "small" else Fraction(buffer)
            facts += [at_most(number(size), feature("buffer")), at_most(feature("buffer"), number(size))]
    else:
        facts += [at_most(number(0), feature("lost")), at_most(feature("lost"), number(0))]
    return tuple(facts)


def good(claim: ReadClaim, loaded: LoadedTheorem) -> Node:
    """Return the claim for a trace in which no rank moves."""
    rtts, bdp = loaded.setting.rtts, 1 + loaded.setting.jitter
    rise = primed_linear(claim.potential).plus(claim.potential, Fraction(-1))
    if claim.name == "utilisation":
        return at_most(number(claim.bound * rtts), feature("served").plus(rise))
    if claim.name == "loss_per_rtt":
        return at_most(feature("lost").plus(rise), number(claim.bound * rtts))
    return at_most(feature("peak_inflight"), number(claim.bound * bdp))


def moves(rank: ReadRank) -> Node:
    """Return "the rank moves by a step or more towards its end"."""
    now, then, until = feature(rank.of), feature(f"{rank.of}'"), number(rank.until)
    if rank.law in ("times", "by_mss"):
        far = now.plus(feature("MSS", rank.step)) if rank.law == "by_mss" else feature(rank.of, rank.step)
        return both(below(now, until), either(at_most(until, then), at_most(far, then)))
    if rank.law == "minus":
        near: Node = at_most(then, now.plus(number(-rank.step)))
    else:
        top = number(rank.jump if rank.jump is not None else rank.until)
        near = either(
            both(at_most(now, top), at_most(feature(f"{rank.of}'", rank.step), now)), both(below(top, now), at_most(then, top))
        )
    return both(below(until, now), either(at_most(then, until), near))


def stays(rank: ReadRank) -> Node:
    """Return "the rank does not go back", neither away from its end nor out of it."""
    now, then, until = feature(rank.of), feature(f"{rank.of}'"), number(rank.until)
    if rank.law in ("times", "by_mss"):
        return either(at_most(until, then), at_most(now, then))
    return either(at_most(then, until), at_most(then, now))


def at_end(rank: ReadRank) -> Node:
    now, until = feature(rank.of), number(rank.until)
    return at_most(until, now) if rank.law in ("times", "by_mss") else at_most(now, until)


def implications(loaded: LoadedTheorem) -> Iterator[Implication]:
    """Yield every step of the composition, all of which must hold."""
    plain = plain_facts(loaded)
    lemmas = tuple(implied(lemma.premise, both(*lemma.conclusions)) for lemma in loaded.lemmas)
    facts = (*plain, loaded.invariant, *lemmas)
    for k, part in enumerate(conjuncts(loaded.invariant), start=1):
        yield Implication(f"the start is covered ({k})", (*plain, loaded.start), part)
    for k, part in enumerate(conjuncts(loaded.invariant), start=1):
        yield Implication(f"{KEPT} ({k})", facts, primed(part))
    for text, allowed in beginnings(loaded):
        yield Implication(f"a trace may begin at each cut: {text}", (*plain, loaded.invariant), allowed)
    for claim in loaded.claims:
        premises = (*facts, claim.when)
        for rank in claim.ranks:
            yield Implication(f"{claim.name}: {rank.of} does not go back", premises, stays(rank))
            if rank.law in ("times", "by_mss"):
                start = at_most(feature("MSS"), feature(rank.of))
                yield Implication(f"{claim.name}: {rank.of} starts at MSS/Rm or above", premises, start)
        steps = either(*(moves(rank) for rank in claim.ranks))
        yield Implication(f"{claim.name}: a trace is good, or a rank moves", premises, either(good(claim, loaded), steps))
        low, high = (number(value) for value in claim.potential_range)
        inside = both(at_most(low, claim.potential), at_most(claim.potential, high))
        yield Implication(f"{claim.name}: the potential is bounded", premises, inside)


def beginnings(loaded: LoadedTheorem) -> Iterator[tuple[str, Node]]:
    """Yield, in words and as formulas, what every query assumes of the beliefs at sample 0; q_U >= 0 follows from its rule."""
    held = loaded.held_beliefs()
    if "C_L" in held:
        yield "C_L is at least MSS/Rm", at_most(feature("MSS"), feature("C_L"))
    if {"C_L", "C_U"} <= held:
        yield "C_L is at most C_U", at_most(feature("C_L"), feature("C_U"))
    if "C_L_lambda" in held:
        yield "C_L_lambda is at least MSS/Rm", at_most(feature("MSS"), feature("C_L_lambda"))


def settling(loaded: LoadedTheorem, claim: ReadClaim) -> Implication:
    """Return the implication that turns the number of bad traces into a time: while a rank is not at its end, one moves."""
    lemmas = tuple(implied(lemma.premise, both(*lemma.conclusions)) for lemma in loaded.lemmas)
    premises = (*plain_facts(loaded), loaded.invariant, *lemmas, claim.when)
    done = both(*(at_end(rank) for rank in claim.ranks))
    return Implication(
        f"{claim.name}: while a rank is open, one moves", premises, either(done, *(moves(rank) for rank in claim.ranks))
    )


def list_features(nodes: tuple[Node, ...]) -> list[str]:
    return sorted(frozenset[Any]().union(*(list_features_read(node) for node in nodes)))


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
