"""Strict reader and writer of belief programs: JSON with a byte cap, no duplicate or unknown keys, no floats."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any, TypeVar

from ccenv.agents.programs.program import Branch, Expression, Leaf, Program, Rule
from ccenv.agents.programs.reach import check_rates
from ccenv.base.errors import InputError, MissingFileError, ProgramError, did_you_mean
from ccenv.base.files import Format
from ccenv.base.foreign import NAME_ALLOWED, JsonRules, is_name, parse_json, read_bounded, shown_path

_Built = TypeVar("_Built")

MAX_BYTES = 65_536
MAX_DEPTH = 32  # conditions above a leaf
RULES = JsonRules(max_bytes=MAX_BYTES, max_depth=2 * MAX_DEPTH, max_values=MAX_BYTES, plain_numbers=True)
FORMAT = Format("ccenv-program", 1, "a belief program", rules=RULES, indent=2, ensure_ascii=False)
CONTRACT_FORMAT = Format("ccenv-program", 2, "a belief program", rules=RULES, also=(1,), indent=2, ensure_ascii=False)
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
        bounded: refuse rates far above what is known (:mod:`ccenv.agents.programs.reach`); False only for stored entries of a
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
    return CONTRACT_FORMAT if program.is_contract else FORMAT


def _read_program(tree: Any) -> Program:
    if not isinstance(tree, dict):
        raise ProgramError(f"expected a JSON object, got {_type_name(tree)}")
    if "format" in tree and "version" in tree:  # a later version may have other keys
        try:
            CONTRACT_FORMAT.check(tree, "top level")
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
    if program.is_contract and tree["version"] == FORMAT.version:
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
