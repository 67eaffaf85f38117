"""What a run has found so far, on disk: one line per counterexample and verdict, so that a killed run goes on where it was."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.document import append_lines, damaged_line, json_bytes, store_lines
from ccenv.base.files import make_folder, write_atomic
from ccenv.proofs.solver.solvers import version_of
from ccenv.proofs.synthesis.journal_lines import is_line
from ccenv.proofs.synthesis.query.records import TRACE
from ccenv.base.version import VERSION as CCENV_VERSION

VERSION = 1
MAX_BYTES = 1 << 30


class Journal:
    """A folder with ``journal.jsonl``; lines are appended and flushed to disk as things are found."""

    def __init__(self, folder: FilePath, fingerprint: str, reuse: bool, code: str) -> None:
        """Open the folder; what it holds of another query, code or solver is set aside."""
        self.folder = folder
        self.file = folder / "journal.jsonl"
        make_folder(folder)
        self.lines: list[dict[str, Any]] = []
        self._head = {
            "kind": "head",
            "version": VERSION,
            "query": fingerprint,
            "ccenv": CCENV_VERSION,
            "solver": version_of("z3"),
            "code": code,
        }
        self._write(self._read() if reuse else [])

    def _write(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines
        write_atomic(self.file, b"".join(json_bytes(line, indent=None) for line in [self._head, *lines]))

    def _read(self) -> list[dict[str, Any]]:
        """Return the lines of the same query, code and solver; none if the head names others. Raises InputError for damage."""
        rows = store_lines(self.file, MAX_BYTES) if self.file.is_file() else iter(())
        if next(rows, ("", None))[1] != self._head:
            return []
        lines: list[dict[str, Any]] = []
        for where, line in rows:
            if not is_line(line):
                raise damaged_line(f"{where}: not a line of a synthesis")
            lines.append(line)
        return lines

    def add(self, line: dict[str, Any]) -> None:
        """Append one line and make sure that it is on disk."""
        self.lines.append(line)
        append_lines(self.file, [line])

    def drop(self, *kinds: str) -> None:
        """Forget lines of some kinds, on disk too."""
        self._write([line for line in self.lines if line["kind"] not in kinds])

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of a kind, in order."""
        return [line for line in self.lines if line["kind"] == kind]


def trace_data(trace: np.ndarray) -> dict[str, Any]:
    """Return a TRACE record as JSON-ready integers."""
    return {name: np.asarray(trace[name]).tolist() for name in TRACE.names or ()}


def trace_from(data: dict[str, Any]) -> np.ndarray:
    """Return the TRACE record of :func:`trace_data`."""
    out = np.zeros((), dtype=TRACE)
    for name in TRACE.names or ():
        out[name] = data[name]
    return out[()]
