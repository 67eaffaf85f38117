"""The Stable-Baselines3 adapter."""

import numpy as np
import pytest

from ccenv.base.errors import CcenvError, InputError

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from ccenv.envs.clients.sb3 import CcenvVecEnv, make_sb3
from ccenv.envs.curve.sender import SenderVectorEnv


@pytest.mark.parametrize(
    ("env_id", "settings"),
    [("ccenv/Sender-v0", {"action": "discrete"}), ("ccenv/Sender-v0", {"staggered": True}), ("ccenv/Network-v0", {}),
     ("ccenv/Network-v0", {"action": "discrete", "n_actions": 3})],
)  # fmt: skip
def test_ppo_trains_two_iterations(env_id, settings):
    env = VecMonitor(make_sb3(env_id, 16, episode_rtts=10, **settings))
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=64, n_epochs=2, seed=0, device="cpu")
    before = model.policy.action_net.weight.detach().numpy().copy()
    model.learn(2 * 16 * 16)
    assert model.num_timesteps == 512 and (model.policy.action_net.weight.detach().numpy() != before).any()
    assert len(model.ep_info_buffer) > 0


def test_same_step_autoreset_with_terminal_observation():
    settings = {"episode_rtts": 5, "staggered": True}
    env = make_sb3(num_envs=4, **settings)
    env.seed(10)
    seeds = list(env._seeds)
    batch = SenderVectorEnv(4, autoreset_mode="DISABLED", **settings)
    np.testing.assert_array_equal(env.reset(), batch.reset(seed=seeds)[0])
    assert env._seeds == [None] * 4
    actions = np.full((4, 1), 0.2, np.float32)
    ends = 0
    for _ in range(12):
        observations, rewards, dones, infos = env.step(actions)
        expected, expected_rewards, _, truncated, _ = batch.step(actions)
        np.testing.assert_array_equal(dones, truncated)
        np.testing.assert_allclose(rewards, expected_rewards, rtol=1e-6)
        assert rewards.dtype == np.float32
        for b in range(4):
            if dones[b]:
                ends += 1
                np.testing.assert_array_equal(infos[b]["terminal_observation"], expected[b])
                assert infos[b]["TimeLimit.truncated"] is True and infos[b]["utilisation"] >= 0
            else:
                assert infos[b] == {}
                np.testing.assert_array_equal(observations[b], expected[b])
        if dones.any():
            fresh, _ = batch.reset(options={"reset_mask": dones})
            np.testing.assert_array_equal(observations, fresh)
    assert ends >= 8


def test_seed_is_used_once_and_then_episodes_go_on():
    env = make_sb3(num_envs=3)
    env.seed(5)
    first = env.reset()
    second = env.reset()
    env.seed(5)
    np.testing.assert_array_equal(env.reset(), first)
    np.testing.assert_array_equal(env.reset(), second)


def test_attributes_and_methods_belong_to_the_batch():
    env = make_sb3(num_envs=3, render_mode="rgb_array")
    assert env.get_attr("render_mode", [0, 2]) == ["rgb_array"] * 2
    env.set_attr("note", 7)
    assert env.get_attr("note") == [7, 7, 7] and env.has_attr("note") and not env.has_attr("nothing")
    with pytest.raises(InputError, match="some environments"):
        env.set_attr("note", 8, indices=[0])
    assert env.env_is_wrapped(object) == [False] * 3
    env.reset()
    assert env.render().ndim == 3 and len(env.env_method("get_images", indices=0)) == 1
    assert make_sb3(num_envs=2).get_images() == [None, None]
    env.set_options({"reset_mask": [True]})
    with pytest.raises(InputError, match="take none"):
        env.reset()
    env.close()


def test_unknown_ids_and_settings():
    with pytest.raises(CcenvError, match="Did you mean 'ccenv/Sender-v0'"):
        make_sb3("ccenv/Sender-v1")
    with pytest.raises(InputError, match="Did you mean"):
        make_sb3(episode_rtt=3)
    assert isinstance(make_sb3(num_envs=1), CcenvVecEnv)
