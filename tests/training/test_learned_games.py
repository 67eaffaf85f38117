"""Learning a solved game by config."""

from pathlib import Path

import pytest

from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError
from ccenv.envs.game import solved_game
from ccenv.proofs.games.players import regret_of, sender_on
from ccenv.training.games import CONFIGS, GameTraining, learn, load_training

pytest.importorskip("stable_baselines3")


def test_shipped_configs_are_read() -> None:
    assert {load_training(name).algorithm for name in shipped_names(CONFIGS, ".yaml")} == {"ppo", "dqn", "rllib"}


def test_a_short_run_has_an_exact_curve() -> None:
    short = GameTraining(
        algorithm="ppo", num_envs=16, total_steps=512, evaluate_every_steps=256, parameters={"n_steps": 16, "batch_size": 256}
    )
    found = learn("ideal", short)
    assert [row["steps"] for row in found.curve] == [256, 512]
    assert all(found.value <= row["regret"] <= row["worst"] for row in found.curve)
    again = learn("ideal", short).curve
    assert [row | {"cpu_s": 0} for row in again] == [row | {"cpu_s": 0} for row in found.curve]
    with pytest.raises(InputError, match="parameters: "):
        learn("ideal", short.model_copy(update={"parameters": {"n_stepz": 3}}))


@pytest.mark.slow
@pytest.mark.parametrize(("game", "name", "steps"), [("cbr_small", "ppo", 491_520), ("cbr_late", "rllib", 327_680)])
def test_learning_comes_within_a_fifth_of_the_value(game: str, name: str, steps: int) -> None:
    if name == "rllib":
        pytest.importorskip("ray")
    found = learn(game, load_training(name).model_copy(update={"total_steps": steps}))
    assert min(row["regret"] for row in found.curve) <= 1.2 * found.value


def test_a_learned_policy_is_stored_and_played(tmp_path: Path) -> None:
    short = GameTraining(
        algorithm="dqn", num_envs=4, total_steps=400, evaluate_every_steps=200, parameters={"learning_starts": 50}
    )
    found, file = learn("ideal", short), tmp_path / "mine.safetensors"
    found.save(file)
    solved = solved_game("ideal", None)
    assert regret_of(sender_on(str(file), solved), solved) == min(row["worst"] for row in found.curve)
