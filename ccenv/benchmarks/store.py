"""The folder of a benchmark run: a manifest, and finished cells as JSON lines.

A line truncated by a crash is dropped and its cell runs again, so that a resumed run ends with the same file as an uninterrupted
one.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError
from ccenv.base.files import Format
from ccenv.base.foreign import parse_json, read_bounded
from ccenv.base.store import MAX_BYTES, Journal, ResultFolder
from ccenv.benchmarks.results import PARQUET
from ccenv.benchmarks.suite.base import SuiteBase

MANIFEST, CELLS = "manifest.json", "cells.jsonl"
FORMAT = Format(
    "ccenv-bench", 1, "a manifest of a benchmark run", "format_version", older="--fresh runs it again", ensure_ascii=False
)


def open_run(path: FilePath, suite: SuiteBase, fresh: bool = False) -> ResultFolder:
    """Return the folder of a suite's results, for ``with``; see :class:`ResultFolder`."""
    key = {"suite.name": suite.name, "suite.version": suite.version, "suite_sha256": suite.sha256}
    return ResultFolder(path, "a benchmark run", MANIFEST, FORMAT, key, fresh=fresh, owns=(CELLS, PARQUET))


def open_cells(folder: ResultFolder) -> Journal:
    """Return the finished cells. Raises InputError for a damaged file."""
    return folder.journal(CELLS, _is_cell, "a benchmark cell")


def _is_cell(record: Any) -> bool:
    return isinstance(record, dict) and isinstance(record.get("key"), str) and isinstance(record.get("metrics"), dict)


def parse_cells(content: bytes, where: FilePath) -> list[dict[str, Any]]:
    """Parse lines of cells. Raises InputError with file and line."""
    records = []
    for number, line in enumerate(content.splitlines(), start=1):
        record = parse_json(line, f"{where}, line {number}")
        if not _is_cell(record):
            raise InputError(f"{where}, line {number}: not a benchmark cell")
        records.append(record)
    return records


def load_cells(folder: FilePath) -> list[dict[str, Any]]:
    """Return the cells of a run folder. Raises InputError as ``parse_cells``, and if the file cannot be read or is too long."""
    return parse_cells(read_bounded(folder / CELLS, MAX_BYTES), folder / CELLS)


def read_manifest(folder: FilePath) -> dict[str, Any]:
    """Read the manifest of a run folder. Raises InputError if there is none or it is of another format."""
    return FORMAT.read(folder / MANIFEST)
