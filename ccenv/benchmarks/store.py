"""The folder of a benchmark run: finished cells as JSON lines, a manifest, one writer at a time.

A cell counts as finished when its whole line is in the file. A line that was cut off by a crash is dropped and its cell runs
again, so that an interrupted run, continued, ends with the same file as one that was not interrupted.
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
    """One folder that holds one suite's results.

    Args:
        path: the folder; made if it does not exist.

    Raises:
        CcenvError: if it cannot be made.
    """

    def __init__(self, path: FilePath) -> None:
        self.path = path
        make_folder(path)

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder against a second run. Raises CcenvError if another run holds it."""
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
        """Return the finished cells and drop what a crash left of an unfinished line. Raises InputError for a damaged file."""
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
        """Add finished cells and wait until they are on disk. Raises CcenvError if there is no room."""
        append_lines(self.path / CELLS, records)

    def finish(self, records: list[dict[str, Any]], manifest: dict[str, Any]) -> None:
        """Write all cells in their final order, then the manifest."""
        write_atomic(self.path / CELLS, b"".join(json_bytes(record, indent=None) for record in records))
        FORMAT.write(self.path / MANIFEST, manifest)


def _is_cell(record: Any) -> bool:
    return isinstance(record, dict) and isinstance(record.get("key"), str) and isinstance(record.get("metrics"), dict)


def parse_cells(content: bytes, where: FilePath) -> list[dict[str, Any]]:
    """Parse lines of cells. Raises InputError with file and line for anything that is not one."""
    records = []
    for number, line in enumerate(content.splitlines(), start=1):
        record = parse_json(line, f"{where}, line {number}")
        if not _is_cell(record):
            raise InputError(f"{where}, line {number}: not a benchmark cell")
        records.append(record)
    return records


def cells_of(folder: FilePath) -> list[dict[str, Any]]:
    """Return the cells of a run folder. Raises InputError as ``parse_cells``, and if the file cannot be read or is too long."""
    return parse_cells(read_bounded(folder / CELLS, MAX_BYTES), folder / CELLS)


def read_manifest(folder: FilePath) -> dict[str, Any]:
    """Read the manifest of a run folder. Raises InputError if there is none or it is of another format."""
    return FORMAT.read(folder / MANIFEST)
