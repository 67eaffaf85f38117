"""The packet environments: interfaces, seeds, batches against single runs, snapshots, threads, legality, odd flows."""

import pickle
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ccenv  # noqa: F401  (registers the environments)
from ccenv.base.errors import InputError
from ccenv.engine.packet.batch.batch import PacketBatch, needed_words
from ccenv.engine.packet.batch.form import Form
from ccenv.engine.packet.batch.players import SenderTable
from ccenv.engine.packet.engine import PacketEngine
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import PacketTask, make_senders
from ccenv.network.laws import check_trace
from ccenv.simulation.packet_trace import CARRIED, WASTED, check_packet_trace, packet_slack_bytes

FAST = {"duration_s": 60, "links": [{"rate_mbps": 12, "buffer_bdp": 1}], "flows": [{"sender": "external", "rtt_ms": 20}]}
JITTER = {"kind": {"choice": ["none", "batch", "interval"]}, "max_ms": [1, 5], "interval_ms": [1, 3]}
RECEIVER = {"ack_every": [1, 4], "aggregation": {"choice": ["interval", "batch"]}, "aggregate_ms": [0.1, 9]}
MIXED: dict[str, Any] = {
    "duration_s": 30,
    "links": [
        {"rate_mbps": {"range": [4, 20], "log": True, "half": "report"}, "buffer_bdp": [0.1, 3], "buffer_least_packets": 8}
    ],
    "flows": [
        {"sender": "external", "rtt_ms": [15, 40], "loss_rate": {"choice": [0, 0.02]}, "jitter": JITTER},
        {"sender": "external", "rtt_ms": {"like": 0, "times": [0.5, 2]}, "start_s": [0, 1], "receiver": RECEIVER},
        {"sender": {"choice": ["cubic", "bbr1", "cc_probe_drain"]}, "rtt_ms": [20, 30], "start_s": {"choice": [0, 100]}},
    ],
}
BOX = {"kind": "adversary", "adversary": "external", "max_ms": 20}
BOXED = {**FAST, "flows": [{"sender": "cubic", "rtt_ms": 20, "jitter": BOX}]}


def actions(task: PacketTask, steps: int, seed: int = 0) -> np.ndarray:
    generator = np.random.Generator(np.random.Philox(seed))
    drawn: np.ndarray = generator.uniform(-1, 1, (steps, task.core.num_envs, len(task.core.flows)))
    return drawn


def play(task: PacketTask, given: np.ndarray) -> list[np.ndarray]:
    found = []
    for asked in given:
        rewards = task.step(asked)
        found += [task.observe(), rewards, task.core.decides]
        task.core.reset(task.core.truncated())
    return found


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def task_of(num_envs: int, **more: Any) -> PacketTask:
    return PacketTask(num_envs, read_packet_settings({"episode_decisions": 40, **more}, "test"))


def test_observations_stay_in_the_space_and_every_element_moves() -> None:
    used = {"signals": ["send_ratio", "rtt_change", "loss_rate", "cwnd_log2", "true_share_log2", "last_action"], "history": 2}
    env = gym.make_vec("ccenv/Packet-v0", num_envs=16, scenario=MIXED, action="cwnd_exp2", episode_decisions=60, **used)
    env.action_space.seed(1)
    observation, _ = env.reset(seed=1)
    low = high = observation
    for _ in range(150):
        observation, reward, terminated, _, info = env.step(env.action_space.sample())
        assert observation in env.observation_space and np.isfinite(reward).all() and not terminated.any()
        assert info["decides"].shape == (16, 2)
        low, high = np.minimum(low, observation), np.maximum(high, observation)
    assert (high.max(axis=0) > low.min(axis=0)).all()


def test_seeds_decide_everything() -> None:
    tasks = [task_of(4, scenario=MIXED) for _ in range(3)]
    for task, seed in zip(tasks, (5, 5, 6), strict=True):
        task.core.reset(seed=seed)
    first, second, third = (play(task, actions(task, 60)) for task in tasks)
    assert same(first, second) and not same(first, third)
    tasks[0].core.reset(seed=5)
    assert same(play(tasks[0], actions(tasks[0], 60)), first)


def test_a_batch_is_many_single_environments_whatever_the_threads() -> None:
    batch, threaded = task_of(3, scenario=MIXED), task_of(3, scenario=MIXED, threads=2)
    given = actions(batch, 90)
    for task in (batch, threaded):
        task.core.reset(seed=[7, 8, 9])
    found = play(batch, given)
    assert same(found, play(threaded, given))
    for b in range(3):
        single = task_of(1, scenario=MIXED)
        single.core.reset(seed=7 + b)
        assert same([x[b : b + 1] for x in found], play(single, given[:, b : b + 1]))


