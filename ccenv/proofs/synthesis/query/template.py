"""Templates: the belief programs of a query, grouped into classes of equal functions ([CCmatic] Listing 1, App. C).

A candidate is a shape (the nesting of conditions) with one condition per branch and one rate per leaf. The classes are exact:
conditions by the cells of {MSS/Rm <= C_L <= C_U} on which they hold, rates by ``max(rate, MSS/Rm)`` there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from ccenv.agents.programs import UNIT_OF, Branch, Expression, Leaf, Program, Rule
from ccenv.base.errors import InputError, did_you_mean

CONSTANT_INPUTS = frozenset({"MSS/Rm", "MSS", "Rm"})
"""Inputs whose coefficients are no part of keys: solutions that differ only there count once ([CCmatic] s.6.1)."""

SHAPES = {1: "one", 2: "if_else", 3: "chain", 4: "nested"}
"""Number of rates -> shape. chain: if c0: e0 elif c1: e1 else e2; nested: if c0: (c1 ? e0 : e1) else (c2 ? e2 : e3)."""

Terms = tuple[tuple[str, Fraction], ...]
Domain = dict[str, tuple[Fraction, ...]]


@dataclass(frozen=True)
class Template:
    """The programs of a query."""

    rates: int  # number of rate expressions, 1 to 4
    rate_domains: Domain  # coefficient choices per input of a rate
    # groups of inputs of one unit, each with coefficient choices; a condition takes one group, > 0
    condition_domains: tuple[Domain, ...]

    def __post_init__(self) -> None:
        if self.rates not in SHAPES:
            raise InputError(f"template.rates is {self.rates}; it must be 1 to {max(SHAPES)}")
        groups = [("template.rate", self.rate_domains), *(("template.conditions", group) for group in self.condition_domains)]
        for where, group in groups:
            _check_units(where, group)
        if any(UNIT_OF[name] != "bytes/s" for name in self.rate_domains):
            raise InputError(f"template.rate: a rate is in bytes/s, got {_list_units(self.rate_domains)}")
        if not self.rate_domains or any(not values for _, group in groups for values in group.values()):
            raise InputError("template: no candidates; every input needs at least one coefficient")
        if self.rates > 1 and not self.condition_domains:
            raise InputError("template: no candidates; more than one rate needs conditions")

    @property
    def branches(self) -> int:
        return self.rates - 1

    def size(self) -> int:
        """Return the number of candidates by the paper's count."""
        conditions = sum(math.prod(len(values) for values in group.values()) for group in self.condition_domains)
        rates = math.prod(len(values) for values in self.rate_domains.values())
        size: int = rates**self.rates * conditions**self.branches
        return size

    def inputs(self) -> frozenset[str]:
        return frozenset(self.rate_domains) | {name for group in self.condition_domains for name in group}


def _combinations(group: Domain) -> Iterator[Terms]:
    """Yield every expression of a group of inputs, without zero coefficients."""
    for values in product(*group.values()):
        yield tuple((name, value) for name, value in zip(group, values, strict=True) if value != 0)


def _check_units(where: str, group: Domain) -> None:
    for name in group:
        if name not in UNIT_OF:
            raise InputError(f"{where}: unknown input {name!r}.{did_you_mean(name, UNIT_OF)}")
    if len({UNIT_OF[name] for name in group}) > 1:
        raise InputError(f"{where}: mixed units in one group: {_list_units(group)}; give one group per unit")


def _list_units(group: Domain) -> str:
    return ", ".join(f"{name} [{UNIT_OF[name]}]" for name in group)


@dataclass(frozen=True)
class Candidate:
    """One program of a template by the indices of its conditions and rates."""

    conditions: tuple[int, ...]
    rates: tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """A template's conditions and rates as raw lists of terms, and their classes."""

    template: Template
    conditions: list[Terms]
    rates: list[Terms]
    condition_class: np.ndarray  # (n_conditions,) int: class of each condition; -1 always false, -2 always true
    condition_flipped: np.ndarray  # (n_conditions,) bool: the condition is the negation of its class's representative
    condition_of: np.ndarray  # representative condition of each class
    rate_class: np.ndarray  # (n_rates,) int
    rate_of: np.ndarray  # representative rate of each class

    def program(self, candidate: Candidate, name: str, source: str = "") -> Program:
        """Return a candidate as a belief program; conditions that are always false or true are resolved."""
        # A rate of 0 is sent as MSS/Rm (line 7 of Listing 1).
        nothing: Terms = (("MSS/Rm", Fraction(1)),)
        leaves: list[Rule] = [Leaf(Expression(self.rates[index] or nothing)) for index in candidate.rates]
        branch = [self._make_branch(index) for index in candidate.conditions]
        shape = SHAPES[self.template.rates]
        if shape == "one":
            rule = leaves[0]
        elif shape == "if_else":
            rule = branch[0](leaves[0], leaves[1])
        elif shape == "chain":
            rule = branch[0](leaves[0], branch[1](leaves[1], leaves[2]))
        else:
            rule = branch[0](branch[1](leaves[0], leaves[1]), branch[2](leaves[2], leaves[3]))
        return Program(name, rule, source)

    def _make_branch(self, index: int):  # type: ignore[no-untyped-def]
        condition_class = self.condition_class[index]
        if condition_class == NEVER:
            return lambda then, otherwise: otherwise
        if condition_class == ALWAYS:
            return lambda then, otherwise: then
        return lambda then, otherwise: Branch(Expression(self.conditions[index]), then, otherwise)

    def key(self, candidate: Candidate) -> tuple[Terms, ...]:
        """Return the critical coefficients of a candidate, those of non-constant inputs."""
        parts = [self.conditions[i] for i in candidate.conditions] + [self.rates[i] for i in candidate.rates]
        return tuple(critical(part) for part in parts)


