"""Flows inside a shield in the packet environments: rates stay inside, and training sees what the deployed policy sees."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from shields_data import policy, shield

import ccenv  # noqa: F401  (registers the environments)
from ccenv.agents.sender import ShieldSender
from ccenv.base.errors import InputError
from ccenv.engine.compiled.policies import PolicyBatch
from ccenv.engine.packet.engine import PacketEngine
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import PacketTask
from ccenv.simulation.ranges import read_distribution

ONE: dict[str, Any] = {
    "duration_s": 60, "links": [{"rate_mbps": 12, "buffer_bdp": 2}], "flows": [{"sender": "external", "rtt_ms": 20}],
}  # fmt: skip
MANY: dict[str, Any] = {
    "duration_s": 20,
    "links": [{"rate_mbps": {"range": [4, 20], "log": True}, "buffer_bdp": [0.5, 3]}],
    "flows": [
        {"sender": "external", "rtt_ms": [15, 40], "loss_rate": {"choice": [0, 0.02]}},
        {"sender": "external", "rtt_ms": 30, "start_s": [0, 1], "stop_s": 6, "receiver": {"ack_every": [1, 4]}},
        {"sender": {"choice": ["cubic", "cc_probe_drain"]}, "rtt_ms": [20, 30], "start_s": {"choice": [0, 100]}},
    ],
}


def task(num_envs: int = 1, **more: Any) -> PacketTask:
    return PacketTask(num_envs, read_packet_settings({"scenario": ONE, "shield": shield(), **more}, "here"))


def deployed(played: PacketTask, sender: ShieldSender) -> PacketEngine:
    """Run a sender alone on the network of a task, up to the task's time."""
    core = played.core
    key = int(core.batch.arrays.run["seed"][0, 0])
    engine = PacketEngine(read_distribution(ONE).largest, [sender], duration_s=60, seed=key)
    engine.advance(np.nextafter(core.now_s[0], 0.0))
    return engine


@pytest.mark.parametrize(("action", "chooser"), [(-1.0, "lo"), (0.0, "middle"), (1.0, "hi"), (-7.0, "lo"), (9.0, "hi")])
def test_a_position_gives_what_the_fixed_chooser_gives(action: float, chooser: str) -> None:
    played = task()
    played.core.reset(seed=3)
    for _ in range(200):
        played.step(np.array([[action]]))
    engine = deployed(played, ShieldSender("fixed", shield(), chooser))
    for field in ("sent_bytes", "delivered_bytes", "rtt_sum_s", "rate_Bps"):
        assert engine.flow(field)[0] == played.core.flow(field)[0, 0], field
    assert engine.flow("sent_bytes")[0] > 1e6


def test_training_sees_what_the_deployed_policy_sees() -> None:
    chooser = policy(2)
    played = task()
    played.core.reset(seed=3)
    batch = PolicyBatch(chooser, 1)
    for _ in range(60):
        played.step(batch.actions(played.observe())[:, None])
    engine = deployed(played, ShieldSender("learned", shield(), "policy", chooser))
    assert engine.flow("sent_bytes")[0] == pytest.approx(played.core.flow("sent_bytes")[0, 0], rel=1e-4)
    assert engine.flow("rate_Bps")[0] == pytest.approx(played.core.flow("rate_Bps")[0, 0], rel=1e-4)
    with pytest.raises(InputError, match="not a number"):
        played.step(np.array([[np.nan]]))


def test_every_rate_lies_inside_the_interval_of_its_decision() -> None:
    played = PacketTask(8, read_packet_settings({"scenario": MANY, "shield": shield()}, "here"))
    core, rng = played.core, np.random.default_rng(0)
    core.reset(seed=5)
    decided = strictly = 0
    for _ in range(300):
        m, decides, asked = core.measures, core.decides, rng.uniform(-1.5, 1.5, (8, 2))
        lo, hi = m["shield_low_Bps"], m["shield_high_Bps"]
        played.step(asked)
        rate = core.flow("rate_Bps")[:, :2]
        wanted = lo + np.clip((asked + 1) / 2, 0, 1) * (hi - lo)
        assert (lo[decides] <= rate[decides]).all() and (rate[decides] <= hi[decides]).all()
        np.testing.assert_allclose(rate[decides], wanted[decides], rtol=1e-12)
        decided += int(decides.sum())
        strictly += int((lo < hi)[decides].sum())
        core.reset(core.truncated())
    assert decided > 2000 and strictly > 500


def test_other_signals_discrete_actions_batches_and_copies() -> None:
    env = gym.make_vec("ccenv/Packet-v0", num_envs=3, scenario=MANY, shield=shield(), n_actions=5, threads=2)
    seen, _ = env.reset(seed=1)
    assert seen.shape == (3, 20) and env.single_action_space == gym.spaces.MultiDiscrete([5, 5])
    other = gym.make("ccenv/Packet-v0", scenario=ONE, shield=shield(), signals=["rtt_change", "bounds_log2"], history=4)
    assert other.observation_space.shape == (8,) and other.reset(seed=0)[0].shape == (8,)
    core = env.unwrapped.task.core
    kept = core.state()
    first = [env.step(np.full((3, 2), 2))[0] for _ in range(40)]
    core.set_state(kept)
    again = [env.step(np.full((3, 2), 2))[0] for _ in range(40)]
    np.testing.assert_array_equal(first, again)
