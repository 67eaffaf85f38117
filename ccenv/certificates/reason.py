"""Is a conjunction of linear formulas possible? Decided exactly here, by cases and elimination; no solver is trusted.

Used for the composition of a theorem: its implications have a dozen numbers and a dozen facts.
"""

from __future__ import annotations

import math

from ccenv.certificates.claims import Read, Sum
from ccenv.errors import InputError

MAX_STEPS = 200_000
MAX_ROWS = 4_000
Bound = tuple[Sum, bool]  # a sum that is at most (True: below) 0


def follows(facts: list[Read], goal: Read) -> bool:
    """Return whether a goal follows from facts about real numbers.

    Raises:
        InputError: where the cases are too many to be decided here.
    """
    return not _possible([*facts, ("not", goal)], [], [0])


def _possible(open_parts: list[Read], known: list[Bound], steps: list[int]) -> bool:
    """Return whether all parts and all known bounds can hold together."""
    choices: list[list[Read]] = []
    todo = list(open_parts)
    known = list(known)
    while todo:
        part = _inwards(todo.pop())
        if part[0] == "cmp":
            known.append((part[1], part[2]))
        elif part[0] == "all":
            todo += part[1]
        else:
            choices.append(list(part[1]))
    steps[0] += 1
    if steps[0] > MAX_STEPS:
        raise InputError("a composition has too many cases to be decided by elimination")
    if not _feasible(known):
        return False
    kept = []
    for choice in choices:
        live = [part for part in choice if _alone(part, known)]
        if not live:
            return False
        kept.append(live)
    if not kept:
        return True
    kept.sort(key=len)
    rest: list[Read] = [("any", tuple(choice)) for choice in kept[1:]]
    return any(_possible([part, *rest], known, steps) for part in kept[0])


def _alone(part: Read, known: list[Bound]) -> bool:
    """Return whether one alternative agrees with the known bounds, as far as its plain comparisons tell."""
    bounds, todo = list(known), [part]
    while todo:
        piece = _inwards(todo.pop())
        if piece[0] == "cmp":
            bounds.append((piece[1], piece[2]))
        elif piece[0] == "all":
            todo += piece[1]
    return _feasible(bounds)


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


Row = tuple[tuple[tuple[str, int], ...], int]  # coprime whole coefficients, and the constant


def _feasible(bounds: list[Bound]) -> bool:
    """Return whether linear bounds have a common solution: variables are eliminated one by one (Fourier, Motzkin)."""
    rows: dict[Row, bool] = {}
    for total, strict in bounds:
        scale = math.lcm(*(value.denominator for value in total.values()))
        _note(rows, {name: int(value * scale) for name, value in total.items() if name}, int(total.get("", 0) * scale), strict)
    while True:
        if any(not terms and (constant > 0 or (strict and constant == 0)) for (terms, constant), strict in rows.items()):
            return False
        signs: dict[str, list[int]] = {}
        for terms, _ in rows:
            for name, value in terms:
                signs.setdefault(name, [0, 0])[value > 0] += 1
        if not signs:
            return True
        rows = _without(min(signs, key=lambda name: (signs[name][0] * signs[name][1], name)), rows)
        if len(rows) > MAX_ROWS:
            raise InputError("a composition is too large to be decided by elimination")


def _note(rows: dict[Row, bool], terms: dict[str, int], constant: int, strict: bool) -> None:
    """Add terms + constant <= 0 (or < 0) to the rows, unless it says nothing."""
    kept = tuple(sorted((name, value) for name, value in terms.items() if value))
    if not kept and (constant < 0 or (constant == 0 and not strict)):
        return
    divisor = math.gcd(constant, *(value for _, value in kept)) or 1
    row = (tuple((name, value // divisor) for name, value in kept), constant // divisor)
    rows[row] = rows.get(row, False) or strict


def _without(name: str, rows: dict[Row, bool]) -> dict[Row, bool]:
    above, under = [], []
    kept: dict[Row, bool] = {}
    for row, strict in rows.items():
        terms = dict(row[0])
        factor = terms.pop(name, 0)
        if factor == 0:
            kept[row] = strict
        else:
            (above if factor > 0 else under).append((abs(factor), terms, row[1], strict))
    for a, upper, first, open_above in above:
        for b, lower, second, open_under in under:
            total = {one: b * upper.get(one, 0) + a * lower.get(one, 0) for one in {*upper, *lower}}
            _note(kept, total, b * first + a * second, open_above or open_under)
    return kept
