"""Several flows that share a policy: rows of a batch, and training by config."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.envs.curve.duel import DuelTask
from ccenv.envs.curve.interface import SharedSenderTask
from ccenv.envs.curve.settings import EnvSettings, read_settings
from ccenv.training.config import load_config
from ccenv.training.evaluation import evaluate_in_world
from ccenv.training.rllib.config import RllibConfig

pytest.importorskip("stable_baselines3")

from ccenv.envs.clients.sb3 import make_sb3

THREE = {"senders": ["external", "reno", "external"], "models": ["cbr_delay"], "episode_rtts": 6, "reward": {"jain": 0.3}}
SMALL = ["num_envs=4", "ppo.n_steps=8", "ppo.batch_size=64", "ppo.hidden=[4]", "total_steps=128", "evaluation.n_paths=4"]


@pytest.mark.parametrize("action", ["box", "discrete"])
def test_each_row_is_a_flow_with_its_own_reward(action):
    """Against the senders of a batch of flows that are agents."""
    settings = read_settings({**THREE, "action": action}, "test")
    rows, flows = SharedSenderTask(3, settings), DuelTask(3, settings)
    for task in (rows, flows):
        task.core.reset(seed=5)
    assert flows.agents == ("sender_0", "sender_2")
    rng = np.random.default_rng(0)
    for _ in range(6):
        seen = flows.observe()
        np.testing.assert_array_equal(rows.observe(), np.stack([seen[name] for name in flows.agents], 1).reshape(6, -1))
        chosen = rng.uniform(-1, 1, (3, 2)) if action == "box" else rng.integers(0, 13, (3, 2))
        own = rows.step(chosen.reshape((6, 1) if action == "box" else 6))
        theirs = flows.step({name: chosen[:, i] for i, name in enumerate(flows.agents)})
        np.testing.assert_array_equal(own.reshape(3, 2), np.stack([theirs[name] for name in flows.agents], 1))
    assert (own.reshape(3, 2)[:, 0] != own.reshape(3, 2)[:, 1]).any()
    assert rows.core.truncated().all()


def test_rows_of_a_network_start_and_end_together():
    env = make_sb3("ccenv/Sender-v0", 3, shared_policy=True, staggered=True, **THREE)
    assert env.num_envs == 6
    env.seed(1)
    env.reset()
    ended = np.zeros(6, np.int64)
    for _ in range(14):
        observations, rewards, dones, infos = env.step(np.zeros((6, 1), np.float32))
        assert observations.shape == (6, 10) and rewards.shape == (6,)
        np.testing.assert_array_equal(dones[0::2], dones[1::2])
        ended += dones
        for row in np.flatnonzero(dones):
            assert infos[row]["terminal_observation"].shape == (10,)
            assert infos[row]["jain"] == infos[row ^ 1]["jain"]
    assert ended.min() >= 2
    with pytest.raises(InputError, match="shared_policy is for the flows"):
        make_sb3("ccenv/Network-v0", 2, shared_policy=True)


def test_one_flow_of_a_shared_policy_is_the_plain_environment():
    alone = {"episode_rtts": 5, "models": ["ccac"]}
    shared, plain = make_sb3(num_envs=4, shared_policy=True, **alone), make_sb3(num_envs=4, **alone)
    for env in (shared, plain):
        env.seed(2)
    np.testing.assert_array_equal(shared.reset(), plain.reset())
    for step in range(8):
        actions = np.full((4, 1), 0.1 * step, np.float32)
        for own, other in zip(shared.step(actions)[:3], plain.step(actions)[:3], strict=True):
            np.testing.assert_array_equal(own, other)


def test_shipped_config_trains_and_goes_on(tmp_path, capsys):
    def train(*more):
        overrides = [word for text in (*SMALL, *more) for word in ("--set", text)]
        assert main(["train", "shared_sender", "--out", str(tmp_path / "run"), *overrides, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    first = train()
    assert first["evaluation"]["n_flows"] == 2
    assert first["steps"] == 128
    assert train("total_steps=256")["resumed_from_steps"] == 128
    assert make_sender(str(tmp_path / "run")).name == "shared_sender"


def test_python_and_kernel_rollouts_both_train(tmp_path):
    from ccenv.training.learner import Learner

    for rollouts in ("python", "kernel"):
        learner = Learner(load_config("shared_sender", [*SMALL, f"ppo.rollouts={rollouts}"]))
        before = learner.player().weights[0].copy()
        learner.run(lambda state, progress: False)
        assert learner.state.iteration == 2
        assert (learner.player().weights[0] != before).any()


def test_flows_that_share_are_evaluated_together():
    world = EnvSettings(senders=("external", "external"), models=("cbr_delay",), steps_per_rtt=4)
    both = evaluate_in_world(world, make_sender("cc_probe_drain"), 8, warmup_rtts=20, measure_rtts=20)
    alone = evaluate_in_world(
        world.model_copy(update={"senders": ("external", "cc_probe_drain")}),
        make_sender("cc_probe_drain"),
        8,
        warmup_rtts=20,
        measure_rtts=20,
    )
    assert both.n_flows == 2
    assert both.share == pytest.approx(1.0)
    assert both.utilisation == pytest.approx(alone.link_utilisation)
    assert 0 < alone.share < 1


def test_flows_of_rllib_need_two():
    with pytest.raises(ValueError, match="two or more 'external' senders"):
        RllibConfig(trainer="rllib", name="x", iterations=1, plays="flows")
    RllibConfig(trainer="rllib", name="x", iterations=1, plays="flows", environment={"senders": ["external", "external"]})


def test_flows_are_agents_of_pettingzoo():
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    from ccenv.envs.curve.duel import FlowsEnv

    parallel_api_test(FlowsEnv(**THREE), num_cycles=30)
    parallel_seed_test(lambda: FlowsEnv(**THREE), num_cycles=20)
    assert FlowsEnv(**THREE).possible_agents == ["sender_0", "sender_2"]
    with pytest.raises(InputError, match="ccenv/Duel-v0"):
        FlowsEnv(adversary="external")
    with pytest.raises(InputError, match="no sender to play"):
        FlowsEnv(senders=["reno"])
