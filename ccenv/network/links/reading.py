"""Link trace files and shipped link traces: formats are detected, errors take one line, memory and time are bounded.

Formats:

- ``mahimahi``: one whole number of milliseconds per line, each an opportunity of 1500 bytes (mm-link(1));
- ``csv``: columns ``time_s`` or ``time_ms`` and one of ``rate_mbps``, ``rate_kbps``, ``rate_Bps``, ``bytes`` (opportunities), and
  perhaps ``delay_ms``; without a header two columns are seconds and Mbit/s;
- ``json``: ``{"format": "ccenv-link-trace", ...}`` as :func:`save_trace` writes it, or a list of ``[seconds, Mbit/s]`` pairs or
  of objects with the names of the columns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.config import data_folder
from ccenv.base.errors import InputError, UnknownNameError, did_you_mean, shown
from ccenv.base.files import write_atomic
from ccenv.base.foreign import open_plain, parse_json, resolve_inside, shown_path
from ccenv.base.foreign.json_text import JsonRules
from ccenv.network.links.table import ROW_DELAY_S, ROW_TIME_S, ROW_VALUE, LinkTrace, of_opportunities, of_rates

FORMAT, VERSION = "ccenv-link-trace", 1
MTU_BYTES = 1500.0  # of an opportunity in a Mahimahi file
MAX_BYTES = 1 << 29
MAX_LINES = 20_000_000
MAX_GAP_S = 60.0  # between two rows
LONGEST_S = 1e6
CHUNK_BYTES = 1 << 24
LONGEST_NUMBER = 32  # characters
JSON_RULES = JsonRules(max_bytes=1 << 26, max_depth=6)

# Column -> what it holds, factor to SI units.
_COLUMNS = {
    **{"time_s": ("time", 1.0), "time_ms": ("time", 1e-3), "rate_mbps": ("rate", 125_000.0), "rate_kbps": ("rate", 125.0)},
    **{"rate_Bps": ("rate", 1.0), "bytes": ("bytes", 1.0), "delay_ms": ("delay", 1e-3), "delay_s": ("delay", 1.0)},
}


@dataclass(frozen=True)
class Imported:
    """A file that was read; ``columns`` as they were understood, ``lines``: the number of rows."""

    trace: LinkTrace
    format: str
    columns: tuple[str, ...]
    lines: int


def read_trace(file: FilePath, max_gap_s: float = MAX_GAP_S) -> Imported:
    """Read a trace file of any of the formats, with at most ``max_gap_s`` between two rows.

    Raises:
        InputError: one line: what is wrong, where, and what is allowed.
    """
    source = shown_path(file)
    if not max_gap_s > 0:
        raise InputError(f"the longest gap is {max_gap_s:g} s; it must be above 0")
    try:
        with BufferedReader(open_plain(file)) as stream:
            size = stream.seek(0, 2)
            if size > MAX_BYTES:
                raise InputError(f"{source}: a trace of {size} bytes; at most {MAX_BYTES} are read")
            stream.seek(0)
            head = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
            stream.seek(0)
            if head[:1] in (b"{", b"["):
                return _parse_json_rows(stream.read(JSON_RULES.max_bytes + 1), source, max_gap_s)
            return _parse_lines(stream, head, source, max_gap_s)
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror})") from None
    except ValueError:  # NUL in the name
        raise InputError(f"{source}: not a name that a file can have") from None


def _parse_lines(stream: Any, head: bytes, where: str, max_gap_s: float) -> Imported:
    first = head.partition(b"\n")[0].strip()
    if not first:
        raise InputError(f"{where}: the trace is empty")
    names = [part.strip().decode("utf-8", "replace") for part in first.split(b",")]
    header = any(not _is_number(name) for name in names)
    if len(names) == 1 and not header:
        numbers, lines = _read_columns(stream, 1, False, where)
        return Imported(_build_mahimahi(numbers[0], where, max_gap_s), "mahimahi", ("time_ms",), lines)
    if not header:
        if len(names) != 2:
            raise InputError(f"{where}: {len(names)} columns without a header; 2 (seconds, Mbit/s) need none")
        names = ["time_s", "rate_mbps"]
    _check_columns(names, where)
    columns, lines = _read_columns(stream, len(names), header, where)
    return Imported(_build_trace(dict(zip(names, columns, strict=True)), None, where, max_gap_s), "csv", tuple(names), lines)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_chunks(stream: Any, where: str) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of complete lines, each with the number of its first line."""
    line, remainder = 1, b""
    while piece := stream.read(CHUNK_BYTES):
        complete, newline, remainder = (remainder + piece).rpartition(b"\n")
        if newline:
            yield line, complete
            line += complete.count(b"\n") + 1
        if len(remainder) > CHUNK_BYTES or line > MAX_LINES:
            raise InputError(f"{where}: more than {MAX_LINES} lines, or a line of more than {CHUNK_BYTES} bytes")
    if remainder.strip():
        yield line, remainder


