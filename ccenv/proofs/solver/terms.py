"""Formulas over solver terms and over exact numbers alike.

A property written with these functions yields a formula for solver terms and a truth value for Fractions and bools. Comparisons
and sums need no helper: both support the Python operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

Term: TypeAlias = Any
"""A Fraction or int, or a solver term of sort Real."""

Formula: TypeAlias = Any
"""A bool, or a solver term of sort Bool."""


def all_of(parts: Iterable[Formula]) -> Formula:
    terms = [part for part in parts if part is not True]
    if any(part is False for part in terms):
        return False
    if len(terms) < 2:
        return terms[0] if terms else True
    import z3

    return z3.And(terms)


def any_of(parts: Iterable[Formula]) -> Formula:
    terms = [part for part in parts if part is not False]
    if any(part is True for part in terms):
        return True
    if len(terms) < 2:
        return terms[0] if terms else False
    import z3

    return z3.Or(terms)


def negate(part: Formula) -> Formula:
    """Return the negation."""
    if isinstance(part, bool):
        return not part
    import z3

    return z3.Not(part)


def implies(condition: Formula, conclusion: Formula) -> Formula:
    """Return condition => conclusion."""
    return any_of([negate(condition), conclusion])


def same_truth(left: Formula, right: Formula) -> Formula:
    """Return left <=> right."""
    if isinstance(left, bool):
        return right if left else negate(right)
    if isinstance(right, bool):
        return left if right else negate(left)
    return left == right


def choose(condition: Formula, then: Any, otherwise: Any) -> Any:
    if isinstance(condition, bool):
        return then if condition else otherwise
    if then is otherwise:
        return then
    if isinstance(then, bool) or isinstance(otherwise, bool):
        return any_of([all_of([condition, then]), all_of([negate(condition), otherwise])])
    import z3

    return z3.If(condition, real(then), real(otherwise))


def real(value: Term) -> Any:
    """Return a number as a solver constant; terms pass unchanged."""
    import z3

    return z3.RealVal(str(value)) if isinstance(value, (int, Fraction)) else value


def larger(left: Term, right: Term) -> Term:
    return choose(left >= right, left, right)


def smaller(left: Term, right: Term) -> Term:
    return choose(left <= right, left, right)


def count(parts: Sequence[Formula]) -> Term:
    """Return how many parts hold, as a sum of 0 and 1 (the second solvers need counts in arithmetic)."""
    constant = sum(1 for part in parts if part is True)
    open_parts = [part for part in parts if not isinstance(part, bool)]
    if not open_parts:
        return constant
    import z3

    return z3.Sum([z3.If(part, z3.RealVal(1), z3.RealVal(0)) for part in open_parts]) + constant
