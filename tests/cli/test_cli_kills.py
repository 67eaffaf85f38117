"""A hundred SIGKILLs: what is run again and again until it ends has the result of an uninterrupted run, and leaves no process."""

import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import SUITE, start
from processes import alive, descendants, wait_until

KILLS = 20


@dataclass(frozen=True)
class Chain:
    """What is killed and run again.

    Attributes:
        command: writes into the folder ``out``.
        result: of a folder in which it ended.
        prepare: fills the folder, once for the reference and all chains.
    """

    command: str
    result: Callable[[Path], Any]
    prepare: Callable[[Path], None] = lambda folder: None


def without_times(value: Any) -> Any:
    """Drop what tells time, at any depth."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("seconds", "finished_at", "recorded_at")}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def with_suite(folder: Path, agents: str = "reno, cubic, cc_probe_drain") -> None:
    text = SUITE.format(name="chain", duration_rtts=3000, seeds="1, 2, 3, 4, 5, 6, 7, 8", agents=agents)
    (folder / "chain.yaml").write_text(text)


def with_board(folder: Path) -> None:
    with_suite(folder, agents="")
    for sender in ("reno", "cubic"):
        process = start(folder, "board", "submit", sender, "--board", "out")
        assert process.wait() == 0


def board_records(folder: Path) -> Any:
    from ccenv.leaderboard.store.home import Home

    with Home(folder / "out").open_existing() as store:
        records = {record.slot: record for record in store.records("evaluation")}
        assert len(records) == 2
        return [(slot, without_times(record.content), record.files) for slot, record in sorted(records.items())]


CHAINS = {
    "bench": Chain(
        "bench run chain.yaml --out out -s backend=processes --jobs 2",
        lambda folder: (folder / "out" / "cells.jsonl").read_bytes(),
        with_suite,
    ),
    "attack": Chain(
        "attack cubic --budget 8000000 --out out",
        lambda folder: without_times(json.loads((folder / "out" / "attack.json").read_text())),
    ),
    "train": Chain(
        "train quick_sender --set total_steps=120000 --set checkpoint_every_steps=10000 --out out",
        lambda folder: (folder / "out" / "policy.safetensors").read_bytes(),
    ),
    "synth": Chain(
        "synth g2 --jobs 2 --out out",
        lambda folder: {file.name: file.read_bytes() for file in folder.glob("out/*/solutions/*.json")},
    ),
    "evaluate": Chain(
        "board evaluate --board out --suite chain.yaml --budget 0 -s backend=processes --jobs 2", board_records, with_board
    ),
}


@pytest.mark.slow  # one to three minutes each
@pytest.mark.parametrize("name", CHAINS)
def test_kills_change_no_result_and_leave_no_process(tmp_path: Path, name: str) -> None:
    chain = CHAINS[name]
    origin = tmp_path / "origin"
    origin.mkdir()
    chain.prepare(origin)
    reference = tmp_path / "reference"
    shutil.copytree(origin, reference)
    begin = time.monotonic()
    finish(start(reference, *chain.command.split()))
    whole_s = time.monotonic() - begin
    expected = chain.result(reference)
    assert expected
    random_s = random.Random(name)
    kills = chains = 0
    while kills < KILLS:
        folder = tmp_path / f"chain{chains}"
        shutil.copytree(origin, folder)
        chains += 1
        while kills < KILLS:
            process = start(folder, *chain.command.split())
            try:
                process.wait(random_s.uniform(0.2, 0.9) * whole_s)
            except subprocess.TimeoutExpired:
                below = descendants(process.pid)
                process.kill()
                process.wait()
                kills += 1
                assert wait_until(lambda left=below: not alive(left), 2.0), f"{name}: orphans after kill {kills}"  # type: ignore[misc]
            else:
                break
        finish(start(folder, *chain.command.split()))
        assert chain.result(folder) == expected, f"{name}: another result after {kills} kills in {chains} chains"


def finish(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate()
    assert process.returncode == 0, err