def _read_columns(stream: Any, width: int, header: bool, where: str) -> tuple[list[np.ndarray], int]:
    parts: list[np.ndarray] = []
    for line, chunk in _read_chunks(stream, where):
        text = chunk.lstrip(b"\xef\xbb\xbf") if line == 1 else chunk
        if header and line == 1:
            text = text.partition(b"\n")[2]
            line += 1  # noqa: PLW2901
        rows = text.split(b"\n")
        words = text.replace(b",", b"\n").split()
        commas = text.count(b",")
        if commas == (width - 1) * len(rows) and len(words) == width * len(rows) and max(map(len, words)) <= LONGEST_NUMBER:
            try:
                values = np.array(words).astype(np.float64)
            except ValueError:
                values = _parse_rows(rows, width, line, where)
        else:
            values = _parse_rows(rows, width, line, where)
        parts.append(values.reshape(-1, width))
    table = np.concatenate(parts) if parts else np.zeros((0, width))
    if not len(table):
        raise InputError(f"{where}: the trace is empty")
    wrong = ~np.isfinite(table).all(axis=1)
    if wrong.any():
        raise InputError(f"{where}: row {int(np.argmax(wrong)) + 1} holds a number that is not finite")
    return [np.ascontiguousarray(column) for column in table.T], len(table)


def _parse_rows(rows: list[bytes], width: int, line: int, where: str) -> np.ndarray:
    """Parse lines one by one, skipping empty ones; errors name the line."""
    numbers: list[list[float]] = []
    for number, row in enumerate(rows, line):
        if not row.strip():
            continue
        cells = row.split(b",")
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            seen = shown(row.strip()[:40].decode("utf-8", "replace"))
            raise InputError(f"{where}: line {number}: a number in each of {width} columns is needed (got {seen})") from None
        if len(cells) != width:
            raise InputError(f"{where}: line {number}: {len(cells)} columns; {width} are needed")
        numbers.append(values)
    return np.array(numbers, np.float64).reshape(-1, width)


def _check_columns(names: Sequence[str], where: str) -> None:
    for name in names:
        if name not in _COLUMNS:
            raise InputError(
                f"{where}: unknown column {shown(name)}; known are {', '.join(_COLUMNS)}.{did_you_mean(name, _COLUMNS)}"
            )
    roles = [_COLUMNS[name][0] for name in names]
    if roles.count("time") != 1 or roles.count("rate") + roles.count("bytes") != 1 or roles.count("delay") > 1:
        raise InputError(
            f"{where}: a time, one of rate and bytes, and at most one delay are needed, not columns {', '.join(names)}"
        )


def _build_trace(columns: dict[str, np.ndarray], length_s: float | None, where: str, max_gap_s: float) -> LinkTrace:
    roles = {_COLUMNS[name][0]: values * _COLUMNS[name][1] for name, values in columns.items()}
    opportunities = "bytes" in roles
    times_s = roles["time"] - (0.0 if opportunities and roles["time"][0] >= 0 else roles["time"][0])
    _check_times(times_s, opportunities, where, max_gap_s)
    if length_s is None:
        steps = np.diff(times_s)
        # The last rate holds for the median time between two rows.
        length_s = float(times_s[-1]) + (float(np.median(steps)) if len(steps) and not opportunities else 0.0)
        if not opportunities and len(times_s) == 1:
            length_s = 1.0
    least_s = float(times_s[-1])
    if not least_s <= length_s <= LONGEST_S or length_s <= 0 or (length_s == least_s and not opportunities):
        raise InputError(
            f"{where}: a length of {length_s:g} s; it must be above the last time, {least_s:g} s, and at most {LONGEST_S:g}"
        )
    if opportunities:
        return of_opportunities(times_s, roles["bytes"], roles.get("delay"), length_s, where)
    return of_rates(times_s, roles["rate"], roles.get("delay"), length_s, where)


