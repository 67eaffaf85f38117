"""Measures by hand."""

import math

import pytest

from ccenv.base.errors import InputError
from ccenv.network.metrics import measures


def test_jain_by_hand() -> None:
    assert measures.jain([3, 3, 3]) == pytest.approx(1)
    assert measures.jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert measures.jain([1, 3]) == pytest.approx(16 / 20)
    assert math.isnan(measures.jain([0, 0]))


def test_starvation_ratio_by_hand() -> None:
    assert measures.starvation_ratio([8.8, 95]) == pytest.approx(95 / 8.8)
    assert measures.starvation_ratio([1, 0]) == math.inf
    assert math.isnan(measures.starvation_ratio([5]))


def test_s_fairness_looks_at_throughput_since_the_start() -> None:
    # Flow 1 has 10 bytes/s throughout; flow 2 nothing for 2 s, then 20 bytes/s: 40/20 at 3 s, 40/40 at 4 s.
    times = [0, 1, 2, 3, 4]
    delivered = [[0, 0], [10, 0], [20, 10], [30, 15], [40, 40]]
    assert measures.s_fairness(times, delivered) == pytest.approx(2)  # at 2 and 3 s
    assert measures.s_fairness(times, [[t, 0] for t in times]) == math.inf


def test_harm_by_hand() -> None:
    assert measures.harm(10, 5) == pytest.approx(0.5)
    assert measures.harm(10, 12) == pytest.approx(-0.2)
    assert measures.harm(10, 40, sign=-1.0) == pytest.approx(0.75)
    with pytest.raises(InputError, match="alone is 0"):
        measures.harm(0, 1)


def test_delta_sensitivity_is_the_papers_example() -> None:
    assert measures.delta_sensitivity([17.9, 12.4]) == pytest.approx(0.53, abs=0.005)  # [Delta] s.4.1.1
    assert measures.delta_sensitivity([7.7, 35.4]) == pytest.approx(2.2, abs=0.005)  # s.4.1.3, stall time
    assert measures.delta_sensitivity([5, 5, 5]) == 0
    assert measures.delta_sensitivity([1, 0]) == math.inf


def test_power_by_hand() -> None:
    assert measures.power(0.9, 0.04, 0.02) == pytest.approx(0.6)


def test_convergence_is_the_first_stay() -> None:
    times = [0, 0.5, 1, 1.5, 2, 2.5, 3]
    rates = [0, 10, 4, 9, 10, 11, 10]  # inside 10 +- 20 % at 0.5, then from 1.5 on
    assert measures.convergence_time_s(times, rates, 10) == pytest.approx(1.5)
    assert measures.convergence_time_s(times, rates, 10, hold_s=0) == pytest.approx(0.5)
    assert math.isnan(measures.convergence_time_s(times, rates, 100))


def test_time_to_reach() -> None:
    assert measures.time_to_reach_s([2, 3, 4, 5], [0, 0.5, 0.95, 0.2], 0.9) == 2
    assert math.isnan(measures.time_to_reach_s([0, 1], [0, 0.1], 0.9))


def test_losses_within_a_round_trip_are_one_event() -> None:
    times = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert measures.loss_events(times, [1500, 3000, 0, 0, 1500, 0], gap_s=0.15) == 2
    assert measures.loss_events(times, [1, 1, 1, 1, 1, 1], gap_s=0.15) == 3  # at 0, 0.2 and 0.4
    assert measures.loss_events(times, [0] * 6, gap_s=0.15) == 0


def test_completion_times_by_hand() -> None:
    # Two transfers of 100 bytes at 1 s and 5 s; a third at 9 s is not done.
    times, delivered = [0, 1, 2, 3, 6, 7, 9.5], [0, 0, 60, 100, 150, 200, 250]
    assert measures.completion_times_s(times, delivered, 100, every_s=4, start_s=1) == [pytest.approx(2), pytest.approx(2)]


def test_weighted_quantile_by_hand() -> None:
    assert measures.weighted_quantile([3, 1, 2], [1, 1, 2], 0.5) == 2
    assert measures.weighted_quantile([3, 1, 2], [1, 1, 2], 0.25) == 1
    assert measures.weighted_quantile([3, 1, 2], [0.01, 1, 2], 0.95) == 2
    assert math.isnan(measures.weighted_quantile([1], [0], 0.5))


def test_slope_by_hand() -> None:
    assert measures.slope([0, 1, 2], [1, 3, 5]) == pytest.approx(2)
    assert math.isnan(measures.slope([1, 1], [1, 2]))
