"""The suite of the real TCP stack: its cells, what it refuses, and a run of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.benchmarks.cells.live import make_live_cells
from ccenv.benchmarks.run.runner import run_suite
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.benchmarks.suite.packet import LiveSuite
from ccenv.live.attacks import shipped_moves

if sys.platform != "linux":
    pytest.skip("live runs are for Linux", allow_module_level=True)


def suite() -> LiveSuite:
    found = load_suite("live-worst-case")
    assert isinstance(found, LiveSuite)
    return found


def test_each_attack_has_a_calm_run_before_it() -> None:
    cells = make_live_cells(suite())
    assert [cell.scenario for cell in cells[:2]] == ["reno[calm]", "reno[attacked]"]
    assert {cell.moves for cell in cells} == set(shipped_moves())
    assert all(cell.per_task >= len(cells) for cell in cells), "two live runs at a time would disturb each other"


def test_numbers_of_another_kernel_are_other_numbers() -> None:
    from dataclasses import replace

    cell = make_live_cells(suite())[0]
    assert replace(cell, kernel="1.2.3").key != cell.key


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"extra_agents": ["reno"]}, "names the sender of each scenario: it takes no --agent"),
        ({"extra_adversaries": ["batch"]}, "plays stored moves: it takes no --adversary"),
    ],
)
def test_players_of_a_user_are_refused(tmp_path: Path, given: dict[str, list[str]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        run_suite("live-worst-case", tmp_path / "out", **given)  # type: ignore[arg-type]


def test_moves_that_are_not_there_are_refused() -> None:
    data = suite().model_dump()
    data["scenarios"][0]["moves"] = "nosuch.moves.npz"
    with pytest.raises(InputError, match=r"nosuch\.moves\.npz: cannot be read"):
        make_live_cells(validate(LiveSuite, data, "suite"))


@pytest.mark.slow
@pytest.mark.live
def test_a_run_keeps_the_worst_case(tmp_path: Path) -> None:
    from ccenv.live import live_needs

    for need in live_needs():
        if not need.ok:
            pytest.skip(f"{need.name}: {need.found}; {need.advice}")
    manifest = run_suite("live-worst-case", tmp_path, only=["reno*"])
    worst = manifest["summary"][0]["worst_case"]
    assert worst["scenario"] == "reno[attacked]"
    assert worst["value"] < 0.5
    records = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text(encoding="utf-8").splitlines()]
    assert records[0]["metrics"]["utilisation"] > 0.9
    assert {"kernel", "emulator"} == set(records[1]["live"])
