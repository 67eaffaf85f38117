"""What commands print: strict JSON or a table. The only place in the library that writes to stdout for them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from numbers import Rational, Real
from os import PathLike, fspath
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
"""The ``--json`` option that every command has: ``json: JsonOption = False``."""

_PIPE_WIDTH = 200  # columns of a table that goes into a file or pipe, where no terminal says how wide it is


def to_plain(value: Any) -> Any:
    """Turn a value into what strict JSON can hold.

    Arrays become lists, records dictionaries; infinities become the text ``"inf"`` or ``"-inf"``, which ccenv's readers accept
    where infinity is allowed; not-a-number becomes null.

    Raises:
        TypeError: for anything else.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    for plain in ("tolist", "model_dump"):  # of arrays and models, whose packages most commands need not import
        if hasattr(value, plain):
            return to_plain(getattr(value, plain)())
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Iterable):
        return [to_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def print_json(value: Any) -> None:
    """Print one JSON document without NaN or Infinity."""
    print_text(json.dumps(to_plain(value), indent=2, allow_nan=False, ensure_ascii=False))


def print_text(text: str) -> None:
    """Print text as it is, at once: also where a signal ends the command, what is done has been said."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers are aligned on the right and given four digits."""
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
