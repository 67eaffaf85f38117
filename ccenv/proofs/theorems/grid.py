"""What of a theorem carries over to other grids: K samples per Rm, and other jitter bounds D.

A theorem has one sample per Rm and D = Rm. On another grid the network acts K times per Rm, C_L and C_U have windows of all whole
steps, losses are known one Rm later, and the sender still decides once per Rm, on what arrived by then. Each lemma is asked again
there, at the same length in Rm. A claim carries over if the lemmas that hold there still make it. Where it does not, the lemmas
that it lacks are named; of a refuted one there is the trace that breaks it, in exact numbers.

Counterexamples on a fine grid from those of a coarser one: what it shows there is demanded, the rest is open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal

from ccenv.base.errors import InputError
from ccenv.proofs.certificates.theorem import HISTORY
from ccenv.proofs.formulas.encode import Encoding
from ccenv.proofs.solver.solvers import Answer
from ccenv.proofs.solver.terms import Formula, real
from ccenv.proofs.theorems.compose import KEPT, implications, primed
from ccenv.proofs.theorems.language import Comparison, Joined, Node, conjuncts
from ccenv.proofs.theorems.prove import Decided, Prover
from ccenv.proofs.theorems.queries import LemmaQuery, all_lemmas, lemma_queries, queries_of
from ccenv.proofs.theorems.sampled import can_be_sampled
from ccenv.proofs.theorems.sampled import prove as prove_sampled
from ccenv.proofs.theorems.theorem import LoadedTheorem, ReadClaim, ReadLemma, ReadRank

LIMIT_S = 10.0
"""A search that follows a hint takes parts of a second; what takes longer is asked without."""

WAYS = (("G", "E", "S"), ("rate",))
"""The curves that are demanded, in turn; what a trace starts with always is."""

_START = ("alpha", "beta", "C_L_0", "C_U_0", "C_L_lambda_0", "q_U_0")
_SERIES = re.compile(r"([A-Z]|rate)_([0-9]+)")


@dataclass(frozen=True)
class Hint:
    """A trace on a coarser grid.

    Attributes:
        values: variable -> exact number.
        times: how many samples the finer grid has for each of its samples.
    """

    values: Mapping[str, Any]
    times: int

    def demands(self, encoding: Encoding, curves: tuple[str, ...]) -> list[Formula]:
        """Return that a trace of the finer grid starts as this one and has its values of some curves at its samples."""
        variables, demanded = encoding.variables.all, []
        for name, value in sorted(self.values.items()):
            found, there = _SERIES.fullmatch(name), name
            if found is not None and found[1] in curves and not (found[1] == "rate" and found[2] == "0"):
                there = f"{found[1]}_{int(found[2]) * self.times}"
            elif name not in _START:
                continue
            if there in variables:
                demanded.append(variables[there] == real(Fraction(value)))
        return demanded


BYTES = frozenset({"queue", "queue'", "inflight", "inflight'", "peak_inflight", "peak_queue"})
"""Comparisons of these alone with numbers are in units of C (Rm + D) / 2, which is C Rm where D = Rm."""

STEPS_PER_RTT = (1, 2, 4)
JITTERS = (Fraction(0), Fraction(1, 2), Fraction(1), Fraction(2))
NOT_NEEDED = "not asked in full: each claim that needs it has a counterexample"
Carried = Literal["carries over", "counterexample", "unknown"]


@dataclass(frozen=True)
class ClaimOnGrid:
    """What became of one claim.

    Attributes:
        verdict: ``carries over``; ``counterexample``: a lemma that the claim needs is refuted; ``unknown``: one is undecided.
        lemmas: that the claim lacks, with their parts.
        every_k: whether it carries over to every grid with this D.
    """

    verdict: Carried
    lemmas: tuple[Decided, ...] = ()
    every_k: bool = False


@dataclass(frozen=True)
class Cell:
    """A theorem on one grid."""

    loaded: LoadedTheorem
    decided: tuple[Decided, ...]
    claims: dict[str, ClaimOnGrid]

    @property
    def seconds(self) -> float:
        """Solver time."""
        return sum(one.answer.seconds + (one.twin_answer.seconds if one.twin_answer else 0.0) for one in self.decided)


def has_samples(steps_per_rtt: int, jitter: Fraction) -> bool:
    """Return whether D is a whole number of steps."""
    return (jitter * steps_per_rtt).denominator == 1


def on_grid(loaded: LoadedTheorem, steps_per_rtt: int, jitter: Fraction) -> LoadedTheorem:
    """Return a theorem on another grid: its lemmas and claims, with bounds of bytes scaled by C (Rm + D).

    Raises:
        InputError: if D is no whole number of steps, or the model has none.
    """
    if not has_samples(steps_per_rtt, jitter):
        raise InputError(f"D = {jitter} Rm has no sample with K = {steps_per_rtt}: it must be a whole number of steps of Rm/K")
    setting = loaded.setting
    if setting.model == "ideal":
        raise InputError("the ideal model has no jitter: there is nothing to carry over")
    if steps_per_rtt == 1 and jitter == 1:
        return loaded
    samples, past = setting.rtts * steps_per_rtt + 1, max(setting.past_steps * steps_per_rtt, int(jitter * steps_per_rtt))
    there = replace(setting, samples=samples, past_steps=past, steps_per_rtt=steps_per_rtt, jitter_rtts=jitter)
    scale = (1 + jitter) / 2
    return replace(
        loaded,
        setting=there,
        start=_scaled(loaded.start, scale),
        invariant=_scaled(loaded.invariant, scale),
        lemmas=tuple(_lemma(lemma, scale) for lemma in loaded.lemmas),
        claims=tuple(_claim(claim, scale) for claim in loaded.claims),
        history_granted=tuple(_scaled(node, scale) for node in loaded.history_granted),
    )


def decide(loaded: LoadedTheorem, prover: Prover, coarser: LoadedTheorem | None = None) -> Cell:
    """Decide every lemma of a theorem on its grid, and what the lemmas that hold make of the claims.

    A lemma is first asked for every K at once (:mod:`ccenv.proofs.theorems.sampled`), then a counterexample is looked for near
    one of a coarser grid. What is open after that is asked in full, if a claim depends on it that has no counterexample yet.
    """
    asked = [(lemma, query) for lemma in all_lemmas(loaded) for query in queries_of(loaded, lemma)]
    decided = [_first(loaded, lemma, query, prover, coarser) for lemma, query in asked]
    queries = [query for _, query in asked]
    _in_full(loaded, queries, decided, prover)
    lacking = [one for one in decided if one.verdict != "verified"]
    if lacking:
        for lemma in _invariant_alone(loaded, lacking, prover):
            (query,) = queries_of(loaded, lemma)
            one = _first(loaded, lemma, query, prover, None)
            decided.append(one if one.verdict != "unknown" else prover.decide(query))
            if decided[-1].verdict == "verified":
                loaded = replace(loaded, lemmas=(*loaded.lemmas, lemma))
        _in_full(loaded, queries, decided, prover)  # with the invariant kept a claim may need fewer refuted lemmas
        lacking = [one for one in decided[: len(asked)] if one.verdict != "verified"]
    claims = {claim.name: _carried(loaded, claim, lacking, prover) for claim in loaded.claims}
    alone = [one for one in decided if not one.every_k]
    for claim in loaded.claims:
        if claims[claim.name].verdict == "carries over" and _follows(loaded, claim, alone, prover):
            claims[claim.name] = ClaimOnGrid("carries over", every_k=True)
    return Cell(loaded, tuple(decided), claims)


def divisor(steps_per_rtt: int, jitter: Fraction) -> int | None:
    """Return the smallest smaller K that divides a K and has samples at D, the theorem's own grid aside, or None."""
    own = 1 if jitter == 1 else 0  # the theorem's own grid has no counterexample
    fits = (k for k in range(1 + own, steps_per_rtt) if steps_per_rtt % k == 0 and has_samples(k, jitter))
    return next(fits, None)


