"""Interquartile mean and bootstrap against numbers worked out by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from ccenv.benchmarks.statistics import estimate, interquartile_mean


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([9.0, 1.0, 2.0, 3.0])) == 2.5  # 1 and 9 are left out
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0  # a quarter of three is no value
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, -50.0, 4.0, 5.0, 6.0])) == 3.5  # 2, 3, 4 and 5
    assert interquartile_mean(np.array([7.0])) == 7.0
    assert list(interquartile_mean(np.array([[1.0, 2.0, 3.0, 9.0], [4.0, 4.0, 4.0, 4.0]]))) == [2.5, 4.0]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_interquartile_mean_is_rliables(values: list[float]) -> None:
    assert interquartile_mean(np.array(values)) == pytest.approx(trim_mean(values, 0.25), abs=1e-6)


def test_interval_of_one_task_against_all_resamples() -> None:
    """Three runs have 27 equally likely resamples: the exact quantiles of their means are known."""
    runs = [1.0, 2.0, 6.0]
    means = sorted(sum(sample) / 3 for sample in itertools.product(runs, repeat=3))
    found = estimate([runs], replicates=200_000, confidence=0.8)
    assert found.iqm == 3.0
    # 0.1 * 27 = 2.7 and 0.9 * 27 = 24.3: the third smallest and the third largest mean
    assert (found.low, found.high) == (pytest.approx(means[2]), pytest.approx(means[24]))
    assert (found.low, found.high) == (pytest.approx(4 / 3), pytest.approx(14 / 3))


def test_runs_are_never_resampled_across_tasks() -> None:
    """Tasks without spread have no uncertainty, however different they are from one another."""
    found = estimate([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
    assert (found.low, found.iqm, found.high) == (1.75, 1.75, 1.75)  # of 0, 1, 1 and 5
    assert found.n_runs == 6


def test_the_interval_can_be_made_again() -> None:
    runs = [list(np.random.Generator(np.random.Philox(1)).uniform(size=40))]
    assert estimate(runs) == estimate(runs)
    assert estimate(runs, seed=1) != estimate(runs, seed=2)


def test_the_interval_covers_a_known_mean() -> None:
    """300 experiments of twenty normal runs: percentile intervals of so few runs are known to be a little narrow."""
    generator = np.random.Generator(np.random.Philox(5))
    covered = 0
    for i in range(300):
        found = estimate([list(generator.normal(0, 1, 20))], replicates=400, seed=i)
        covered += found.low <= 0 <= found.high
    assert 0.88 <= covered / 300 <= 0.985
