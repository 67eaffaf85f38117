"""Trees with open numbers: what CART grows, what polishing tunes, and the shell that proofs start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from ccenv.agents.programs import Branch, Expression, Leaf, Program, Rule

LEAF_STEP = Fraction(1, 20)  # grid of a in rate = a C_L + b MSS/Rm
MSS_STEP = Fraction(1, 4)  # grid of b
LARGEST_RATE = Fraction(8)  # of a, as for a learned policy


@dataclass(frozen=True)
class Guard:
    """A kind of condition with one open number, or none.

    Attributes:
        name: for messages.
        step: grid of the number; None: no number.
        low: smallest number.
        high: largest number.
    """

    name: str
    step: Fraction | None
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)

    def condition(self, number: float) -> Expression | str:
        """Return the condition with its number on the grid."""
        if self.step is None:
            return self.name
        x = min(self.high, max(self.low, on_grid(number, self.step)))
        if self.name == "ratio":
            return Expression((("C_U", Fraction(1)), ("C_L", -x)))
        if self.name == "slow":
            return Expression((("MSS/Rm", Fraction(1)), ("C_L", -x)))
        return Expression((("qdel_L", Fraction(1)), *([("Rm", -x)] if x else [])))


RATIO = Guard("ratio", Fraction(1, 20), Fraction(21, 20), Fraction(50))  # C_U > x C_L
DELAY = Guard("delay", Fraction(1, 20), Fraction(0), Fraction(8))  # qdel_L > x Rm
WHOLE_DELAY = Guard(
    "delay", Fraction(1), Fraction(0), Fraction(4)
)  # the same in whole Rm, as a grid of one sample per Rm reads it
SLOW = Guard("slow", Fraction(1, 100), Fraction(1, 100), Fraction(2))  # MSS/Rm > x C_L: C_L is but a few segments
UTILISED = Guard("utilised", None)
LOSS = Guard("loss", None)


@dataclass(frozen=True)
class Split:
    """A guard and what follows."""

    guard: Guard
    then: Template
    otherwise: Template


@dataclass(frozen=True)
class Slot:
    """A leaf: rate = a C_L + b MSS/Rm with both numbers open."""


Template: TypeAlias = Split | Slot


def parts(template: Template) -> Iterator[Template]:
    """Yield splits and slots in the order of their numbers: parents first, ``then`` before ``otherwise``."""
    yield template
    if isinstance(template, Split):
        yield from parts(template.then)
        yield from parts(template.otherwise)


def size(template: Template) -> int:
    """Return how many numbers a template leaves open."""
    return sum(2 if isinstance(p, Slot) else int(p.guard.step is not None) for p in parts(template))


def depth(template: Template) -> int:
    """Return the number of conditions on the longest way to a leaf."""
    return 0 if isinstance(template, Slot) else 1 + max(depth(template.then), depth(template.otherwise))


def build(template: Template, numbers: np.ndarray, name: str, source: str = "") -> Program:
    """Return the program with every number rounded to its grid; numbers as ``parts`` orders them."""
    rest = iter(numbers.tolist())

    def rule(part: Template) -> Rule:
        if isinstance(part, Slot):
            return _leaf(next(rest), next(rest))
        condition = part.guard.condition(next(rest) if part.guard.step is not None else 0.0)
        then = rule(part.then)
        return Branch(condition, then, rule(part.otherwise))

    return Program(name, rule(template), source)


def _leaf(a: float, b: float) -> Leaf:
    slope, offset = min(LARGEST_RATE, max(Fraction(0), on_grid(a, LEAF_STEP))), on_grid(b, MSS_STEP)
    terms = [(name, value) for name, value in (("C_L", slope), ("MSS/Rm", offset)) if value]
    # Nothing at all means line 7's minimum.
    return Leaf(Expression(tuple(terms) or (("MSS/Rm", Fraction(1)),)))


def on_grid(value: float, step: Fraction) -> Fraction:
    """Return the nearest multiple of a step."""
    return round(value / float(step)) * step


def spread(template: Template) -> np.ndarray:
    """Return how far a search should reach at first, per number."""
    out: list[float] = []
    for part in parts(template):
        if isinstance(part, Slot):
            out += [0.2, 0.7]
        elif part.guard.step is not None:
            out.append(0.6 if part.guard is WHOLE_DELAY else 0.02 if part.guard is SLOW else 0.4)
    return np.array(out)


def safety_shell(levels: int) -> tuple[Template, np.ndarray]:
    """Return the shape that proofs start from, with plain numbers in it.

    A drain leaf is tested first. Below it, ``levels`` guards on C_U / C_L part wide beliefs from tight ones; in each zone
    ``utilised`` decides between keeping the rate and a probe, so that an overshoot lasts about one step.
    """
    zone = Split(UTILISED, Slot(), Slot())
    shape: Template = zone
    numbers = [1.0, 0.0, 1.1, 0.5]
    for level in range(levels):
        shape = Split(RATIO, zone, shape)
        numbers = [1.75 + 0.75 * level, 1.0, 0.0, 1.5 + 0.25 * level, 1.0, *numbers]
    return Split(WHOLE_DELAY, Slot(), shape), np.array([0.0, 0.6, 0.0, *numbers])


def ladder(depth: int) -> tuple[Template, np.ndarray]:
    """Return a shape that does well on the nominal score, with plain numbers in it; depth is at least 3.

    Two drain leaves are tested first. Below them a ladder of guards on C_U / C_L: the wider the beliefs the higher the rate, with
    no look at ``utilised``, which alone can hold a sender below the link while its beliefs are wide; only tight beliefs are
    steered by it.
    """
    rungs: Template = Slot()
    numbers = [2.0, 0.0]
    for rung in range(depth - 2):
        rungs = Split(RATIO, rungs, Slot())
        numbers = [6.0 - rung * 4.0 / (depth - 2), *numbers, 1.2, 0.0]
    shape = Split(RATIO, rungs, Split(UTILISED, Slot(), Slot()))
    drain = Split(DELAY, Slot(), Slot())
    return Split(DELAY, drain, shape), np.array([0.0, 1.0, 0.5, 0.0, 0.75, 0.0, 1.7, *numbers, 0.95, 0.0, 1.05, 0.0])
