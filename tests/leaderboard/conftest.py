"""A small board with every kind of entry, evaluated once for all tests, and copies of it that a test may change."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from evaluated_board import LINKED, STAGES
from submission_folders import CARD, make_good

from ccenv.leaderboard.evaluate import evaluate, tasks_of
from ccenv.leaderboard.home import Home
from ccenv.leaderboard.store import Store
from ccenv.leaderboard.submission.pack import pack
from ccenv.leaderboard.submit import submit_folder, submit_reviewed


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
        evaluate(store, home, tasks_of(store, STAGES))
    return folder


@pytest.fixture
def home(evaluated: Path, tmp_path: Path) -> Home:
    """A copy that a test may change."""
    shutil.copytree(evaluated / "board", tmp_path / "board")
    return Home(tmp_path / "board")


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with home.open() as opened:
        yield opened
