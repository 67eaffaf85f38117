"""Arguments, options and settings that commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from ccenv.base.units import MBPS, SECONDS, SECONDS_OF_MS, Units, quantity

Completion = Callable[[str], list[str]]


def choices(*allowed: str) -> Completion:
    return lambda incomplete: [word for word in allowed if word.startswith(incomplete)]


def argument(metavar: str, help: str, completion: Completion | None = None) -> Any:
    return typer.Argument(metavar=metavar, help=help, autocompletion=completion)


def option(help: str, completion: Completion | None = None, metavar: str | None = None) -> Any:
    return typer.Option(metavar=metavar, help=help, autocompletion=completion)


def quantity_option(option: str, units: Units, help: str, *older: str) -> Any:
    """Return an option whose value has a unit; ``older`` are former names, whose plain numbers mean the same."""

    def parse(text: str) -> float:
        return quantity(option, text, units)

    return typer.Option(option, *older, parser=parse, metavar=f"NUMBER[{'|'.join(units.factors)}]", help=help)


def out_option(help: str, metavar: str = "PATH") -> Any:
    """Return the option for the output file or folder of a command."""
    return typer.Option("--out", "-o", metavar=metavar, help=help)


def fresh_option(help: str) -> Any:
    """Return the option that ignores and replaces stored results."""
    return typer.Option("--fresh", help=help)


def seconds_option(option: str, help: str) -> Any:
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


SettingsOption = Annotated[
    list[str] | None,
    typer.Option("-s", "--set", metavar="KEY=VALUE|FILE.yaml", help="A setting, see: ccenv show settings COMMAND. Repeatable."),
]
JobsOption = Annotated[int, typer.Option("--jobs", help="Parallel workers; they change the time, not the answer.")]
ProcessesOption = Annotated[int | None, typer.Option("--jobs", help="Parallel workers; one per core by default.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
"""The option that every command has: ``json: JsonOption = False``."""


def settings(command: str, texts: Sequence[str] | None) -> dict[str, Any]:
    """Return the settings of a command that hold: those of ``-s``, the others by default.

    Raises InputError for an unknown key, with near ones and the list; one given twice; a value that is not allowed.
    """
    return settings_and_others(command, texts, ())[0]


def settings_and_others(
    command: str, texts: Sequence[str] | None, others: Sequence[str] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a command that hold, and what ``-s`` gave for ``others``, the keys of a file or constants."""
    from ccenv.cli.settings import read  # models, which most commands need not import

    return read(command, texts or (), others)
