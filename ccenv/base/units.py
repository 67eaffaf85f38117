"""Quantities with units: ``50mbps``, ``40ms``, ``1.5bdp``, ``20Msteps``."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, field

from ccenv.base.errors import CcenvWarning, InputError, shown

_NUMBER = re.compile(r"\s*(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf)\s*([a-z/]*|%)\s*", re.IGNORECASE | re.ASCII)
_LONGEST = 64  # characters of a quantity


@dataclass(frozen=True)
class Units:
    """Units of a quantity, case-insensitive; ``mbps`` is ``Mbit/s``.

    Attributes:
        factors: unit -> its size in the unit that the caller gets.
        plain: unit of a number without one.
        spellings: further units that are read, such as those of tc and iperf; messages do not list them.
        infinite: ``inf`` is allowed.
        usual: usual range, in the unit that the caller gets; values outside are accepted with a warning.
    """

    factors: dict[str, float]
    plain: str
    spellings: dict[str, float] = field(default_factory=dict)
    whole: bool = False
    infinite: bool = False
    usual: tuple[float, float] = (0.0, math.inf)


_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_TIMES_OF_TC = {"usec": 1e-6, "usecs": 1e-6, "msec": 1e-3, "msecs": 1e-3, "sec": 1.0, "secs": 1.0}
_KIB, _MIB = 1024.0, 1024.0**2  # what k and m of bytes are for tc and iperf
SECONDS = Units(_TIMES, "s", _TIMES_OF_TC)
"""To seconds; a plain number is in seconds."""
SECONDS_OF_MS = Units(_TIMES, "ms", _TIMES_OF_TC, usual=(1e-5, 5.0))
"""To seconds; a plain number is in ms."""
MILLISECONDS = Units({unit: 1e3 * s for unit, s in _TIMES.items()}, "ms", {unit: 1e3 * s for unit, s in _TIMES_OF_TC.items()})
"""To ms."""
MBPS = Units(
    {"bit/s": 1e-6, "kbit/s": 1e-3, "Mbit/s": 1.0, "Gbit/s": 1e3},
    "Mbit/s",
    {"bit": 1e-6, "kbit": 1e-3, "mbit": 1.0, "gbit": 1e3, "k": 1e-3, "m": 1.0, "g": 1e3},
    usual=(0.01, 40_000.0),
)
"""To Mbit/s."""
SHARE = Units({"%": 0.01, "": 1.0}, "")
"""A share of a whole, such as 1% or 0.01."""
STEPS = Units({"steps": 1.0, "ksteps": 1e3, "Msteps": 1e6}, "steps", whole=True)
"""Engine steps of flows."""
_STEPS_OR_TIME = Units({**STEPS.factors, **_TIMES}, "steps")


def buffer_units(bdp_bytes: float, mss_bytes: float) -> Units:
    """Return the units of a buffer, to bytes; a plain number is in bandwidth-delay products."""
    factors = {"bdp": bdp_bytes, "packets": mss_bytes, "B": 1.0, "kB": 1e3, "MB": 1e6}
    spellings = {"packet": mss_bytes, "p": mss_bytes, "k": _KIB, "KiB": _KIB, "m": _MIB, "MiB": _MIB}
    return Units(factors, "bdp", spellings, infinite=True, usual=(0.0, 1e3 * bdp_bytes))


def jitter_units(rtt_s: float) -> Units:
    """Return the units of the longest jitter, to seconds; a plain number is in propagation RTTs."""
    return Units({"rtt": rtt_s, **_TIMES}, "rtt", {"rtts": rtt_s, **_TIMES_OF_TC})


def quantity(what: str, entry: str | float, units: Units) -> float:
    """Return a value in the unit of factor 1; an int if only whole numbers are allowed.

    Args:
        what: name for messages, such as ``--budget``.
        entry: a number >= 0, with or without a unit: ``"10s"``, ``"500 ms"``, ``"10"``, ``10``.
        units: allowed ones.

    Raises:
        InputError: one line with the name, the value seen and what is allowed.
    """
    return _read(what, entry, units, "of at least 0")


def _read(what: str, entry: str | float, units: Units, allowed: str) -> float:
    text = str(entry) if isinstance(entry, (str, int, float)) and not isinstance(entry, bool) else ""
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
    factors = {name.lower(): factor for name, factor in (units.spellings | units.factors).items()}
    unit = (match[2].lower().replace("bps", "bit/s") or units.plain.lower()) if match else ""
    if match and unit in factors:
        value = float(match[1]) * factors[unit]
        if (math.isfinite(value) or (units.infinite and match[1].lower() == "inf")) and (not units.whole or value == int(value)):
            _warn_unusual(what, entry, value, units)
            return int(value) if units.whole else value
    number = "a whole number" if units.whole else "a number"
    plain = f"without a unit it is in {units.plain}" if units.plain else "without a unit it is a share"
    listed = ", ".join(unit for unit in units.factors if unit)
    raise InputError(f"{what} is {shown(entry)}; allowed: {number} {allowed} with a unit of {listed}; {plain}")


def steps_or_seconds(what: str, entry: str | float) -> tuple[int | None, float | None]:
    """Return a budget in engine steps of flows, or in seconds; the other one is None. Raises InputError as :func:`quantity`."""
    match = _NUMBER.fullmatch(entry) if isinstance(entry, str) and len(entry) <= _LONGEST else None
    unit = match[2].lower() if match else ""
    if unit in SECONDS.factors or unit in SECONDS.spellings:
        return None, positive(what, entry, SECONDS)
    steps = STEPS if match and unit in {"", *(name.lower() for name in STEPS.factors)} else _STEPS_OR_TIME
    return int(positive(what, entry, steps)), None


def _warn_unusual(what: str, entry: str | float, value: float, units: Units) -> None:
    low, high = units.usual
    if value and math.isfinite(value) and not low <= value <= high:
        factor = units.factors[units.plain]
        usual = f"at least {low / factor:g}" if value < low else f"at most {high / factor:g}"
        text = f"{what} is {shown(entry)}, {value / factor:g} {units.plain}; {usual} {units.plain} is usual: is the unit right?"
        warnings.warn(text, CcenvWarning, stacklevel=4)


def positive(what: str, entry: str | float, units: Units) -> float:
    """Return a quantity as :func:`quantity` does. Raises InputError also for 0."""
    value = _read(what, entry, units, "above 0")
    if value <= 0:
        raise InputError(f"{what} is {shown(entry)}; it must be above 0")
    return value
