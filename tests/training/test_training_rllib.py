"""RLlib runs: policies come out as ccenv's files; errors before anything starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ccenv.base.config import validate
from ccenv.base.errors import CcenvError
from ccenv.cli.main import main
from ccenv.training.config import load_data
from ccenv.training.rllib.run import RllibConfig, _save, mean_layers

SMALL = ["iterations=2", "train_batch_size=64", "minibatch_size=32", "num_epochs=1", "hidden=[8]", "n_paths=8", "num_cpus=1"]


def test_mean_layers_take_the_head_apart() -> None:
    state = {"encoder.encoder.net.mlp.0.weight": np.ones((3, 10)), "encoder.encoder.net.mlp.0.bias": np.zeros(3)}
    state |= {"pi.net.mlp.0.weight": np.arange(12.0).reshape(4, 3), "pi.net.mlp.0.bias": np.arange(4.0)}
    weights, biases = mean_layers(state, 2)
    assert [w.shape for w in weights] == [(10, 3), (3, 2)] and biases[-1].tolist() == [0.0, 1.0]
    assert weights[-1].T.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


class Trained:
    """Stands for RLlib's algorithm: modules with given weights."""

    def __init__(self, value: float) -> None:
        self._value = value

    def get_module(self, name: str) -> Trained:
        self._n = {"sender": (10, 1), "network": (19, 2)}[name]
        return self

    def get_state(self) -> dict[str, np.ndarray]:
        n_in, n_out = self._n
        state = {"encoder.encoder.net.mlp.0.weight": np.zeros((4, n_in)), "encoder.encoder.net.mlp.0.bias": np.zeros(4)}
        head = np.full((2 * n_out, 4), self._value)
        return {**state, "pi.net.mlp.0.weight": head, "pi.net.mlp.0.bias": np.zeros(2 * n_out)}


def test_policies_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    config = validate(RllibConfig, *load_data("rllib_duel"))
    with pytest.raises(CcenvError, match="iteration 1; no policy was written"):
        _save(config, tmp_path, Trained(np.nan), 0)
    assert not list(tmp_path.iterdir())
    _save(config, tmp_path, Trained(0.5), 0)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert len(before) == 4
    with pytest.raises(CcenvError, match="iteration 2; the policies of iteration 1 are kept"):
        _save(config, tmp_path, Trained(np.inf), 1)
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}


def test_missing_pettingzoo_is_said_before_anything_is_written(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray")
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    assert main(["train", "rllib_duel", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == "ccenv: error: pettingzoo is not installed: pip install 'ccenv[duel]'\n"
    assert not (tmp_path / "run").exists()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, refused) -> None:
    pytest.importorskip("ray")
    (tmp_path / "mine").write_text("x")
    refused(["train", "rllib_duel", "--out", str(tmp_path)], "holds something else than a run of RLlib")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rllib_sender", "rllib_duel"])
def test_rllib_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer) -> None:
    pytest.importorskip("ray")
    from tables import training_records as record

    from ccenv.training.rllib.run import train_rllib

    monkeypatch.setattr(record, "ATTACK_FLOW_STEPS", 100_000)
    from ccenv.adversaries import make_adversary
    from ccenv.agents import make_sender

    arguments = [a for c in [*SMALL, "environment.episode_rtts=8", "num_envs=4"] for a in ("--set", c)]
    arguments += ["--seeds", "3"]
    result = answer(["train", name, "--out", str(tmp_path / "run"), "--json", *arguments])
    assert result["iterations"] == 2 and result["steps"] >= 128 and result["cpu_seconds"] > 0
    config = validate(RllibConfig, *load_data(name, [*arguments[1:-2:2], "seed=3"]))
    run = record.make_entry(config, train_rllib(config, tmp_path / "run"))  # finished: nothing is trained again
    assert run["evaluation"] == result["evaluation"] and 0 <= run["worst"]["deep"]["utilisation"] <= 1
    assert (run["duel"] is None) == (name == "rllib_sender") and make_sender(str(tmp_path / "run")).name == name
    if name == "rllib_duel":
        first = result["returns"][0]
        assert first["sender"] == pytest.approx(-first["network"])  # zero-sum
        assert make_adversary(str(tmp_path / "run" / "network")).name == "rllib_duel_network"


@pytest.mark.slow
def test_rllib_trains_inside_a_shield_per_packet(tmp_path: Path, answer) -> None:
    """What comes out is a sender of ``ccenv sim`` that chooses inside the shield, and uses the link."""
    pytest.importorskip("ray")
    from ccenv.agents import make_sender
    from ccenv.agents.sender import ShieldSender
    from ccenv.simulation.run import simulate

    environment = "environment={scenario: single, shield: learned_shield_u80, episode_decisions: 32}"
    changes = [a for c in [*SMALL, "plays=packet", environment, "num_envs=4"] for a in ("--set", c)]
    result = answer(["train", "rllib_packet_flows", "--out", str(tmp_path / "run"), "--json", *changes])
    assert result["iterations"] == 2 and result["steps"] >= 128 and result["evaluation"]["utilisation"] > 0.5
    sender = make_sender(str(tmp_path / "run"))
    assert isinstance(sender, ShieldSender) and sender.chooser == "policy"
    network = {"links": [{"rate_mbps": 12, "buffer_bdp": 2}], "flows": [{"sender": str(tmp_path / "run"), "rtt_ms": 30}]}
    ran = simulate({"name": "own", "duration_s": 3, **network})
    assert ran.summary()["flows"][0]["throughput_mbps"] > 6


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path, refused) -> None:
    pytest.importorskip("ray")
    refused(["train", "rllib_duel", "--out", str(tmp_path / "run"), "--set", "address=127.0.0.1:1"], "no Ray cluster at address")
    assert not (tmp_path / "run").exists()


