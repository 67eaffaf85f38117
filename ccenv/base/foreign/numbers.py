"""Numbers from data: bounded as text before anything is computed from them."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from ccenv.base.errors import InputError, shown

MAX_DIGITS = 40  # of a whole number: 128 bits and a sign
MAX_CHARS = 48  # of a decimal: what Python writes is at most 24
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


def whole_of(text: str, where: str) -> int:
    """Return the whole number in a text. Raises InputError for anything but a sign and at most 40 digits."""
    if not _WHOLE.fullmatch(text):
        raise InputError(f"{where}: number {shown(text, 32)} is not allowed: at most {MAX_DIGITS} digits and a sign")
    return int(text)


def float_of(text: str, where: str) -> float:
    """Return the number in a text. Raises InputError if it is too long, no decimal, or beyond what a float can hold."""
    number = float(text) if len(text) <= MAX_CHARS and _DECIMAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{where}: number {shown(text, 32)} is not allowed: at most {MAX_CHARS} characters, below 1.8e308 in size"
        )
    return number


def fraction_of(value: Any, where: str) -> Fraction:
    """Return a number given as such or as text, ``"27/40"`` or ``"0.675"``, exactly.

    Raises:
        InputError: if it is no number, has more than 40 digits on a side of ``/``, or a float could not hold it. Without these
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
