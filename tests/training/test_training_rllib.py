"""RLlib runs: policies come out as ccenv's files; errors before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ccenv.cli.main import main
from ccenv.training.rllib import mean_layers

SMALL = ["iterations=2", "train_batch_size=64", "minibatch_size=32", "num_epochs=1", "hidden=[8]", "n_paths=8", "num_cpus=1"]


def test_mean_layers_take_the_head_apart() -> None:
    state = {"encoder.encoder.net.mlp.0.weight": np.ones((3, 10)), "encoder.encoder.net.mlp.0.bias": np.zeros(3)}
    state |= {"pi.net.mlp.0.weight": np.arange(12.0).reshape(4, 3), "pi.net.mlp.0.bias": np.arange(4.0)}
    weights, biases = mean_layers(state, 2)
    assert [w.shape for w in weights] == [(10, 3), (3, 2)] and biases[-1].tolist() == [0.0, 1.0]
    assert weights[-1].T.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["iteration=3"], "Did you mean 'iterations'"),
        (["environment.model=[ccac]"], "Did you mean 'models'"),
        (["environment.models=[ccac, ideal]"], "one model"),
        (["hidden=[512]"], "widths must lie in 1 to 256"),
    ],
)
def test_bad_configs_stop_before_ray_starts(
    changes: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "rllib_duel", *(a for c in changes for a in ("--set", c))]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    (tmp_path / "mine").write_text("x")
    assert main(["train", "rllib_duel", "--out", str(tmp_path)]) == 2
    assert "cannot be resumed" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rllib_sender", "rllib_duel"])
def test_rllib_trains(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    from ccenv.adversaries import make_adversary
    from ccenv.agents import make_sender

    changes = [*SMALL, "environment.episode_rtts=8", *(["num_envs=4"] if name == "rllib_sender" else [])]
    arguments = [a for c in changes for a in ("--set", c)]
    assert main(["train", name, "--out", str(tmp_path / "run"), "--json", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["iterations"] == 2 and result["steps"] >= 128
    assert make_sender(str(tmp_path / "run")).name == name
    if name == "rllib_duel":
        first = result["returns"][0]
        assert first["sender"] == pytest.approx(-first["network"])  # zero-sum
        assert make_adversary(str(tmp_path / "run" / "network")).name == "rllib_duel_network"


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    assert main(["train", "rllib_duel", "--out", str(tmp_path / "run"), "--set", "address=127.0.0.1:1"]) == 2
    assert "no Ray cluster at address" in capsys.readouterr().err