def _first(loaded: LoadedTheorem, lemma: ReadLemma, asked: LemmaQuery, prover: Prover, coarser: LoadedTheorem | None) -> Decided:
    """Decide a query in one of the cheap ways; ``unknown`` if none of them does."""
    steps, hints, reason = loaded.setting.steps_per_rtt, [], NOT_NEEDED
    if can_be_sampled(loaded):
        one = prove_sampled(loaded, lemma, asked, prover)
        if one.verdict == "verified":
            return one
        hints, reason = [Hint(one.answer.model, steps)], f"{one.reason}; {NOT_NEEDED}"
    if coarser is not None:
        there = next(query for query in lemma_queries(coarser) if (query.lemma, query.part) == (asked.lemma, asked.part))
        hints.insert(0, Hint(prover.decide(there).answer.model, steps // coarser.setting.steps_per_rtt))
    for hint in hints:
        for curves in WAYS if hint.values else ():
            found = prover.search(asked, partial(hint.demands, curves=curves), LIMIT_S)
            if found is not None:
                return found
    return Decided(asked.lemma, asked.part, "unknown", "", Answer("unknown", 0.0, ""), reason=reason)


def _in_full(loaded: LoadedTheorem, queries: list[LemmaQuery], decided: list[Decided], prover: Prover) -> None:
    """Ask what is open in full, in place, if a claim depends on it that has no counterexample yet."""
    for place, query in enumerate(queries):
        if decided[place].reason.endswith(NOT_NEEDED) and _matters(loaded, decided[: len(queries)], decided[place], prover):
            decided[place] = prover.decide(query)


def _matters(loaded: LoadedTheorem, decided: list[Decided], one: Decided, prover: Prover) -> bool:
    """Return whether a claim needs a lemma and has no counterexample yet."""
    lacking = [other for other in decided if other.verdict != "verified"]
    states = [_carried(loaded, claim, lacking, prover) for claim in loaded.claims]
    return any(state.verdict == "unknown" and one in state.lemmas for state in states)


def _invariant_alone(loaded: LoadedTheorem, lacking: list[Decided], prover: Prover) -> list[ReadLemma]:
    """Return a lemma for each part of the invariant whose being kept rests on a lemma that is lacking."""
    kept = replace(loaded, lemmas=_held(loaded, lacking), claims=())
    parts = conjuncts(loaded.invariant)
    steps = [step for step in implications(kept) if step.name.startswith(KEPT)]
    return [
        ReadLemma(f"the invariant alone ({k})", "a part of the invariant is kept", loaded.invariant, (), (primed(part),))
        for k, (part, step) in enumerate(zip(parts, steps, strict=True), start=1)
        if prover.imply(step).verdict != "verified"
    ]


def _carried(loaded: LoadedTheorem, claim: ReadClaim, lacking: list[Decided], prover: Prover) -> ClaimOnGrid:
    if _follows(loaded, claim, lacking, prover):
        return ClaimOnGrid("carries over")
    # A lemma is needed if the claim does not follow from all the others; of several that do the same work, each counts.
    needed = tuple(one for one in lacking if not _follows(loaded, claim, [one], prover)) or tuple(lacking)
    refuted = any(one.verdict == "refuted" for one in needed)
    return ClaimOnGrid("counterexample" if refuted else "unknown", needed)


def _follows(loaded: LoadedTheorem, claim: ReadClaim, lacking: list[Decided], prover: Prover) -> bool:
    """Return whether a claim follows without some conclusions of lemmas."""
    given = set(loaded.theorem.history_given)
    if any(one.lemma == HISTORY or one.lemma in given for one in lacking):
        return False
    rest = replace(loaded, lemmas=_held(loaded, lacking), claims=(claim,))
    return all(prover.imply(step).verdict == "verified" for step in implications(rest))


def _held(loaded: LoadedTheorem, lacking: list[Decided]) -> tuple[ReadLemma, ...]:
    """Return the lemmas without the conclusions that are lacking, and without what was proved with their help."""
    missing = {(one.lemma, one.part) for one in lacking}
    given = {lemma.name: lemma.given for lemma in loaded.theorem.lemmas}
    kept: list[ReadLemma] = []
    for lemma in loaded.lemmas:
        if any(name in given.get(lemma.name, ()) for name, _ in missing):
            missing |= {(lemma.name, part) for part in range(1, len(lemma.conclusions) + 1)}
        left = tuple(node for part, node in enumerate(lemma.conclusions, start=1) if (lemma.name, part) not in missing)
        if left:
            kept.append(replace(lemma, conclusions=left))
    return tuple(kept)


def _scaled(node: Node, scale: Fraction) -> Node:
    if isinstance(node, Joined):
        return Joined(node.how, tuple(_scaled(part, scale) for part in node.parts))
    read = {name for name, _ in node.left.terms}
    if not read or read - BYTES:
        return node
    return Comparison(replace(node.left, constant=node.left.constant * scale), node.strict)


def _lemma(lemma: ReadLemma, scale: Fraction) -> ReadLemma:
    return replace(
        lemma,
        premise=_scaled(lemma.premise, scale),
        granted=tuple(_scaled(node, scale) for node in lemma.granted),
        conclusions=tuple(_scaled(node, scale) for node in lemma.conclusions),
    )


def _claim(claim: ReadClaim, scale: Fraction) -> ReadClaim:
    return replace(claim, ranks=tuple(_rank(rank, scale) if rank.of == "queue" else rank for rank in claim.ranks))


def _rank(rank: ReadRank, scale: Fraction) -> ReadRank:
    step = rank.step * scale if rank.law == "minus" else rank.step
    return replace(rank, step=step, until=rank.until * scale, jump=None if rank.jump is None else rank.jump * scale)
