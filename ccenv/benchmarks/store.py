"""The folder of a benchmark run: finished cells as JSON lines, a manifest, one writer at a time.

A cell is finished when its whole line is in the file. A line truncated by a crash is dropped and its cell runs again, so that a
resumed run ends with the same file as an uninterrupted one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError
from ccenv.base.files import Format, append_lines, damaged_line, json_bytes, locked, make_folder, store_lines, write_atomic
from ccenv.base.foreign import parse_json, read_bounded

MANIFEST, CELLS = "manifest.json", "cells.jsonl"
FORMAT = Format(
    "ccenv-bench", 1, "a manifest of a benchmark run", "format_version", older="--fresh runs it again", ensure_ascii=False
)
MAX_BYTES = 1 << 30  # of the cells of a run; the largest published suite has some 20 MB


class RunFolder:
    """The folder of one suite's results; created if it does not exist. Raises CcenvError if that fails."""

    def __init__(self, path: FilePath) -> None:
        self.path = path
        make_folder(path)

    def locked(self) -> AbstractContextManager[None]:
        """Lock the folder. Raises CcenvError if another run holds the lock."""
        return locked(self.path, "benchmark run")

    def clear(self) -> None:
        """Forget all results."""
        for name in (MANIFEST, CELLS, "cells.parquet"):
            (self.path / name).unlink(missing_ok=True)

    def start(self, suite: dict[str, Any]) -> list[dict[str, Any]]:
        """Claim the folder for a suite and return the agents of earlier runs in it.

        Raises:
            InputError: if it holds results of another suite.
        """
        manifest = read_manifest(self.path) if (self.path / MANIFEST).exists() else None
        if manifest and manifest["suite_sha256"] != suite["suite_sha256"]:
            old = manifest["suite"]
            raise InputError(
                f"{self.path} holds results of suite {old['name']} version {old['version']} "
                f"(hash {manifest['suite_sha256'][:12]}), not of {suite['suite']['name']} version {suite['suite']['version']} "
                f"(hash {suite['suite_sha256'][:12]}): give another --out, or --fresh to discard them"
            )
        if manifest is None:
            if (self.path / CELLS).exists():
                raise InputError(
                    f"{self.path}: there is a {CELLS} but no {MANIFEST}; give another --out, or --fresh to discard it"
                )
            FORMAT.write(self.path / MANIFEST, {"complete": False, **suite})
            return []
        return list(manifest.get("agents", ()))

    def read_cells(self) -> list[dict[str, Any]]:
        """Return the finished cells and drop a truncated last line. Raises InputError for a damaged file."""
        file = self.path / CELLS
        if not file.exists():
            return []
        records = []
        for where, record in store_lines(file, MAX_BYTES):
            if not _is_cell(record):
                raise damaged_line(f"{where}: not a benchmark cell")
            records.append(record)
        return records

    def append(self, records: list[dict[str, Any]]) -> None:
        """Append finished cells durably. Raises CcenvError if the disk is full."""
        append_lines(self.path / CELLS, records)

    def finish(self, records: list[dict[str, Any]], manifest: dict[str, Any]) -> None:
        """Write all cells in their final order, then the manifest."""
        write_atomic(self.path / CELLS, b"".join(json_bytes(record, indent=None) for record in records))
        FORMAT.write(self.path / MANIFEST, manifest)


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
