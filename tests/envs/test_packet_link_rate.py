"""The link's rate as a move of PacketNetwork-v0's agent: legal, independently checked, and refused where it cannot be."""

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
from ccenv.simulation.packet_trace import CARRIED, WASTED, check_packet_trace

FAST = {"duration_s": 60, "links": [{"rate_mbps": 12, "buffer_bdp": 1}], "flows": [{"sender": "external", "rtt_ms": 20}]}
BOX = {"kind": "adversary", "adversary": "external", "max_ms": 20}
BOXED = {**FAST, "flows": [{"sender": "cubic", "rtt_ms": 20, "jitter": BOX}]}
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


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("ccenv/Packet-v0", {"scenario": FAST}, "for ccenv/PacketNetwork-v0"),
        ("ccenv/PacketNetwork-v0", {"scenario": BOXED, "link_rate_min_share": 0}, "greater than 0"),
        ("ccenv/PacketNetwork-v0", {"scenario": BOXED, "link_rate_min_share": 1.5}, "less than 1"),
        ("ccenv/PacketNetwork-v0", {"scenario": BOXED, "link_rate_min_share": float("nan")}, "link_rate_min_share"),
        ("ccenv/PacketNetwork-v0", {"scenario": BOXED, "link_rate_min_share": 0.01}, "less than a segment per RTT"),
        (
            "ccenv/PacketNetwork-v0",
            {"scenario": {**BOXED, "links": [{"rate_mbps": 12, "buffer_bdp": 1, "rate_steps": [{"time_s": 1, "rate_mbps": 6}]}]}},
            "one link, without rate_steps",
        ),
    ],
)
def test_rate_moves_that_cannot_be_are_refused(name: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        gym.make(name, **{"link_rate_min_share": 0.5, **more})
    assert "\n" not in str(caught.value)