def arguments_of(*changes: str) -> list[str]:
    return [a for c in [*SMALL, "environment.episode_rtts=8", "num_envs=4", *changes] for a in ("--set", c)]


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_interrupted(tmp_path, monkeypatch, capsys, refused, answer):
    """The state put back is the state taken, number by number; what was done is not done again."""
    pytest.importorskip("ray")
    from ccenv.training.checkpoint import read_checkpoint
    from ccenv.training.rllib import run as module

    folder = tmp_path / "run"
    first = answer(["train", "rllib_duel", "--out", str(folder), "--json", *arguments_of()])
    kept = read_checkpoint(folder / "checkpoint")
    assert kept.iteration == 2 and {name.partition(".")[0] for name in kept.tensors} == {"module", "optimizer", "kl"}
    put_back = []
    unpack = module.unpack

    def watched(algorithm: object, tensors: dict[str, np.ndarray]) -> None:
        unpack(algorithm, tensors)
        put_back.append(module.pack(algorithm))

    monkeypatch.setattr(module, "unpack", watched)
    (folder / "progress.csv").write_text((folder / "progress.csv").read_text() + "3,9,,\n")  # killed before the checkpoint
    longer = answer(["train", "rllib_duel", "--out", str(folder), "--json", *arguments_of("iterations=3")])
    assert put_back[0].keys() == kept.tensors.keys()
    for name, array in kept.tensors.items():
        np.testing.assert_array_equal(put_back[0][name], array, err_msg=name)
    assert longer["resumed_from_iterations"] == 2 and longer["returns"][:2] == first["returns"]
    assert longer["iterations"] == 3 and longer["steps"] > first["steps"]
    assert read_checkpoint(folder / "checkpoint").iteration == 3
    again = main(["train", "rllib_duel", "--out", str(folder), "--json", *arguments_of("iterations=3")])
    assert again == 0
    finished = json.loads(capsys.readouterr().out)
    assert finished["resumed_from_iterations"] == 3 and finished["evaluation"] == longer["evaluation"]
    refused(["train", "rllib_duel", "--out", str(folder), *arguments_of("learning_rate=0.5")], "another config; choose another")
    refused(
        ["train", "rllib_duel", "--out", str(folder), *arguments_of("iterations=1")],
        "has already trained 3 iterations, more than iterations 1",
    )
    (folder / "progress.csv").write_text("iteration,steps\n1,x\n")
    refused(["train", "rllib_duel", "--out", str(folder), *arguments_of("iterations=4")], "not the progress of 3 iterations")
