"""Quantities as people write them: ``50mbps``, ``40ms``, ``1.5bdp``, ``20Msteps``. Inside ccenv all is in bytes and seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ccenv.errors import InputError, did_you_mean, shown
from ccenv.foreign.numbers import float_of

_QUANTITY = re.compile(r"\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?|inf)\s*([A-Za-z/]*)\s*", re.ASCII)

RATES: Mapping[str, float] = {"bps": 0.125, "kbps": 125.0, "mbps": 125e3, "gbps": 125e6}
"""Unit of a rate -> bytes/s; ``Mbit/s`` is read as ``mbps``."""
TIMES: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
"""Unit of a time -> seconds."""


def rate_Bps(value: str | float, what: str = "rate") -> float:
    """Return a rate in bytes/s; a plain number is in Mbit/s. Raises InputError unless it is finite and above 0."""
    return _positive(value, {**RATES, "": RATES["mbps"]}, what, "50mbps")


def time_s(value: str | float, what: str = "time", *, plain: str = "s") -> float:
    """Return a time in seconds; a plain number is in the unit ``plain``. Raises InputError unless it is finite and above 0."""
    return _positive(value, {**TIMES, "": TIMES[plain]}, what, "40ms")


def buffer_bytes(value: str | float, bdp_bytes: float, mss_bytes: float, what: str = "buffer") -> float:
    """Return a buffer in bytes; a plain number is in bandwidth-delay products. Raises InputError unless it is above 0."""
    units = {"bdp": bdp_bytes, "": bdp_bytes, "packets": mss_bytes, "b": 1.0, "kb": 1e3, "mb": 1e6}
    return _positive(value, units, what, "1bdp", infinite=True)


def _positive(value: str | float, units: Mapping[str, float], what: str, example: str, infinite: bool = False) -> float:
    number, unit = _parts(value, what, example)
    if unit not in units:
        known = [name for name in units if name]
        raise InputError(f"{what} {shown(value)}: unknown unit {shown(unit)}.{did_you_mean(unit, known)}")
    if not number > 0 or (math.isinf(number) and not infinite):
        raise InputError(f"{what} is {shown(value)}; it must be above 0{'' if infinite else ' and finite'}, such as {example}")
    return number * units[unit]


def _parts(value: str | float, what: str, example: str) -> tuple[float, str]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value), ""
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InputError(f"{what} is {shown(value)}; a number with a unit is needed, such as {example}")
    number = math.inf if found[1] == "inf" else float_of(found[1], what)
    return number, found[2].lower().replace("bit/s", "bps").replace("byte", "b").removesuffix("bytes")
