"""Exact satisfiability of linear formulas by case splits and Fourier-Motzkin elimination, without a solver.

For the composition of a theorem, whose implications have a dozen variables and a dozen facts.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, TypeAlias

from ccenv.base.errors import InputError
from ccenv.proofs.certificates.claims import Read

MAX_WORK = 6_000_000  # pairs of rows of all obligations of a theorem: ten times what the largest shipped one takes, some 20 s
MAX_ROWS = 4_000
Terms: TypeAlias = tuple[tuple[str, int], ...]  # coprime whole coefficients
Rows: TypeAlias = dict[Terms, tuple[Fraction, bool]]
"""Terms -> (constant, strict): terms + constant is at most 0, or below 0. Of several the tightest."""


class Work:
    """The budget of elimination for all obligations of a theorem together."""

    def __init__(self) -> None:
        self._left = MAX_WORK

    def spend(self, pairs: int) -> None:
        """Count pairs of rows. Raises InputError where the budget is spent."""
        self._left -= pairs
        if self._left < 0:
            raise InputError("composition: it has too many cases to be decided by elimination")


def follows(facts: list[Read], goal: Read, work: Work | None = None) -> bool:
    """Return whether a goal follows from facts about real numbers. Raises InputError where the budget is spent."""
    return not _Search(work or Work()).possible([*facts, ("not", goal)], [], {})


class _Search:
    """One search by cases; results of elimination are cached."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._known: dict[frozenset[Any], bool] = {}

    def possible(self, parts: list[Read], choices: list[list[Read]], rows: Rows) -> bool:
        """Return whether all parts, one of each choice, and all rows can hold together."""
        rows = dict(rows)
        while True:
            choices = [*choices, *_spread(parts, rows)]
            if not self._feasible(rows):
                return False
            choices = [[part for part in choice if self._alone(part, rows)] for choice in choices]
            if not all(choices):
                return False
            parts = [choice[0] for choice in choices if len(choice) == 1]
            choices = [choice for choice in choices if len(choice) > 1 and not any(self._certain(part, rows) for part in choice)]
            if not parts:
                break
        if not choices:
            return True
        first = min(choices, key=len)
        rest = [choice for choice in choices if choice is not first]
        return any(
            self.possible([part, *(("not", other) for other in first[:place])], rest, rows) for place, part in enumerate(first)
        )

    def _alone(self, part: Read, rows: Rows) -> bool:
        """Return whether the plain comparisons of one alternative are consistent with the rows."""
        with_it = dict(rows)
        _spread([part], with_it)
        return self._feasible(with_it)

    def _certain(self, part: Read, rows: Rows) -> bool:
        """Return whether a plain comparison follows from the rows, so that a choice with it is void."""
        return _inwards(part)[0] == "cmp" and not self._alone(("not", part), rows)

    def _feasible(self, rows: Rows) -> bool:
        key = frozenset(rows.items())
        self._work.spend(1 + len(rows))
        if key not in self._known:
            self._known[key] = _feasible(rows, self._work)
        return self._known[key]


def _spread(parts: list[Read], rows: Rows) -> list[list[Read]]:
    """Add the plain comparisons of a conjunction to the rows; return its disjunctions."""
    choices, todo = [], list(parts)
    while todo:
        part = _inwards(todo.pop())
        if part[0] == "cmp":
            total = part[1]
            scale = math.lcm(*(value.denominator for value in total.values()))
            _note(
                rows, {name: int(value * scale) for name, value in total.items() if name}, int(total.get("", 0) * scale), part[2]
            )
        elif part[0] == "all":
            todo += part[1]
        else:
            choices.append(list(part[1]))
    return choices


def _inwards(part: Read) -> Read:
    """Return a formula without a negation at its top."""
    if part[0] != "not":
        return part
    inner = part[1]
    if inner[0] == "not":
        return _inwards(inner[1])
    if inner[0] == "cmp":
        return ("cmp", {name: -value for name, value in inner[1].items()}, not inner[2])
    return ("any" if inner[0] == "all" else "all", tuple(("not", one) for one in inner[1]))


def _feasible(rows: Rows, work: Work) -> bool:
    """Return whether linear bounds have a common solution: variables are eliminated one by one (Fourier, Motzkin)."""
    while True:
        constant, strict = rows.get((), (Fraction(-1), False))
        if constant > 0 or (strict and constant == 0):
            return False
        signs: dict[str, list[int]] = {}
        for terms in rows:
            for name, value in terms:
                signs.setdefault(name, [0, 0])[value > 0] += 1
        if not signs:
            return True
        name = min(signs, key=lambda one: (signs[one][0] * signs[one][1], one))
        work.spend(signs[name][0] * signs[name][1] + len(rows))
        rows = _without(name, rows)
        if len(rows) > MAX_ROWS:
            raise InputError("composition: it is too large to be decided by elimination")


def _note(rows: Rows, terms: dict[str, int], constant: Fraction | int, strict: bool) -> None:
    """Add terms + constant <= 0 (or < 0) to the rows, unless these are tighter."""
    kept = sorted((name, value) for name, value in terms.items() if value)
    divisor = math.gcd(*(value for _, value in kept)) or 1
    key, bound = tuple((name, value // divisor) for name, value in kept), (Fraction(constant, divisor), strict)
    if key not in rows or rows[key] < bound:
        rows[key] = bound


def _without(name: str, rows: Rows) -> Rows:
    above: list[tuple[int, dict[str, int], Fraction, bool]] = []
    under: list[tuple[int, dict[str, int], Fraction, bool]] = []
    kept: Rows = {}
    for key, (constant, strict) in rows.items():
        terms = dict(key)
        factor = terms.pop(name, 0)
        if factor == 0:
            kept[key] = (constant, strict)
        else:
            (above if factor > 0 else under).append((abs(factor), terms, constant, strict))
    for a, upper, first, open_above in above:
        for b, lower, second, open_under in under:
            total = {one: b * upper.get(one, 0) + a * lower.get(one, 0) for one in {*upper, *lower}}
            _note(kept, total, b * first + a * second, open_above or open_under)
    return kept
