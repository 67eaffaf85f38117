"""What of a theorem carries over to other grids: K samples per Rm, and other jitter bounds D.

A theorem has one sample per Rm and D = Rm. On another grid the network acts K times per Rm, C_L and C_U have windows of all whole
steps, losses are known one Rm later, and the sender still decides once per Rm, on what arrived by then. Each lemma is asked again
there, at the same length in Rm. A claim carries over if the lemmas that hold there still make it. Where it does not, the lemmas
that it lacks are named; of a refuted one there is the trace that breaks it, in exact numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from ccenv.errors import InputError
from ccenv.smt.theorems.compose import KEPT, implications, primed
from ccenv.smt.theorems.language import Comparison, Joined, Node, conjuncts
from ccenv.smt.theorems.prove import Decided, Prover
from ccenv.smt.theorems.queries import lemma_queries
from ccenv.smt.theorems.theorem import HISTORY, LoadedTheorem, ReadClaim, ReadLemma, ReadRank

BYTES = frozenset({"queue", "queue'", "inflight", "inflight'", "peak_inflight", "peak_queue"})
"""Comparisons of these alone with numbers are in units of C (Rm + D) / 2, which is C Rm where D = Rm."""

STEPS_PER_RTT = (1, 2, 4)
JITTERS = (Fraction(0), Fraction(1, 2), Fraction(1), Fraction(2))
Carried = Literal["carries over", "counterexample", "unknown"]


@dataclass(frozen=True)
class ClaimOnGrid:
    """What became of one claim.

    Attributes:
        verdict: ``carries over``; ``counterexample``: a lemma that the claim needs is refuted; ``unknown``: one is undecided.
        lemmas: that the claim lacks, with their parts.
    """

    verdict: Carried
    lemmas: tuple[Decided, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A theorem on one grid.

    Attributes:
        loaded: the theorem there.
        decided: every lemma there.
        claims: name -> what became of it.
    """

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

    Args:
        loaded: the theorem, on its own grid.
        steps_per_rtt: K.
        jitter: D in Rm.

    Raises:
        InputError: if D is no whole number of steps, or the model has none.
    """
    if not has_samples(steps_per_rtt, jitter):
        raise InputError(f"D = {jitter} Rm has no sample with K = {steps_per_rtt}: it must be a whole number of steps of Rm/K")
    setting = loaded.setting
    if setting.model == "ideal":
        raise InputError("the ideal model has no jitter: there is nothing to carry over")
    if (steps_per_rtt, jitter) == (1, 1):
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


def decide(loaded: LoadedTheorem, prover: Prover) -> Cell:
    """Decide every lemma of a theorem on its grid, and what the lemmas that hold make of the claims.

    Args:
        loaded: as :func:`on_grid` returns it.
        prover: with limits and store.
    """
    decided = [prover.decide(asked) for asked in lemma_queries(loaded)]
    lacking = [one for one in decided if one.verdict != "verified"]
    if lacking:
        for lemma in _invariant_alone(loaded, lacking, prover):
            asked = next(iter(lemma_queries(replace(loaded, lemmas=(lemma,)))))
            decided.append(prover.decide(asked))
            if decided[-1].verdict == "verified":
                loaded = replace(loaded, lemmas=(*loaded.lemmas, lemma))
    return Cell(loaded, tuple(decided), {claim.name: _carried(loaded, claim, lacking, prover) for claim in loaded.claims})


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