def _build_mahimahi(times_ms: np.ndarray, where: str, max_gap_s: float) -> LinkTrace:
    wrong = (times_ms != np.floor(times_ms)) | (times_ms < 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{where}: row {row + 1}: a whole number of milliseconds is needed (got {times_ms[row]:g})")
    times_s = times_ms * 1e-3
    _check_times(times_s, True, where, max_gap_s)
    if not times_s[-1] > 0:
        raise InputError(f"{where}: the last opportunity is at 0 ms; the trace has no length after which it could begin again")
    return of_opportunities(times_s, np.full(len(times_s), MTU_BYTES), None, float(times_s[-1]), where)


def _check_times(times_s: np.ndarray, repeats_allowed: bool, where: str, max_gap_s: float) -> None:
    steps = np.diff(times_s)
    back = steps < 0 if repeats_allowed else steps <= 0
    if back.any():
        row = int(np.argmax(back))
        how = "goes backwards" if steps[row] < 0 else "stands still"
        raise InputError(f"{where}: time {how} in row {row + 2}: {times_s[row + 1]:g} s after {times_s[row]:g} s")
    gaps = np.append(times_s[0], steps)
    if gaps.max() > max_gap_s:
        row = int(np.argmax(gaps))
        raise InputError(
            f"{where}: a gap of {gaps[row]:g} s before row {row + 1}; at most {max_gap_s:g} s are taken as they are (max_gap_s)"
        )
    if times_s[-1] > LONGEST_S:
        raise InputError(f"{where}: a trace of {times_s[-1]:g} s; at most {LONGEST_S:g} are read")


def _parse_json_rows(content: bytes, where: str, max_gap_s: float) -> Imported:
    if len(content) > JSON_RULES.max_bytes:
        raise InputError(f"{where}: JSON of more than {JSON_RULES.max_bytes} bytes; write it as CSV")
    data = parse_json(content, where, JSON_RULES)
    length_s: float | None = None
    if isinstance(data, dict):
        unknown = [key for key in data if key not in ("format", "version", "columns", "length_s", "rows", "notes")]
        if unknown:
            raise InputError(
                f"{where}: unknown key {shown(unknown[0])}; known are format, version, columns, length_s, rows and notes"
            )
        if data.get("format") != FORMAT or data.get("version") != VERSION:
            raise InputError(f"{where}: format and version must be {FORMAT!r} and {VERSION} (got {shown(data.get('format'))})")
        names, rows = data.get("columns"), data.get("rows")
        if "length_s" in data:
            length_s = _require_number(data["length_s"], "length_s", where)
    else:
        rows = data
        named = bool(rows) and isinstance(rows[0], dict)
        names = list(rows[0]) if named else ["time_s", "rate_mbps"]
        if named:
            rows = [
                [row.get(name) for name in names] if isinstance(row, dict) and set(row) == set(names) else None for row in rows
            ]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}: columns must be a list of names (got {shown(names)})")
    _check_columns(names, where)
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{where}: the trace is empty: rows must be a list of lists")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != len(names):
            raise InputError(f"{where}: row {number} must have {len(names)} numbers: {', '.join(names)}")
        for value in row:
            _require_number(value, f"row {number}", where)
    table = np.array(rows, np.float64)
    columns = {name: np.ascontiguousarray(column) for name, column in zip(names, table.T, strict=True)}
    return Imported(_build_trace(columns, length_s, where, max_gap_s), "json", tuple(names), len(rows))


def _require_number(value: Any, what: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise InputError(f"{where}: {what}: a finite number is needed (got {shown(value)})")
    return float(value)


SHIPPED = "ccenv.network.links.shipped"
MAX_KEPT = 64

_kept: dict[tuple[str, int, int], LinkTrace] = {}


def shipped_traces() -> dict[str, FilePath]:
    return {file.stem: file for file in sorted(data_folder(SHIPPED).glob("*.json"))}


def trace_file(name: str) -> FilePath:
    """Return the file of a trace: shipped, or in or below the working folder. Raises InputError or UnknownNameError."""
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
    """Return a trace by the name of a shipped one or of a file in or below the working folder; files are read once a process.

    Raises:
        InputError: as ``read_trace``; UnknownNameError if there is none.
    """
    file = trace_file(name)
    status = os.stat(file)
    key = (str(file.resolve()), status.st_mtime_ns, status.st_size)
    if key not in _kept:
        while len(_kept) >= MAX_KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = read_trace(file).trace
    return _kept[key]


def save_trace(path: str | os.PathLike[str], trace: LinkTrace, notes: str = "") -> None:
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
