"""Find the best constant of a claim by bisection; every bound is one that was proved, never one that was interpolated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from ccenv.base.errors import InputError
from ccenv.proofs.claims.verifier import Verdict

Best = Literal["largest", "smallest"]


@dataclass
class Bracket:
    """Where the best constant lies.

    Attributes:
        best: whether larger or smaller numbers are stronger claims.
        proved: strongest value that was verified, or None.
        refuted: weakest value that was refuted, or None: the satisfiable query just beyond.
        undecided: values at which the time ran out.
        tried: number of values asked.
        evidence: value as text -> what the decision left behind (hashes, trace).
    """

    best: Best
    proved: Fraction | None = None
    refuted: Fraction | None = None
    undecided: list[Fraction] = field(default_factory=list)
    tried: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return what a report shows: the proved value, the refuted one beyond it, and their queries."""
        ends = {"proved": self.proved, "refuted": self.refuted}
        data: dict[str, Any] = {name: None if value is None else float(value) for name, value in ends.items()}
        data |= {f"{name}_by": None if value is None else self.evidence.get(str(value)) for name, value in ends.items()}
        return data | {"best": self.best, "undecided_at": [float(x) for x in self.undecided], "queries": self.tried}


def bisect(
    decide: Callable[[Fraction], tuple[Verdict, Any]],
    best: Best,
    low: Fraction,
    high: Fraction,
    precision: Fraction,
    start: Fraction | None = None,
) -> Bracket:
    """Narrow the best constant down to a proved and a refuted value at most ``precision`` apart.

    Args:
        decide: value -> (verdict, evidence). Assumed monotone: weaker claims hold where stronger ones do.
        best: whether larger or smaller values are stronger.
        low: smallest value tried.
        high: largest value tried.
        precision: when to stop; values tried are multiples of it, so that they can be read.
        start: a value believed to hold, tried first.

    Returns:
        Bracket: a value that was not decided is never a bound; the search goes on between it and what was proved.

    Raises:
        InputError: for an empty range.
    """
    if not low < high or precision <= 0:
        raise InputError(f"nothing to bisect between {float(low)} and {float(high)} in steps of {float(precision)}")
    bracket = Bracket(best)

    def ask(value: Fraction) -> Verdict:
        verdict, evidence = decide(value)
        bracket.tried += 1
        bracket.evidence[str(value)] = evidence
        if verdict == "verified":
            bracket.proved = value
        elif verdict == "refuted":
            bracket.refuted = value
        else:
            bracket.undecided.append(value)
        return verdict

    weakest, strongest = (low, high) if best == "largest" else (high, low)
    first = weakest if start is None else start
    seen = ask(first)
    if seen != "verified" and first != weakest:
        seen = ask(weakest)
    if seen != "verified":
        return bracket
    if bracket.refuted is None and ask(strongest) == "verified":
        return bracket
    beyond = strongest if bracket.refuted is None else bracket.refuted
    while bracket.proved is not None and abs(beyond - bracket.proved) > precision:
        middle = _on_grid((bracket.proved + beyond) / 2, precision)
        if middle in (bracket.proved, beyond):
            break
        if ask(middle) != "verified":
            beyond = middle
    return bracket


def _on_grid(value: Fraction, precision: Fraction) -> Fraction:
    return round(value / precision) * precision
