"""The Gymnasium interfaces: API checks, autoreset, seeds, spaces, docstrings."""

import pickle
import re
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from ccenv.agents.interface.interface import OBSERVATION, Interface
from ccenv.base.errors import InputError
from ccenv.envs import ENVIRONMENTS
from ccenv.envs.curve.network import NetworkEnv, NetworkVectorEnv, network_elements
from ccenv.envs.curve.sender import SenderEnv, SenderVectorEnv

IDS = {"ccenv/Sender-v0": SenderEnv, "ccenv/Network-v0": NetworkEnv}
MIXED = {"models": ("cbr_delay", "ccac")}


VARYING = {"models": ["strong"], "paths": {"link_rate_min_share": 0.5}}
CHECKED = [
    *[(env_id, settings) for env_id in IDS for settings in ({}, VARYING, {"render_mode": "rgb_array"})],
    ("ccenv/Sender-v0", {"action": "discrete"}),
    ("ccenv/Sender-v0", {"senders": ["external", "reno", "external"]}),
    ("ccenv/Sender-v0", {"senders": ["external", "reno", "external"], "action": "discrete"}),
    ("ccenv/Packet-v0", {}),
    ("ccenv/Packet-v0", {"n_actions": 5, "scenario": "four", "raw": True}),
    ("ccenv/PacketNetwork-v0", {}),
    ("ccenv/PacketNetwork-v0", {"n_actions": 2}),
    *[("ccenv/Game-v0", settings) for settings in ({}, {"game": "cbr_late", "network": "random"}, {"game": "ideal"})],
]


@pytest.mark.parametrize(("env_id", "settings"), CHECKED)
def test_check_env(env_id, settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id, **settings).unwrapped, skip_render_check=env_id not in IDS)


@pytest.mark.parametrize("env_id", IDS)
def test_make_vec_uses_the_native_batch(env_id):
    env = gym.make_vec(env_id, num_envs=5)
    assert isinstance(env, (SenderVectorEnv, NetworkVectorEnv))
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observation, info = env.reset(seed=0)
    assert observation.shape == (5, *env.single_observation_space.shape)
    assert observation in env.observation_space and info == {}
    assert gym.make_vec(env_id, num_envs=2, max_episode_steps=7).task.core.episode_steps == 7


def interface_rows(name):
    return [("", row.unit, f"{row.low:g}", f"{row.high:g}") for row in Interface.model_validate({"signals": name}).rows]


def belief_rows(elements):
    return [(element.name, element.unit, f"{element.low:g}", f"{element.high:g}") for element in elements]


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [("ccenv/Sender-v0", belief_rows(OBSERVATION)), ("ccenv/Network-v0", belief_rows(network_elements(1))),
     ("ccenv/PacketNetwork-v0", interface_rows("network")), *[(entry.name, None) for entry in ENVIRONMENTS]],
)  # fmt: skip
def test_docstring_has_gymnasium_sections_and_the_true_observation_table(env_id, expected):
    text = ENVIRONMENTS.load(env_id).__doc__
    assert re.findall(r"^    ## (.+)$", text, re.M) == [
        *("Description", "Observation Space", "Action Space", "Rewards", "Starting State", "Episode End", "Arguments"),
        "Version History",
    ]
    if expected is not None:
        rows = re.findall(r"^    \| \d+ \| (.+?) \| (.+?) \| (\S+) to (\S+) \|$", text, re.M)
        assert [(row[0] if expected[0][0] else "", *row[1:]) for row in rows] == expected


@pytest.mark.parametrize("env_id", IDS)
def test_observations_stay_in_the_space_and_every_element_moves(env_id):
    env = gym.make_vec(env_id, num_envs=64, paths={"buffer_bdp": (0.05, 4.0)}, episode_rtts=40)
    env.action_space.seed(1)
    observation, _ = env.reset(seed=1)
    low, high = observation.min(axis=0), observation.max(axis=0)
    for _ in range(90):
        observation, reward, terminated, _, _ = env.step(env.action_space.sample())
        assert observation in env.observation_space and np.isfinite(reward).all() and not terminated.any()
        low, high = np.minimum(low, observation.min(axis=0)), np.maximum(high, observation.max(axis=0))
    assert (high > low).all(), np.flatnonzero(high == low)


@pytest.mark.parametrize("mode", list(IDS))
def test_returned_arrays_share_no_memory(mode):
    env = gym.make_vec(mode, num_envs=3, episode_rtts=2)
    returned = [env.reset(seed=0)[0]]
    for _ in range(5):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        returned += [observation, reward, terminated, truncated, *info.values()]
    copies = [array.copy() for array in returned]
    for array in returned:
        array[...] = 0
    env.step(env.action_space.sample())
    for i, one in enumerate(returned):
        assert (one == 0).all() and not any(np.shares_memory(one, other) for other in returned[:i])
    fresh = gym.make_vec(mode, num_envs=3, episode_rtts=2)
    np.testing.assert_array_equal(fresh.reset(seed=0)[0], copies[0])


