"""Learning from a data set: cloning takes the mean action, Q-learning the better one; a resumed run is the same run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ccenv.base.errors import InputError
from ccenv.cli.main import main

pytest.importorskip("minari")
pytest.importorskip("stable_baselines3")

from ccenv.envs.clients.sb3 import CcenvVecEnv
from ccenv.envs.packet.task import SharedPacketTask
from ccenv.training.config import TrainConfig, load_config
from ccenv.training.offline.config import DataConfig
from ccenv.training.offline.dataset import Data, data_folder, read_data
from ccenv.training.offline.learner import OfflineTD3
from ccenv.training.offline.report import cover
from ccenv.training.run import train
from ccenv.training.settings import OfflineSettings

INTERFACE: dict[str, Any] = {"signals": ["queue_log2", "send_excess", "loss_log2"], "history": 2}
DATA = {
    **INTERFACE,
    "transitions": 40,
    "networks": 2,
    "episode_decisions": 10,
    "parts": [{"behaviour": name, "packet": {"scenario": "offline"}} for name in ("cubic", "copa")],
}
SMALL = {
    "algorithm": "td3",
    "total_steps": 64,
    "num_envs": 2,
    "packet": {**INTERFACE, "scenario": "offline", "action": "cwnd_exp2", "clock": {"every": "min_rtt"}, "episode_decisions": 10},
    "offline": {"data": "few.yaml", "method": "iql", "online_from_step": 32},
    "td3": {"n_steps": 4, "gradient_steps": 2, "batch_size": 16, "buffer_size": 256, "hidden": [4]},
    "evaluation": {"n_paths": 4},
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    Path("few.yaml").write_text(yaml.safe_dump(DATA))
    Path("few_learned.yaml").write_text(yaml.safe_dump(SMALL))
    return load_config("few_learned.yaml")


def test_a_run_tells_its_score_beside_the_datas_and_resumes_to_the_same_weights(config: TrainConfig, tmp_path: Path) -> None:
    whole = train(config, tmp_path / "whole")
    told = whole.offline
    assert told is not None and whole.steps == 64 and [one["behaviour"] for one in told["behaviours"]] == ["cubic", "copa"]
    assert told["behaviour_score"] == pytest.approx(np.mean([one["score"] for one in told["behaviours"]]))
    assert told["gain"] == pytest.approx(whole.evaluation.score - told["behaviour_score"])
    assert told["before_online"]["score"] != whole.evaluation.score and told["transitions"] == 40
    assert 0 <= told["coverage"]["covered"] <= 1

    def stop(progress: Any) -> None:
        if progress.steps >= 48:  # it plays itself already
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "stopped", report=stop)
    again = train(config, tmp_path / "stopped")
    assert again.resumed_from_steps > 0 and again.evaluation == whole.evaluation and again.offline == told
    policies = [(tmp_path / name / "policy.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert policies[0] == policies[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [(["packet.history=3"], "must be those of the data set 'few'"),
     (["packet.reward=orca"], "must be those of the data set 'few'"), (["algorithm=sac"], "for td3 senders per packet"),
     (["offline.method=bc"], "cannot go on online"), (["offline.data=fewer"], "unknown data config"),
     (["offline.method=iqk"], "iql")],
)  # fmt: skip
def test_what_cannot_be_learned_is_one_line(config, changes, said, refused):
    refused(["train", "few_learned.yaml", *changes], said)
    assert not Path("runs").exists()


def test_data_of_another_config_or_damaged_ones_are_not_learned_from(config, capsys):
    data = read_data("few.yaml")
    Path("few.yaml").write_text(yaml.safe_dump({**DATA, "seed": 1}))
    with pytest.raises(InputError, match="made by another config"):
        read_data("few.yaml")
    Path("few.yaml").write_text(yaml.safe_dump(DATA))
    (data_folder(data.config) / "data" / "0" / "part-0.arrow").write_bytes(b"x")
    assert main(["train", "few_learned.yaml"]) == 2 and "not a readable data set" in capsys.readouterr().err


def made_up(config: TrainConfig) -> Data:
    """Return data of actions drawn evenly, which are better the nearer they are to 0.6, whatever is seen."""
    generator = np.random.default_rng(0)
    seen = generator.random((2000, 6)).astype(np.float32)
    actions = generator.uniform(-1, 1, (2000, 1)).astype(np.float32)
    rewards = -np.abs(actions[:, 0] - 0.6)
    own = DataConfig.model_validate({**DATA, "name": "few"})
    return Data("few", "", seen, np.roll(seen, -1, axis=0), actions, rewards, np.zeros(2000, int), own)


@pytest.mark.parametrize(("method", "expected"), [("bc", 0.0), ("iql", 0.6)])
def test_cloning_takes_the_mean_action_and_q_learning_the_better_one(config: TrainConfig, method: str, expected: float) -> None:
    import torch

    torch.manual_seed(0)
    np.random.seed(0)
    env = CcenvVecEnv(SharedPacketTask(1, config.packet_settings()))
    offline = OfflineSettings(method=method, expectile=0.9, temperature=5.0)
    settings = {"learning_rate": 0.01, "gamma": 0.5, "policy_kwargs": {"net_arch": [16], "activation_fn": torch.nn.Tanh}}
    model = OfflineTD3(env, offline=offline, data=made_up(config), device="cpu", buffer_size=256, tau=0.05, **settings)
    from stable_baselines3.common.logger import Logger

    model.set_logger(Logger(None, []))
    model.train(400, 128)
    with torch.no_grad():
        taken = model.actor(torch.rand(64, 6)).numpy()
    assert abs(taken.mean() - expected) < (0.1 if method == "bc" else 0.25)


def test_coverage_tells_near_from_far(config: TrainConfig) -> None:
    data = made_up(config)
    rows = np.random.default_rng(1).integers(2000, size=(8, 50))
    near = cover(data, data.observations[rows], data.actions[rows], np.arange(8.0))
    assert near["covered"] > 0.93 and near["median_distance"] < 1.1
    seen = data.observations[rows].copy()
    seen[:4] += 5.0  # half of the networks are where no data are, and lose by it
    half = cover(replace(data), seen, data.actions[rows], np.repeat([-1.0, 1.0], 4))
    assert half["covered"] == pytest.approx(0.5, abs=0.05) and half["explained"] > 0.95 and half["correlation"] > 0
