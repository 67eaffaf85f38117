"""Training configs: shipped ones, overrides, one-line errors."""

import pytest
import yaml

from ccenv.base.config import shipped_names, validate
from ccenv.base.errors import CcenvError
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
    for text, message in (
        ("extends: mine.yaml", "extends itself"),
        ("extends: 3", "name or path"),
        ("extends: quick", "quick_sender"),
    ):
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(CcenvError, match=message):
            load_config(str(tmp_path / "mine.yaml"))


BAD = [
    ("quik_sender", [], "Did you mean 'quick_sender'"),
    ("quick_sender", ["ppo.n_step=3"], "unknown key 'ppo.n_step'. Did you mean 'n_steps'"),
    ("quick_sender", ["environment.staggerd=true"], "Did you mean 'staggered'"),
    ("quick_sender", ["environment.paths.rtt=1"], "Did you mean 'rtt_s'"),
    ("quick_sender", ["environment.models=[cccac]"], "Did you mean 'ccac'"),
    ("quick_sender", ["ppo"], "not of the form"),
    ("quick_sender", ["ppo=3"], "ppo"),
    ("quick_sender", ["seed.x=3"], "not a group of settings"),
    ("quick_sender", ["seed=[1"], "not valid YAML"),
    ("quick_sender", ["seed=-1"], "greater than or equal to 0"),
    ("quick_sender", ["ppo.learning_rate=.nan"], "ppo.learning_rate"),
    ("quick_sender", ["ppo.n_steps=2.5"], "ppo.n_steps"),
    ("quick_sender", ["ppo.batch_size=1000"], "not a multiple"),
    ("quick_sender", ["ppo.hidden=[512]"], "1 to 256"),
    ("quick_sender", ["name=a/b"], "must be a letter"),
    ("quick_sender", ["environment.senders=[external, external]"], "exactly one 'external'"),
    ("quick_sender", ["environment.action=discrete", "algorithm=sac"], "action 'box'"),
    ("network_discrete", ["algorithm=sac"], "PPO may have discrete actions"),
    ("network_discrete", ["environment.n_actions=129"], "n_actions is 129; at most 128 for waste, service"),
    ("quick_sender", ["algorithm=dqn"], "algorithm"),
    ("quick_sender", ["sac.gradient_step=3"], "Did you mean 'gradient_steps'"),
    ("quick_sender", ["td3.hidden=[300]"], "1 to 256"),
    ("quick_sender", ["trains=network", "environment.senders=[external]"], "no 'external'"),
    ("quick_sender", ["algorithm=sac", "robust={start_step: 1, round_steps: 1}"], "for PPO senders"),
    ("quick_sender", ["curriculum=[{until_step: 5}, {until_step: 5}]"], "must rise"),
    ("quick_sender", ["curriculum=[{until_step: 5, model: [ideal]}]"], "Did you mean 'models'"),
    ("quick_sender", ["early_stop.patience=2", "evaluation.every_steps=0"], "set evaluation.every_steps"),
]


@pytest.mark.parametrize(("name", "overrides", "message"), BAD)
def test_bad_configs_are_refused_in_one_line(name, overrides, message):
    with pytest.raises(CcenvError) as error:
        load_config(name, overrides)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_files_that_are_no_config(tmp_path):
    for text, message in [("- 1\n", "mapping"), ("a: [\n", "not valid YAML at line"), ("seed: 1\n", "total_steps: missing")]:
        file = tmp_path / "mine.yaml"
        file.write_text(text)
        with pytest.raises(CcenvError, match=message):
            load_config(str(file))
