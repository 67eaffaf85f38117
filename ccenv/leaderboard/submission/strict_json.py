"""JSON from strangers: bytes, depth and numbers are bounded before anything is built from them."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from ccenv.errors import InputError
from ccenv.files import parse_json

# A decimal as people write it: no exponent, at most nine digits on either side, eighteen for whole numbers.
DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?", re.ASCII)
WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})", re.ASCII)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")


def parse_strictly(content: bytes, where: str, *, max_bytes: int, max_depth: int) -> Any:
    """Parse a JSON document.

    Args:
        content: the document.
        where: its name for messages.
        max_bytes: its largest length.
        max_depth: how many objects and lists may be nested.

    Raises:
        InputError: for anything else: too long, too deep, not UTF-8, a key twice, NaN or Infinity, exponents, numbers of too
            many digits.
    """
    if len(content) > max_bytes:
        raise InputError(f"{where}: longer than {max_bytes} bytes")
    depth = depth_of(content)
    if depth > max_depth:
        raise InputError(f"{where}: {depth} levels of nesting; at most {max_depth} are allowed")
    _check_numbers(content, where)
    return parse_json(content, where)


def depth_of(content: bytes) -> int:
    """Return how deeply objects and lists are nested, without parsing: brackets outside strings are counted."""
    depth = deepest = 0
    for bracket in _BRACKETS.finditer(_STRING.sub(b"", content)):
        depth += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _check_numbers(content: bytes, where: str) -> None:
    """Refuse numbers by their text, before Python makes numbers of them; what is no JSON is parse_json's to refuse."""

    def refuse(text: str) -> NoReturn:
        shown = text if len(text) <= 24 else text[:21] + "..."
        raise InputError(
            f"{where}: number {shown} is not allowed: no exponent, at most 18 digits, as decimal at most 9 on either side"
        )

    def whole(text: str) -> int:
        return 0 if WHOLE.fullmatch(text) else refuse(text)

    def decimal(text: str) -> float:
        return 0.0 if DECIMAL.fullmatch(text) else refuse(text)

    try:
        json.loads(content, parse_int=whole, parse_float=decimal)
    except (ValueError, RecursionError):
        return
