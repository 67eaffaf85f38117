"""Replay by regret: levels are drawn again as they were, the scores are those of a plain loop, and a run resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.envs.curve.distribution import PathDistribution, PathSource
from ccenv.training.config import TrainConfig
from ccenv.training.recipes.replay import ReplayedPaths, ReplaySettings
from ccenv.training.run import train

DISTRIBUTION = PathDistribution()
LANES = np.arange(4)


def source(**settings: Any) -> ReplayedPaths:
    return ReplayedPaths(DISTRIBUTION, 4, 4, ReplaySettings(**{"share": 1.0, "size": 4, **settings}))


def draw(paths: PathSource, episode: int, lanes: np.ndarray = LANES) -> np.ndarray:
    drawn = paths.draw(np.full(len(lanes), 9), lanes, np.full(len(lanes), episode))
    return np.column_stack([drawn.keys, drawn.paths.link_rate_Bps, drawn.paths.buffer_bytes, drawn.initial_C_L_Bps])


def played(paths: ReplayedPaths, gains: list[float]) -> None:
    """One rollout of three steps in which each environment plays one whole episode."""
    starts = np.zeros((3, 4))
    starts[0] = 1
    paths.score(np.array([gains] * 3), starts)


def test_until_enough_is_known_every_path_is_new() -> None:
    paths, plain = source(), PathSource(DISTRIBUTION, 4, 1)
    first = draw(paths, 0)
    paths.begin(np.ones(4, np.bool_))
    np.testing.assert_array_equal(first, draw(plain, 0))
    played(paths, [0.1, 0.4, 0.2, 0.3])
    again = draw(paths, 1)
    assert {tuple(row) for row in again} <= {tuple(row) for row in first}  # now all are known ones, whole levels


def test_a_draw_stays_as_it_is_while_its_episode_lasts() -> None:
    paths = source()
    draw(paths, 0)
    paths.begin(np.ones(4, np.bool_))
    played(paths, [0.1, 0.4, 0.2, 0.3])
    now = draw(paths, 1)
    paths.score(np.ones((3, 4)), np.zeros((3, 4)))
    np.testing.assert_array_equal(draw(paths, 1), now)


def test_scores_are_those_of_a_plain_loop() -> None:
    generator = np.random.default_rng(0)
    paths = source(size=50, share=0.0)
    draw(paths, 0)
    paths.begin(np.array([True, False, True, False]))
    expected: dict[tuple[int, int], float] = {}
    current, number = [(lane, 0) for lane in range(4)], [0] * 4
    starting = [True, False, True, False]
    for _ in range(6):
        advantages, starts = generator.normal(size=(5, 4)), np.zeros((5, 4))
        for lane in range(4):
            own: list[float] = []
            begun = starting[lane]
            starting[lane] = False
            for step in range(5):
                if begun:
                    starts[step, lane] = 1
                    if step:
                        expected[current[lane]] = float(np.mean(own))
                        own = []
                        current[lane] = (lane, number[lane])
                own.append(max(0.0, float(advantages[step, lane])))
                begun = False
                if generator.random() < 0.3:  # the episode ends after this step
                    number[lane] += 1
                    draw(paths, number[lane], np.array([lane]))
                    begun = True
            expected[current[lane]] = float(np.mean(own))
            if begun:
                starting[lane] = True
                current[lane] = (lane, number[lane])
        # What stands at its start next time has its level already: the first step of the next rollout begins it.
        paths.score(advantages, starts)
    state = paths.state()
    found = {tuple(level): score for level, score in zip(state["levels"].tolist(), state["scores"].tolist(), strict=True)}
    assert found.keys() == expected.keys()
    for level, score in expected.items():
        assert found[level] == pytest.approx(score)


def test_probabilities_go_by_rank_and_by_age() -> None:
    paths = source(temperature=1.0, staleness=0.0)
    draw(paths, 0)
    paths.begin(np.ones(4, np.bool_))
    played(paths, [0.1, 0.4, 0.2, 0.3])
    weights = np.array([1 / 4, 1, 1 / 3, 1 / 2])
    np.testing.assert_allclose(paths.probabilities(), weights / weights.sum())
    old = source(staleness=1.0)
    draw(old, 0)
    old.begin(np.ones(4, np.bool_))
    played(old, [0.1, 0.4, 0.2, 0.3])
    np.testing.assert_allclose(old.probabilities(), np.array([3, 2, 1, 0]) / 6)


def test_the_lowest_regret_is_forgotten() -> None:
    paths = source(size=2)
    draw(paths, 0)
    paths.begin(np.ones(4, np.bool_))
    played(paths, [0.1, 0.4, 0.2, 0.05])
    assert paths.state()["levels"].tolist() == [[1, 0], [2, 0]]


def config(**changes: Any) -> TrainConfig:
    data = {
        "name": "small",
        "total_steps": 1024,
        "num_envs": 8,
        "environment": {"steps_per_rtt": 2, "episode_rtts": 10, "staggered": True},
        "ppo": {"n_steps": 16, "batch_size": 64, "hidden": [8], "n_epochs": 1},
        "evaluation": {"n_paths": 4},
        "replay": {"share": 0.8, "size": 8},
    }
    return validate(TrainConfig, {**data, **changes}, "small.yaml")


def test_a_run_goes_on_as_if_it_had_not_been_interrupted(tmp_path: Path) -> None:
    train(config(), tmp_path / "whole")
    train(config(total_steps=384), tmp_path / "parts")
    train(config(), tmp_path / "parts")
    whole, parts = ((tmp_path / name / "policy.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts
    train(config(replay=None), tmp_path / "without")
    assert (tmp_path / "without" / "policy.safetensors").read_bytes() != whole


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replay": {"share": 2}}, "replay.share"),
        ({"replay": {"sise": 2}}, "sise"),
        ({"robust": {"start_step": 1, "round_steps": 1}}, "no robust rounds"),
        ({"algorithm": "sac"}, "replay is for PPO senders"),
    ],
)
def test_bad_settings_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        config(**changes)
    assert message in str(refused.value)
