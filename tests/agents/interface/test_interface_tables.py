"""Signals, actions and rewards: every row of the tables has its formula, and configs name them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from ccenv.agents.interface.actions import ACTIONS, set_by_action
from ccenv.agents.interface.interface import SENDER_V0, Interface
from ccenv.agents.interface.rewards import N_TERMS, REWARDS, TERM_NUMBERS, fill_terms
from ccenv.agents.interface.signals import MEASURES, N_SIGNALS, SIGNAL_NUMBERS, SIGNALS_HIGH, SIGNALS_LOW, fill_signals
from ccenv.base.config import validate

NAMES = MEASURES.names or ()


def measured(**values: float) -> np.record:
    record = np.rec.array(np.zeros(1, MEASURES))[0]
    record.interval_s, record.mss_bytes, record.app_left_bytes = 0.04, 1500.0, np.inf
    for name, value in values.items():
        record[name] = value
    return record


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


def test_aurora_sees_what_its_paper_says() -> None:
    seen = signals(sent_bytes=30e3, acked_bytes=20e3, rtt_slope=0.1, rtt_mean_s=0.06, rtt_least_mean_s=0.04)
    assert seen["send_ratio"] == 1.5 and seen["latency_gradient"] == 0.1 and seen["latency_ratio"] == pytest.approx(1.5)
    assert terms(acked_bytes=60e3, rtt_mean_s=0.05, lost_bytes=20e3)["aurora"] == pytest.approx(10 * 1000 - 50 - 500)


def test_raw_signals_have_their_units() -> None:
    seen = signals(acked_bytes=50e3, sent_bytes=100e3, rtt_mean_s=0.05, min_rtt_s=0.04, inflight_bytes=15e3)
    assert seen["throughput_mbps"] == pytest.approx(10.0) and seen["sending_mbps"] == pytest.approx(20.0)
    assert seen["queue_delay_ms"] == pytest.approx(10.0) and seen["inflight_segments"] == 10.0


def test_actions_set_what_their_formulas_say() -> None:
    state = {"rate_Bps": 1e6, "cwnd_bytes": 30e3, "srtt_s": 0.05, "C_L_Bps": 2e6, "told_rtt_s": 0.04, "inner_cwnd_bytes": 15e3}
    state |= {"contract_low_Bps": 1e6, "contract_high_Bps": 3e6, "probe_change": 2.0}
    wanted = {
        "rate_log2": (2e6 * 2.0**1.5, np.inf),
        "rate_delta": (1.1e6, np.inf),
        "rate_exp2": (1e6 * 2.0**0.15, np.inf),
        "rate_between": (2.5e6, np.inf),
        "cwnd_delta": (2 * 30e3 * 1.0125 / 0.05, 30e3 * 1.0125),
        "cwnd_exp2": (2 * 30e3 * 2.0**0.15 / 0.05, 30e3 * 2.0**0.15),
        "cwnd_exp2_over": (2 * 30e3 / 0.05, 30e3),
        "cwnd_exp2_probe": (2 * 30e3 * 2.0**0.39 / 0.05, 30e3 * 2.0**0.39),
    }
    for number, row in enumerate(ACTIONS):
        first, second = [*(default for default, _, _ in row.parameters.values()), 0.0, 0.0][:2]
        assert set_by_action(number, first, second, 0.5, measured(**state)) == pytest.approx(wanted[row.name]), row.name


def test_an_action_that_is_no_number_is_the_smallest_one() -> None:
    state = measured(rate_Bps=1e6, contract_low_Bps=1e6, contract_high_Bps=3e6)
    assert set_by_action(3, 0.0, 0.0, np.nan, state) == (1e6, np.inf)
    assert set_by_action(3, 0.0, 0.0, 7.0, state) == (3e6, np.inf)


def test_named_sets_bring_their_history() -> None:
    aurora = validate(Interface, {"signals": "aurora", "action": "rate_delta"}, "card")
    assert (aurora.width, aurora.history) == (30, 10) and SENDER_V0.width == 10
    assert validate(Interface, {"signals": "aurora", "history": 3, "action": "rate_delta"}, "card").width == 9


def test_named_rewards_use_terms_of_the_table() -> None:
    assert all(set(weights) <= set(TERM_NUMBERS) for weights in REWARDS.values())
