"""Signals, actions and rewards: every row of the tables has its formula; probes are followed as the plain reference does."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from oracles.probing import ReferenceProbes, level_of, pulled_window

from ccenv.agents.interface.actions import ACTIONS, PROBE_FIELDS, STARTING, STEADY, drawn_level, follow_probes, set_by_action
from ccenv.agents.interface.interface import SENDER_V0, Interface
from ccenv.agents.interface.rewards import N_TERMS, REWARDS, TERM_NUMBERS, fill_terms
from ccenv.agents.interface.signals import MEASURES, N_SIGNALS, SIGNAL_NUMBERS, SIGNALS_HIGH, SIGNALS_LOW, fill_signals
from ccenv.base.config import validate

NAMES = MEASURES.names or ()


def measured_record(**values: float) -> np.record:
    record = np.rec.array(np.zeros(1, MEASURES))[0]
    for name, value in values.items():
        record[name] = value
    return record


def measured(**values: float) -> np.record:
    return measured_record(**({"interval_s": 0.04, "mss_bytes": 1500.0, "app_left_bytes": np.inf} | values))


def signals(**values: float) -> dict[str, float]:
    out = np.full(N_SIGNALS, np.nan)
    fill_signals(measured(**values), out)
    return dict(zip(SIGNAL_NUMBERS, out, strict=True))


def terms(action_before: float = 0.0, **values: float) -> dict[str, float]:
    out = np.full(N_TERMS, np.nan)
    fill_terms(measured(**values), action_before, out)
    return dict(zip(TERM_NUMBERS, out, strict=True))


@given(st_numpy.arrays(np.float64, len(NAMES), elements=st.sampled_from([0.0, 1e-6, 0.04, 1.0, 1500.0, 1e7, np.inf])))
def test_every_signal_is_a_number_in_its_range(values: np.ndarray) -> None:
    own = dict(zip(NAMES, values, strict=True)) | {"interval_s": 0.04, "mss_bytes": 1500.0}
    finite = {name: min(value, 1e12) for name, value in own.items() if name not in {"cwnd_bytes", "rate_Bps", "app_left_bytes"}}
    out = np.full(N_SIGNALS, np.nan)
    fill_signals(measured(**(own | finite)), out)
    assert ((out >= SIGNALS_LOW) & (out <= SIGNALS_HIGH)).all()


def test_aurora_sees_what_its_paper_says_and_raw_signals_have_their_units() -> None:
    seen = signals(sent_bytes=30e3, acked_bytes=20e3, rtt_slope=0.1, rtt_mean_s=0.06, rtt_least_mean_s=0.04)
    assert seen["send_ratio"] == 1.5 and seen["latency_gradient"] == 0.1 and seen["latency_ratio"] == pytest.approx(1.5)
    assert terms(acked_bytes=60e3, rtt_mean_s=0.05, lost_bytes=20e3)["aurora"] == pytest.approx(10 * 1000 - 50 - 500)
    seen = signals(acked_bytes=50e3, sent_bytes=100e3, rtt_mean_s=0.05, min_rtt_s=0.04, inflight_bytes=15e3)
    assert seen["throughput_mbps"] == pytest.approx(10.0) and seen["sending_mbps"] == pytest.approx(20.0)
    assert seen["queue_delay_ms"] == pytest.approx(10.0) and seen["inflight_segments"] == 10.0


def test_actions_set_what_their_formulas_say_and_no_number_is_the_smallest_one() -> None:
    state = {"rate_Bps": 1e6, "cwnd_bytes": 30e3, "srtt_s": 0.05, "C_L_Bps": 2e6, "told_rtt_s": 0.04, "inner_cwnd_bytes": 15e3}
    state |= {"acked_bytes": 3e3, "sent_bytes": 3e4, "shield_low_Bps": 1e6, "shield_high_Bps": 3e6, "probe_change": 2.0}
    pull = 0.7 * (35 / 400) ** 0.5  # 400 segments per s
    wanted = {
        "rate_log2": (2e6 * 2.0**1.5, np.inf),
        "rate_delta": (1.1e6, np.inf),
        "rate_exp2": (1e6 * 2.0**0.15, np.inf),
        "rate_between": (2.5e6, np.inf),
        "cwnd_delta": (2 * 30e3 * 1.0125 / 0.05, 30e3 * 1.0125),
        "cwnd_exp2": (2 * 30e3 * 2.0**0.15 / 0.05, 30e3 * 2.0**0.15),
        "cwnd_exp2_over": (2 * 30e3 / 0.05, 30e3),
        "cwnd_exp2_probe": (2 * 30e3 * 2.0**0.39 / 0.05, 30e3 * 2.0**0.39),
        "rate_exp2_over": (1e6 * 2.0**0.15, np.inf),
        "cwnd_exp2_even": (2 * 30e3 * 2.0**0.39 / 0.05, 30e3 * 2.0**0.39),
        "cwnd_exp2_pull": (2 * 30e3 * 2.0 ** (0.49 + pull) / 0.05, 30e3 * 2.0 ** (0.49 + pull)),
    }
    for number, row in enumerate(ACTIONS):
        first, second = [*(default for default, _, _ in row.parameters.values()), 0.0, 0.0][:2]
        assert set_by_action(number, first, second, 0.5, measured(**state)) == pytest.approx(wanted[row.name]), row.name
    state = measured(rate_Bps=1e6, shield_low_Bps=1e6, shield_high_Bps=3e6)
    assert set_by_action(3, 0.0, 0.0, np.nan, state) == (1e6, np.inf)
    assert set_by_action(3, 0.0, 0.0, 7.0, state) == (3e6, np.inf)


EVEN, PULL = (next(number for number, row in enumerate(ACTIONS) if row.name == f"cwnd_exp2_{name}") for name in ("even", "pull"))


def test_where_a_quarter_is_lost_the_window_halves() -> None:
    for lost, a, factor in ((1e3, 1.0, 2.0**0.5), (1.1e3, 1.0, 0.5), (3e3, 0.0, 0.5), (3e3, -1.0, 0.5), (0.0, -1.0, 2.0**-0.5)):
        state = measured(cwnd_bytes=30e3, srtt_s=0.05, lost_bytes=lost, acked_bytes=3e3, sent_bytes=3e4)
        assert set_by_action(EVEN, 0.5, 0.25, a, state)[1] == pytest.approx(30e3 * factor), (lost, a)


@given(st.floats(-1, 1), st.sampled_from((0.0, 1.5e3)), st.sampled_from((0.05, 0.09, 3.0)), st.sampled_from((2e5, 4e5, 1e6)))
def test_four_segments_probe_an_outage_and_the_window_comes_back(a: float, acked: float, srtt_s: float, most_Bps: float) -> None:
    told = {"min_rtt_s": 0.05, "srtt_s": srtt_s, "rtt_min_s": 1.0, "lost_bytes": 3e3, "throughput_most_Bps": most_Bps}
    state = measured(**told, cwnd_bytes=6e3, acked_bytes=acked, outage_cwnd_bytes=30e3)
    window = {2e5: 15e3, 4e5: 20e3, 1e6: 30e3}[most_Bps] if acked > 0 else 6e3
    assert set_by_action(EVEN, 0.5, 0.25, a, state) == pytest.approx((max(2 / srtt_s, 1 / 0.05) * window, window))
    state = measured(**told | {"rtt_min_s": 0.06, "lost_bytes": 0.0}, cwnd_bytes=15e3, acked_bytes=3e3)
    assert set_by_action(EVEN, 0.5, 0.25, 0.0, state) == pytest.approx((max(2 / srtt_s, 1 / 0.06) * 15e3, 15e3))


@pytest.mark.parametrize(
    "name", [row.name for row in ACTIONS if row.sets == "cwnd" or row.name in ("rate_delta", "rate_exp2", "rate_exp2_over")]
)
@pytest.mark.parametrize(("mbps", "most"), [(0.0, 160.0), (1.2, 160.0), (120.0, 16e3)])
def test_a_flow_grows_to_sixteen_times_what_arrived_and_only_where_it_sent(name: str, mbps: float, most: float) -> None:
    """One that hears nothing, or has little to send, whatever it asks for and however it starts."""
    number = next(number for number, row in enumerate(ACTIONS) if row.name == name)
    first, second = [*(high for _, _, high in ACTIONS[number].parameters.values()), 0.0][:2]
    for starting, before in itertools.product((STEADY, STARTING), (10.0, most / 1.01, most, 3 * most)):
        told = {"srtt_s": 0.1, "acked_bytes": 1e3, "probe_change": 2.0, "throughput_most_Bps": mbps * 125e3, "starting": starting}
        inner = name.endswith("_over")
        told |= {"inner_cwnd_bytes": 1500 * before * inner, "rate_Bps": 15e3 * before}
        told |= {"cwnd_bytes": 1500 * before if ACTIONS[number].sets == "cwnd" else np.inf}
        # sent of what was asked for; idle is who has nothing in flight, or sent little for two RTTs and lost nothing
        lost, flying, full = {"lost_bytes": 1.0}, {"inflight_bytes": 1.0}, {"inflight_bytes": 1500 * before}
        said = ({}, lost, flying, full, lost | flying, {"acked_bytes": 0.0} | flying)
        for sent, rtts, heard in itertools.product((0.45, 0.55), (0.4, 2.5), said):
            busy = sent > 0.5 or inner or len(heard) == 2 or (heard is full and rtts < 2)
            grows = before < most and busy and not (name == "cwnd_exp2_pull" and "acked_bytes" in heard)
            sends = {"interval_s": 0.1 * rtts, "sent_bytes": rtts * sent * 1500 * before}
            state = measured(**told | heard | sends)
            rate_Bps, cwnd_bytes = set_by_action(number, first, second, 1.0, state)
            grown = (cwnd_bytes if ACTIONS[number].sets == "cwnd" else rate_Bps * 0.1) / 1500 / before
            low, high = (1.001, most / before) if grows else (1, 1)
            assert low - 1e-9 <= grown <= high + 1e-9, (starting, before, sent, heard)


AMOUNTS = st.sampled_from((0.0, 1.5e3, 3e4, 3e6))


@given(st.floats(-1, 1), st.sampled_from((0.0, 1.0, 2.0)), st.floats(1, 1e6), st.sampled_from((0.0, 0.01, 0.3)), AMOUNTS, AMOUNTS)
def test_a_pulled_window_is_that_of_the_page(a, starting, segments, srtt_s, acked, lost):
    told = {"cwnd_bytes": 1500 * segments, "srtt_s": srtt_s, "acked_bytes": acked, "lost_bytes": lost, "starting": starting}
    told |= {"rate_Bps": np.inf, "sent_bytes": np.inf}
    rate_Bps, cwnd_bytes = set_by_action(PULL, 35.0, 0.25, a, measured(**told, probe_change=-2.0))
    wanted = pulled_window(a, int(starting), segments, srtt_s, acked, lost, pull=35, flooded=0.25, change=-2)
    assert cwnd_bytes == pytest.approx(1500 * wanted)
    gain = 2 if cwnd_bytes >= 3000 else 1
    assert rate_Bps == (pytest.approx(gain * cwnd_bytes / srtt_s) if srtt_s > 0 else np.inf)


@pytest.mark.parametrize("mbps", (2, 10, 100))
def test_the_pull_brings_unequal_windows_together(mbps: float) -> None:
    """Two flows that are asked the same, what holds a fair window: the smaller one grows, the larger one shrinks."""
    windows, srtt_s = [10.0, 90.0], 100 * 12e3 / (mbps * 1e6)
    for _ in range(300):
        told = [measured(cwnd_bytes=1500 * w, srtt_s=srtt_s, acked_bytes=1e3, sent_bytes=np.inf) for w in windows]
        windows = [set_by_action(PULL, 35.0, 1.0, -((35 * srtt_s / 50) ** 0.5), m)[1] / 1500 for m in told]
    assert windows == pytest.approx([50.0, 50.0], rel=0.1)


def test_named_sets_bring_their_history_and_named_rewards_use_terms_of_the_table() -> None:
    aurora = validate(Interface, {"signals": "aurora", "action": "rate_delta"}, "card")
    assert (aurora.width, aurora.history) == (30, 10) and SENDER_V0.width == 10
    assert validate(Interface, {"signals": "aurora", "history": 3, "action": "rate_delta"}, "card").width == 9
    assert all(set(weights) <= set(TERM_NUMBERS) for weights in REWARDS.values())


def test_an_outage_is_a_number() -> None:
    """Bytes over a link that carried next to nothing, or nothing, stay finite, also as a share."""
    for link_Bps in (0.0, 1e-300, 1e-9, 1.0):
        worst = terms(acked_bytes=1e9, lost_bytes=1e9, true_link_Bps=link_Bps, true_served_Bps=1e9, true_queue_bytes=1e9,
                      true_rtt_s=0.04, true_flows=8, true_share=1e9, min_rtt_s=0.04, rtt_min_s=60.0, rtt_mean_s=60.0)  # fmt: skip
        assert max(abs(value) for name, value in worst.items() if name != "aurora") < 1e5, (link_Bps, worst)


def test_standing_delay_and_lost_bytes_over_the_fair_share() -> None:
    got = terms(min_rtt_s=0.04, rtt_min_s=0.08, lost_bytes=3e4, true_link_Bps=6e6, true_flows=8, true_share=0.5, true_others=1.0)
    assert got["standing_log2"] == got["beside_standing_log2"] == 1.0 and got["beside_share_log2"] == -1.0
    assert got["lost_log2"] == pytest.approx(1.0)  # an eighth of the link's 240 kB


PAGE = (Path(__file__).parents[3] / "docs" / "interface.md").read_text(encoding="utf-8")


def test_every_measure_has_a_definition_in_both_engines():
    section = PAGE.partition("## What is measured")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))))
    assert named == set(MEASURES.names)


MONITOR = np.dtype([("decisions", "<i8"), *PROBE_FIELDS])
FOLLOWED = (
    "probe_change", "probe_response", "roughness", "persistence", "floor_log2", "peak_log2", "loss_smoothed", "outage_cwnd_bytes",
    "starting",
)  # fmt: skip


def monitor() -> np.record:
    return np.rec.array(np.zeros(1, MONITOR))[0]


@given(st.floats(0, 1e6), st.floats(0, 10))
def test_a_level_is_a_bit_of_the_time_and_the_newest_rtt(now_s: float, rtt_s: float) -> None:
    level = drawn_level(now_s, rtt_s)
    ends = {level_of(now_s + a, rtt_s + b) for a in (-1e-8, 0, 1e-8) for b in (-1e-11, 0, 1e-11)}
    assert level in ends


def test_levels_are_as_good_as_random() -> None:
    levels = np.array([drawn_level(0.3 * k, 0.04) for k in range(4000)])
    elsewhere = np.array([drawn_level(0.3 * k, 0.05) for k in range(4000)])
    for other in (np.ones(4000), np.roll(levels, 1), np.roll(levels, 2), elsewhere):
        assert abs(float(levels @ other)) / 4000 < 0.06


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2]))
def test_what_is_followed_equals_the_plain_reference(seed: int, missing: float) -> None:
    rng, own, plain = np.random.default_rng(seed), monitor(), ReferenceProbes()
    for decision in range(40):
        m = measured_record(now_s=0.3 * decision, mss_bytes=0.03, interval_s=rng.uniform(0.01, 1))
        rtts = ("srtt_s", "rtt_min_s", "rtt_mean_s", "rtt_last_s", "min_rtt_s")
        for name in (*rtts, "cwnd_bytes", "lost_bytes", "inflight_bytes", "acked_bytes"):
            m[name] = 0.0 if rng.random() < (3 if name == "acked_bytes" else 1) * missing else rng.uniform(0.01, 1)
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
        rtts = {"srtt_s": 0.04 * (window + others), "min_rtt_s": 0.01, "rtt_last_s": 0.04}
        m = measured_record(now_s=0.3 * decision, cwnd_bytes=window * 1e5, **rtts)
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
            m = measured_record(now_s=0.3 * decision, srtt_s=0.02 * (1 + others), cwnd_bytes=1e5, min_rtt_s=0.01, rtt_last_s=0.04)
            follow_probes(own, m)
            own.decisions += 1
            seen.append(float(m.persistence))
        found[kind] = float(np.median(seen[50:]))
    assert found["probes"] < -0.05 < 0.15 < found["grows"]


def test_a_new_flow_begins_anew() -> None:
    own = monitor()
    for name, _ in PROBE_FIELDS:
        own[name] = 3.0
    m = measured_record(now_s=1.0, srtt_s=0.05, cwnd_bytes=1e4)
    follow_probes(own, m)
    assert [float(m[name]) for name in FOLLOWED[1:]] == [0.0] * 7 + [1.0] and abs(m.probe_change) == 1.0
