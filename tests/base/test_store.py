"""Folders of results: whose they are, what a kill leaves, what damage is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccenv.base.config import StrictModel
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import Format
from ccenv.base.store import ANY, Journal, ResultFolder

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
    for name in ("made", "given"):
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
    for damage, said in (
        (b"{\n", "not valid JSON"),
        (b"[]\n", "not a row"),
        (b'{"row":"no replay"}\n', "the row does not replay"),
    ):
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
