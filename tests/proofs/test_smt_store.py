"""Stored answers of a solver: what was changed counts as absent."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from ccenv.proofs.solver.solvers import Answer, Store

ANSWER = Answer("sat", 0.5, "z3 4", "", {"a": Fraction(-1, 3), "b": True, "c": Fraction(10**60)})


def _file(folder: Path) -> Path:
    Store(folder).save("text", ANSWER, {})
    (found,) = folder.glob("*.json")
    return found


def test_an_answer_is_read_as_it_was_stored(tmp_path: Path) -> None:
    _file(tmp_path)
    assert Store(tmp_path).load("text", "z3 4") == ANSWER and Store(tmp_path).load("other", "z3 4") is None


@pytest.mark.parametrize("changes", [
    {"model": {"a": "1/0"}}, {"model": {"a": "1e999999999"}}, {"model": {"a": "9" * 9_000}}, {"model": {"a": []}},
    {"model": {"a": 0.5}}, {"model": []}, {"status": ["sat"]}, {"status": "unknown"}, {"solver": "z3 5"}, {"seconds": "nan"},
    {"seconds": "9" * 400}, {"seconds": None},
])  # fmt: skip
def test_a_hostile_answer_counts_as_absent(changes: dict[str, Any], tmp_path: Path) -> None:
    file = _file(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    assert Store(tmp_path).load("text", "z3 4") is None


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"[]", b"3", b"\xff", b'{"status": NaN}'])
def test_a_hostile_file_counts_as_absent(content: bytes, tmp_path: Path) -> None:
    _file(tmp_path).write_bytes(content)
    assert Store(tmp_path).load("text", "z3 4") is None
