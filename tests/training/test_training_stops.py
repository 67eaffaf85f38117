"""Ctrl-C at any moment keeps what is done, and a folder has one run at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.base.errors import CcenvError
from ccenv.base.files import locked
from ccenv.cli.main import main

pytest.importorskip("stable_baselines3")

from ccenv.training import learner as learner_module
from ccenv.training import run as run_module
from ccenv.training.checkpoint import read_checkpoint
from ccenv.training.config import TrainConfig, load_config
from ccenv.training.path_sets import PathSet
from ccenv.training.run import INTERRUPTED, RUNNING, read_record, train

SMALL = [
    *("num_envs=16", "ppo.n_steps=16", "ppo.batch_size=64", "ppo.hidden=[8]", "total_steps=1024"),
    *("environment.episode_rtts=10", "environment.steps_per_rtt=2", "evaluation.n_paths=8", "evaluation.n_paths_during=4"),
    *("evaluation.every_steps=256", "early_stop.patience=3"),
]
ROUNDS = "robust={start_step: 512, round_steps: 512, budget_flow_steps: 40000, searches: [corners, 'cem:population=8']}"


SOON_S = 20.0  # a second, on a machine that is slow and does other things


def config_of(*more: str) -> TrainConfig:
    return load_config("quick_sender", [*SMALL, *more])


def everything(folder: Path) -> list[np.ndarray]:
    state = read_checkpoint(folder / "checkpoint")
    assert state is not None
    return [np.array(sorted(state.marks.items())), *(state.tensors[name] for name in sorted(state.tensors))]


def assert_same(a: Path, b: Path) -> None:
    for one, other in zip(everything(a), everything(b), strict=True):
        assert np.array_equal(one, other)
    csv = [[line.split(",")[0::1] for line in (folder / "progress.csv").read_text().splitlines()] for folder in (a, b)]
    for rows in csv:
        for row in rows:
            del row[1]  # seconds
    assert csv[0] == csv[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    train(config_of(ROUNDS), folder)
    return folder


def stop_once(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, when: int) -> None:
    """Ctrl-C inside the call of a given number."""
    real, calls = getattr(module, name), iter(range(10**6))

    def stopping(*arguments: Any, **more: Any) -> Any:
        if next(calls) == when:
            raise KeyboardInterrupt
        return real(*arguments, **more)

    monkeypatch.setattr(module, name, stopping)


@pytest.mark.parametrize(
    ("module", "name", "when", "steps"),
    [
        (learner_module, "find_patterns", 0, 256),  # the attack that starts a round: its iteration is done again
        (run_module, "evaluate_policy", 2, 256),  # stop set of the second evaluation
        (run_module, "evaluate_policy", 3, 256),  # its select set
        (run_module, "evaluate_policy", 8, 1024),  # the final one: nothing of the training is lost
    ],
)
def test_ctrl_c_inside_an_attack_or_an_evaluation_changes_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, when: int, steps: int
) -> None:
    with monkeypatch.context() as patch:
        stop_once(patch, module, name, when)
        with pytest.raises(KeyboardInterrupt):
            train(config_of(ROUNDS), tmp_path)
    assert read_record(tmp_path)["status"] == INTERRUPTED
    assert train(config_of(ROUNDS), tmp_path).resumed_from_steps == steps
    assert_same(whole, tmp_path)


def test_a_folder_has_one_run_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside: list[str] = []

    def try_another(progress: Any) -> None:
        with pytest.raises(CcenvError) as caught:
            train(config_of(), tmp_path, restart=True)
        inside.append(str(caught.value))

    train(config_of("total_steps=256"), tmp_path, report=try_another)
    assert len(inside) == 1 and f"another training run is at work here (process {os.getpid()})" in inside[0]
    make_sender(str(tmp_path))  # nothing was discarded
    with locked(tmp_path, "training run"):
        assert main(["train", "quick_sender", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert train(config_of("total_steps=256"), tmp_path).resumed_from_steps == 256  # free again


@pytest.mark.parametrize("begun", ["plain", "attack"])
def test_ctrl_c_ends_soon(tmp_path: Path, begun: str) -> None:
    """Of training, and of the attack that starts a round: both would go on for hours."""
    more = ["total_steps=100000000", "evaluation.every_steps=1000000", "checkpoint_every_steps=256"]
    if begun == "attack":
        more.append(ROUNDS.replace("40000", "400000000"))
    overrides = [a for text in (*SMALL, *more) for a in ("--set", text)]
    command = [sys.executable, "-m", "ccenv.cli.main", "train", "quick_sender", "--out", str(tmp_path), *overrides]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        file, wanted = tmp_path / "progress.csv", 2 if begun == "attack" else 3
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and process.poll() is None:
            if file.is_file() and file.read_text().count("\n") >= wanted:
                break
            time.sleep(0.01)
        time.sleep(0.5)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        # the command's last words, after lines of progress; how the interpreter ends is not the run's
        told = next((line for line in process.stderr if b"interrupted" in line), b"")
        took_s = time.monotonic() - sent
        process.wait(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and b"interrupted" in told
    assert took_s < SOON_S
    assert read_record(tmp_path)["status"] in (INTERRUPTED, RUNNING)  # the latter where this machine was too slow to say so
    assert read_checkpoint(tmp_path / "checkpoint") is not None
    assert PathSet.REPORT.value not in (tmp_path / "run.json").read_text()
