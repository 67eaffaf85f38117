"""Output of commands to stdout (strict JSON, text or a table), and progress on stderr.

Progress is a bar on a terminal, and otherwise an occasional line. No other module writes to stdout for a command.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Rational, Real
from typing import Any

from ccenv.base.files import plain
from ccenv.base.kernels.announce import spent_s

_PIPE_WIDTH = 200  # columns of a table without a terminal


def print_json(value: Any) -> None:
    """Print one JSON document without NaN or Infinity."""
    print_text(json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False))


def about_run(scenario: Any, senders: Iterable[str], entry: Callable[..., Any]) -> dict[str, Any]:
    """Return what decided a run: the scenario that held, the senders of ccenv, the code that ``entry`` reaches, versions."""
    from ccenv.agents import make_sender
    from ccenv.agents.identity import sender_hash
    from ccenv.base.provenance import code_hash, machine, versions

    return {
        "scenario": scenario.model_dump(),
        "senders_sha256": {name: sender_hash(make_sender(name)) for name in sorted(set(senders))},
        "code_sha256": code_hash(entry),
        "versions": versions(),
        "machine": machine(),
    }


def print_answer(value: Any, text: str, json: bool) -> None:
    """Print an answer as JSON, or as text."""
    if json:
        print_json(value)
    else:
        print_text(text)


def line_printer(json: bool) -> Callable[[str], None]:
    """Return a function that prints a line of progress, or none beside JSON."""
    return (lambda line: None) if json else lambda line: print_text(f"  {line}")


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
