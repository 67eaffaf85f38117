"""Long commands hold their folder, and all stores of lines treat damage alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccenv.agents import make_sender
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import locked
from ccenv.base.store import Journal as Lines
from ccenv.benchmarks.rfc9743.run import report_on
from ccenv.benchmarks.store import CELLS, open_cells, open_run
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.cli.demo import Plan, run_demo
from ccenv.proofs.synthesis.journal import Journal
from ccenv.proofs.synthesis.query.query import load_query
from ccenv.proofs.synthesis.run import solve_query, start
from ccenv.training.contracts.answers import AnswerStore
from ccenv.training.distill.run import DistillSettings, distill

LINE = {"kind": "foundation", "calls": 3, "seconds": 0.1}


def solve_held(folder: Path) -> None:
    run = start(load_query("quick"), folder / "run")
    with locked(folder / "run", "synthesis"):
        solve_query(run)


@pytest.mark.parametrize(
    "work",
    [
        lambda folder: distill(DistillSettings("learned_nominal"), folder),
        lambda folder: report_on("cubic", out=folder),
        lambda folder: run_demo(folder, Plan(), say=lambda line: None),
        lambda folder: run_demo(folder, Plan(), fresh=True, say=lambda line: None),
        lambda folder: start(load_query("quick"), folder),
    ],
    ids=["distill", "report", "demo", "demo afresh", "synth"],
)
def test_a_folder_in_use_is_refused(work: Callable[[Path], Any], tmp_path: Path) -> None:
    with locked(tmp_path / "run", "other work"), pytest.raises(CcenvError, match="is at work here"):
        work(tmp_path / "run")
    assert [file.name for file in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_search_that_has_begun_holds_its_folder(tmp_path: Path) -> None:
    with pytest.raises(CcenvError, match="another synthesis is at work here"):
        solve_held(tmp_path)


def _cells(folder: Path) -> Any:
    return _bench(folder).lines


def _bench(folder: Path) -> Lines:
    with open_run(folder, load_suite("quick")) as run:
        run.write(
            {"suite": {"name": "quick", "version": load_suite("quick").version}, "suite_sha256": load_suite("quick").sha256}
        )
        return open_cells(run)


def _journal(folder: Path) -> Any:
    return Journal(folder, "query", True, "code").lines


def _answers(folder: Path) -> Any:
    with AnswerStore(folder, make_sender("cc_qdel").program, {}, lambda levels: {}) as known:  # type: ignore[union-attr]
        return known.answers


STORES = {
    "bench": (CELLS, _cells, lambda folder: _bench(folder).append({"key": "a", "metrics": {}})),
    "synth": ("journal.jsonl", _journal, lambda folder: Journal(folder, "query", True, "code").append(LINE)),
    "contract": ("answers.jsonl", _answers, _answers),
}


@pytest.mark.parametrize("name", STORES)
def test_a_torn_tail_is_cut_and_a_damaged_line_refused(name: str, tmp_path: Path) -> None:
    file, read, fill = STORES[name]
    fill(tmp_path)
    whole, expected = (tmp_path / file).read_bytes(), read(tmp_path)
    (tmp_path / file).write_bytes(whole + b'{"key": "b", "met')
    assert read(tmp_path) == expected
    assert (tmp_path / file).read_bytes() == whole
    number = whole.count(b"\n") + 1
    for damage in (b'{"key": "b", "met\n', b"\xff\n", b"[]\n", json.dumps({"key": 1}).encode() + b"\n"):
        (tmp_path / file).write_bytes(whole + damage + whole.splitlines(keepends=True)[-1])
        with pytest.raises(InputError, match=rf"{file}, line {number}: .*; --fresh starts anew\Z"):
            read(tmp_path)
