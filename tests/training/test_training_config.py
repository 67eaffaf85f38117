"""Training configs: shipped ones, overrides, one-line errors."""

import pytest
import yaml

from ccenv.base.config import shipped_names, validate
from ccenv.training.config import CONFIGS, TrainConfig, load_config, load_data
from ccenv.training.rllib.config import RllibConfig


@pytest.mark.parametrize("name", shipped_names(CONFIGS, ".yaml"))
def test_shipped_configs_are_valid_and_survive_resolution(name):
    data, where = load_data(f"configs/train/{name}.yaml")
    if data.get("trainer") == "rllib":
        assert validate(RllibConfig, data, where).name == name
        return
    config = load_config(f"configs/train/{name}.yaml")
    assert config.name == name
    again = validate(TrainConfig, yaml.safe_load(config.to_yaml()), "again")
    assert again == config and again.same_run(config)


def test_the_full_recipe_is_the_published_default():
    recipe = load_config("ppo_sender")
    assert recipe.ppo == type(recipe.ppo)()
    assert recipe.environment.paths == type(recipe.environment.paths)()
    assert recipe.environment.reward == type(recipe.environment.reward)()


def test_overrides():
    config = load_config(
        "quick_sender", ["seed=3", "ppo.hidden=[16, 16]", "environment.paths.buffer_bdp=[1, 2]", "log.wandb.mode=online"]
    )
    assert config.seed == 3 and config.ppo.hidden == (16, 16) and config.log.wandb.mode == "online"
    assert config.environment.paths.buffer_bdp == (1.0, 2.0)
    assert not config.same_run(load_config("quick_sender"))
    assert load_config("quick_sender", ["total_steps=1", "log.tensorboard=true"]).same_run(load_config("quick_sender"))


def test_extends_merges_groups_and_keeps_its_own_name(tmp_path):
    (tmp_path / "base.yaml").write_text("extends: quick_sender\nseed: 5\nppo: {gamma: 0.9}\n")
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\nppo: {hidden: [8]}\n")
    config = load_config(str(tmp_path / "mine.yaml"), ["ppo.clip_range=0.1"])
    assert config.name == "mine" and config.seed == 5 and config.total_steps == load_config("quick_sender").total_steps
    assert (config.ppo.gamma, config.ppo.hidden, config.ppo.clip_range) == (0.9, (8,), 0.1)
    assert config.environment == load_config("quick_sender").environment
