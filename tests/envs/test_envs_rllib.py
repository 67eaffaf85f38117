"""RLlib's new API stack trains on the native batch."""

from importlib.util import find_spec

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="the extra rllib is not installed")


@pytest.fixture(scope="module")
def ray_session():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def test_creators_make_single_and_batched_environments():
    from ccenv.envs.clients.rllib import CREATORS

    assert CREATORS["ccenv/Sender-v0"]({"num_envs": 3}).num_envs == 3
    assert CREATORS["ccenv/Sender-v0"]({"action": "discrete"}).action_space.n == 13
    assert CREATORS["ccenv/Network-v0"]({"num_envs": 2, "models": ["cbr_delay"]}).num_envs == 2
    assert CREATORS["ccenv/Network-v0"]({}).action_space.shape == (2,)
    duel = CREATORS["ccenv/Duel-v0"]({"episode_rtts": 3})
    observations, _ = duel.reset(seed=1)
    assert set(observations) == {"sender_0", "network"}
    actions = {agent: duel.get_action_space(agent).sample() for agent in observations}
    assert set(duel.step(actions)[1]) == {"sender_0", "network"}


def test_runners_load_a_users_file_by_its_hash(tmp_path, monkeypatch):
    from ccenv.base.errors import InputError
    from ccenv.envs.clients.rllib import CREATORS, FLOWS, USER_FILES, make_env_config

    file = tmp_path / "steady.py"
    file.write_text("import ccenv\n\n\nclass Steady(ccenv.PythonSender):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    environment = {"senders": ["external", "steady.py:Steady"], "episode_rtts": 4}
    config = make_env_config(environment)
    assert config["senders"] == ["external", f"{file}:Steady"] and list(config[USER_FILES]) == [str(file)]
    assert make_env_config({"senders": ["external", "reno"]}) == {"senders": ["external", "reno"]}
    monkeypatch.chdir("/")  # where a runner may stand
    assert CREATORS["ccenv/Sender-v0"](config).reset(seed=1)[0].shape == (10,)
    file.write_text(file.read_text() + "# changed\n")
    for create in (CREATORS["ccenv/Sender-v0"], CREATORS[FLOWS]):
        with pytest.raises(InputError, match=r"steady\.py changed while the run went on"):
            create(config)
    with pytest.raises(InputError, match=r"nowhere\.py: cannot be read"):
        make_env_config({"senders": ["external", "nowhere.py"]})


def test_ppo_trains_two_iterations(ray_session):
    from ray.rllib.algorithms.ppo import PPOConfig

    from ccenv.envs.clients.rllib import register_rllib

    register_rllib()
    config = (
        PPOConfig()
        .environment("ccenv/Sender-v0", env_config={"episode_rtts": 8, "models": ["cbr_delay", "ccac"]})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8, gym_env_vectorize_mode="vector_entry_point")
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=256, minibatch_size=64, num_epochs=2)
        .debugging(seed=0, log_level="ERROR")
    )
    algorithm = config.build_algo()
    try:
        results = [algorithm.train() for _ in range(2)]
    finally:
        algorithm.stop()
    runners = results[-1]["env_runners"]
    assert runners["num_env_steps_sampled_lifetime"] >= 512
    # Episodes that RLlib counts are as long as the environment's: no step of a reset was taken for one of the episode.
    assert runners["episode_len_max"] <= 8 and np.isfinite(runners["episode_return_mean"])
