"""The journal of a run on disk, one line per counterexample and verdict, from which a killed run resumes.

Lines are checked as they are read: a changed number must not become a verdict or a broken index.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.errors import CcenvWarning
from ccenv.base.foreign import is_finite
from ccenv.base.provenance import VERSION as CCENV_VERSION
from ccenv.base.store import Journal as Lines
from ccenv.proofs.solver.solvers import version_of
from ccenv.proofs.synthesis.query.classes import MOST_SAMPLES, TRACE

_LARGEST = 1 << 62
# Sums of a trace's numbers fit into 63 bits, and the compiled replay indexes its samples by some of them.
_LARGEST_IN_TRACE = 1 << 56
_RANGES: Mapping[str, tuple[int, int]] = {
    "samples": (1, MOST_SAMPLES),
    "jitter": (0, MOST_SAMPLES),
    "link": (1, _LARGEST_IN_TRACE),
    "delay": (0, MOST_SAMPLES),
    "delay_at": (-1, MOST_SAMPLES),
}

# Kind of a line -> its fields and their types; ``float`` takes integers, too, and no negative numbers.
_LINES: Mapping[str, Mapping[str, type]] = {
    "counterexample": {"class": int, "trace": np.ndarray},
    "cover": {"trace": np.ndarray},
    "covered": {"listed": int, "functions": int, "cpu_s": float},
    "simulated": {"left": int, "cpu_s": float},
    "foundation": {"calls": int, "seconds": float},
    "group": {"cpu_s": float, "call_s": float, "still": bool, "decisions": list},
    "pairs": {"cpu_s": float, "replay_s": float, "call_s": float, "decisions": list},
}
_DECISION: Mapping[str, type] = {"class": int, "status": str, "calls": int, "claim": str, "reason": str, "queries": list}
_STATUSES = ("proved", "refuted", "unknown")


def is_line(data: Any) -> bool:
    """Return whether a value is a line of a journal, with all fields in their types and ranges."""
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str) or data["kind"] not in _LINES:
        return False
    if not _has_fields(data, _LINES[data["kind"]]):
        return False
    return all(_is_decision(item, data["kind"] == "pairs") for item in data.get("decisions", ()))


def list_classes(line: Mapping[str, Any]) -> list[int]:
    named = [line] if "class" in line else line.get("decisions", [])
    return [number for item in named for number in (item["class"], *item.get("dropped", ()))]


def _is_decision(item: Any, of_pairs: bool) -> bool:
    if not isinstance(item, dict) or not _has_fields(item, _DECISION) or item["status"] not in _STATUSES:
        return False
    if of_pairs:
        dropped = item.get("dropped")
        return isinstance(dropped, list) and all(_is_value(number, int) for number in dropped)
    return item.get("trace") is None or _is_value(item["trace"], np.ndarray)


def _has_fields(data: Mapping[str, Any], fields: Mapping[str, type]) -> bool:
    return all(name in data and _is_value(data[name], field_type) for name, field_type in fields.items())


def _is_value(value: Any, field_type: type) -> bool:
    if field_type is int:
        return type(value) is int and 0 <= value <= _LARGEST
    if field_type is float:
        return is_finite(value) and value >= 0
    if field_type is np.ndarray:
        return _is_trace(value)
    return type(value) is field_type


def _is_trace(data: Any) -> bool:
    if not isinstance(data, dict) or set(data) != set(TRACE.names or ()):
        return False
    for name, value in data.items():
        shape = TRACE[name].shape
        numbers = value if shape else [value]
        if not isinstance(numbers, list) or (shape and len(numbers) != shape[0]):
            return False
        low, high = _RANGES.get(name, (-_LARGEST_IN_TRACE, _LARGEST_IN_TRACE))
        if not all(type(number) is int and low <= number <= high for number in numbers):
            return False
    return True


VERSION = 1


class Journal(Lines):
    """``journal.jsonl`` in a folder. Lines of other code or another solver are left out, with a warning."""

    def __init__(self, folder: FilePath, fingerprint: str, reuse: bool, code: str) -> None:
        head = {"kind": "head", "version": VERSION, "query": fingerprint, "ccenv": CCENV_VERSION}
        head |= {"solver": version_of("z3"), "code": code}
        super().__init__(folder / "journal.jsonl", is_line, "a line of a synthesis", head, fresh=not reuse)
        if self.left_out:
            warnings.warn(f"{self.file}: was of older code or another solver, and begins anew", CcenvWarning, stacklevel=2)

    def drop(self, *kinds: str) -> None:
        """Remove lines of some kinds, on disk too."""
        self.replace([line for line in self.lines if line["kind"] not in kinds])

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of a kind, in order."""
        return [line for line in self.lines if line["kind"] == kind]


def trace_data(trace: np.ndarray) -> dict[str, Any]:
    return {name: np.asarray(trace[name]).tolist() for name in TRACE.names or ()}


def trace_from(data: dict[str, Any]) -> np.ndarray:
    out = np.zeros((), dtype=TRACE)
    for name in TRACE.names or ():
        out[name] = data[name]
    return out[()]
