"""Options shared by several commands, their output to stdout (strict JSON or a table), and progress on stderr.

Progress is a bar on a terminal, and otherwise an occasional line. No other module writes to stdout for a command.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Rational, Real
from typing import Annotated, Any

import typer

from ccenv.base.files import plain
from ccenv.base.kernels.announce import spent_s
from ccenv.base.units import MBPS, SECONDS, SECONDS_OF_MS, Units, quantity


def choices(*allowed: str) -> Callable[[str], list[str]]:
    """Return a completion with fixed words, for the shell."""
    return lambda incomplete: [word for word in allowed if word.startswith(incomplete)]


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


SettingsOption = Annotated[
    list[str] | None,
    typer.Option("-s", "--set", metavar="KEY=VALUE|FILE.yaml", help="A setting, see: ccenv show settings COMMAND. Repeatable."),
]
JobsOption = Annotated[int, typer.Option("--jobs", help="Parallel workers; they change the time, not the answer.")]
ProcessesOption = Annotated[int | None, typer.Option("--jobs", help="Parallel workers; one per core by default.")]


def settings(command: str, texts: Sequence[str] | None) -> dict[str, Any]:
    """Return the settings of a command that hold: those of ``-s``, the others by default.

    Raises:
        InputError: for an unknown key, with near ones and the list; one given twice; a value that is not allowed.
    """
    return settings_and_others(command, texts, ())[0]


def settings_and_others(
    command: str, texts: Sequence[str] | None, others: Sequence[str] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a command that hold, and what ``-s`` gave for ``others``, the keys of a file or constants."""
    from ccenv.cli.settings import read  # models, which most commands need not import

    return read(command, texts or (), others)


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
"""The ``--json`` option that every command has: ``json: JsonOption = False``."""

_PIPE_WIDTH = 200  # columns of a table without a terminal


def print_json(value: Any) -> None:
    """Print one JSON document without NaN or Infinity."""
    print_text(json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False))


def print_text(text: str) -> None:
    """Print text and flush it, so that it is visible even if a signal ends the command."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers are right-aligned with four digits."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left")
    data = [list(row) for row in rows]
    for index, name in enumerate(columns):
        numbers = bool(data) and all(_is_number(row[index]) or row[index] is None for row in data)
        table.add_column(escape(name), justify="right" if numbers else "left", overflow="fold")
    for row in data:
        table.add_row(*(escape(_cell(value)) for value in row))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    console.print(table)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real) and not isinstance(value, Rational):
        return f"{value:.4g}"
    return str(value)


EVERY_S = 15.0


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes the number of finished and of all items."""
    if not sys.stderr.isatty():
        yield progress_lines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def progress_lines(what: str) -> Callable[[int, int], None]:
    """Return a function that prints a line every EVERY_S seconds; shorter work prints none."""
    begin = last = _working_s()
    first: int | None = None

    def show(done: int, total: int) -> None:
        nonlocal last, first
        first = done if first is None else first
        now = _working_s()
        if now - last < EVERY_S or done >= total:
            return
        last = now
        left_s = (now - begin) / (done - first) * (total - done) if done > first else None
        left = "" if left_s is None else f", about {_format_time(left_s)} left"
        print(f"ccenv: {what}: {done} of {total}{left}", file=sys.stderr, flush=True)

    return show


def _working_s() -> float:
    """Return a clock that stops while kernels are compiled, so that the rate of work excludes it."""
    return time.monotonic() - spent_s()


def _format_time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
