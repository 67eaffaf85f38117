"""Belief programs as data, and the exact reference of their decisions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from ccenv.base.errors import ProgramError, did_you_mean

# Unit of each numeric input, in the order of the kernel's coefficient columns and input vector.
UNIT_OF = {
    "C_L": "bytes/s",
    "C_U": "bytes/s",
    "C_L_lambda": "bytes/s",
    "MSS/Rm": "bytes/s",
    "rate": "bytes/s",
    "q_U/Rm": "bytes/s",
    "qdel_L": "s",
    "qdel_U": "s",
    "Rm": "s",
    "q_U": "bytes",
    "MSS": "bytes",
}
RATE_UNIT = "bytes/s"
BOOLEANS = ("utilised", "loss")
INPUTS = (*UNIT_OF, *BOOLEANS)
INPUT_INDEX = {name: index for index, name in enumerate(INPUTS)}

# No rate leaves a program above this (8 Tbit/s): an unbounded C_U in a leaf must not become an infinite rate.
MAX_RATE_Bps = 1e12

# In floating point a sum this small relative to its terms is 0: q_U = MSS must not depend on the last digit.
ROUND_OFF = 1e-12


@dataclass(frozen=True)
class Expression:
    """A linear combination of inputs of one unit."""

    # (input, coefficient) pairs in the order of INPUTS; at least one; no coefficient is zero
    terms: tuple[tuple[str, Fraction], ...]

    def __post_init__(self) -> None:
        """Put the terms in order; refuse unknown or repeated inputs, zero coefficients and mixed units."""
        if not self.terms:
            raise ProgramError("an expression has no inputs; give at least one, e.g. {'C_L': 1}")
        names = [name for name, _ in self.terms]
        for name, coefficient in self.terms:
            if name not in UNIT_OF:
                raise ProgramError(f"unknown input {name!r}.{did_you_mean(name, UNIT_OF)}")
            if coefficient == 0:
                raise ProgramError(f"the coefficient of {name!r} is 0; leave the input out")
        if len(set(names)) != len(names):
            raise ProgramError(f"an input is given twice: {', '.join(names)}")
        units = sorted({UNIT_OF[name] for name in names})
        if len(units) > 1:
            seen = ", ".join(f"{name} [{UNIT_OF[name]}]" for name in names)
            raise ProgramError(f"mixed units in one expression: {seen}; all inputs need the same unit")
        ordered = sorted(((name, Fraction(c)) for name, c in self.terms), key=lambda term: INPUT_INDEX[term[0]])
        object.__setattr__(self, "terms", tuple(ordered))

    @property
    def unit(self) -> str:
        """Return the unit of the value: ``"bytes/s"``, ``"s"`` or ``"bytes"``."""
        return UNIT_OF[self.terms[0][0]]

    def coefficient(self, name: str) -> Fraction:
        """Return the coefficient of an input, 0 if it does not occur."""
        return dict(self.terms).get(name, Fraction(0))


@dataclass(frozen=True)
class Leaf:
    """A decision: send at this rate, or at any rate of an interval."""

    rate: Expression  # expression in bytes/s; of an interval the lower end
    hold_rtts: int = 1  # number of decision intervals of one Rm that keep the rate, >= 1
    most: Expression | None = None  # upper end of the interval, in bytes/s; None: the rate is decided

    def __post_init__(self) -> None:
        for end in self.ends:
            if end.unit != RATE_UNIT:
                raise ProgramError(f"a rate has the unit {RATE_UNIT}, this expression has {end.unit}")
        if self.hold_rtts < 1:
            raise ProgramError(f"hold_rtts is {self.hold_rtts}; it must be at least 1")

    @property
    def ends(self) -> tuple[Expression, ...]:
        """Return the lower and the upper end of an interval, or the rate alone."""
        return (self.rate,) if self.most is None else (self.rate, self.most)


@dataclass(frozen=True)
class Branch:
    """A condition and its two rules."""

    condition: Expression | str  # an expression that must be > 0 (strictly), or one of BOOLEANS
    then: Rule  # rule if the condition holds
    otherwise: Rule

    def __post_init__(self) -> None:
        if isinstance(self.condition, str) and self.condition not in BOOLEANS:
            raise ProgramError(f"unknown condition {self.condition!r}.{did_you_mean(self.condition, BOOLEANS)}")


Rule: TypeAlias = Branch | Leaf


@dataclass(frozen=True)
class Program:
    """A belief program ([CCmatic] Listing 1), or a shield: a program with leaves that are intervals.

    Line 7 of Listing 1 always applies: rate = max(rate, MSS/Rm), to both ends of an interval.
    """

    name: str  # short identifier
    rule: Rule  # the decision tree
    source: str = ""  # where it comes from, free text
    probe_window_rtts: int = 1  # T* of C_L_lambda in units of Rm ([CCmatic] s.6.2.1)

    def __repr__(self) -> str:
        """Return one line; ``ccenv.agents.programs.to_json`` writes the whole program."""
        leaves = sum(isinstance(rule, Leaf) for rule in self.rules())
        return f"Program({self.name}: {'a shield, ' if self.is_shield else ''}{leaves} {'leaf' if leaves == 1 else 'leaves'})"

    def rules(self) -> Iterator[Rule]:
        """Iterate over all branches and leaves, parents first, ``then`` before ``otherwise``."""
        pending: list[Rule] = [self.rule]
        while pending:
            rule = pending.pop()
            yield rule
            if isinstance(rule, Branch):
                pending += (rule.otherwise, rule.then)

    def inputs(self) -> frozenset[str]:
        """Return the names of all inputs that the program reads, MSS/Rm (line 7) included."""
        used = {"MSS/Rm"}
        for rule in self.rules():
            for part in rule.ends if isinstance(rule, Leaf) else (rule.condition,):
                used |= {part} if isinstance(part, str) else {name for name, _ in part.terms}
        return frozenset(used)

    @property
    def is_shield(self) -> bool:
        """Whether a leaf is an interval, so that the program alone decides no rate."""
        return any(isinstance(rule, Leaf) and rule.most is not None for rule in self.rules())


class Interval(NamedTuple):
    """Rates from lo to hi that a shield allows, in bytes/s (or the unit of the input rates), and for how many intervals."""

    lo: Any
    hi: Any
    hold_rtts: int


class Decision(NamedTuple):
    """A decision: a rate in bytes/s (or the unit of the input rates), and the number of intervals for which it holds."""

    rate: Any
    hold_rtts: int


def decide(program: Program, inputs: Mapping[str, Any]) -> Decision:
    """Decide the next rate; the plain reference of the kernel, exact when all inputs are Fractions or integers.

    Raises ProgramError if an input that is needed is missing, or the program is a shield.

    Args:
        program: the program.
        inputs: value per name in INPUTS, at least those in ``program.inputs()``; numbers (Fraction, int or float, infinite
            allowed) and truth values for BOOLEANS.

    Returns:
        Decision: the rate lies in [MSS/Rm, MAX_RATE_Bps]. Infinite inputs: an expression that sums +inf and -inf counts as
        -inf (the condition is false, the rate is line 7's minimum); a rate of +inf becomes MAX_RATE_Bps.
    """
    if program.is_shield:
        raise ProgramError(f"{program.name!r} is a shield: it allows intervals of rates and decides none")
    lo, _, hold_rtts = interval(program, inputs)
    return Decision(lo, hold_rtts)


def interval(program: Program, inputs: Mapping[str, Any]) -> Interval:
    """Return the rates that a program allows; the plain reference of the kernel, exact for Fractions and integers.

    Raises ProgramError if an input that is needed is missing.

    Args:
        program: a program without intervals allows exactly its rate.
        inputs: as for :func:`decide`.

    Returns:
        Interval: both ends lie in [MSS/Rm, MAX_RATE_Bps], each computed as ``decide`` computes a rate; an upper end below the
            lower one counts as the lower one.
    """
    rule = program.rule
    while isinstance(rule, Branch):
        rule = rule.then if _holds(rule.condition, inputs) else rule.otherwise
    least = _input("MSS/Rm", inputs)
    ends = [min(max(_value(end, inputs), least), MAX_RATE_Bps) for end in rule.ends]
    return Interval(ends[0], max(ends), rule.hold_rtts)


def rate_at(lo: float, hi: float, position: float) -> float:
    """Return lo + position * (hi - lo), clipped to [lo, hi] after rounding; the plain reference of the kernel.

    ``position`` is clipped to [0, 1]; NaN counts as 0.
    """
    if not position > 0:
        return lo
    return min(max(lo + min(position, 1.0) * (hi - lo), lo), hi)


def _holds(condition: Expression | str, inputs: Mapping[str, Any]) -> bool:
    if isinstance(condition, str):
        return bool(_input(condition, inputs))
    total = _value(condition, inputs)
    if not isinstance(total, float) or math.isinf(total):
        return bool(total > 0)
    scale = sum(abs(float(coefficient) * _input(name, inputs)) for name, coefficient in condition.terms)
    return bool(total > ROUND_OFF * scale)


def _value(expression: Expression, inputs: Mapping[str, Any]) -> Any:
    total = sum((coefficient * _input(name, inputs) for name, coefficient in expression.terms), start=Fraction(0))
    return float("-inf") if isinstance(total, float) and math.isnan(total) else total


def _input(name: str, inputs: Mapping[str, Any]) -> Any:
    if name not in inputs:
        raise ProgramError(f"the program reads {name!r}, which is not among the inputs given: {', '.join(sorted(inputs))}")
    return inputs[name]
