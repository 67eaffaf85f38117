"""Check that a program's rates stay near what is known while C_U is infinite, that is without an upper bound on the link rate.

Known are C_L and C_L_lambda, which are proved, and the last rate. A rate above 8 times the larger of the two plus 8 MSS/Rm,
that also exceeds the last rate by more than 8 MSS/Rm, is more than a probe. For each leaf the check decides exactly, in rational
numbers, whether beliefs exist that lead to it and to such a rate. Conditions in seconds, bytes and bytes/s count as independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ccenv.agents.programs.printer import expression_text
from ccenv.agents.programs.program import Branch, Expression, Leaf, Rule
from ccenv.base.errors import ProgramError

MOST = 8  # times C_L, and segments per Rm
Row = tuple[dict[str, Fraction], bool]
"""Terms, and whether their sum is > 0; else it is >= 0."""
_ALWAYS: list[Row] = [
    *(({name: Fraction(1)}, True) for name in ("MSS/Rm", "Rm", "MSS")),
    *(
        ({more: Fraction(1), less: Fraction(-1)}, False)
        for more, less in (("C_L", "MSS/Rm"), ("rate", "MSS/Rm"), ("qdel_U", "qdel_L"))
    ),
]


def check_rates(rule: Rule, place: str) -> None:
    """Raise ProgramError with the location of a leaf whose rate, or end of an interval, exceeds what is known."""
    for leaf, at, rows in _leaves(rule, place, []):
        for end in leaf.ends:
            if _exceeds(end, rows):
                raise ProgramError(
                    f"{at}: {expression_text(end)} exceeds {MOST} C_L + {MOST} MSS/Rm while there is no upper bound (C_U is "
                    f'infinite); ask first whether there is one, e.g. with the condition {{"C_L": {MOST}, "C_U": -1}}'
                )


def _leaves(rule: Rule, place: str, rows: list[Row]) -> Iterator[tuple[Leaf, str, list[Row]]]:
    """Iterate over the leaves that an infinite C_U can reach, with the conditions that hold there."""
    if isinstance(rule, Leaf):
        yield rule, place, rows
        return
    holds, fails = _outcomes(rule)
    if holds is not None:
        yield from _leaves(rule.then, f"{place}.then", rows + holds)
    if fails is not None:
        yield from _leaves(rule.otherwise, f"{place}.else", rows + fails)


def _outcomes(branch: Branch) -> tuple[list[Row] | None, list[Row] | None]:
    """Return what holds if a condition is true and if it is false; None: it never is."""
    condition = branch.condition
    if isinstance(condition, str):
        return [({condition: Fraction(1)}, True)], [({condition: Fraction(-1)}, False)]
    upper = condition.coefficient("C_U")
    if upper:
        return ([], None) if upper > 0 else (None, [])
    return [(dict(condition.terms), True)], [({name: -value for name, value in condition.terms}, False)]


def _exceeds(end: Expression, rows: list[Row]) -> bool:
    terms = dict(end.terms)
    upper = terms.pop("C_U", Fraction(0))
    if upper < 0:
        return False
    if upper > 0:
        return _possible(_ALWAYS + rows)
    proved, last, segments = (sum(max(terms.get(n, Fraction(0)), Fraction(0)) for n in names) for names in _GROUPS)
    if proved / MOST + last <= 1 and segments <= MOST and terms.get("q_U/Rm", 0) <= 0:
        return False
    above = [({**terms, name: terms.get(name, Fraction(0)) - times}, True) for name, times in _KNOWN]
    for row, _ in above:
        row["MSS/Rm"] = row.get("MSS/Rm", Fraction(0)) - MOST
    return _possible(_ALWAYS + rows + above)


_GROUPS = (("C_L", "C_L_lambda"), ("rate",), ("MSS/Rm",))
_KNOWN = (("C_L", MOST), ("C_L_lambda", MOST), ("rate", 1))


def _possible(rows: list[Row]) -> bool:
    """Tell whether some values >= 0 satisfy all rows: the largest margin of the strict ones is above 0.

    The simplex method with R. Bland's rule, which never cycles.
    """
    names = sorted({name for terms, _ in rows for name in terms})
    distance = len(names) + 1
    # Non-negative expressions: a row's constant, then its coefficients of the variables; the last row is 1 - distance.
    table = [[Fraction(0), *(terms.get(name, Fraction(0)) for name in names), Fraction(-strict)] for terms, strict in rows]
    table.append([Fraction(1), *[Fraction(0)] * len(names), Fraction(-1)])
    goal = [Fraction(0)] * distance + [Fraction(1)]
    free, bound = list(range(1, distance + 1)), list(range(distance + 1, distance + 1 + len(table)))
    while goal[0] == 0 and (rising := [(free[j - 1], j) for j in range(1, distance + 1) if goal[j] > 0]):
        _, j = min(rising)
        _, _, i = min((row[0] / -row[j], bound[i], i) for i, row in enumerate(table) if row[j] < 0)
        free[j - 1], bound[i] = bound[i], free[j - 1]
        pivot = table[i]
        scale = -1 / pivot[j]
        pivot[j] = Fraction(-1)
        table[i] = pivot = [value * scale for value in pivot]
        for row in (goal, *table):
            if row is not pivot and row[j]:
                times, row[j] = row[j], Fraction(0)
                row[:] = [value + times * other for value, other in zip(row, pivot, strict=True)]
    return goal[0] > 0