def test_disabled_autoreset_resets_only_what_the_mask_says():
    env = gym.make_vec("ccenv/Sender-v0", num_envs=4, episode_rtts=3, autoreset_mode="DISABLED")
    assert env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    env.reset(seed=0)
    action = np.zeros((4, 1), np.float32)
    for _ in range(2):
        env.step(action)
    mask = np.array([True, False, False, True])
    before = env.task.core.elapsed.copy()
    env.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(env.task.core.elapsed, np.where(mask, 0, before))
    *_, truncated, _ = env.step(action)
    np.testing.assert_array_equal(truncated, ~mask)
    with pytest.raises(InputError, match="2 environments have ended"):
        env.step(action)
    env.reset(options={"reset_mask": truncated})
    env.step(action)
    with pytest.raises(InputError, match="reset_mask of shape"):
        env.reset(options={"reset_mask": np.ones(3, bool)})


def test_seeds_reproduce_and_differ():
    def play(seed):
        env = gym.make_vec("ccenv/Sender-v0", num_envs=6, episode_rtts=4, **MIXED)
        rows = [env.reset(seed=seed)[0]]
        for _ in range(10):
            rows.append(env.step(np.full((6, 1), 0.3, np.float32))[0])
        return np.array(rows)

    one = play(7)
    np.testing.assert_array_equal(one, play(7))
    assert (one != play(8)).any(axis=(0, 2)).all() and not np.array_equal(play(None), play(None))


def test_threads_do_not_change_results():
    def play(threads):
        env = gym.make_vec("ccenv/Sender-v0", num_envs=300, threads=threads)
        env.reset(seed=0)
        return [env.step(np.full((300, 1), 0.2, np.float32))[:2] for _ in range(5)]

    for one, two in zip(play(1), play(2), strict=True):
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[1], two[1])


def test_render_draws_the_episode():
    env = gym.make("ccenv/Sender-v0", render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    blank = env.render()
    assert (blank == 255).all()
    env.step(np.array([0.5], np.float32))
    picture = env.render()
    assert picture.shape == blank.shape and picture.dtype == np.uint8 and len(np.unique(picture)) > 2
    batch = gym.make_vec("ccenv/Sender-v0", num_envs=2, render_mode="rgb_array")
    batch.reset(seed=0)
    assert len(batch.render()) == 2 and gym.make("ccenv/Sender-v0").unwrapped.render() is None


def test_discrete_moves_of_the_network_are_values_of_the_box():
    def second(env, given):
        env.reset(seed=0)
        return env.step(given)[0]

    box, grid = NetworkEnv(), NetworkEnv(action="discrete", n_actions=3)
    assert grid.action_space == gym.spaces.MultiDiscrete([3, 3])
    np.testing.assert_array_equal(second(grid, np.array([1, 0])), second(box, np.array([0.5, 0.0])))
    one = NetworkEnv(action="discrete", n_actions=2, models=("cbr_delay",))
    assert one.action_space == gym.spaces.Discrete(2)
    np.testing.assert_array_equal(second(one, 1), second(NetworkEnv(models=("cbr_delay",)), np.array([1.0])))
    for env, bad in ((grid, np.array([3, 0])), (grid, np.array([0.5, 0.0])), (grid, np.array([1])), (one, -1)):
        with pytest.raises(InputError):
            second(env, bad)


def test_actions_are_checked_and_clipped():
    def second(given, **settings):
        env = SenderEnv(**settings)
        env.reset(seed=0)
        return env.step(given)[0]

    np.testing.assert_array_equal(second(np.array([5.0])), second(np.array([1.0])))
    np.testing.assert_array_equal(second(12, action="discrete"), second(np.array([1.0])))
    np.testing.assert_array_equal(second(6, action="discrete"), second(np.array([0.0])))
    for bad, settings in [([np.nan], {}), ([0.0, 0.0], {}), (13, {"action": "discrete"}), (0.5, {"action": "discrete"})]:
        with pytest.raises(InputError):
            second(np.array(bad), **settings)
    env = SenderVectorEnv(2)
    env.reset(seed=0)
    with pytest.raises(InputError, match="shape"):
        env.step(np.zeros((3, 1)))
    with pytest.raises(InputError, match="num_envs is 0"):
        SenderVectorEnv(0)
    with pytest.raises(InputError, match="autoreset_mode"):
        SenderVectorEnv(2, autoreset_mode="SAME_STEPS")


@pytest.mark.parametrize("env_id", IDS)
def test_pickled_environments_go_on_the_same(env_id):
    for env in (gym.make(env_id).unwrapped, gym.make_vec(env_id, num_envs=2)):
        env.reset(seed=0)
        action = env.action_space.sample()
        env.step(action)
        other = pickle.loads(pickle.dumps(env))
        for one, two in zip(env.step(action)[:2], other.step(action)[:2], strict=True):
            np.testing.assert_array_equal(one, two)
