"""Stored counterexamples as opponents: on their own path, step by step, beside drawn paths; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccenv.agents.sender import ExternalSender
from ccenv.attacks.scenes import PATHS
from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.task import SenderTask
from ccenv.network.adversary import MovesHeader, RecordedAdversary, StoredMoves
from ccenv.network.path import make_path
from ccenv.training.config import TrainConfig
from ccenv.training.opponents import load_counterexamples, opponents
from ccenv.training.run import train

K, STEPS = 4, 60
OWN = make_path(link_rate_mbps=7, rtt_ms=30, jitter_ms=45, buffer_bdp=2)


def store(folder: Path, name: str, path: Any = OWN, seed: int = 0, steps: int = STEPS, **header: Any) -> Path:
    moves = np.random.default_rng(seed).random((steps, 2 + 2 * path.n_flows))
    about = {
        "model": "ccac",
        "steps_per_rtt": K,
        "dt_s": path.flows[0].rtt_s / K,
        "first_row": 8,
        "sender": "x",
        "adversary": "y",
    }
    file = folder / f"{name}.moves.npz"
    StoredMoves(MovesHeader(path=path, utilisation=0.5, **{**about, **header}), moves).save(file)
    return file


def config(names: list[str], environment: dict[str, Any] | None = None, **robust: Any) -> TrainConfig:
    data = {
        "name": "small",
        "total_steps": 256,
        "num_envs": 16,
        "environment": {"models": ["cbr_delay", "ccac"], "steps_per_rtt": K, "episode_rtts": 16, **(environment or {})},
        "ppo": {"n_steps": 8, "batch_size": 64, "hidden": [8], "n_epochs": 1},
        "evaluation": {"n_paths": 4},
        "robust": {
            **{"start_step": 128, "round_steps": 128, "budget_flow_steps": 2000, "searches": ["corners", "cem:population=4"]},
            **{"share": 0.75, "counterexamples": names, **robust},
        },
    }
    return validate(TrainConfig, data, "small.yaml")


def test_counterexamples_play_their_own_path_beside_drawn_ones(tmp_path: Path) -> None:
    other = make_path(link_rate_mbps=20, rtt_ms=10, jitter_ms=10, buffer_bdp=4)
    store(tmp_path, "a")
    store(tmp_path, "b", other, seed=1)
    chosen = config([str(tmp_path)])
    examples = load_counterexamples(chosen)
    assert [Path(one.file).name for one in examples] == ["a.moves.npz", "b.moves.npz"]
    patterns = np.random.default_rng(2).random((3, 12 * K, 4))
    players, source = opponents(chosen, patterns, examples)
    names = [Path(player.name).name if isinstance(player, RecordedAdversary) else "" for player in players]
    assert sum(name != "" for name in names) == 12
    assert {name for name in names[:8] if name} == {
        "pattern_0",
        "pattern_1",
        "pattern_2",
    }  # cbr_delay: no counterexample is of it
    of_store = [b for b, name in enumerate(names) if name.endswith(".npz")]
    assert len(of_store) == 3 and min(of_store) >= 8
    assert names[of_store[0]] != names[of_store[1]] == "b.moves.npz"
    task = SenderTask(16, chosen.environment, adversaries=players, source=source)
    plain = SenderTask(16, chosen.environment, adversaries=players)
    for each in (task, plain):
        each.core.reset(seed=5)
    rates = task.core.env("link_rate_Bps")
    drawn = [b for b in range(16) if b not in of_store]
    np.testing.assert_array_equal(rates[drawn], plain.core.env("link_rate_Bps")[drawn])
    for b in of_store:
        one = examples[["a.moves.npz", "b.moves.npz"].index(names[b])]
        settings = chosen.environment.model_copy(update={"models": ("ccac",), "paths": one.path})
        alone = Core(
            1,
            settings,
            senders=[ExternalSender()],
            adversary=RecordedAdversary("x", one.moves),
            groups=np.ones((1, 1), np.bool_),
        )
        alone.reset(seed=0)
        task.core.reset(seed=5)
        for step in range(16):
            rate_Bps = one.path.link_rate_Bps * (0.5 + step % 3)
            task.core.advance(np.full((16, 1), rate_Bps))
            alone.advance(np.full((1, 1), rate_Bps))
            assert task.core.delivered_bytes[b, 0] == alone.delivered_bytes[0, 0]
        assert alone.delivered_bytes[0, 0] > 0


def test_without_a_share_nobody_plays_them(tmp_path: Path) -> None:
    store(tmp_path, "a")
    chosen = config([str(tmp_path)], counterexample_share=0.0)
    players, _ = opponents(chosen, np.ones((1, 12 * K, 4)), load_counterexamples(chosen))
    assert not [player for player in players if player.name.endswith(".npz")]


def test_they_change_what_is_learnt_and_a_run_repeats(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    store(folder, "a")
    weights = []
    for number, share in enumerate((1.0, 1.0, 0.0)):
        run = tmp_path / f"run-{number}"
        train(config([str(folder)], counterexample_share=share), run)
        weights.append((run / "policy.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize(
    ("changes", "environment", "message"),
    [
        ({"steps_per_rtt": 8, "dt_s": 0.00375}, {}, "moves of 8 steps per Rm; environment.steps_per_rtt is 4"),
        ({"model": "strong"}, {}, "moves on strong; environment.models has cbr_delay, ccac"),
        ({"path": PATHS["long_jitter"]}, {}, "moves on the scene 'long_jitter', which robust.paths ['deep'] does not name"),
        (
            {"path": make_path(link_rate_mbps=7, rtt_ms=30, jitter_ms=30, n_flows=2)},
            {},
            "moves of 2 flows; robust training has one",
        ),
        ({"steps": 17 * K}, {}, "moves of 17 Rm; environment.episode_rtts is 16"),
        ({}, {"paths": OWN.to_dict()}, "environment.paths must be a distribution"),
    ],
)
def test_what_does_not_fit_is_one_line_before_training(
    changes: dict[str, Any], environment: dict[str, Any], message: str, tmp_path: Path
) -> None:
    store(tmp_path, "a", **changes)
    with pytest.raises(InputError) as refused:
        train(config([str(tmp_path)], environment), tmp_path / "run")
    assert message in str(refused.value)
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_an_empty_folder_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no \.moves\.npz file"):
        load_counterexamples(config([str(tmp_path)]))
    (tmp_path / "x.moves.npz").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"x\.moves\.npz"):
        load_counterexamples(config([str(tmp_path)]))