def test_a_batch_plays_what_the_engine_plays() -> None:
    """Networks of a batch that nobody controls give, bit by bit, what single runs of the drawn scenarios give."""
    data = {**MIXED, "flows": [{**flow, "sender": "reno"} for flow in MIXED["flows"][:2]] + MIXED["flows"][2:]}
    from ccenv.envs.packet.episodes import EpisodeSource
    from ccenv.simulation.ranges import read_distribution

    distribution = read_distribution(data)
    senders = make_senders(distribution)
    table = SenderTable(list(senders.values()), [None] * len(senders))
    source = EpisodeSource(distribution, {name: row for row, name in enumerate(senders)}, [], 0, None)
    form = Form(distribution.largest, table, {}, {}, [2])
    batch = PacketBatch(form, 6, needed_words(form, source.corners()))
    draws = source.draw(np.full(6, 3), np.arange(6), np.zeros(6, np.int64))
    batch.begin(np.arange(6), draws.beginnings)
    batch.advance(np.full(6, np.nextafter(4.0, 5.0)), 10**9)
    kinds = set()
    for b in range(6):
        scenario = draws.scenario(distribution, b)
        kinds.add(scenario.flows[2].sender)
        key = int(draws.beginnings.keys[b])
        engine = PacketEngine(scenario, [senders[f.sender] for f in scenario.flows], duration_s=4.0, seed=key, log_s=4.0)
        engine.advance(4.0)
        for field in ("sent_bytes", "delivered_bytes", "found_lost_bytes", "rtt_sum_s", "cwnd_bytes", "mask"):
            assert batch.arrays.flows[field][b].tolist() == engine.flow(field).tolist(), (b, field)
        assert batch.arrays.run["events"][b, 0] == engine.events - len(engine.flow_log)
    assert len(kinds) > 1


def test_snapshots_and_pickles_go_on_where_they_were_taken() -> None:
    task = task_of(3, scenario={**MIXED, "flows": [*MIXED["flows"], {"sender": "cc_qdel", "rtt_ms": 30}]})
    task.core.reset(seed=1)
    given = actions(task, 70)
    play(task, given[:30])
    state, copy = task.core.state(), pickle.loads(pickle.dumps(task))
    wanted = play(task, given[30:])
    assert same(play(copy, given[30:]), wanted)
    fresh = pickle.loads(pickle.dumps(task))
    fresh.core.reset(seed=99)
    fresh.core.set_state(state)
    assert same(play(fresh, given[30:]), wanted)
    with pytest.raises(InputError, match="state"):
        task_of(2, scenario=MIXED).core.set_state(state)


def test_autoreset_modes_play_the_same_episodes() -> None:
    """NEXT_STEP takes a step more per episode; besides, both see the same."""
    made = [
        gym.make_vec("ccenv/Packet-v0", num_envs=2, scenario=FAST, episode_decisions=5, autoreset_mode=mode)
        for mode in ("SameStep", "NextStep")
    ]
    firsts = []
    for env in made:
        observation, _ = env.reset(seed=3)
        seen = [observation]
        for _ in range(20):
            observation, _, _, truncated, _ = env.step(np.zeros((2, 1), np.float32))
            if env is made[0] or not truncated.all():
                seen.append(observation)
        firsts.append(seen)
    assert all(map(np.array_equal, firsts[0][:16], firsts[1][:16]))


def test_an_action_is_what_its_formula_says() -> None:
    task = task_of(1, scenario=FAST, action="rate_exp2", raw=True)
    task.core.reset(seed=0)
    rate_Bps = float(task.core.measures["rate_Bps"][0, 0])
    assert rate_Bps == 10 * 1500 / 0.02
    for asked in (0.5, -1.0, 1.0):
        task.step(np.array([[asked]]))
        rate_Bps *= 2 ** (0.3 * asked)
        assert task.infos()["rate_Bps"][0, 0] == pytest.approx(rate_Bps) and task.infos()["action"][0, 0] == asked


def test_rewards_are_weighted_terms_of_the_flows_that_decide() -> None:
    task = task_of(2, scenario=MIXED, reward={"throughput": 2.0, "loss": -3.0})
    task.core.reset(seed=0)
    for asked in actions(task, 30):
        rewards = task.step(asked)
        terms = {name: task.core.terms[:, :, k] for k, name in enumerate(task.core.term_names)}
        by_flow = 2 * terms["throughput"] - 3 * terms["loss"]
        assert task.core.rewards == pytest.approx(by_flow) and rewards == pytest.approx(by_flow.sum(axis=1) / 2)
        assert (by_flow[~task.core.decides] == 0).all()


