"""Environments over signals, actions and rewards of the tables: what an agent sees is what its policy sees in the kernel."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from policy_zoo import interface, random_policy

from ccenv.agents.interface.rewards import REWARDS, TERMS
from ccenv.agents.interface.signals import N_SIGNALS
from ccenv.agents.learned.convert import PolicyReference
from ccenv.engine.curve.engine import CurveEngine
from ccenv.envs.curve.interface import WatchedTask
from ccenv.envs.curve.sender import SenderEnv
from ccenv.envs.curve.settings import EnvSettings
from ccenv.network.path import FlowPath, Path

PATH = Path(link_rate_Bps=2e6, buffer_bytes=60_000, flows=(FlowPath(rtt_s=0.04, jitter_s=0.02),))
AURORA = {"signals": "aurora", "action": "rate_delta", "reward": "aurora"}


def test_belief_signals_by_name_are_those_of_the_first_version():
    one = gym.make_vec("ccenv/Sender-v0", num_envs=8, episode_rtts=20)
    two = gym.make_vec("ccenv/Sender-v0", num_envs=8, episode_rtts=20, signals="beliefs", action="rate_log2")
    assert isinstance(two.task, WatchedTask)
    seen = [env.reset(seed=4)[0] for env in (one, two)]
    one.action_space.seed(0)
    for _ in range(45):
        np.testing.assert_allclose(*seen, rtol=1e-6)
        actions = one.action_space.sample()
        steps = [env.step(actions) for env in (one, two)]
        seen = [step[0] for step in steps]
        np.testing.assert_allclose(steps[0][1], steps[1][1], rtol=1e-9)


PLAYERS = {
    "aurora": random_policy(interface(signals="aurora", action="rate_delta", clock={"every": "rtt"}), (16,)),
    "lstm": random_policy(
        interface(signals="company", history=2, action="cwnd_exp2", clock={"every": "rtt"}), (6, 6), stages=("dense", "lstm")
    ),
    "categorical": random_policy(interface(signals=["queue_log2", "bounds_log2"], action="rate_exp2", clock={"every": "rtt"}),
            head="categorical", outputs=5),
    "orca": random_policy(interface(signals="orca", action="cwnd_exp2_over", inner="cubic", clock={"every": "rtt"}), (8,)),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYERS)
def test_a_policy_sees_in_the_kernel_what_it_saw_in_the_environment(name):
    policy = PLAYERS[name]
    sees = policy.interface
    options = {"discrete": True, "n_actions": 5} if name == "categorical" else {}
    settings = EnvSettings(
        paths=PATH, models=("cbr_delay",), adversary="square", signals=sees.signals, history=sees.history, action=sees.action,
        inner=sees.inner, episode_rtts=60, **options,
    )  # fmt: skip
    task = WatchedTask(1, settings)
    task.core.reset(seed=0)
    engine = CurveEngine(
        [PATH], model="cbr_delay", senders=[policy], adversary=settings.build_adversary(), beliefs=settings.belief_settings()
    )
    reference = PolicyReference(policy)
    for interval in range(50):
        seen = task.observe()
        action = _decide(reference, seen[0], len(sees.signals))
        task.step(np.array([round(2 * action + 2)]) if options else np.array([[action]]))
        if interval:  # at the end of a call the kernel has decided already for the next interval
            assert task.core.flow("rate_Bps")[0, 0] == pytest.approx(engine.flow("rate_Bps")[0, 0], rel=1e-4)
        engine.advance(8)
        assert task.core.flow("A")[0, 0] == pytest.approx(engine.flow("A")[0, 0], rel=1e-5)


def _decide(reference, seen, n):
    """Return the action for an observation, float32, whose newest interval stands last."""
    signals = np.full(N_SIGNALS, np.nan)
    signals[reference.sender.interface.numbers] = seen[-n:]
    return reference.decide(signals)


def test_several_flows_are_seen_one_after_the_other_or_as_rows():
    path = PATH.model_copy(update={"flows": PATH.flows * 3})
    settings = EnvSettings(paths=path, models=("cbr_delay",), senders=("external", "reno", "external"), **AURORA)
    joint, rows = WatchedTask(2, settings), WatchedTask(2, settings, shared=True)
    assert joint.single_observation_space.shape == (60,) and rows.single_observation_space.shape == (30,)
    rng = np.random.default_rng(0)
    for task in (joint, rows):
        task.core.reset(seed=1)
    for _ in range(10):
        actions = rng.uniform(-1, 1, (2, 2))
        np.testing.assert_array_equal(joint.observe().reshape(4, 30), rows.observe())
        together, alone = joint.step(actions), rows.step(actions.reshape(4, 1))
        np.testing.assert_allclose(together, alone.reshape(2, 2).mean(axis=1), rtol=1e-12)
    assert len(set(alone)) == 4


def test_rewards_are_the_terms_of_the_table():
    task = WatchedTask(1, EnvSettings(paths=PATH, models=("cbr_delay",), adversary="kind", signals="aurora", action="rate_delta",
                                      reward=dict.fromkeys((t.name for t in TERMS if t.name not in REWARDS), 1.0)))  # fmt: skip
    task.core.reset(seed=0)
    for _ in range(30):
        before = task.core.flow("acked_bytes")[0, 0]
        task.step(np.ones((1, 1)))
    engine = task.core.engines()[0][1]
    terms = dict(zip((t.name for t in TERMS), engine.watch.terms()[0, 0], strict=True))
    throughput = (task.core.flow("acked_bytes")[0, 0] - before) / (2e6 * 0.04)
    assert terms["throughput"] == pytest.approx(throughput) and terms["utilisation"] == pytest.approx(1.0)
    assert terms["queue"] == pytest.approx(task.core.queue_bytes[0] / (2e6 * 0.04)) and terms["delay"] > 0.2
    assert terms["jain"] == 1.0 and terms["share_log2"] == pytest.approx(0, abs=0.1) and terms["change"] == 0.0
    assert terms["loss"] > 0.0 and terms["power"] == pytest.approx(throughput / (1 + terms["delay"]))


def test_shares_are_smoothed_over_the_flows_that_may_send():
    path = PATH.model_copy(update={"flows": (PATH.flows[0], PATH.flows[0].model_copy(update={"start_s": 0.4}))})
    senders, seen = ("external", "constant:rate_mbps=8"), {"signals": ["send_ratio"], "action": "rate_exp2"}
    task = WatchedTask(1, EnvSettings(paths=path, models=("ideal",), senders=senders, adversary="kind", **seen))
    task.core.reset(seed=0)
    seen = []
    for _ in range(20):
        task.step(np.zeros((1, 1)))
        m = task.core.engines()[0][1].watch.measured[0, 0]
        seen.append((m["true_flows"], m["true_others"], m["true_share"]))
    assert [flows for flows, _, _ in seen] == [1.0] * 9 + [2.0] * 11 and [others for _, others, _ in seen][-1] == 1.0
    assert seen[-1][2] != seen[8][2] and 0 < seen[-1][2] < 2


ORCA = {"signals": "orca", "action": "cwnd_exp2_over", "inner": "cubic"}


@pytest.mark.parametrize("options", [AURORA, {**AURORA, "discrete": True}, ORCA])
def test_gymnasium_checks(options):
    check_env(SenderEnv(**options, episode_rtts=8), skip_render_check=True)
    seen, _ = gym.make_vec("ccenv/Sender-v0", num_envs=3, **options).reset(seed=0)
    assert seen.dtype == np.float32 and np.isfinite(seen).all()


def test_state_copies_and_seeds():
    def run(task, steps):
        out = []
        for k in range(steps):
            rewards = task.step(np.full((5, 1), np.sin(k)))
            out.append(np.concatenate([rewards, task.observe().ravel()]))
        return np.array(out)

    settings = EnvSettings(models=("cbr_delay", "ccac"), history=4, **AURORA)
    task = WatchedTask(5, settings)
    task.core.reset(seed=9)
    run(task, 12)
    saved, twin = task.core.state(), copy.deepcopy(task)
    further = run(task, 10)
    np.testing.assert_array_equal(further, run(twin, 10))
    other = WatchedTask(5, settings)
    other.core.set_state(saved)
    np.testing.assert_array_equal(further, run(other, 10))
    task.core.reset(seed=9)
    run(task, 12)
    np.testing.assert_array_equal(further, run(task, 10))
