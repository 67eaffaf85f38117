"""Which source files decide what a run comes to."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from ccenv.training.code import deciding_sources

ROOT = Path(str(resources.files("ccenv")))


def deciding() -> set[str]:
    return {file.relative_to(ROOT).as_posix() for pattern in deciding_sources() for file in ROOT.glob(pattern)}


@pytest.mark.parametrize(
    "room",
    [
        *("engine/packet", "engine/curve", "engine/compiled", "envs", "envs/packet", "envs/batches", "interface"),
        *("training/rollouts", "training/recipes", "training/curricula", "training/packets", "training/rllib"),
    ],
)
def test_rooms_that_decide(room: str) -> None:
    files = {file.relative_to(ROOT).as_posix() for file in (ROOT / room).glob("*.py")}
    assert files
    assert files <= deciding()


def test_what_stores_and_shows_does_not_decide() -> None:
    aside = [file for room in ("records", "view") for file in (ROOT / "training" / room).glob("*.py")]
    aside += [ROOT / "training" / name for name in ("code.py", "logs.py", "clock.py", "checkpoint.py")]
    assert all(file.is_file() for file in aside)
    assert not {file.relative_to(ROOT).as_posix() for file in aside} & deciding()
    assert {"training/learner.py", "training/run.py"} <= deciding()