@pytest.mark.parametrize(
    "flow",
    [{"loss_rate": 0.9999}, {"start_s": 3.0}, {"stop_s": 0.3}, {"workload": {"kind": "finite", "size_bytes": 30_000}},
     {"start_s": 1000.0}, {"workload": {"kind": "rate", "rate_Bps": 100}}],
)  # fmt: skip
@pytest.mark.parametrize("clock", [{}, {"common": True}, {"every": "acks", "count": 5}])
def test_silent_late_and_stopped_flows_end_their_episodes(flow: dict[str, Any], clock: dict[str, Any]) -> None:
    scenario = {**FAST, "duration_s": 5, "flows": [{**FAST["flows"][0], **flow}]}
    task = task_of(2, scenario=scenario, clock=clock, episode_decisions=1000)
    task.core.reset(seed=0)
    steps = 0
    while not task.core.truncated().all() and steps < 400:
        steps += 1
        rewards = task.step(np.full((2, 1), 0.3))
        assert np.isfinite(rewards).all() and np.isfinite(task.observe()).all()
    assert task.core.truncated().all() and (task.core.now_s <= 5.0).all()


@settings(max_examples=15)
@given(st.integers(0, 2**30), st.sampled_from([0.0, 1.0, None]))
def test_the_network_agent_is_legal(seed: int, kept: float | None) -> None:
    env = gym.make("ccenv/PacketNetwork-v0", scenario=BOXED, render_mode="rgb_array", episode_decisions=100).unwrapped
    env.reset(seed=seed)
    generator = np.random.Generator(np.random.Philox(seed))
    for _ in range(50):
        env.step(generator.uniform(0, 1, 1).astype(np.float32) if kept is None else np.array([kept], np.float32))
    trace = env.task.core.trace()
    assert trace.S[-1, 0] > 0 and check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []


def test_holding_packets_hurts_and_pictures_are_drawn() -> None:
    delays = []
    for share in (0.0, 1.0):
        env = gym.make("ccenv/PacketNetwork-v0", scenario=BOXED, render_mode="rgb_array").unwrapped
        env.reset(seed=0)
        assert env.render().shape[2] == 3
        for _ in range(60):
            env.step(np.array([share], np.float32))
        assert env.render().std() > 0
        delays.append(float(env.task.core.measures["rtt_mean_s"][0, 0]))
    assert delays[0] > delays[1] + 0.005


def test_duel_is_a_parallel_environment() -> None:
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test

    from ccenv.envs.packet.duel import PacketDuelEnv

    env = PacketDuelEnv(episode_decisions=20)
    parallel_api_test(env, num_cycles=60)
    seen, _ = env.reset(seed=2)
    assert set(seen) == {"sender_0", "network"}
    for _ in range(8):
        _, rewards, _, _, _ = env.step({"sender_0": np.array([0.5]), "network": np.array([0.0])})
    assert rewards["network"] == -rewards["sender_0"] != 0


def test_flows_that_share_a_policy_are_rows() -> None:
    pytest.importorskip("stable_baselines3")
    from ccenv.envs.clients.sb3 import make_sb3

    batch = make_sb3("ccenv/Packet-v0", 3, scenario=MIXED, shared_policy=True, episode_decisions=10)
    assert batch.num_envs == 6 and batch.reset().shape == (6, 30)
    ended = 0
    for _ in range(25):
        observations, rewards, dones, infos = batch.step(np.zeros((6, 1), np.float32))
        assert observations.shape == (6, 30) and rewards.shape == (6,)
        ended += dones.sum()
        assert all(("terminal_observation" in info) == done for info, done in zip(infos, dones, strict=True))
    assert ended == 12


@pytest.mark.parametrize("bad", [np.array([[np.nan]]), np.zeros((2, 1)), np.zeros((1, 3))])
def test_bad_actions_are_refused(bad: np.ndarray) -> None:
    task = task_of(1, scenario=FAST)
    task.core.reset(seed=0)
    with pytest.raises(InputError, match="action"):
        task.step(bad)


def test_memory_of_a_network() -> None:
    link, flow = {"rate_mbps": 100, "buffer_bdp": 4}, {"sender": "external", "rtt_ms": 40}
    task = task_of(1, scenario={**FAST, "links": [link], "flows": [flow]})
    assert task.core.bytes_per_env < 2e6


