"""Options that several commands share, each under one name, and values with a unit on the command line."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ccenv.errors import InputError, shown

_NUMBER = re.compile(r"\s*(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)\s*([A-Za-z/]*)\s*", re.IGNORECASE)

# What people call an option elsewhere -> what every command of ccenv calls it.
_OTHER_WORDS = {
    "--output": "--out",
    "--restart": "--fresh",
    "--force": "--fresh",
    "--overwrite": "--fresh",
    "--workers": "--jobs",
    "--processes": "--jobs",
    "--duration-s": "--duration",
    "--rate-mbps": "--rate",
    "--link-rate-mbps": "--rate",
}


@dataclass(frozen=True)
class Units:
    """Units of one kind of quantity.

    Attributes:
        factors: unit -> its size in the unit that the command takes.
        plain: unit of a number without one; its factor is 1.
        whole: only whole numbers make sense.
    """

    factors: dict[str, float]
    plain: str
    whole: bool = False


SECONDS = Units({"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}, "s")
MBPS = Units({"kbit/s": 1e-3, "Mbit/s": 1.0, "Gbit/s": 1e3}, "Mbit/s")
STEPS = Units({"steps": 1.0}, "steps", whole=True)


def quantity(option: str, given: str | float, units: Units) -> float:
    """Return a value in the plain unit.

    Args:
        option: for the message, such as ``--budget``.
        given: a number >= 0, with or without a unit: ``"10s"``, ``"500 ms"``, ``"10"``.
        units: what is allowed.

    Returns:
        float: an int where only whole numbers make sense.

    Raises:
        InputError: one line with the option, the value seen and what is allowed.
    """
    match = _NUMBER.fullmatch(str(given))
    unit = (match[2] or units.plain) if match else ""
    if match and unit in units.factors:
        value = float(match[1]) * units.factors[unit]
        if math.isfinite(value) and (not units.whole or value == int(value)):
            return int(value) if units.whole else value
    number = "a whole number" if units.whole else "a number"
    raise InputError(
        f"{option} is {shown(str(given))}; allowed: {number} of at least 0 with a unit of {', '.join(units.factors)}; "
        f"without a unit it is in {units.plain}"
    )


def quantity_option(option: str, units: Units, help: str) -> Any:
    """Return an option whose value has a unit."""

    def parse(given: str) -> float:
        return quantity(option, given, units)

    return typer.Option(option, parser=parse, metavar=f"NUMBER[{'|'.join(units.factors)}]", help=help)


def out_option(help: str, metavar: str = "PATH") -> Any:
    """Return the option for the file or folder that a command writes."""
    return typer.Option("--out", "-o", metavar=metavar, help=help)


def fresh_option(help: str) -> Any:
    """Return the option that ignores and replaces what is stored."""
    return typer.Option("--fresh", help=help)


def seconds_option(option: str, help: str) -> Any:
    """Return an option for a time."""
    return quantity_option(option, SECONDS, help)


def rate_option(help: str) -> Any:
    """Return the option for the rate of a link, in Mbit/s."""
    return quantity_option("--rate", MBPS, help)


JobsOption = Annotated[int, typer.Option("--jobs", help="Parallel workers; they change the time, not the answer.")]
ProcessesOption = Annotated[int | None, typer.Option("--jobs", help="Parallel workers; one per core by default.")]


def usage_message(error: typer.TyperException) -> str:
    """Return what is wrong with a command line; an option under another word than ccenv's is told its name here."""
    wrong, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    known = _OTHER_WORDS.get(wrong or "")
    if known is not None and context is not None and any(known in parameter.opts for parameter in context.command.params):
        return f"No such option: {wrong}. Did you mean {known!r}?"
    return error.format_message()
