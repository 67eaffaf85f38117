"""Traces by name: files, and those that ccenv ships. What was read once is kept, so that all runs of a process share it."""

from __future__ import annotations

import json
import os
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import UnknownNameError, did_you_mean, shown
from ccenv.base.files import write_atomic
from ccenv.base.foreign import resolve_inside
from ccenv.network.links.reading import FORMAT, VERSION, read_trace
from ccenv.network.links.table import ROW_DELAY_S, ROW_TIME_S, ROW_VALUE, LinkTrace

SHIPPED = "ccenv.network.links.shipped"
MAX_KEPT = 64

_kept: dict[tuple[str, int, int], LinkTrace] = {}


def shipped_traces() -> dict[str, FilePath]:
    """Return the files of the traces that ccenv ships, by name."""
    folder = FilePath(str(resources.files(SHIPPED)))
    return {file.stem: file for file in sorted(folder.glob("*.json"))}


def trace_file(name: str) -> FilePath:
    """Return the file of a trace: shipped, or in or below the folder in which the command runs.

    Raises:
        InputError: for a file elsewhere.
        UnknownNameError: for neither.
    """
    shipped = shipped_traces()
    if name in shipped:
        return shipped[name]
    file = resolve_inside(FilePath(), name, "trace")
    if not file.is_file():
        raise UnknownNameError(
            f"no trace {shown(name)}: neither a file nor one of {', '.join(shipped)}.{did_you_mean(name, shipped)}"
        )
    return file


def load_trace(name: str) -> LinkTrace:
    """Return a trace by name.

    Args:
        name: of a shipped one, or of a file in or below the folder in which the command runs.

    Raises:
        InputError: as ``read_trace``; UnknownNameError where there is none.
    """
    file = trace_file(name)
    found = os.stat(file)
    key = (str(file.resolve()), found.st_mtime_ns, found.st_size)
    if key not in _kept:
        while len(_kept) >= MAX_KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = read_trace(file).trace
    return _kept[key]


def save_trace(path: str | os.PathLike[str], trace: LinkTrace, notes: str = "") -> None:
    """Write a trace as JSON; reading it gives the same numbers.

    Args:
        path: the file.
        trace: it.
        notes: what it is.
    """
    value = "rate_Bps" if trace.kind == "rate" else "bytes"
    chosen = [ROW_TIME_S, ROW_VALUE, *([ROW_DELAY_S] if trace.has_delays else [])]
    data: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "notes": notes,
        "columns": ["time_s", value, *(["delay_s"] if trace.has_delays else [])],
        "length_s": trace.length_s,
    }
    head = json.dumps(data, indent=1)[:-2]
    rows = ",\n".join(json.dumps(row) for row in trace.rows[:, chosen].tolist())
    write_atomic(path, f'{head},\n "rows": [\n{rows}\n]}}\n'.encode())