def test_each_network_has_memory_of_its_own_size() -> None:
    """A draw of a hundred times the BDP takes rings of its own, which a smaller one gives back; its state is that much larger."""
    link = {"rate_mbps": {"choice": [1, 1000]}, "buffer_packets": 20}
    task = task_of(8, scenario={**FAST, "links": [link], "flows": [{"sender": "external", "rtt_ms": 100}]}, episode_decisions=3)
    task.core.reset(seed=2)
    sizes = set()
    for _ in range(8):
        fast = task.core.link("rate_Bps")[:, 0] > 1e6
        room = task.core.batch._memory.room
        assert not fast.any() or fast.all() or room[~fast].max() * 8 < room[fast].min()
        sizes |= {(int(fast.sum()), task.core.state()["batch.rings"].nbytes)}
        play(task, actions(task, 3))
    assert len(sizes) > 2 and len({n for n, _ in sizes}) == len(sizes)


# The link's rate as a move of PacketNetwork-v0's agent.
STRONG = {"scenario": BOXED, "link_rate_min_share": 0.3, "render_mode": "rgb_array", "episode_decisions": 100}


@settings(max_examples=15)
@given(st.integers(0, 2**30), st.sampled_from([0.0, 1.0, None]))
def test_the_agent_that_moves_the_rate_is_legal(seed: int, kept: float | None) -> None:
    env = gym.make("ccenv/PacketNetwork-v0", **STRONG).unwrapped
    env.reset(seed=seed)
    assert env.action_space.shape == (2,)
    generator = np.random.Generator(np.random.Philox(seed))
    rates = set()
    for _ in range(60):
        moves = generator.uniform(0, 1, 2) if kept is None else np.full(2, kept)
        env.step(moves.astype(np.float32))
        link = env.task.core.batch.arrays.links[0, 0]
        rates.add(float(link["rate_Bps"]))
        assert link["rate_Bps"] == pytest.approx(1.5e6 * (0.3 + 0.7 * np.float32(moves[1])), rel=1e-6)
    assert len(rates) == (60 if kept is None else 1)
    trace = env.task.core.trace()
    assert trace.header.model == "strong" and trace.S[-1, 0] > 0 and check_packet_trace(trace) == []


def test_rates_that_are_illegal_or_were_not_played_are_found() -> None:
    env = gym.make("ccenv/PacketNetwork-v0", **STRONG).unwrapped
    env.reset(seed=1)
    generator = np.random.Generator(np.random.Philox(1))
    for _ in range(90):
        env.step(np.array([1.0, generator.uniform()], np.float32))
    trace = env.task.core.trace()

    def broken(rates: np.ndarray) -> set[str]:
        return {found.law for found in check_packet_trace(replace(trace, link_rate_Bps=rates))}

    rate = np.array(trace.link_rate_Bps)
    assert broken(rate) == set() and len(set(rate.tolist())) > 60
    for wrong in (0.2 * 1.5e6, 1.1 * 1.5e6):
        illegal = rate.copy()
        illegal[len(rate) // 2] = wrong
        assert "link_rate_legal" in broken(illegal)
    assert CARRIED in broken(np.full_like(rate, 0.3 * 1.5e6))  # legal rates, but the link carried more
    assert WASTED in broken(np.full_like(rate, 1.5e6))  # legal rates, but it carried less although packets waited


def test_a_slower_link_carries_less_and_batches_and_copies_agree() -> None:
    served = {}
    for share in (0.0, 1.0):
        env = gym.make_vec("ccenv/PacketNetwork-v0", num_envs=3, scenario=BOXED, link_rate_min_share=0.25)
        env.reset(seed=2)
        for _ in range(60):
            env.step(np.tile(np.array([1.0, share], np.float32), (3, 1)))
        served[share] = env.unwrapped.task.core.link("served_bytes")[:, 0]
    np.testing.assert_allclose(served[0.0] / served[1.0], 0.25, atol=0.05)
    task = env.unwrapped.task
    copied = pickle.loads(pickle.dumps(task.core))
    moves = np.array([[0.5, 0.2], [0.1, 0.9], [1.0, 0.4]])
    np.testing.assert_array_equal(copied.advance(services=moves), task.core.advance(services=moves))
    single = gym.make("ccenv/PacketNetwork-v0", scenario=BOXED, link_rate_min_share=0.25, n_actions=3)
    assert single.action_space == gym.spaces.MultiDiscrete([3, 3])
