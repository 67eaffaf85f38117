"""Numbers from data: bounded as text before anything is computed from them."""

from __future__ import annotations

import math
import re
from typing import Any

from ccenv.errors import InputError
from ccenv.foreign.names import shown

MAX_DIGITS = 40  # of a whole number: 128 bits and a sign
MAX_CHARS = 48  # of a decimal: what Python writes is at most 24
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


def whole_of(text: str, where: str) -> int:
    """Return the whole number that a text is. Raises InputError for anything but a sign and at most 40 digits."""
    if not _WHOLE.fullmatch(text):
        raise InputError(f"{where}: number {shown(text, 32)} is not allowed: whole numbers have at most {MAX_DIGITS} digits")
    return int(text)


def float_of(text: str, where: str) -> float:
    """Return the number that a text is. Raises InputError if it is too long, no decimal, or beyond what a float can hold."""
    number = float(text) if len(text) <= MAX_CHARS and _DECIMAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{where}: number {shown(text, 32)} is not allowed: at most {MAX_CHARS} characters, below 1.8e308 in size"
        )
    return number


def is_finite(value: Any) -> bool:
    """Tell whether a value is an int or float that a finite float can hold; a bool is not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value.bit_length() <= 1023 if isinstance(value, int) else math.isfinite(value)
