"""Options that several commands share, each under one name, and values with a unit on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ccenv.base.units import MBPS, SECONDS, SECONDS_OF_MS, Units, quantity

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


def choices(*allowed: str) -> Callable[[str], list[str]]:
    """Return a completion with fixed words, for the shell."""
    return lambda incomplete: [word for word in allowed if word.startswith(incomplete)]


def quantity_option(option: str, units: Units, help: str, *older: str) -> Any:
    """Return an option whose value has a unit; ``older`` are its names of before, whose plain numbers mean the same."""

    def parse(given: str) -> float:
        return quantity(option, given, units)

    return typer.Option(option, *older, parser=parse, metavar=f"NUMBER[{'|'.join(units.factors)}]", help=help)


def out_option(help: str, metavar: str = "PATH") -> Any:
    """Return the option for the file or folder that a command writes."""
    return typer.Option("--out", "-o", metavar=metavar, help=help)


def fresh_option(help: str) -> Any:
    """Return the option that ignores and replaces what is stored."""
    return typer.Option("--fresh", help=help)


def seconds_option(option: str, help: str) -> Any:
    """Return an option for a time."""
    return quantity_option(option, SECONDS, help)


def budget_option(help: str) -> Any:
    """Return the option for a budget in engine steps of flows or in seconds (``ccenv.base.units.steps_or_seconds``)."""
    return typer.Option("--budget", metavar="NUMBER[steps|ksteps|Msteps|s|min|h]", help=help)


def buffer_option(help: str) -> Any:
    """Return the option for a buffer, as typed (``ccenv.base.units.buffer_units``); a plain number is in BDP."""
    return typer.Option("--buffer", "--buffer-bdp", metavar="NUMBER[bdp|packets|B|kB|MB]|inf", help=help)


def rtt_option(help: str) -> Any:
    """Return the option for a propagation RTT, in seconds; a plain number is in ms."""
    return quantity_option("--rtt", SECONDS_OF_MS, help, "--rtt-ms")


def jitter_option(help: str) -> Any:
    """Return the option for D, in seconds; a plain number is in ms."""
    return quantity_option("--jitter", SECONDS_OF_MS, help, "--jitter-ms")


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
    commands = getattr(getattr(context, "command", None), "commands", None)
    if context is not None and commands and error.format_message().startswith("No such command"):
        return f"{error.format_message()} There are: {', '.join(f'{context.command_path} {name}' for name in commands)}"
    return error.format_message()
