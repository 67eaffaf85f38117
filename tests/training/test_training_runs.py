"""Training runs: what is written, resumed and stopped; a folder has one run at a time."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stopped import assert_goes_on, progress_of, stop_after

from ccenv.agents import make_sender
from ccenv.agents.sender import ExternalSender, PolicySender
from ccenv.base.errors import CcenvError, InputError, MissingExtraError
from ccenv.base.files import locked
from ccenv.cli.main import main
from ccenv.network.path import make_path
from ccenv.training.config import load_config
from ccenv.training.evaluation import evaluate_in_world, evaluate_sender
from ccenv.training.path_sets import PathSet

pytest.importorskip("stable_baselines3")

from ccenv.training import learner as learner_module
from ccenv.training import run as run_module
from ccenv.training.checkpoint import read_checkpoint, write_checkpoint
from ccenv.training.config import TrainConfig
from ccenv.training.learner import DivergedError, Learner
from ccenv.training.run import FINISHED, INTERRUPTED, RUNNING, read_record, train

SMALL = [
    "num_envs=16", "ppo.n_steps=16", "ppo.batch_size=64", "ppo.hidden=[16]", "total_steps=1536",
    "environment.episode_rtts=10", "evaluation.n_paths=32", "evaluation.n_paths_during=16", "evaluation.every_steps=512",
    "checkpoint_every_steps=512",
]  # fmt: skip
ITERATIONS = 6


def small(*more):
    return load_config("quick_sender", [*SMALL, *more])


def same_weights(a: PolicySender, b: PolicySender):
    return all(np.array_equal(x, y) for x, y in zip(a.weights + a.biases, b.weights + b.biases, strict=True))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "quick"
    result = train(small(), folder)
    return folder, result


def test_a_run_leaves_everything_and_is_a_sender_with_the_score_of_its_record(finished):
    folder, result = finished
    assert result.steps == 1536 and result.resumed_from_steps == 0 and result.folder == folder
    assert sorted(p.name for p in folder.iterdir()) == [
        ".lock", "best", "checkpoint", "config.yaml", "evaluations.jsonl", "policy.json", "policy.safetensors",
        "progress.csv", "run.json",
    ]  # fmt: skip
    assert len(list((folder / "checkpoint").iterdir())) == 2
    rows = list(csv.DictReader((folder / "progress.csv").open()))
    assert [int(row["steps"]) for row in rows] == [256 * (i + 1) for i in range(ITERATIONS)]
    assert [bool(row["evaluation_score"]) for row in rows] == [False, True] * 3
    record = read_record(folder)
    assert record["status"] == FINISHED and record["seed"] == 0 and record["versions"]["ccenv"] and record["machine"]["cores"]
    assert record["config"]["ppo"]["hidden"] == [16]
    assert record["seconds"] > float(rows[-1]["seconds"]) and record["cpu_seconds"] > 0  # the last evaluation counts too
    assert record["evaluation"]["score"] == result.evaluation.score
    notes = json.loads((folder / "policy.json").read_text())["notes"]
    assert notes["steps"] == 1536 and notes["evaluation"]["score"] == result.evaluation.score
    for name in (folder, folder / "policy.safetensors"):
        sender = make_sender(str(name))
        assert isinstance(sender, PolicySender) and evaluate_in_world(small().environment, sender, 32) == result.evaluation
        assert evaluate_sender(sender, 32) == result.common != result.evaluation


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(finished, tmp_path):
    folder, _ = finished
    first = make_sender(str(folder))
    train(small(), tmp_path / "again")
    assert same_weights(first, make_sender(str(tmp_path / "again")))
    train(small("seed=1"), tmp_path / "other")
    assert not same_weights(first, make_sender(str(tmp_path / "other")))


@pytest.mark.parametrize("iterations", [1, 3])
def test_resuming_after_ctrl_c_ends_with_the_same_weights(finished, tmp_path, iterations):
    with pytest.raises(KeyboardInterrupt):
        train(small(), tmp_path, report=stop_after(256 * iterations))
    assert read_record(tmp_path)["status"] == INTERRUPTED
    before = read_checkpoint(tmp_path / "checkpoint")
    make_sender(str(tmp_path))
    result = train(small(), tmp_path)
    assert result.resumed_from_steps == 256 * iterations and result.steps == 1536
    assert result.cpu_seconds > before.cpu_seconds > 0 and result.seconds > before.seconds > 0
    assert same_weights(make_sender(str(finished[0])), make_sender(str(tmp_path)))
    assert progress_of(tmp_path) == progress_of(finished[0])


OFF_POLICY = ["n_steps=16", "gradient_steps=4", "batch_size=32", "buffer_size=1024", "learning_starts=300", "hidden=[16]"]


@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_off_policy_runs_resume_to_the_same_weights(tmp_path, algorithm):
    import torch
    from oracles.policies import mlp_action_reference

    config = small(f"algorithm={algorithm}", *(f"{algorithm}.{setting}" for setting in OFF_POLICY))
    assert_goes_on(tmp_path, config, (3 * 256, 5 * 256))  # the buffer is full after four iterations
    sender = make_sender(str(tmp_path / "whole"))
    learner = Learner(config, read_checkpoint(tmp_path / "whole" / "checkpoint"))
    observations = learner._task.observe()
    with torch.no_grad():
        actions, _ = learner._model.predict(observations, deterministic=True)
    kernel = [mlp_action_reference(sender, row) for row in observations]
    np.testing.assert_allclose(kernel, actions[:, 0], atol=1e-5)


def test_a_curriculum_changes_the_network_and_resumes(tmp_path):
    stages = ["curriculum=[{until_step: 512, models: [ideal]}, {until_step: 1024, models: [cbr_delay]}]"]
    config, plain = small(*stages, "environment.models=[ccac]"), small("environment.models=[ccac]")
    models = [config.environment_at(step).models for step in (0, 511, 512, 1024)]
    assert models == [("ideal",), ("ideal",), ("cbr_delay",), ("ccac",)]
    assert_goes_on(tmp_path, config, (512, 768), plain)  # at the border of two stages, and inside one


def test_a_learning_rate_falls_in_a_straight_line_and_a_run_resumes(tmp_path):
    config = small("ppo.learning_rate=0.001", "ppo.last_learning_rate=0.0001")
    assert_goes_on(tmp_path, config, (512,), small("ppo.learning_rate=0.001"))
    rate = Learner(config, read_checkpoint(tmp_path / "whole" / "checkpoint"))._model.lr_schedule
    assert [rate(left) for left in (1.0, 0.5, 0.0)] == pytest.approx([0.001, 0.00055, 0.0001])


def test_early_stop_and_the_best_policy(tmp_path):
    config = small("early_stop.patience=1", "early_stop.min_gain=2", "evaluation.every_steps=256", "evaluation.n_paths_during=32")
    result = train(config, tmp_path)
    assert result.stopped_early and result.steps == 512  # the second evaluation cannot gain 2
    rows = list(csv.DictReader((tmp_path / "progress.csv").open()))
    assert result.best_select_score == pytest.approx(max(float(row["evaluation_score"]) for row in rows), abs=1e-5)
    best = make_sender(str(tmp_path / "best"))
    assert evaluate_in_world(config.environment, best, 32, path_set=PathSet.SELECT).score == result.best_select_score
    assert evaluate_in_world(config.environment, best, 32) == result.best_evaluation
    again = train(config, tmp_path)
    assert again.stopped_early and again.steps == 512  # nothing is added
    with pytest.raises(KeyboardInterrupt):  # what was found before counts after
        train(config, tmp_path / "parts", report=stop_after(256))
    parts = train(config, tmp_path / "parts")
    assert (parts.steps, parts.best_steps, parts.best_select_score) == (512, result.best_steps, result.best_select_score)


@pytest.mark.parametrize(("levels", "outputs"), [(0, 2), (3, 6)])
def test_a_network_is_trained_against_a_sender(tmp_path, levels, outputs):
    import torch
    from oracles.policies import mlp_moves_reference

    from ccenv.adversaries.learned import load_adversary

    environment = ["environment.senders=[cc_probe_drain]", "environment.staggered=true", "environment.steps_per_rtt=4"]
    environment += ["environment.action=discrete", f"environment.n_actions={levels}"] if levels else []
    changes = ["trains=network", *environment, *SMALL, "total_steps=512"]
    config = load_config("quick_sender", [*changes, "environment.models=[ccac]"])
    assert config.environment.adversary == "external" and config.environment.reward.utilisation == -1
    result = train(config, tmp_path)
    policy = load_adversary(tmp_path)
    assert [weight.shape[1] for weight in policy.weights] == [16, outputs] and policy.levels == levels
    learner = Learner(config, read_checkpoint(tmp_path / "checkpoint"))
    observations = learner._task.observe()
    with torch.no_grad():
        chosen, _ = learner._model.predict(observations, deterministic=True)
    kernel = [mlp_moves_reference(policy, levels, row) for row in observations]
    np.testing.assert_allclose(kernel, chosen / (levels - 1) if levels else chosen, atol=1e-5)
    assert evaluate_in_world(config.environment, None, 32, adversary=policy) == result.evaluation


def test_robust_rounds_resume_and_differ_from_their_control(tmp_path):
    rounds = "start_step: 512, round_steps: 512, budget_flow_steps: 40000, searches: [corners, 'cem:population=8'], log_std: -1.0"
    both = ["environment.steps_per_rtt=2", "evaluation.n_paths_during=4"]
    config, control = small(f"robust={{{rounds}}}", *both), small(f"robust={{{rounds}, share: 0}}", *both)
    assert_goes_on(tmp_path, config, (512, 768), control)  # at the start of a round, and inside one
    state = read_checkpoint(tmp_path / "whole" / "checkpoint")
    # two searches, rounds at 512 and 1024, and the one a longer run starts with
    assert state.tensors["pool.moves"].shape == (6, 24, 4)


def test_a_longer_run_goes_on_from_a_shorter_one(finished, tmp_path):
    train(small("total_steps=512"), tmp_path)
    result = train(small(), tmp_path)
    assert result.resumed_from_steps == 512 and same_weights(make_sender(str(finished[0])), make_sender(str(tmp_path)))
    assert train(small(), tmp_path).resumed_from_steps == 1536
    with pytest.raises(InputError, match="more than total_steps 256"):
        train(small("total_steps=256"), tmp_path)


@pytest.mark.slow
def test_an_interrupted_process_resumes_to_the_same_weights(finished, tmp_path):
    arguments = [a for text in SMALL for a in ("--set", text)]
    command = [sys.executable, "-m", "ccenv.cli.main", "train", "quick_sender", "--out", str(tmp_path), "--json", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 600
    while not (tmp_path / "checkpoint" / "state.json").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    if process.returncode != 0:
        *_, last = errors.splitlines()  # a slow machine says before it how far it is
        assert process.returncode == 130 and b"interrupted" in last and b"Traceback" not in errors
    result = train(small(), tmp_path)
    assert result.resumed_from_steps >= 512 and result.steps == 1536
    assert same_weights(make_sender(str(finished[0])), make_sender(str(tmp_path)))


def test_divergence_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    config = small("ppo.learning_rate=1e30")
    with pytest.raises(DivergedError, match="the checkpoint of step 0 is kept"):
        train(config, tmp_path)
    assert read_record(tmp_path)["status"] == "diverged"
    state = read_checkpoint(tmp_path / "checkpoint")
    assert all(np.isfinite(a).all() for name, a in state.tensors.items() if name.startswith("policy."))
    assert isinstance(make_sender(str(tmp_path)), PolicySender)


def test_a_run_of_another_config_and_a_damaged_record_are_refused_and_restart_discards_the_earlier_run(finished, tmp_path):
    with pytest.raises(InputError, match="another config"):
        train(small("ppo.gamma=0.5"), finished[0])
    with pytest.raises(InputError, match="not a record"):
        (tmp_path / "run.json").write_text("{}")
        read_record(tmp_path)
    train(small("total_steps=256", "ppo.gamma=0.5"), tmp_path / "run")
    result = train(small(), tmp_path / "run", restart=True)
    assert result.resumed_from_steps == 0 and same_weights(make_sender(str(finished[0])), make_sender(str(tmp_path / "run")))


def test_damaged_checkpoints_are_refused(finished, tmp_path):
    folder = tmp_path / "c"
    state = read_checkpoint(finished[0] / "checkpoint")
    write_checkpoint(folder, state)
    assert read_checkpoint(tmp_path / "nothing") is None
    file = next(folder.glob("*.safetensors"))
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(InputError, match="truncated or changed"):
        read_checkpoint(folder)
    file.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        read_checkpoint(folder)
    card = json.loads((folder / "state.json").read_text())
    for change, message in (
        ({"format": "else"}, "not a checkpoint"),
        ({"format": "ccenv-checkpoint", "version": 3}, "version is 3; .*--restart discards it"),
        ({"iteration": "3"}, "iteration: Input should be a valid integer"),
        ({"iteration": -1}, "iteration: "),
        ({"seconds": True}, "seconds: it must be a number"),
        ({"sha256": None}, "sha256: Input should be a valid string"),
        ({"observation_version": 2}, "observation_version is 2; it must be 1"),
    ):
        (folder / "state.json").write_text(json.dumps({**card, **change}))
        with pytest.raises(InputError, match=message):
            read_checkpoint(folder)
    del state.tensors["policy.log_std"]
    with pytest.raises(InputError, match="do not fit"):
        Learner(small(), state)


@pytest.mark.parametrize(("module", "extra"), [("tensorboard", "train"), ("wandb", "wandb")])
def test_a_missing_extra_is_said_before_anything_is_written(tmp_path, monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{module} is not installed: pip install 'ccenv\[{extra}\]'"):
        train(small(f"log.{module}{'.enabled' * (module == 'wandb')}=true"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_evaluation_is_fixed_and_orders_known_senders():
    drain = make_sender("cc_probe_drain")
    one = evaluate_sender(drain, 128)
    assert one == evaluate_sender(drain, 128, threads=2) and one != evaluate_sender(drain, 128, seed=1)
    assert one.score == pytest.approx(one.utilisation - 0.1 * one.queue_bdp - one.loss) and one.score_p5 < one.score < 1
    # Small buffers hurt cc_qdel, a slow start cc_probe_slow (prototype figures: .876, .546, .6).
    assert one.score > evaluate_sender(make_sender("cc_probe_slow"), 128).score > 0.4
    assert one.score > evaluate_sender(make_sender("cc_qdel"), 128).score > 0.3
    with pytest.raises(InputError, match="external"):
        evaluate_sender(ExternalSender())


def test_evaluation_on_a_path_of_known_outcome():
    path = make_path(link_rate_mbps=12, rtt_ms=40, buffer_bdp=4)
    half = evaluate_sender(make_sender("constant:rate_mbps=6"), 2, paths=path, models=("ideal",), warmup_rtts=4, measure_rtts=8)
    assert half.utilisation == pytest.approx(0.5) and half.queue_bdp == 0 and half.loss == 0 and half.delay_rtts == 0
    assert half.score == pytest.approx(0.5)


SMALL_STOPPED = [
    *("num_envs=16", "ppo.n_steps=16", "ppo.batch_size=64", "ppo.hidden=[8]", "total_steps=1024"),
    *("environment.episode_rtts=10", "environment.steps_per_rtt=2", "evaluation.n_paths=8", "evaluation.n_paths_during=4"),
    *("evaluation.every_steps=256", "early_stop.patience=3"),
]
ROUNDS = "robust={start_step: 512, round_steps: 512, budget_flow_steps: 40000, searches: [corners, 'cem:population=8']}"


SOON_S = 20.0  # a second, on a machine that is slow and does other things


def config_of(*more: str) -> TrainConfig:
    return load_config("quick_sender", [*SMALL_STOPPED, *more])


def everything(folder: Path) -> list[np.ndarray]:
    state = read_checkpoint(folder / "checkpoint")
    assert state is not None
    return [np.array(sorted(state.marks.items())), *(state.tensors[name] for name in sorted(state.tensors))]


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
def test_ctrl_c_inside_an_attack_or_an_evaluation_changes_nothing(whole, tmp_path, monkeypatch, module, name, when, steps):
    with monkeypatch.context() as patch:
        stop_once(patch, module, name, when)
        with pytest.raises(KeyboardInterrupt):
            train(config_of(ROUNDS), tmp_path)
    assert read_record(tmp_path)["status"] == INTERRUPTED and train(config_of(ROUNDS), tmp_path).resumed_from_steps == steps
    for one, other in zip(everything(whole), everything(tmp_path), strict=True):
        np.testing.assert_array_equal(one, other)
    assert progress_of(whole) == progress_of(tmp_path)


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
    overrides = [a for text in (*SMALL_STOPPED, *more) for a in ("--set", text)]
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
    assert process.returncode == 130 and b"interrupted" in told and took_s < SOON_S
    assert read_record(tmp_path)["status"] in (INTERRUPTED, RUNNING)  # the latter where this machine was too slow to say so
    assert read_checkpoint(tmp_path / "checkpoint") is not None
    assert PathSet.REPORT.value not in (tmp_path / "run.json").read_text()