def critical(terms: Terms) -> Terms:
    """Return the terms of non-constant inputs."""
    return tuple(term for term in terms if term[0] not in CONSTANT_INPUTS)


NEVER, ALWAYS = -1, -2

MOST_TERMS = np.iinfo(np.int16).max + 1
"""Rows number conditions and rates in 16 bits."""


def build_space(template: Template, largest_delay: int, *, ordered: bool = True) -> Space:
    """List a template's conditions and rates and group equal ones.

    ``largest_delay`` is the largest qdel_L in Rm that a trace can show. With ``ordered`` C_L never exceeds C_U, as for beliefs
    that start right; otherwise both are only known to be at least MSS/Rm.
    """
    rates = list(_combinations(template.rate_domains))
    # The empty condition, which is never true, occurs once per group.
    conditions = [terms for group in template.condition_domains for terms in _combinations(group)]
    for what, listed in (("conditions", conditions), ("rates", rates)):
        if len(listed) > MOST_TERMS:
            raise InputError(f"template: {len(listed)} {what}; rows hold at most {MOST_TERMS}, fewer coefficients would do")
    truths = [_classify_condition(terms, largest_delay, ordered) for terms in conditions]
    numbers: dict[object, int] = {}
    classes: list[int] = []
    flipped: list[bool] = []
    for cells in truths:
        flipped.append(cells.always is None and cells.key not in numbers and cells.negation in numbers)
        if cells.always is None:
            classes.append(numbers.setdefault(cells.negation if flipped[-1] else cells.key, len(numbers)))
        else:
            classes.append(ALWAYS if cells.always else NEVER)
    condition_of = [classes.index(number) for number in range(len(numbers))]
    rate_numbers: dict[object, int] = {}
    rate_class = [rate_numbers.setdefault(_rate_key(terms), len(rate_numbers)) for terms in rates]
    rate_of = [rate_class.index(number) for number in range(len(rate_numbers))]
    columns = (np.array(column, dtype=np.int64) for column in (condition_of, rate_class, rate_of))
    return Space(template, conditions, rates, np.array(classes, dtype=np.int64), np.array(flipped, dtype=bool), *columns)


@dataclass(frozen=True)
class _Cells:
    """The cells of a condition: ``always`` if they are all or none; else a key, and the key of its negation if any."""

    key: object
    negation: object
    always: bool | None


def _classify_condition(terms: Terms, largest_delay: int, ordered: bool) -> _Cells:
    """Return the exact cells on which a condition holds."""
    coefficients = dict(terms)
    if not coefficients:
        return _Cells(None, None, always=False)
    if set(coefficients) <= {"qdel_L", "Rm"}:
        q, r = coefficients.get("qdel_L", Fraction(0)), coefficients.get("Rm", Fraction(0))
        return _classify_truths("delay", tuple(q * delay + r > 0 for delay in range(largest_delay + 1)))
    if set(coefficients) <= {"C_L", "C_U", "MSS/Rm"}:
        return _classify_half_plane(*(coefficients.get(name, Fraction(0)) for name in ("C_L", "C_U", "MSS/Rm")), ordered=ordered)
    # Other inputs range over an open cone: conditions are equal only if they are multiples of each other.
    return _Cells(("linear", _direction(terms)), None, always=None)


def _classify_truths(label: str, truths: tuple[bool, ...]) -> _Cells:
    if all(truths) or not any(truths):
        return _Cells(None, None, always=truths[0])
    return _Cells((label, truths), (label, tuple(not truth for truth in truths)), always=None)


def _classify_half_plane(lower: Fraction, upper: Fraction, constant: Fraction, *, ordered: bool) -> _Cells:
    """Classify lower*x + upper*y + constant > 0 on {1 <= x <= y}, x = C_L*Rm/MSS and y = C_U*Rm/MSS.

    The region has the corner (1, 1), the edge x = 1 and the edge y = x (y = 1 where the bounds are not ordered).
    A line that misses the interior makes the condition constant on interior, edges and corner; a line that meets it makes
    conditions equal only if the half-planes are.
    """
    corner = lower + upper + constant
    # Directions of the edges: (0, 1) along x = 1 and (1, 1) along y = x, or (1, 0) along y = 1; the interior lies between them.
    edges = (upper, lower + upper if ordered else lower)
    values = [corner, *edges]
    if all(value >= 0 for value in values) or all(value <= 0 for value in values):
        inside = any(value > 0 for value in values)
        if not inside:
            return _Cells(None, None, always=False)
        on_first, on_second = corner > 0 or edges[0] > 0, corner > 0 or edges[1] > 0
        return _classify_truths("region", (inside, on_first, on_second, corner > 0))
    return _Cells(("line", _direction((("C_L", lower), ("C_U", upper), ("MSS/Rm", constant)))), None, always=None)


def _direction(terms: Sequence[tuple[str, Fraction]]) -> tuple[tuple[str, Fraction], ...]:
    scale = next(abs(value) for _, value in terms if value != 0)
    return tuple((name, value / scale) for name, value in terms if value != 0)


def _rate_key(terms: Terms) -> object:
    """Return the class key of max(rate, MSS/Rm): all rates that never exceed MSS/Rm are equal."""
    coefficients = dict(terms)
    constant = coefficients.get("MSS/Rm", Fraction(0))
    others = {name: value for name, value in coefficients.items() if name != "MSS/Rm"}
    if all(value <= 0 for value in others.values()) and constant <= 1 and set(others) <= {"C_L", "C_L_lambda", "q_U/Rm"}:
        largest = constant + sum(value for name, value in others.items() if name != "q_U/Rm")
        if largest <= 1:
            return "MSS/Rm"
    return terms
