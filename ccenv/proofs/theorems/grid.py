"""Transfer of a theorem to other grids: K samples per Rm, and other jitter bounds D (docs/theorems.md, Other grids).

A counterexample on a coarser grid is a hint for finer ones: its values at the common samples are demanded, the rest is free.
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
from ccenv.proofs.theorems.compose import KEPT, LemmaQuery, all_lemmas, build_queries, implications, lemma_queries, primed
from ccenv.proofs.theorems.language import Comparison, Joined, Node, conjuncts
from ccenv.proofs.theorems.prove import Decided, Prover
from ccenv.proofs.theorems.sampled import can_be_sampled
from ccenv.proofs.theorems.sampled import prove as prove_sampled
from ccenv.proofs.theorems.theorem import LoadedTheorem, ReadClaim, ReadLemma, ReadRank

LIMIT_S = 10.0
"""A search with a hint takes parts of a second; beyond this limit the query is decided without."""

HINTED_CURVES = (("G", "E", "S"), ("rate",))
"""The curves demanded by a hint, tried in turn; the start of the trace is always demanded."""

_START = ("alpha", "beta", "C_L_0", "C_U_0", "C_L_lambda_0", "q_U_0")
_SERIES = re.compile(r"([A-Z]|rate)_([0-9]+)")


@dataclass(frozen=True)
class Hint:
    """A trace on a coarser grid: variable -> exact number, and the finer grid's samples per sample of it (``times``)."""

    values: Mapping[str, Any]
    times: int

    def demands(self, encoding: Encoding, curves: tuple[str, ...]) -> list[Formula]:
        """Return that a trace of the finer grid has this one's start, and its values of some curves at the common samples."""
        variables, demanded = encoding.variables.all, []
        for name, value in sorted(self.values.items()):
            match, variable = _SERIES.fullmatch(name), name
            if match is not None and match[1] in curves and not (match[1] == "rate" and match[2] == "0"):
                variable = f"{match[1]}_{int(match[2]) * self.times}"
            elif name not in _START:
                continue
            if variable in variables:
                demanded.append(variables[variable] == real(Fraction(value)))
        return demanded


BYTES = frozenset({"queue", "queue'", "inflight", "inflight'", "peak_inflight", "peak_queue"})
"""Comparisons of these alone with numbers are in units of C (Rm + D) / 2, which is C Rm where D = Rm."""

STEPS_PER_RTT = (1, 2, 4)
JITTERS = (Fraction(0), Fraction(1, 2), Fraction(1), Fraction(2))
NOT_NEEDED = "not asked in full: each claim that needs it has a counterexample"
Carried = Literal["carries over", "counterexample", "unknown"]


