"""What client libraries rely on: errors of unknown arguments, specs, SAME_STEP autoreset, infos of steps, batched duels."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import ccenv  # noqa: F401  (registers the environments)
from ccenv.base.errors import InputError
from ccenv.envs.clients.sb3 import CcenvVecEnv, make_sb3
from ccenv.envs.curve.duel import DuelSide, DuelTask, DuelVectorEnv
from ccenv.envs.curve.settings import read_settings

IDS = ("ccenv/Sender-v0", "ccenv/Network-v0")
SHORT = {"episode_rtts": 5, "steps_per_rtt": 4}


@pytest.mark.parametrize("env_id", IDS)
def test_unknown_arguments_are_type_errors_with_a_hint(env_id):
    for make in (gym.make, gym.make_vec):
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'frame_skip'"):
            make(env_id, frame_skip=2)
    with pytest.raises(TypeError, match=r"Did you mean 'senders'"):
        gym.make(env_id, sender=["external"])
    with pytest.raises(InputError, match=r"Did you mean 'senders'"):
        make_sb3(env_id, 2, sender=["external"])
    with pytest.raises(InputError) as bad_value:
        gym.make(env_id, episode_rtts=-1)
    assert not isinstance(bad_value.value, TypeError)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize(
    ("settings", "steps"), [({}, 64), ({"episode_rtts": 100}, 100), ({"decision_steps": 4}, 128), ({"max_episode_steps": 10}, 10)]
)
def test_spec_tells_the_length_of_episodes(env_id, settings, steps):
    env = gym.make(env_id, **settings)
    assert env.spec.max_episode_steps == steps
    again = gym.make(env.spec)
    for made in (env, again):
        made.reset(seed=0)
        made.action_space.seed(0)
        ends = [made.step(made.action_space.sample())[3] for _ in range(steps)]
        assert ends == [False] * (steps - 1) + [True]


def flat(info):
    """Return an info with its dictionaries and objects as plain lists."""
    out = {}
    for name, value in info.items():
        if isinstance(value, dict):
            out[name] = flat(value)
        elif value.dtype == object:
            out[name] = [None if entry is None else entry.tolist() for entry in value]
        else:
            out[name] = value.tolist()
    return out


def assert_same(own, expected):
    """Compare two flat infos; numbers may differ by round-off."""
    assert own.keys() == expected.keys()
    for name, value in own.items():
        if isinstance(value, dict):
            assert_same(value, expected[name])
        else:
            np.testing.assert_equal([v is None for v in value], [v is None for v in expected[name]])
            for one, other in zip(value, expected[name], strict=True):
                assert one is None or one == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize("step_info", [False, True])
@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_autoreset_is_that_of_gymnasium(env_id, mode, step_info):
    settings = {**SHORT, "step_info": step_info}
    native = gym.make_vec(env_id, num_envs=3, autoreset_mode=mode, staggered=True, **settings)
    vectors = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    single = gym.make_vec(env_id, num_envs=3, staggered=True, **vectors, **settings)
    assert native.metadata["autoreset_mode"] is mode
    seeds = [4, 5, 6]
    np.testing.assert_array_equal(native.reset(seed=seeds)[0], single.reset(seed=seeds)[0])
    native.action_space.seed(1)
    endings = 0
    for _ in range(17):
        actions = native.action_space.sample()
        own, expected = native.step(actions), single.step(actions)
        for place in range(4):
            np.testing.assert_allclose(own[place], expected[place], rtol=1e-12)
        if mode is AutoresetMode.SAME_STEP or not step_info:
            assert_same(flat(own[4]), flat(expected[4]))
        endings += int(own[3].sum())
    assert endings >= 6


def test_step_info_is_what_the_reward_is_made_of():
    env = gym.make("ccenv/Sender-v0", step_info=True, reward={"utilisation": 2.0, "queue": -0.5, "loss": -3.0}, **SHORT)
    env.reset(seed=1)
    means = []
    for step in range(1, 6):
        _, reward, _, _, info = env.step(np.array([0.9], np.float32))
        means.append(info["step_utilisation"])
        terms = 2.0 * info["step_utilisation"] - 0.5 * info["step_queue"] - 3.0 * info["step_loss"]
        assert reward == pytest.approx(terms) and info["time_s"] == pytest.approx(step * info["time_s"] / step)
    assert info["utilisation"] == pytest.approx(np.mean(means))
    batch = make_sb3("ccenv/Sender-v0", 2, step_info=True, **SHORT)
    batch.reset()
    assert set(batch.step(np.zeros((2, 1), np.float32))[3][1]) == set(info) - {"utilisation", "queue", "loss", "delay", "jain"}


def test_a_batch_of_duels_is_many_duels():
    pytest.importorskip("pettingzoo")
    from ccenv.envs.curve.duel import DuelEnv, make_duels

    settings = {"senders": ["external", "reno", "external"], "models": ["cbr_delay"], **SHORT}
    batch = make_duels(3, game="general", **settings)
    singles = [DuelEnv(game="general", **settings) for _ in range(3)]
    seen, info = batch.reset(seed=[7, 8, 9])
    assert info == {}
    first = [env.reset(seed=seed)[0] for env, seed in zip(singles, (7, 8, 9), strict=True)]
    rng = np.random.default_rng(0)
    for step in range(12):
        for b, one in enumerate(first):
            for name in batch.agents:
                np.testing.assert_array_equal(seen[name][b], one[name])
        actions = {name: rng.uniform(-1, 1, (3, *space.shape)) for name, space in batch.action_spaces.items()}
        seen, rewards, terminated, truncated, info = batch.step(actions)
        first = []
        for b, env in enumerate(singles):
            one, reward, _, ends, told = env.step({name: actions[name][b] for name in batch.agents})
            assert {name: pytest.approx(values[b]) for name, values in rewards.items()} == reward
            assert truncated[b] == all(ends.values())
            if truncated[b]:
                for name in batch.agents:
                    np.testing.assert_array_equal(info["final_obs"][name][b], one[name])
                    own = {term: pytest.approx(values[b]) for term, values in info["final_info"][name].items()}
                    assert own == told[name]
                one = env.reset()[0]
            first.append(one)
        assert not terminated.any() and truncated.all() == ((step + 1) % 5 == 0)


def test_one_side_of_a_duel_trains_against_functions():
    from stable_baselines3 import PPO

    duel = DuelTask(4, read_settings({"adversary": "external", **SHORT}, "duel"))
    kind = {"network": lambda seen: np.ones((len(seen), 2))}
    env = CcenvVecEnv(DuelSide(duel, "sender_0", kind))
    PPO("MlpPolicy", env, n_steps=8, batch_size=32, n_epochs=1, device="cpu").learn(64)
    fixed = make_sb3("ccenv/Sender-v0", 4, adversary="kind", **SHORT)
    env.seed(3)
    fixed.seed(3)
    np.testing.assert_array_equal(env.reset(), fixed.reset())
    for _ in range(7):
        ours, theirs = env.step(np.full((4, 1), 0.3)), fixed.step(np.full((4, 1), 0.3))
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    with pytest.raises(InputError, match="nobody plays network"):
        DuelSide(duel, "sender_0", {})
    with pytest.raises(InputError, match="Did you mean 'sender_0'"):
        DuelSide(duel, "sender0", kind)
    with pytest.raises(InputError, match="own PPO"):
        env.rollouts()


def test_batched_duels_refuse_wrong_actions():
    batch = DuelVectorEnv(DuelTask(2, read_settings({"adversary": "external", **SHORT}, "duel")))
    batch.reset(seed=0)
    right = {"sender_0": np.zeros((2, 1)), "network": np.zeros((2, 2))}
    batch.step(right)
    for name, wrong in (("sender_0", np.zeros((3, 1))), ("network", np.zeros((3, 2))), ("network", np.zeros((2, 1)))):
        with pytest.raises(InputError, match="actions"):
            batch.step({**right, name: wrong})
    with pytest.raises(InputError, match="no action for network"):
        batch.step({"sender_0": np.zeros((2, 1))})
    with pytest.raises(InputError, match="NaN"):
        batch.step({**right, "sender_0": np.full((2, 1), np.nan)})
