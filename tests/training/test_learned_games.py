"""Learning a solved game by config."""

from __future__ import annotations

import pytest

from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError
from ccenv.training.games import CONFIGS, GameTraining, learn, load_training

pytest.importorskip("stable_baselines3")


def test_shipped_configs_are_read() -> None:
    assert {load_training(name).algorithm for name in shipped_names(CONFIGS, ".yaml")} == {"ppo", "dqn"}


def test_a_short_run_has_an_exact_curve() -> None:
    short = GameTraining(
        algorithm="ppo", num_envs=16, total_steps=1024, evaluate_every_steps=512, parameters={"n_steps": 32, "batch_size": 256}
    )
    found = learn("ideal", short)
    assert [row["steps"] for row in found.curve] == [512, 1024]
    assert all(found.value <= row["regret"] <= row["worst"] for row in found.curve)
    again = learn("ideal", short).curve
    assert [row | {"cpu_s": 0} for row in again] == [row | {"cpu_s": 0} for row in found.curve]
    with pytest.raises(InputError, match="parameters: "):
        learn("ideal", short.model_copy(update={"parameters": {"n_stepz": 3}}))


@pytest.mark.slow
def test_ppo_comes_within_a_fifth_of_the_value_of_cbr_small() -> None:
    found = learn("cbr_small", load_training("ppo"))
    assert min(row["regret"] for row in found.curve) <= 1.2 * found.value
