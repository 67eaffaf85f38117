"""Folders of results: whose they are, what a kill leaves, what damage is; the same for every long command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccenv.agents import make_sender
from ccenv.base.config import StrictModel
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import Format, locked
from ccenv.base.store import ANY, Journal, ResultFolder
from ccenv.benchmarks.rfc9743.run import report_on
from ccenv.benchmarks.run.runner import run_suite
from ccenv.benchmarks.store import open_cells, open_run
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.cli.demo import Plan, run_demo
from ccenv.proofs.synthesis.journal import Journal as SynthesisJournal
from ccenv.proofs.synthesis.query.query import load_query
from ccenv.proofs.synthesis.run import solve_query, start
from ccenv.training.distill.run import DistillSettings, distill
from ccenv.training.league.config import load_league
from ccenv.training.league.run import league
from ccenv.training.run import train
from ccenv.training.shields.answers import AnswerStore
from ccenv.training.shields.widen import Widening, widen

FORM = Format("ccenv-test", 1, "the record of a test", older="--fresh starts anew")
LINES = Format("ccenv-test", 1, "the record of a test", indent=None)
KEY = {"config": {"share": 0.5, "rounds": ANY}, "suite.name": "small"}
RECORD = {"config": {"share": 0.5, "rounds": 3}, "suite": {"name": "small", "version": 1}}


class Part(StrictModel):
    seconds: float


def open_folder(path: Path, **changes: Any) -> ResultFolder:
    named: dict[str, Any] = {"what": "a test run", "record": "test.json", "form": FORM, "key": KEY, "owns": ("parts", "*.npz")}
    return ResultFolder(path, **{**named, "parts": FORM, **changes})


def is_row(line: Any) -> bool:
    if isinstance(line, dict) and line.get("row") == "no replay":
        raise CcenvError("the row does not replay")
    return isinstance(line, dict) and "row" in line


def test_a_folder_is_claimed_by_its_key(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run") as folder:
        assert folder.stored is None
        folder.write(RECORD)
        with pytest.raises(CcenvError, match="another test run is at work here"), open_folder(tmp_path / "run"):
            pass
    with open_folder(tmp_path / "run") as folder:
        assert folder.stored == {**FORM.head, **RECORD}
    for key, told in {
        "config": ({"share": 0.25, "rounds": ANY}, r"config\.share is 0\.5, not 0\.25"),
        "suite.name": ("large", r"suite\.name is 'small', not 'large'"),
        "code": ("0", "code is None, not '0'"),
    }.items():
        changed = open_folder(tmp_path / "run", key={**KEY, key: told[0]})
        with pytest.raises(InputError, match=rf"holds a test run of other settings \({told[1]}\); .*--fresh"), changed:
            pass
    (tmp_path / "run" / "test.json").write_text(json.dumps({**FORM.head, **RECORD, "config": {"share": 0.5, "gone": 1}}))
    with pytest.raises(InputError, match=r"config\.gone is 1, not None"), open_folder(tmp_path / "run"):
        pass


@pytest.mark.parametrize("fresh", [False, True])
def test_what_is_not_a_result_stays(tmp_path: Path, fresh: bool) -> None:
    (tmp_path / "mine.npz").touch()
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(InputError, match="something else than a test run; choose another --out"):
            open_folder(path, fresh=fresh)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "mine.npz"]
    assert open_folder(tmp_path, marks=("mine.npz",)).stored is None


def test_fresh_removes_what_the_command_made_and_nothing_else(tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        folder.write({})
    (tmp_path / "parts" / "deep").mkdir(parents=True)
    for name in ("a.npz", "kept.npz", "notes.txt"):
        (tmp_path / name).touch()
    folder.clear(keep=["kept.npz"])
    assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", "kept.npz", "notes.txt"]
    (tmp_path / "test.json").write_text("{}")  # damaged, or of another key
    with open_folder(tmp_path, fresh=True) as folder:
        assert folder.stored is None
    assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", "notes.txt"]


def test_a_folder_that_holds_nothing_after_a_refusal_is_gone(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    for name in ("made", "parent/made", "given"):
        with pytest.raises(InputError, match="no such sender"), open_folder(tmp_path / name):
            raise InputError("no such sender")
    assert [file.name for file in tmp_path.iterdir()] == ["given"]


def test_a_journal_keeps_whole_lines_and_cuts_a_torn_tail(tmp_path: Path) -> None:
    with open_folder(tmp_path, record="rows.jsonl", form=LINES) as folder:
        folder.write(RECORD)
        folder.journal("rows.jsonl", is_row, "a row").append({"row": 1}, {"row": 2})
    whole = (tmp_path / "rows.jsonl").read_bytes()
    (tmp_path / "rows.jsonl").write_bytes(whole + b'{"row": 3')
    with open_folder(tmp_path, record="rows.jsonl", form=LINES) as folder:
        assert folder.stored == {**FORM.head, **RECORD}
        journal = folder.journal("rows.jsonl", is_row, "a row")
    assert journal.lines == [{"row": 1}, {"row": 2}] and journal.file.read_bytes() == whole
    for damage, said in ((b"{\n", "not valid JSON"), (b"[]\n", "not a row"), (b'{"row":"no replay"}\n', "does not replay")):
        journal.file.write_bytes(whole + damage)
        with pytest.raises(InputError, match=rf"rows\.jsonl, line 4: .*{said}.*; --fresh starts anew\Z"):
            folder.journal("rows.jsonl", is_row, "a row")
    other = Journal(tmp_path / "other.jsonl", is_row, "a row")
    other.append({"row": 1}, {"row": 2})
    other.replace(other.lines[1:])
    assert Journal(other.file, is_row, "a row").lines == [{"row": 2}]


def test_a_part_is_finished_with_its_seal(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    file = tmp_path / "parts" / "one-moves.npz"
    folder = open_folder(tmp_path, marks=("parts",))
    file.write_bytes(b"moves")
    assert folder.part("parts/one", Part) is None
    folder.finish("parts/one", Part(seconds=2.0))
    assert folder.part("parts/one", Part) == Part(seconds=2.0)
    for content, said in ((b"other", "has been changed since it was written"), (None, "is gone")):
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(InputError, match=rf"one-moves\.npz: {said}; remove .*one\.part\.json to play this part again"):
            folder.part("parts/one", Part)
    part = tmp_path / "parts" / "one.part.json"
    part.write_text(part.read_text().replace("2.0", "3.0"))
    with pytest.raises(InputError, match="changed since it was written; remove it"):
        folder.part("parts/one", Part)


CDEL = make_sender("cc_qdel").program  # type: ignore[union-attr]
COMMANDS: dict[str, Callable[[Path], Any]] = {
    "a benchmark run": lambda folder: run_suite("quick", folder),
    "a training run": lambda folder: train("quick_sender", folder, restart=True),
    "a league": lambda folder: league(load_league("quick"), folder, fresh=True),
    "a distillation": lambda folder: distill(DistillSettings("learned_nominal"), folder),
    "a widening": lambda folder: widen(Widening(CDEL, 0.7, 60.0, samples=5), folder, fresh=True),
    "a report": lambda folder: report_on("cubic", out=folder, fresh=True),
    "a demo": lambda folder: run_demo(folder, Plan(), fresh=True, say=lambda line: None),
    "a synthesis": lambda folder: start(load_query("quick"), folder),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_long_command_takes_no_folder_in_use_and_none_of_something_else(what: str, tmp_path: Path) -> None:
    with locked(tmp_path / "run", "other work"), pytest.raises(CcenvError, match=f"another {what[2:]} is at work here"):
        COMMANDS[what](tmp_path / "run")
    assert [file.name for file in (tmp_path / "run").iterdir()] == [".lock"]
    (tmp_path / "precious").touch()
    for path in (tmp_path, tmp_path / "precious") if what != "a synthesis" else ():  # has a folder below that of the user
        with pytest.raises(InputError, match=f"holds something else than {what}; choose another --out"):
            COMMANDS[what](path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["precious", "run"]


def test_a_search_that_has_begun_holds_its_folder(tmp_path: Path) -> None:
    run = start(load_query("quick"), tmp_path)
    with locked(tmp_path, "synthesis"), pytest.raises(CcenvError, match="another synthesis is at work here"):
        solve_query(run)


def bench_lines(folder: Path) -> Journal:
    suite = load_suite("quick")
    with open_run(folder, suite) as run:
        run.write({"suite": suite.model_dump(mode="json"), "suite_sha256": suite.sha256})
        return open_cells(run)


def synth_lines(folder: Path) -> Journal:
    return SynthesisJournal(folder, "query", True, "code")


def widening_lines(folder: Path) -> Journal:
    with AnswerStore(folder, CDEL, {}, lambda levels: {}) as answers:
        return answers.rows


JOURNALS: dict[str, tuple[Callable[[Path], Journal], list[Any]]] = {
    "cells.jsonl": (bench_lines, [{"key": "a", "metrics": {}}]),
    "journal.jsonl": (synth_lines, [{"kind": "foundation", "calls": 3, "seconds": 0.1}]),
    "answers.jsonl": (widening_lines, []),
}


@pytest.mark.parametrize("name", JOURNALS)
def test_a_torn_tail_is_cut_and_a_damaged_line_refused(name: str, tmp_path: Path) -> None:
    read, lines = JOURNALS[name]
    read(tmp_path).append(*lines)
    file = tmp_path / name
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"key": "b", "met')
    assert read(tmp_path).lines == lines
    assert file.read_bytes() == whole
    number = whole.count(b"\n") + 1
    for damage in (b'{"key": "b", "met\n', b"[" * 3_000 + b"\n", b"\xff\n", b"[]\n", json.dumps({"key": 1}).encode() + b"\n"):
        file.write_bytes(whole + damage + whole.splitlines(keepends=True)[-1])
        with pytest.raises(InputError, match=rf"{name}, line {number}: .*; --fresh starts anew\Z"):
            read(tmp_path)
