"""A small board with every kind of entry, evaluated once for all tests, and copies of it that a test may change."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from board_records import LINKED, STAGES, report
from forging import KEY, MOMENT, OTHER_KEY, Forgery, envelope_rows
from small_suite import small_suite
from submission_folders import CARD, make_good

from ccenv.benchmarks.run.runner import run_suite
from ccenv.leaderboard.evaluate import queue
from ccenv.leaderboard.evaluate.queue import evaluate, list_tasks
from ccenv.leaderboard.evaluate.score import store_report
from ccenv.leaderboard.evaluate.stages import Content, Progress, Work
from ccenv.leaderboard.site.exchange import export_board
from ccenv.leaderboard.store.database import BoardStore
from ccenv.leaderboard.store.home import Home, close_round
from ccenv.leaderboard.store.submit import entrants, submit_folder, submit_reviewed
from ccenv.leaderboard.submission.pack import Authorship, pack
from ccenv.leaderboard.submission.signature import available


@pytest.fixture(autouse=True, scope="module")
def work_is_done_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """Do the work of stages in this process, except where the other process is what is tested: it takes seconds to start."""

    def here(worker: queue.Worker, work: Work, progress: Progress) -> Content | queue.Failed:
        return queue.attempt(work, progress)

    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__ != "test_board_limits":
            patch.setattr(queue.Worker, "do", here)
        yield


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sqlalchemy", reason="the extra board is not installed")
    folder = tmp_path_factory.mktemp("evaluated")
    home = Home(folder / "board")
    pack("cc_qdel", LINKED, folder / "program")
    pack("square:period_rtts=4", CARD, folder / "square")
    make_good("moves", folder / "moves")
    make_good("network", folder / "network")
    with home.open() as store:
        for name in ("program", "square", "moves", "network"):
            submit_folder(store, home, folder / name)
        submit_reviewed(store, home, "reno")
        evaluate(store, home, list_tasks(store, STAGES))
    return folder


@pytest.fixture
def home(evaluated: Path, tmp_path: Path) -> Home:
    """A copy that a test may change."""
    shutil.copytree(evaluated / "board", tmp_path / "board")
    return Home(tmp_path / "board")


@pytest.fixture
def store(home: Home) -> Iterator[BoardStore]:
    with home.open() as opened:
        yield opened


@pytest.fixture(scope="session")
def workshop(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of a small real board, closed, with an envelope and, where ssh-keygen is there, a signed entry; and two keys."""
    folder = tmp_path_factory.mktemp("workshop")
    shutil.copytree(evaluated / "board", folder / "board")
    home = Home(folder / "board")
    pack("cc_probe_drain", Authorship("Ada Lovelace", "MIT", "quick/1", name="plain"), folder / "plain")
    with home.open() as store:
        submit_folder(store, home, folder / "plain")
        if available():
            for key in (KEY, OTHER_KEY):
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
            pack("cc_probe_slow", Authorship("Grace Hopper", "MIT", "quick/1", name="signed"), folder / "signed", folder / KEY)
            submit_folder(store, home, folder / "signed")
        program = next(e for e in entrants(store) if e.record.card.name == "cc_qdel")
        agent = store.records("evaluation", program.record.submission)[0].content["manifest"]["agents"][0]
        content = {"submission": program.record.submission, "name": "cc_qdel", "stage": "envelope", "recorded_at": MOMENT}
        content |= {
            "T": 9, "budget_s": 60.0, "machine": {"processor": "x"}, "player_sha256": agent["sha256"], "promises": 2,
            "rows": envelope_rows(),
        }  # fmt: skip
        content |= {"reason": "", "solver": "z3", "setting_name": "history", "seconds": 1.0}
        store.append("envelope", program.record.submission, f"envelope/{program.record.submission}/0.1.0/T9/60s", content, {})
        close_round(store, home)
        export_board(store, folder / "export.jsonl")
    return folder


@pytest.fixture
def forgery(workshop: Path) -> Forgery:
    return Forgery(workshop / "export.jsonl")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = tmp_path_factory.mktemp("records")
    run_suite(small_suite(), records / "bench" / "small")
    hard = small_suite(name="hard", adversaries=["kind", "slowest"], tags=["adversarial"])
    run_suite(hard, records / "bench" / "hard")
    store_report(report(), "report", records)
    return records


@pytest.fixture
def records(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(made, tmp_path / "records")
    return tmp_path / "records"
