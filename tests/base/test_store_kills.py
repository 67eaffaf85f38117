"""Long commands that are killed while they write: the same command goes on and ends with the result of an uninterrupted one."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from own_process import run_apart
from small_suite import write_suite

from ccenv.cli.main import main


def die_at(number: int, folder: str, command: list[str]) -> int:
    """Run a command that is killed before the fsync of this number in a folder."""
    fsync, inside, left = os.fsync, os.path.realpath(folder), number

    def die_at_the_last(descriptor: int) -> None:
        nonlocal left
        left -= os.readlink(f"/proc/self/fd/{descriptor}").startswith(inside)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(descriptor)

    os.fsync = die_at_the_last  # type: ignore[assignment]
    return main(command)


TRAINED = {"total_steps": 192, "checkpoint_every_steps": 64, "num_envs": 8, "evaluation.n_paths": 8}
TRAINED |= {"ppo.n_steps": 8, "ppo.batch_size": 64, "ppo.hidden": "[8]", "ppo.n_epochs": 1}
LEAGUE: dict[str, Any] = {
    "name": "small",
    "rounds": 1,
    "senders": ["cc_probe_drain"],
    "networks": ["slowest", "uniform"],
    "training": {"name": "small", "total_steps": 64, "num_envs": 8, "ppo": {"n_steps": 8, "batch_size": 64, "hidden": [8]}},
    **{"start_steps": 64, "round_steps": 64, "steps_per_rtt": 2, "warmup_rtts": 10, "window_rtts": 10, "nominal_paths": 4},
    "scenes": {"count": 2, "hold_outs": 1},
    "searches": ["corners", "two_phase:population=8"],
    "search_flow_steps": 1000,
    "hold_outs": ["square"],
    "hold_out_flow_steps": 10000,
}


def league_numbers(out: Path) -> Any:
    data = json.loads((out / "league.json").read_text())
    del data["timing"]
    return data, (out / "senders" / "round-00" / "policy.safetensors").read_bytes()


COMMANDS: dict[str, tuple[list[str], Callable[[Path], Any], tuple[int, ...]]] = {
    "bench": (["bench", "run", "small.yaml"], lambda out: (out / "cells.jsonl").read_bytes(), (1, 2, 3)),
    "league": (["league", "league.yaml"], league_numbers, (9,)),
    "report": (["report", "cubic", "--only", "bufferbloat"], lambda out: json.loads((out / "report.json").read_text()), (1, 3)),
    "synth": (["synth", "quick"], lambda out: {file.name: file.read_bytes() for file in out.glob("*/solutions/*.json")}, (2, 4)),
    "train": (
        ["train", "quick_sender", *(a for name, value in TRAINED.items() for a in ("--set", f"{name}={value}"))],
        lambda out: (out / "policy.safetensors").read_bytes(),
        (4, 9),
    ),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "report")) for name in COMMANDS])
def test_a_killed_command_goes_on_to_the_same_result(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, result, kills = COMMANDS[name]
    monkeypatch.chdir(tmp_path)
    Path("league.yaml").write_text(yaml.safe_dump(LEAGUE))
    write_suite(tmp_path)
    assert main([*command, "-o", "whole"]) in (0, None)
    for number in kills:
        killed = run_apart(die_at, number, f"out{number}", [*command, "-o", f"out{number}"], folder=tmp_path, limit_s=400)
        assert killed.returncode == -signal.SIGKILL
        assert main([*command, "-o", f"out{number}"]) in (0, None)
        assert result(Path(f"out{number}")) == result(Path("whole"))
