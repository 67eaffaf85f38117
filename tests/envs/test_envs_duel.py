"""``ccenv/Duel-v0`` under PettingZoo's own tests and the rules of its games."""

import warnings

import numpy as np
import pytest

from ccenv.base.errors import InputError
from ccenv.network.laws import check_trace

pytest.importorskip("pettingzoo")

from pettingzoo.test import parallel_api_test, parallel_seed_test

from ccenv.envs.curve.duel import DuelEnv, DuelTask, DuelVectorEnv
from ccenv.envs.curve.interface import sender_task
from ccenv.envs.curve.settings import read_settings

SETTINGS = [
    {},
    {"senders": ("external", "external", "cubic"), "models": ("cbr_delay",)},
    {"game": "general", "action": "discrete"},
    {"signals": "aurora", "action": "rate_delta", "reward": "aurora", "senders": ("external", "external")},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_parallel_api(settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(DuelEnv(**settings), num_cycles=100)
        parallel_seed_test(lambda: DuelEnv(**settings), num_cycles=80)


def play(env, seed, steps):
    env.reset(seed=seed)
    for i, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(seed + i)
    rows = []
    for _ in range(steps):
        rows.append(env.step({agent: env.action_space(agent).sample() for agent in env.agents}))
    return rows


def test_zero_sum_rewards_add_up_to_nothing_and_a_general_game_has_weights_of_its_own():
    for _, rewards, *_ in play(DuelEnv(senders=("external", "external"), episode_rtts=20), 0, 20):
        assert sum(rewards.values()) == pytest.approx(0.0, abs=1e-12)
    env = DuelEnv(game="general", network_reward={"utilisation": -2.0, "queue": 0.0, "loss": 0.0}, episode_rtts=20)
    rows = play(env, 0, 20)
    _, _, _, ends, infos = rows[-1]
    assert all(ends.values()) and env.agents == []
    assert np.mean([r[1]["network"] for r in rows]) == pytest.approx(-2.0 * infos["network"]["utilisation"])
    assert infos["sender_0"]["utilisation"] == pytest.approx(infos["network"]["utilisation"])


def test_observations_are_in_the_spaces_and_the_game_is_legal():
    env = DuelEnv(senders=("external", "reno", "external"), models=("cbr_delay",), episode_rtts=15, render_mode="rgb_array")
    assert env.possible_agents == ["sender_0", "sender_2", "network"]
    for observations, *_ in play(env, 4, 15):
        assert all(observations[agent] in env.observation_space(agent) for agent in env.possible_agents)
        arrays = list(observations.values())
        assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    assert not check_trace(env._task.core.trace(0)) and env.render().ndim == 3


def test_an_agent_without_an_action_is_named():
    env = DuelEnv()
    env.reset(seed=0)
    with pytest.raises(InputError, match="no action for network"):
        env.step({"sender_0": np.zeros(1)})


@pytest.mark.parametrize(
    "settings",
    [
        {"signals": "company", "action": "cwnd_exp2", "reward": "company"},
        {"signals": "aurora", "action": "rate_delta", "discrete": True, "n_actions": 5},
    ],
)
def test_flows_over_an_interface_are_rows_of_a_shared_policy(settings):
    common = {"senders": ("external", "reno", "external"), "models": ("cbr_delay",), "episode_rtts": 12, **settings}
    checked = read_settings(common, "test")
    duel, rows = DuelVectorEnv(DuelTask(3, checked)), sender_task(3, checked, shared=True)
    seen, _ = duel.reset(seed=7)
    rows.core.reset(seed=7)
    rng = np.random.Generator(np.random.Philox(7))
    for _ in range(30):
        together = np.stack([seen["sender_0"], seen["sender_2"]], axis=1).reshape(6, -1)
        np.testing.assert_array_equal(together, rows.observe())
        given = rng.integers(0, 5, (3, 2)) if settings.get("discrete") else rng.uniform(-1, 1, (3, 2))
        seen, rewards, _, _, _ = duel.step({"sender_0": given[:, 0], "sender_2": given[:, 1]})
        expected = rows.step(given.reshape(6, 1)).reshape(3, 2)
        np.testing.assert_array_equal(np.stack([rewards["sender_0"], rewards["sender_2"]], axis=1), expected)
        rows.core.reset(rows.core.truncated())
    assert np.ptp(expected) > 0
