"""What a flow learns from probes of its window: the kernel against lists of all that happened."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.probing import ReferenceProbes, level_of

from ccenv.agents.interface.actions import PROBE_FIELDS, drawn_level, follow_probes
from ccenv.agents.interface.signals import MEASURES

MONITOR = np.dtype([("decisions", "<i8"), *PROBE_FIELDS])
FOLLOWED = ("probe_change", "probe_response", "roughness", "persistence", "floor_log2", "peak_log2", "loss_smoothed")


def monitor() -> np.record:
    return np.rec.array(np.zeros(1, MONITOR))[0]


def measured(**values: float) -> np.record:
    record = np.rec.array(np.zeros(1, MEASURES))[0]
    for name, value in values.items():
        record[name] = value
    return record


@given(st.floats(0, 1e6), st.floats(0, 10))
def test_a_level_is_a_bit_of_the_time_and_the_newest_rtt(now_s: float, rtt_s: float) -> None:
    level = drawn_level(now_s, rtt_s)
    ends = {level_of(now_s + a, rtt_s + b) for a in (-1e-8, 0, 1e-8) for b in (-1e-11, 0, 1e-11)}
    assert level in ends


def test_levels_are_as_good_as_random() -> None:
    levels = np.array([drawn_level(0.3 * k, 0.04) for k in range(4000)])
    for other in (
        np.ones(4000),
        np.roll(levels, 1),
        np.roll(levels, 2),
        np.array([drawn_level(0.3 * k, 0.05) for k in range(4000)]),
    ):
        assert abs(float(levels @ other)) / 4000 < 0.06


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2]))
def test_what_is_followed_equals_the_plain_reference(seed: int, missing: float) -> None:
    rng, own, plain = np.random.default_rng(seed), monitor(), ReferenceProbes()
    for decision in range(40):
        m = measured(now_s=0.3 * decision)
        for name in ("srtt_s", "cwnd_bytes", "rtt_min_s", "rtt_mean_s", "rtt_last_s", "min_rtt_s", "lost_bytes", "acked_bytes"):
            m[name] = 0.0 if rng.random() < missing else rng.uniform(0.01, 1)
        if rng.random() < missing:
            m.cwnd_bytes = np.inf
        follow_probes(own, m)
        own.decisions += 1
        wanted = plain.follow({name: float(m[name]) for name in MEASURES.names or ()})
        assert {name: float(m[name]) for name in FOLLOWED} == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_response_is_the_share_of_a_queue_that_is_the_flows_own(share: float) -> None:
    """A flow whose window alone moves, on a link that is always full: the RTT follows as far as the queue is the flow's own."""
    own, window, level, found = monitor(), 1.0, 0.0, []
    others = (1 - share) / share
    for decision in range(400):
        m = measured(
            now_s=0.3 * decision, srtt_s=0.04 * (window + others), cwnd_bytes=window * 1e5, min_rtt_s=0.01, rtt_last_s=0.04
        )
        follow_probes(own, m)
        own.decisions += 1
        level += m.probe_change
        window = 2 ** (0.07 * level)
        found.append(float(m.probe_response))
    taken = share * 0.82  # 10 intervals against what is taken for granted
    assert np.mean(found[50:]) == pytest.approx(taken, abs=0.08)


def test_rests_tell_probes_of_others_from_a_queue_that_grows() -> None:
    """Others that probe leave rests of changing signs, one that fills the queue steadily rests of one sign."""
    rng, found = np.random.default_rng(1), {}
    for kind in ("probes", "grows"):
        own, seen, others = monitor(), [], 1.0
        for decision in range(400):
            others = 2 ** (0.07 * rng.choice([-1, 1])) if kind == "probes" else 1 + 0.03 * (decision % 30)
            m = measured(now_s=0.3 * decision, srtt_s=0.02 * (1 + others), cwnd_bytes=1e5, min_rtt_s=0.01, rtt_last_s=0.04)
            follow_probes(own, m)
            own.decisions += 1
            seen.append(float(m.persistence))
        found[kind] = float(np.median(seen[50:]))
    assert found["probes"] < -0.05 < 0.15 < found["grows"]


def test_a_new_flow_begins_anew() -> None:
    own = monitor()
    for name, _ in PROBE_FIELDS:
        own[name] = 3.0
    m = measured(now_s=1.0, srtt_s=0.05, cwnd_bytes=1e4)
    follow_probes(own, m)
    assert [float(m[name]) for name in FOLLOWED[1:]] == [0.0] * 6 and abs(m.probe_change) == 1.0
