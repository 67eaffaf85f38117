"""What a run has found so far, on disk: one line per counterexample and verdict, so that a killed run goes on where it was."""

from __future__ import annotations

import json
import os
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.errors import CcenvError, InputError
from ccenv.files import write_atomic
from ccenv.foreign import parse_json, read_lines
from ccenv.smt.solver.solvers import version_of
from ccenv.synth.journal_lines import is_line
from ccenv.synth.query.records import TRACE
from ccenv.version import VERSION as CCENV_VERSION

VERSION = 1
MAX_BYTES = 1 << 30
MAX_LINE_BYTES = 8 << 20  # a group of the largest query has some 100 kB


class Journal:
    """A folder with ``journal.jsonl``; lines are appended and flushed to disk as things are found."""

    def __init__(self, folder: FilePath, fingerprint: str, reuse: bool, code: str) -> None:
        """Open the folder; what it holds of another query, code or solver is set aside."""
        self.folder = folder
        self.file = folder / "journal.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CcenvError(f"{folder}: cannot be created ({error.strerror})") from None
        self.lines: list[dict[str, Any]] = []
        self._head = {
            "kind": "head",
            "version": VERSION,
            "query": fingerprint,
            "ccenv": CCENV_VERSION,
            "solver": version_of("z3"),
            "code": code,
        }
        # Rewrite what is whole: a line cut short by a kill is dropped once.
        self._write(self._read() if reuse else [])

    def _write(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines
        write_atomic(self.file, "".join(json.dumps(line) + "\n" for line in [self._head, *lines]).encode())

    def _read(self) -> list[dict[str, Any]]:
        """Return the lines up to the first one that is cut short or damaged: what came after is found again."""
        lines: list[dict[str, Any]] = []
        if not self.file.is_file():
            return lines
        try:
            for number, line in read_lines(self.file, max_bytes=MAX_BYTES, max_line_bytes=MAX_LINE_BYTES):
                data = parse_json(line, str(self.file))
                if number == 1 and data != self._head:
                    return []
                if number > 1 and not is_line(data):
                    break
                lines += [data] if number > 1 else []
        except InputError:
            pass
        return lines

    def add(self, line: dict[str, Any]) -> None:
        """Append one line and make sure that it is on disk."""
        self.lines.append(line)
        try:
            with self.file.open("ab") as out:
                out.write((json.dumps(line) + "\n").encode())
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise CcenvError(f"{self.file}: cannot be written ({error.strerror})") from None

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
