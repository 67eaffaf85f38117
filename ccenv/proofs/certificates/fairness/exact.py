"""Exact tools of the checker: bounds of logarithms, polynomials that are positive on an interval, by Fractions alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

Polynomial: TypeAlias = tuple[Fraction, ...]
"""Coefficients, that of the constant first."""

TERMS = 30
DEPTH = 14
"""Halvings after which a polynomial counts as not shown to be positive."""


def log_low_high(value: Fraction) -> tuple[Fraction, Fraction]:
    """Return a lower and an upper bound of ln(value) with twelve digits after the point.

    ln x = k ln 2 + ln m with m in [1, 2), and ln m = -ln(1 - u), u = (m - 1)/m in [0, 1/2): a series of positive terms; ln 2
    likewise, as ln(1/(1 - 1/2)).
    """
    power = 0
    mantissa = value
    while mantissa >= 2:
        mantissa /= 2
        power += 1
    while mantissa < 1:
        mantissa *= 2
        power -= 1
    low, high = _minus_log((mantissa - 1) / mantissa)
    two_low, two_high = _minus_log(Fraction(1, 2))
    if power < 0:
        two_low, two_high = two_high, two_low
    unit = 10**12
    return Fraction(math.floor((low + power * two_low) * unit), unit), Fraction(math.ceil((high + power * two_high) * unit), unit)


def _minus_log(part: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of -ln(1 - part), part in [0, 1/2]."""
    total, power, terms = Fraction(0), part, 4 * TERMS
    for place in range(1, terms + 1):
        total += power / place
        power *= part
    return total, total + power / ((terms + 1) * (1 - part))


def line(left: Fraction, right: Fraction, at_left: Fraction, at_right: Fraction) -> Polynomial:
    """Return the polynomial of the line through two points."""
    steep = (at_right - at_left) / (right - left)
    return (at_left - steep * left, steep)


def plus(*parts: Polynomial) -> Polynomial:
    """Return a sum."""
    longest = max(map(len, parts))
    return tuple(sum((part[place] for part in parts if place < len(part)), Fraction(0)) for place in range(longest))


def times(*parts: Polynomial) -> Polynomial:
    """Return a product."""
    product_so_far: Polynomial = (Fraction(1),)
    for part in parts:
        product = [Fraction(0)] * (len(product_so_far) + len(part) - 1)
        for place, one in enumerate(product_so_far):
            for other_place, other in enumerate(part):
                product[place + other_place] += one * other
        product_so_far = tuple(product)
    return product_so_far


def scaled(factor: Fraction | int, part: Polynomial) -> Polynomial:
    """Return a multiple."""
    return tuple(factor * value for value in part)


def is_positive(part: Polynomial, left: Fraction, right: Fraction, *, strict: bool = True) -> bool:
    """Return whether a polynomial is shown to be above 0 (at least 0, if not strict) on [left, right]: Bernstein coefficients."""
    degree, width = len(part) - 1, right - left
    moved = [Fraction(0)] * (degree + 1)  # coefficients in t, w = left + t width
    for place, value in enumerate(part):
        for power in range(place + 1):
            moved[power] += value * math.comb(place, power) * left ** (place - power) * width**power
    weights = [
        sum((moved[power] * math.comb(place, power) / math.comb(degree, power) for power in range(place + 1)), Fraction(0))
        for place in range(degree + 1)
    ]
    return _all_positive(weights, strict, DEPTH)


def _all_positive(weights: Sequence[Fraction], strict: bool, depth: int) -> bool:
    if all(weight > 0 or (weight == 0 and not strict) for weight in weights):
        return True
    ends = (weights[0], weights[-1])
    if depth == 0 or min(ends) < 0 or (strict and min(ends) == 0):
        return False
    lower, upper = [weights[0]], [weights[-1]]
    row = list(weights)
    while len(row) > 1:
        row = [(one + other) / 2 for one, other in pairwise(row)]
        lower.append(row[0])
        upper.append(row[-1])
    return _all_positive(lower, strict, depth - 1) and _all_positive(upper[::-1], strict, depth - 1)
