"""What a board's operator runs: one evaluation at a time, secrets that survive a kill, no path of the machine in public."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from small_suite import small_suite
from submission_folders import make_good

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from ccenv.base.errors import CcenvError
from ccenv.base.files import locked
from ccenv.leaderboard.evaluate.queue import evaluate, list_tasks
from ccenv.leaderboard.evaluate.stages import EnvelopeStage, SuiteStage
from ccenv.leaderboard.store.home import WORK, Home, commitment, find_secret, open_round
from ccenv.leaderboard.store.submit import submit_folder, submit_reviewed

SUITE = SuiteStage(small_suite(agents=[], scenarios=[small_suite().scenarios[0].model_dump()], adversaries=["kind"], seeds=[1]))


def test_a_second_evaluation_is_refused_and_deletes_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "board")
    with home.open() as store:
        record = submit_reviewed(store, home, "reno")
        unfinished = home.work(record.subject) / "quick" / "cells.jsonl"
        unfinished.parent.mkdir(parents=True)
        unfinished.write_text("the other one's work\n")
        tasks = list_tasks(store, [SUITE])
        says = r"another evaluation of this board is at work here \(process \d+\)"
        with locked(home.folder / WORK, "evaluation of this board"), pytest.raises(CcenvError, match=says):
            evaluate(store, home, tasks)
        assert unfinished.exists() and len(evaluate(store, home, tasks)) == 1


@pytest.mark.parametrize("left", ["", "00ff", "not hex"])
def test_a_secret_that_a_kill_left_unfinished_does_not_stop_the_board(tmp_path: Path, left: str) -> None:
    home = Home(tmp_path / "board")
    file = home.folder / "secrets" / "round-1.hex"
    file.parent.mkdir(parents=True)
    file.write_text(left)
    with home.open() as store:
        assert open_round(store, home) == 1
        assert store.records("round")[0].content["commitment"] == commitment(find_secret(store, home, 1))
    assert file.stat().st_mode & 0o077 == 0


def test_a_whole_secret_of_a_round_that_was_not_stored_is_kept_and_a_damaged_one_named_not_replaced(tmp_path: Path) -> None:
    home = Home(tmp_path / "board")
    first = home.new_secret(1)
    assert home.new_secret(1) == first
    with home.open() as store:
        open_round(store, home)
        assert find_secret(store, home, 1) == first
        file = home.folder / "secrets" / "round-1.hex"
        file.write_text("00ff\n")
        with pytest.raises(CcenvError, match="has 2 bytes, not 32"):
            find_secret(store, home, open_round(store, home))
        assert file.read_text() == "00ff\n"


def texts(data: bytes) -> list[bytes]:
    """Return a file and, of an archive, its members."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return [data]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [archive.read(name) for name in archive.namelist()]


def test_no_path_of_the_machine_reaches_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The board is named by a relative path, as operators do; neither it nor the absolute one may be stored."""
    pytest.importorskip("z3")
    monkeypatch.chdir(tmp_path)
    home = Home(Path("operators") / "board")
    for kind in ("program", "policy"):
        make_good(kind, tmp_path / kind)
    with home.open() as store:
        for kind in ("program", "policy"):
            submit_folder(store, home, tmp_path / kind)
        evaluate(store, home, list_tasks(store, [SUITE, EnvelopeStage(5.0, samples=4)]))
        assert {"evaluation", "envelope"} <= {record.kind for record in store.records()}
        for record in store.records():
            public = [json.dumps(record.content).encode(), *(store.file(digest) for digest in record.files.values())]
            for text in [text for data in public for text in texts(data)]:
                assert b"operators" not in text and str(tmp_path).encode() not in text
