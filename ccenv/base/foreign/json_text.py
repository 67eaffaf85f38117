"""Strict JSON and numbers from text: bytes, nesting, counts and digits are bounded before anything is built or computed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NoReturn

from ccenv.base.errors import InputError, cut, shown

MAX_DIGITS = 40  # of a whole number: 128 bits and a sign
MAX_CHARS = 48  # of a decimal: what Python writes is at most 24
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


def parse_whole(text: str, where: str) -> int:
    """Return the whole number in a text. Raises InputError for anything but a sign and at most 40 digits."""
    if not _WHOLE.fullmatch(text):
        raise InputError(f"{where}: number {shown(text, 32)} is not allowed: at most {MAX_DIGITS} digits and a sign")
    return int(text)


def parse_number(text: str, where: str) -> float:
    """Return the number in a text. Raises InputError if it is too long, no decimal, or beyond what a float can hold."""
    number = float(text) if len(text) <= MAX_CHARS and _DECIMAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{where}: number {shown(text, 32)} is not allowed: at most {MAX_CHARS} characters, below 1.8e308 in size"
        )
    return number


def parse_fraction(value: Any, where: str) -> Fraction:
    """Return a number given as such or as text, ``"27/40"`` or ``"0.675"``, exactly.

    Raises InputError if it is no number, has more than 40 digits on a side of ``/``, or a float could not hold it. Without these
    bounds ``"1e999999999"`` would be computed digit by digit.
    """
    if isinstance(value, str):
        number = None
        over, slash, under = value.partition("/")
        if slash and _WHOLE.fullmatch(over) and _WHOLE.fullmatch(under) and int(under):
            number = Fraction(int(over), int(under))
        elif not slash and len(value) <= MAX_CHARS and _DECIMAL.fullmatch(value) and math.isfinite(float(value)):
            number = Fraction(value)
    elif isinstance(value, Fraction):
        return value
    else:
        number = Fraction(str(value)) if is_finite(value) else None
    if number is None:
        raise InputError(
            f"{where}: {shown(value, 48)} is not a number; allowed are such as 3, 0.5 or 27/40, of at most 40 digits"
        )
    return number


def is_finite(value: Any) -> bool:
    """Tell whether a value is an int or float that a finite float can hold; a bool is not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value.bit_length() <= 1023 if isinstance(value, int) else math.isfinite(value)


# A decimal as people write it: no exponent, at most nine digits on either side, eighteen for whole numbers.
_PLAIN_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?", re.ASCII)
_PLAIN_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})", re.ASCII)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"?')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKETS = re.compile(rb"[\[\]{}]")


@dataclass(frozen=True)
class JsonRules:
    """Bounds of a document."""

    max_bytes: int = 64 << 20
    max_depth: int = 64
    max_values: int = 8_000_000  # objects, lists and members together; bounds the memory
    plain_numbers: bool = False  # no exponents, at most 18 digits, as decimal at most 9 on either side of the point


RULES = JsonRules()
STRANGER = JsonRules(max_bytes=65_536, max_depth=6, max_values=65_536, plain_numbers=True)
"""Rules for leaderboard submissions: only numbers that an exact verifier reads directly."""


def parse_json(content: bytes | str, where: str, rules: JsonRules = RULES) -> Any:
    """Parse a JSON document that messages call ``where``; every float of the result is finite.

    Raises InputError for anything else: too long, too deep, too many values, not UTF-8, half a surrogate pair, a key twice in one
    object, NaN or Infinity, a number of too many digits or beyond what a float can hold.
    """
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if len(raw) > rules.max_bytes:
        raise InputError(f"{where}: longer than {rules.max_bytes} bytes")
    _check_size(raw, where, rules)
    any_numbers = partial(parse_whole, where=where), partial(parse_number, where=where)
    read_integer, read_decimal = _plain_number_readers(where) if rules.plain_numbers else any_numbers

    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a number that JSON allows")

    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in pairs:
            if key in out:
                raise ValueError(f"key {shown(key)} is given twice")
            out[key] = value
        return out

    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start})") from None
    try:
        value = json.loads(
            text, parse_constant=refuse_constant, parse_int=read_integer, parse_float=read_decimal, object_pairs_hook=build_object
        )
        if _SURROGATE.search(raw):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:  # where the caller is already deep
        raise InputError(f"{where}: not valid JSON (nested too deeply)") from None
    except UnicodeEncodeError:
        raise InputError(f"{where}: not valid JSON (a text holds half a surrogate pair)") from None
    except ValueError as error:
        raise InputError(f"{where}: not valid JSON ({error})") from None
    return value


def is_version(value: Any, *known: int) -> bool:
    """Tell whether a format version is one of the known ones; ``true`` and ``1.0`` are not 1."""
    return type(value) is int and value in known


def measure_depth(content: bytes) -> int:
    """Return how deeply objects and lists are nested, without parsing: brackets outside strings are counted."""
    depth = deepest = 0
    for bracket in _BRACKETS.finditer(_outside_strings(content)):
        depth += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _outside_strings(content: bytes) -> bytes:
    return _STRING.sub(b"", _ESCAPE.sub(b"", content))


def _check_size(content: bytes, where: str, rules: JsonRules) -> None:
    opened = content.count(b"[") + content.count(b"{")
    if opened + content.count(b",") <= rules.max_depth:  # strings included, so that short documents cost nothing
        return
    outside = _outside_strings(content)
    values = outside.count(b"[") + outside.count(b"{") + outside.count(b",")
    if values > rules.max_values:
        raise InputError(f"{where}: {values} values; at most {rules.max_values} are allowed")
    depth = measure_depth(outside)
    if depth > rules.max_depth:
        raise InputError(f"{where}: {depth} levels of nesting; at most {rules.max_depth} are allowed")


def _plain_number_readers(where: str) -> tuple[Callable[[str], int], Callable[[str], float]]:
    def refuse(text: str) -> NoReturn:
        allowed = "no exponent, at most 18 digits, as decimal at most 9 on either side"
        raise InputError(f"{where}: number {cut(text, 24)} is not allowed: {allowed}")

    def read_integer(text: str) -> int:
        return int(text) if _PLAIN_WHOLE.fullmatch(text) else refuse(text)

    def read_decimal(text: str) -> float:
        return float(text) if _PLAIN_DECIMAL.fullmatch(text) else refuse(text)

    return read_integer, read_decimal
