"""The shipped sweep names only what its command takes."""

import itertools
import subprocess
from pathlib import Path

import pytest
import yaml

from ccenv.cli.main import main
from ccenv.training.config import load_config
from ccenv.training.logs import Progress

SWEEP = Path(__file__).parents[2] / "ccenv" / "configs" / "sweep" / "wandb_ppo_sender.yaml"


def test_every_point_of_the_sweep_is_a_valid_config_with_a_folder_of_its_own(tmp_path):
    """Run the command as W&B's agent does, with a ``ccenv`` that only tells its arguments."""
    stub = tmp_path / "ccenv"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    sweep = yaml.safe_load(SWEEP.read_text())
    names, values = zip(*((name, given["values"]) for name, given in sweep["parameters"].items()), strict=True)

    def told(point, run_id):
        given = [f"{name}={value}" for name, value in zip(names, point, strict=True)]
        command = [word for part in sweep["command"] for word in (given if part == "${args_no_hyphens}" else [part])]
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "WANDB_RUN_ID": run_id}
        return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.splitlines()

    train, name, out, folder, *overrides = told([given[0] for given in values], "abc")
    assert (train, name, out, folder) == ("train", "quick_sender", "--out", "runs/sweep-abc")
    fixed = overrides[: -len(names)]
    for point in itertools.product(*values):
        config = load_config(name, [*fixed, *(f"{n}={v}" for n, v in zip(names, point, strict=True))])
        assert config.log.wandb.enabled
    assert sweep["metric"]["name"] in Progress.__annotations__


def test_overrides_without_set_are_what_a_sweep_passes(tmp_path, capsys):
    pytest.importorskip("stable_baselines3")
    small = ["num_envs=8", "ppo.n_steps=8", "ppo.batch_size=64", "total_steps=64", "evaluation.n_paths=4"]
    assert main(["train", "quick_sender", *small, "--set", "ppo.hidden=[4]", "--out", str(tmp_path)]) == 0
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["num_envs"] == 8 and config["ppo"]["hidden"] == [4]
    capsys.readouterr()
    assert main(["train", "quick_sender", "ppo.hiden=[4]"]) == 2
    assert "Did you mean 'hidden'" in capsys.readouterr().err


def test_seeds_and_their_record(tmp_path, monkeypatch, capsys):
    pytest.importorskip("stable_baselines3")
    import json

    from ccenv.training import records as record

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "ATTACK_FLOW_STEPS", 100_000)
    small = ["num_envs=8", "ppo.n_steps=8", "ppo.batch_size=64", "ppo.hidden=[4]", "total_steps=64", "evaluation.n_paths=4"]
    command = ["train", "quick_sender", *small, "--seeds", "0,1", "--record", "learning.json", "--json"]
    assert main(command) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    data = json.loads((tmp_path / "learning.json").read_text())
    assert sorted(data["runs"]) == ["quick_sender:0", "quick_sender:1"]
    entry = data["runs"]["quick_sender:1"]
    assert {scene: (case["set"], case["seen"]) for scene, case in entry["worst"].items()} == {
        "deep": ("training", "in range"),
        "shallow": ("training", "in range"),
        "long_jitter": ("report", None),
        "narrow": ("report", None),
    }
    assert all(0 <= case["utilisation"] <= 1 and case["legal"] for case in entry["worst"].values())
    assert entry["world"]["senders"] == ["external"] and entry["world"]["steps_per_rtt"] == 4
    assert entry["evaluation"]["path_set"] == entry["common"]["path_set"] == "report"
    assert "/" not in json.dumps(entry)  # no path of this machine
    (tmp_path / "learning.json").write_text("{}")
    assert main(command) == 2
    assert "not a record" in capsys.readouterr().err
    assert main(["train", "quick_sender", "--seeds", "0,x"]) == 2


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert main(["train", "quick_sender", "--out", str(tmp_path / "file" / "run")]) == 2
    assert "cannot be made" in capsys.readouterr().err
