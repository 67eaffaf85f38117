"""Strict reader and writer of belief programs: JSON with a byte cap, no duplicate or unknown keys, no floats, bounded rates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any, TypeVar

from ccenv.agents.programs.printer import expression_text
from ccenv.agents.programs.program import Branch, Expression, Leaf, Program, Rule
from ccenv.base.errors import InputError, MissingFileError, ProgramError, did_you_mean
from ccenv.base.files import Format
from ccenv.base.foreign import NAME_ALLOWED, JsonRules, is_name, parse_json, read_bounded, shown_path

_Built = TypeVar("_Built")

MAX_BYTES = 65_536
MAX_DEPTH = 32  # conditions above a leaf
RULES = JsonRules(max_bytes=MAX_BYTES, max_depth=2 * MAX_DEPTH, max_values=MAX_BYTES, plain_numbers=True)
FORMAT = Format("ccenv-program", 1, "a belief program", rules=RULES, indent=2, ensure_ascii=False)
SHIELD_FORMAT = Format("ccenv-program", 2, "a belief program", rules=RULES, also=(1,), indent=2, ensure_ascii=False)
"""Version 2 adds intervals of rates. Programs without them are written as version 1, so that text and hash stay the same."""

MAX_NODES = 1023  # branches and leaves
MAX_PART = 999_999_999  # of numerator and denominator
MAX_HOLD_RTTS = 64
MAX_PROBE_WINDOW_RTTS = 64
MAX_SOURCE_CHARS = 500

_TOP_KEYS = ("format", "version", "name", "source", "probe_window_rtts", "rule")
_BRANCH_KEYS = ("if", "then", "else")
_LEAF_KEYS = ("rate", "rate_between", "hold_rtts")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,8})(/[1-9][0-9]{0,8}|\.[0-9]{1,9})?", re.ASCII)


def parse_program(data: str | bytes | dict[str, Any], where: str = "program", *, bounded: bool = True) -> Program:
    """Read a belief program.

    Args:
        data: JSON text, or the object it stands for (only dict, str and int inside).
        where: name of the file or object for error messages.
        bounded: refuse rates far above what is known (:func:`check_rates`); False only for stored entries of a
            board.

    Returns:
        Program: with exact rational coefficients.

    Raises:
        ProgramError: one line with the place in the document, the value seen and what is allowed.
    """
    try:
        tree = data if isinstance(data, dict) else parse_json(data, where, RULES)
    except InputError as error:
        raise ProgramError(str(error)) from None
    try:
        program = _read_program(tree)
        if bounded:
            check_rates(program.rule, "rule")
        return program
    except ProgramError as error:
        raise ProgramError(f"{where}: {error}") from None


def load_program(path: FilePath | str) -> Program:
    """Read a belief program from a file. Raises ProgramError as ``parse_program``, and InputError if there is no such file."""
    file = FilePath(path)
    try:
        content = read_bounded(file, MAX_BYTES)
    except MissingFileError:
        raise
    except InputError as error:
        raise ProgramError(str(error)) from None
    return parse_program(content, shown_path(file))


def to_data(program: Program) -> dict[str, Any]:
    """Return the JSON object of a program; ``parse_program`` reads it back to an equal program."""
    out: dict[str, Any] = {**_choose_format(program).head, "name": program.name}
    if program.source:
        out["source"] = program.source
    if program.probe_window_rtts != 1:
        out["probe_window_rtts"] = program.probe_window_rtts
    out["rule"] = _rule_data(program.rule)
    return out


def to_json(program: Program) -> str:
    """Return the canonical JSON text of a program, ending with a newline."""
    return _choose_format(program).content(to_data(program)).decode()


def _choose_format(program: Program) -> Format:
    return SHIELD_FORMAT if program.is_shield else FORMAT


def _read_program(tree: Any) -> Program:
    if not isinstance(tree, dict):
        raise ProgramError(f"expected a JSON object, got {_type_name(tree)}")
    if "format" in tree and "version" in tree:  # a later version may have other keys
        try:
            SHIELD_FORMAT.check(tree, "top level")
        except InputError as error:
            raise ProgramError(str(error)) from None
    _check_keys(tree, _TOP_KEYS, required=("format", "version", "name", "rule"), place="top level")
    name = tree["name"]
    if not is_name(name):
        raise ProgramError(f"name is {_show(name)}; allowed: {NAME_ALLOWED}")
    source = tree.get("source", "")
    if not isinstance(source, str) or len(source) > MAX_SOURCE_CHARS or not (source == "" or source.isprintable()):
        raise ProgramError(f"source is {_show(source)}; it must be one line of at most {MAX_SOURCE_CHARS} printable characters")
    window = _integer(tree.get("probe_window_rtts", 1), MAX_PROBE_WINDOW_RTTS, "probe_window_rtts")
    program = Program(name, _read_rule(tree["rule"], "rule", 0), source, window)
    if program.is_shield and tree["version"] == FORMAT.version:
        raise ProgramError("a leaf has 'rate_between', which version 1 does not know; write \"version\": 2")
    count = sum(1 for _ in program.rules())
    if count > MAX_NODES:
        raise ProgramError(f"{count} branches and leaves; at most {MAX_NODES} are allowed")
    return program


def _read_rule(tree: Any, place: str, depth: int) -> Rule:
    if not isinstance(tree, dict):
        raise ProgramError(f"{place}: expected an object with 'if' or with 'rate', got {_type_name(tree)}")
    if depth > MAX_DEPTH:
        raise ProgramError(f"{place}: more than {MAX_DEPTH} nested conditions")
    if "rate" in tree or "rate_between" in tree:
        return _read_leaf(tree, place)
    _check_keys(tree, _BRANCH_KEYS, required=_BRANCH_KEYS, place=place, hint=_LEAF_KEYS)
    condition: Any = tree["if"]
    if not isinstance(condition, str):
        condition = _read_expression(condition, f"{place}.if")
    then = _read_rule(tree["then"], f"{place}.then", depth + 1)
    otherwise = _read_rule(tree["else"], f"{place}.else", depth + 1)
    return _locate_error(f"{place}.if", lambda: Branch(condition, then, otherwise))


def _read_leaf(tree: dict[str, Any], place: str) -> Leaf:
    _check_keys(tree, _LEAF_KEYS, required=(), place=place)
    hold = _integer(tree.get("hold_rtts", 1), MAX_HOLD_RTTS, f"{place}.hold_rtts")
    if "rate_between" not in tree:
        rate = _read_expression(tree["rate"], f"{place}.rate")
        return _locate_error(place, lambda: Leaf(rate, hold))
    if "rate" in tree:
        raise ProgramError(f"{place}: a leaf has either 'rate' or 'rate_between', not both")
    ends = tree["rate_between"]
    if not isinstance(ends, list) or len(ends) != 2:
        count = f"a list of {len(ends)}" if isinstance(ends, list) else _type_name(ends)
        raise ProgramError(f"{place}.rate_between: expected a list of two expressions, lower end and upper end, got {count}")
    lo, hi = (_read_expression(end, f"{place}.rate_between.{end_name}") for end, end_name in zip(ends, ("lo", "hi"), strict=True))
    return _locate_error(f"{place}.rate_between", lambda: Leaf(lo, hold, hi))


def _read_expression(tree: Any, place: str) -> Expression:
    if not isinstance(tree, dict):
        raise ProgramError(f"{place}: expected an object of inputs and coefficients, got {_type_name(tree)}")
    terms = tuple((str(name), _read_coefficient(value, f"{place}.{_plain(name)}")) for name, value in tree.items())
    return _locate_error(place, lambda: Expression(terms))


def _read_coefficient(value: Any, place: str) -> Fraction:
    if type(value) is int or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        number = Fraction(value)
    else:
        raise ProgramError(f"{place} is {_show(value)}; write an integer or a text such as '3/2' or '1.25', without exponent")
    if max(abs(number.numerator), number.denominator) > MAX_PART:
        raise ProgramError(f"{place} is {_show(value)}; as a fraction it needs more than {len(str(MAX_PART))} digits")
    return number


def _integer(value: Any, largest: int, place: str) -> int:
    if type(value) is not int or not 1 <= value <= largest:
        raise ProgramError(f"{place} is {_show(value)}; it must be a whole number from 1 to {largest}")
    return value


def _check_keys(
    tree: dict[str, Any], allowed: tuple[str, ...], *, required: tuple[str, ...], place: str, hint: tuple[str, ...] = ()
) -> None:
    for key in tree:
        if key not in allowed:
            raise ProgramError(f"{place}: unknown key {_show(key)}.{did_you_mean(_plain(key), (*allowed, *hint))}")
    for key in required:
        if key not in tree:
            raise ProgramError(f"{place}: key {key!r} is missing")


def _locate_error(place: str, build: Callable[[], _Built]) -> _Built:
    try:
        return build()
    except ProgramError as error:
        raise ProgramError(f"{place}: {error}") from None


def _plain(key: Any) -> str:
    text = str(key)
    return text if len(text) <= 40 else text[:37] + "..."


def _show(value: Any) -> str:
    return ascii(_plain(value)) if isinstance(value, str) else _plain(value)


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", int: "a number", type(None): "null"}
    return names.get(type(value), type(value).__name__)


def _rule_data(rule: Rule) -> dict[str, Any]:
    if isinstance(rule, Leaf):
        ends = [_expression_data(end) for end in rule.ends]
        leaf: dict[str, Any] = {"rate": ends[0]} if rule.most is None else {"rate_between": ends}
        if rule.hold_rtts != 1:
            leaf["hold_rtts"] = rule.hold_rtts
        return leaf
    condition = rule.condition if isinstance(rule.condition, str) else _expression_data(rule.condition)
    return {"if": condition, "then": _rule_data(rule.then), "else": _rule_data(rule.otherwise)}


def _expression_data(expression: Expression) -> dict[str, int | str]:
    return {name: c.numerator if c.denominator == 1 else str(c) for name, c in expression.terms}


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
    """Check that rates stay near what is known while C_U is infinite, that is without an upper bound on the link rate.

    Known are C_L and C_L_lambda, which are proved, and the last rate. A rate above 8 times the larger of the two plus 8 MSS/Rm,
    that also exceeds the last rate by more than 8 MSS/Rm, is more than a probe. For each leaf the check decides exactly, in
    rational numbers, whether beliefs exist that lead to it and to such a rate. Conditions in seconds, bytes and bytes/s count as
    independent.

    Raises ProgramError with the location of a leaf whose rate, or end of an interval, exceeds what is known.
    """
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