@dataclass(frozen=True)
class ClaimOnGrid:
    """The outcome for one claim."""

    verdict: Carried  # `carries over`; `counterexample`: a needed lemma is refuted; `unknown`: one is undecided
    lemmas: tuple[Decided, ...] = ()  # needed parts of lemmas that do not hold
    every_k: bool = False  # whether it carries over to every grid with this D


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

    Raises InputError if D is no whole number of steps, or the model has none.
    """
    if not has_samples(steps_per_rtt, jitter):
        raise InputError(f"D = {jitter} Rm has no sample with K = {steps_per_rtt}: it must be a whole number of steps of Rm/K")
    setting = loaded.setting
    if setting.model == "ideal":
        raise InputError("the ideal model has no jitter: there is nothing to carry over")
    if steps_per_rtt == 1 and jitter == 1:
        return loaded
    samples, past = setting.rtts * steps_per_rtt + 1, max(setting.past_steps * steps_per_rtt, int(jitter * steps_per_rtt))
    setting_there = replace(setting, samples=samples, past_steps=past, steps_per_rtt=steps_per_rtt, jitter_rtts=jitter)
    scale = (1 + jitter) / 2
    return replace(
        loaded,
        setting=setting_there,
        start=_scale_node(loaded.start, scale),
        invariant=_scale_node(loaded.invariant, scale),
        lemmas=tuple(_scale_lemma(lemma, scale) for lemma in loaded.lemmas),
        claims=tuple(replace(claim, ranks=tuple(_scale_rank(rank, scale) for rank in claim.ranks)) for claim in loaded.claims),
        history_granted=tuple(_scale_node(node, scale) for node in loaded.history_granted),
    )


def decide(loaded: LoadedTheorem, prover: Prover, coarser: LoadedTheorem | None = None) -> Cell:
    """Decide every lemma of a theorem on its grid, and which claims follow from the lemmas that hold.

    A lemma is first decided for every K at once (:mod:`ccenv.proofs.theorems.sampled`), then by a counterexample near that of a
    coarser grid. A lemma that is still open is decided in full if a claim without a counterexample depends on it.
    """
    asked = [(lemma, query) for lemma in all_lemmas(loaded) for query in build_queries(loaded, lemma)]
    decided = [_decide_cheaply(loaded, lemma, query, prover, coarser) for lemma, query in asked]
    queries = [query for _, query in asked]
    _decide_open(loaded, queries, decided, prover)
    lacking = [one for one in decided if one.verdict != "verified"]
    if lacking:
        for lemma in _split_invariant(loaded, lacking, prover):
            (query,) = build_queries(loaded, lemma)
            one = _decide_cheaply(loaded, lemma, query, prover, None)
            decided.append(one if one.verdict != "unknown" else prover.decide(query))
            if decided[-1].verdict == "verified":
                loaded = replace(loaded, lemmas=(*loaded.lemmas, lemma))
        _decide_open(loaded, queries, decided, prover)  # with the invariant kept a claim may need fewer refuted lemmas
        lacking = [one for one in decided[: len(asked)] if one.verdict != "verified"]
    claims = {claim.name: _judge_claim(loaded, claim, lacking, prover) for claim in loaded.claims}
    alone = [one for one in decided if not one.every_k]
    for claim in loaded.claims:
        if claims[claim.name].verdict == "carries over" and _follows(loaded, claim, alone, prover):
            claims[claim.name] = ClaimOnGrid("carries over", every_k=True)
    return Cell(loaded, tuple(decided), claims)


def divisor(steps_per_rtt: int, jitter: Fraction) -> int | None:
    """Return the smallest proper divisor of K with samples at D, except for the theorem's grid, or None."""
    plain_grid = 1 if jitter == 1 else 0  # the theorem's grid has no counterexample
    fits = (k for k in range(1 + plain_grid, steps_per_rtt) if steps_per_rtt % k == 0 and has_samples(k, jitter))
    return next(fits, None)


