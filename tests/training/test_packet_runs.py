"""Training runs over the packet environments: resuming, discrete actions, videos, what is refused."""

from pathlib import Path

import numpy as np
import pytest
from stopped import assert_goes_on, progress_of

from ccenv.agents import make_sender
from ccenv.agents.programs import to_data
from ccenv.agents.sender import ShieldSender
from ccenv.agents.wrapped import load_shield
from ccenv.base.errors import InputError
from ccenv.simulation.run import simulate
from ccenv.training.config import TrainConfig, load_config

pytest.importorskip("stable_baselines3")

from ccenv.agents.callbacks import ADVERSARY_SLOTS
from ccenv.training import run as run_module
from ccenv.training.checkpoint import read_checkpoint
from ccenv.training.run import train

SMALL = [
    *("num_envs=4", "total_steps=512", "packet.episode_decisions=20", "ppo.n_steps=16", "ppo.batch_size=64", "ppo.hidden=[8]"),
    *("evaluation.n_paths=4", "evaluation.n_paths_during=4", "evaluation.worlds={}", "checkpoint_every_steps=128"),
]


def small(name: str, *more: str) -> TrainConfig:
    return load_config(name, [*SMALL, *more])


@pytest.mark.parametrize("name", ["aurora", "packet_flows", "packet_shield"])
def test_a_stopped_run_ends_as_the_uninterrupted_one(name: str, tmp_path: Path) -> None:
    assert_goes_on(tmp_path, small(name), [128])
    rows = progress_of(tmp_path / "whole")
    assert [int(row["steps"]) for row in rows] == list(range(64, 513, 64))
    assert any(float(row["utilisation"] or "nan") > 0 for row in rows)  # episodes ended on the way


def test_discrete_actions_train_and_are_scored(tmp_path: Path) -> None:
    result = train(small("aurora", "packet.n_actions=5"), tmp_path)
    assert np.isfinite(result.evaluation.score) and result.evaluation.utilisation > 0
    assert make_sender(str(tmp_path)).head == "categorical"


def test_a_run_inside_a_shield_is_a_sender_of_sim_and_holds_its_shield(tmp_path: Path) -> None:
    config = small("packet_shield", "packet.n_actions=3", "ppo.rollouts=python")
    assert config.packet is not None and config.packet["shield"] == to_data(load_shield("learned_shield_u80"))
    result = train(config, tmp_path)
    assert result.evaluation.utilisation > 0.5
    sender = make_sender(str(tmp_path))
    assert isinstance(sender, ShieldSender) and sender.chooser == "policy"
    network = {"links": [{"rate_mbps": 12, "buffer_bdp": 2}], "flows": [{"sender": str(tmp_path), "rtt_ms": 30}]}
    ran = simulate({"name": "own", "duration_s": 3, **network})
    assert ran.summary()["flows"][0]["throughput_mbps"] > 6
    assert run_module.read_config(tmp_path / "config.yaml").packet == config.packet


def test_videos_show_an_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.image import imread

    monkeypatch.setattr("ccenv.training.monitoring.FRAMES", 2)
    train(small("aurora", "evaluation.every_steps=256", "log.video=true"), tmp_path)
    assert [imread(tmp_path / "videos" / f"{steps}.gif").std() > 1 for steps in (256, 512)] == [True, True]


def test_what_no_trace_shows_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log\.networks play in the curve environments"):
        small("aurora", "evaluation.every_steps=256", "log.networks=[kind]")
    scenario = "{links: [{rate_mbps: 10, discipline: codel}], flows: [{sender: external, rtt_ms: 20}]}"
    config = small("aurora", "evaluation.every_steps=256", "log.video=true", f"packet.scenario={scenario}")
    with pytest.raises(InputError, match=r"log\.video: .* one drop-tail link"):
        run_module.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


LINK = "{rate_mbps: [8, 16], buffer_bdp: 2}"
ATTACKED = f"packet.scenario={{duration_s: 60, links: [{LINK}], flows: [{{sender: external, rtt_ms: 30, %s}}]}}"
ROUNDS = ("robust.start_step=128", "robust.round_steps=192", "robust.budget_flow_steps=4000", "robust.keep=4")
BOXED = ATTACKED % "jitter: {kind: adversary, adversary: external, max_ms: 30}"


def test_rounds_against_jitter_boxes_resume_and_differ_from_their_control(tmp_path: Path) -> None:
    assert_goes_on(tmp_path, small("aurora", BOXED, *ROUNDS), [384], small("aurora", BOXED, *ROUNDS, "robust.share=0"))
    pool = read_checkpoint(tmp_path / "whole" / "checkpoint").tensors["pool.moves"]
    assert pool.shape == (4, ADVERSARY_SLOTS) and len(np.unique(pool, axis=0)) > 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([ATTACKED % "start_s: 0", *ROUNDS], "packet.scenario has none with adversary 'external'"),
        ([BOXED, *ROUNDS, "robust.policies=[network_drain]"], r"robust\.policies is for the curve environments"),
        ([BOXED], "a jitter box is 'external', but the agent controls flows"),
    ],
)
def test_rounds_that_cannot_be_are_refused(more: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        train(small("aurora", *more), tmp_path / "run")