def _decide_cheaply(
    loaded: LoadedTheorem, lemma: ReadLemma, asked: LemmaQuery, prover: Prover, coarser: LoadedTheorem | None
) -> Decided:
    """Decide a query for every K at once or with a hint; ``unknown`` if neither succeeds."""
    steps, hints, reason = loaded.setting.steps_per_rtt, [], NOT_NEEDED
    if can_be_sampled(loaded):
        sampled_proof = prove_sampled(loaded, lemma, asked, prover)
        if sampled_proof.verdict == "verified":
            return sampled_proof
        hints, reason = [Hint(sampled_proof.answer.model, steps)], f"{sampled_proof.reason}; {NOT_NEEDED}"
    if coarser is not None:
        coarse_query = next(query for query in lemma_queries(coarser) if (query.lemma, query.part) == (asked.lemma, asked.part))
        hints.insert(0, Hint(prover.decide(coarse_query).answer.model, steps // coarser.setting.steps_per_rtt))
    for hint in hints:
        for curves in HINTED_CURVES if hint.values else ():
            refuted = prover.search(asked, partial(hint.demands, curves=curves), LIMIT_S)
            if refuted is not None:
                return refuted
    return Decided(asked.lemma, asked.part, "unknown", "", Answer("unknown", 0.0, ""), reason=reason)


def _decide_open(loaded: LoadedTheorem, queries: list[LemmaQuery], decided: list[Decided], prover: Prover) -> None:
    """Decide open queries in full, in place, if a claim without a counterexample depends on them."""
    for index, query in enumerate(queries):
        if decided[index].reason.endswith(NOT_NEEDED) and _is_needed(loaded, decided[: len(queries)], decided[index], prover):
            decided[index] = prover.decide(query)


def _is_needed(loaded: LoadedTheorem, decided: list[Decided], one: Decided, prover: Prover) -> bool:
    """Return whether a claim needs a lemma and has no counterexample yet."""
    lacking = [other for other in decided if other.verdict != "verified"]
    states = [_judge_claim(loaded, claim, lacking, prover) for claim in loaded.claims]
    return any(state.verdict == "unknown" and one in state.lemmas for state in states)


def _split_invariant(loaded: LoadedTheorem, lacking: list[Decided], prover: Prover) -> list[ReadLemma]:
    """Return a lemma for each part of the invariant that is kept only by a lacking lemma."""
    reduced = replace(loaded, lemmas=_drop_lacking(loaded, lacking), claims=())
    parts = conjuncts(loaded.invariant)
    steps = [step for step in implications(reduced) if step.name.startswith(KEPT)]
    return [
        ReadLemma(f"the invariant alone ({k})", "a part of the invariant is kept", loaded.invariant, (), (primed(part),))
        for k, (part, step) in enumerate(zip(parts, steps, strict=True), start=1)
        if prover.imply(step).verdict != "verified"
    ]


def _judge_claim(loaded: LoadedTheorem, claim: ReadClaim, lacking: list[Decided], prover: Prover) -> ClaimOnGrid:
    if _follows(loaded, claim, lacking, prover):
        return ClaimOnGrid("carries over")
    # A lemma is needed if the claim does not follow from all the others; of several equivalent ones, each counts.
    needed = tuple(one for one in lacking if not _follows(loaded, claim, [one], prover)) or tuple(lacking)
    refuted = any(one.verdict == "refuted" for one in needed)
    return ClaimOnGrid("counterexample" if refuted else "unknown", needed)


def _follows(loaded: LoadedTheorem, claim: ReadClaim, lacking: list[Decided], prover: Prover) -> bool:
    """Return whether a claim follows without the lacking conclusions."""
    history_given = set(loaded.theorem.history_given)
    if any(one.lemma == HISTORY or one.lemma in history_given for one in lacking):
        return False
    rest = replace(loaded, lemmas=_drop_lacking(loaded, lacking), claims=(claim,))
    return all(prover.imply(step).verdict == "verified" for step in implications(rest))


def _drop_lacking(loaded: LoadedTheorem, lacking: list[Decided]) -> tuple[ReadLemma, ...]:
    """Return the lemmas without the lacking conclusions and those proved with their help."""
    missing = {(one.lemma, one.part) for one in lacking}
    given_by = {lemma.name: lemma.given for lemma in loaded.theorem.lemmas}
    lemmas: list[ReadLemma] = []
    for lemma in loaded.lemmas:
        if any(name in given_by.get(lemma.name, ()) for name, _ in missing):
            missing |= {(lemma.name, part) for part in range(1, len(lemma.conclusions) + 1)}
        left = tuple(node for part, node in enumerate(lemma.conclusions, start=1) if (lemma.name, part) not in missing)
        if left:
            lemmas.append(replace(lemma, conclusions=left))
    return tuple(lemmas)


def _scale_node(node: Node, scale: Fraction) -> Node:
    if isinstance(node, Joined):
        return Joined(node.how, tuple(_scale_node(part, scale) for part in node.parts))
    read = {name for name, _ in node.left.terms}
    if not read or read - BYTES:
        return node
    return Comparison(replace(node.left, constant=node.left.constant * scale), node.strict)


def _scale_lemma(lemma: ReadLemma, scale: Fraction) -> ReadLemma:
    return replace(
        lemma,
        premise=_scale_node(lemma.premise, scale),
        granted=tuple(_scale_node(node, scale) for node in lemma.granted),
        conclusions=tuple(_scale_node(node, scale) for node in lemma.conclusions),
    )


def _scale_rank(rank: ReadRank, scale: Fraction) -> ReadRank:
    if rank.of != "queue":
        return rank
    step = rank.step * scale if rank.law == "minus" else rank.step
    return replace(rank, step=step, until=rank.until * scale, jump=None if rank.jump is None else rank.jump * scale)
