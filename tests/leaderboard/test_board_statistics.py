"""Statistics of the board: hand-worked values, laws, and agreement with plain definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.benchmarks.statistics import performance_profile, probability_of_improvement
from ccenv.leaderboard.site.drawing import ticks

VALUES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=6).map(np.array)
TASKS = st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1)


def test_probability_of_improvement_by_hand() -> None:
    ours = {"a": np.array([1.0, 3.0]), "b": np.array([2.0])}
    theirs = {"a": np.array([2.0, 3.0]), "b": np.array([1.0, 2.0, 3.0]), "c": np.array([9.0])}
    # a: 1>2 no, 1>3 no, 3>2 yes, 3=3 half: 1.5/4; b: 2>1 yes, 2=2 half, 2>3 no: 1.5/3; c is not common.
    found = probability_of_improvement(ours, theirs)
    assert found is not None
    assert found[0] == pytest.approx((1.5 / 4 + 1.5 / 3) / 2)
    assert found[1] <= found[0] <= found[2]
    assert probability_of_improvement({"a": ours["a"]}, {"b": theirs["b"]}) is None


def test_certainty_has_no_width() -> None:
    low, high = {"a": np.array([0.1, 0.2]), "b": np.array([0.1])}, {"a": np.array([0.8, 0.9]), "b": np.array([0.5])}
    assert probability_of_improvement(high, low) == (1.0, 1.0, 1.0)
    assert probability_of_improvement(low, high) == (0.0, 0.0, 0.0)
    assert probability_of_improvement(low, high, sign=-1.0) == (1.0, 1.0, 1.0)


@settings(max_examples=30)
@given(TASKS, TASKS)
def test_improvement_and_its_opposite_sum_to_one(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    found, opposite = probability_of_improvement(ours, theirs), probability_of_improvement(theirs, ours)
    if found is None or opposite is None:
        assert not set(ours) & set(theirs)
        return
    assert found[0] + opposite[0] == pytest.approx(1)
    assert 0 <= found[1] <= found[2] <= 1


def test_the_interval_covers_what_it_should() -> None:
    """Of 200 comparisons of equal senders about 5 % may miss 1/2; a wrong bootstrap (one side, no strata) misses far more."""
    generator = np.random.Generator(np.random.Philox(5))
    missed = 0
    for _ in range(200):
        ours, theirs = ({name: generator.normal(size=12) for name in "abc"} for _ in range(2))
        found = probability_of_improvement(ours, theirs)
        assert found is not None
        missed += not found[1] <= 0.5 <= found[2]
    assert missed <= 24


@settings(max_examples=30)
@given(TASKS)
def test_a_profile_counts_runs(tasks: dict[str, np.ndarray]) -> None:
    thresholds = np.array([0.0, 0.3, 0.5, 0.99, 1.0])
    share, low, high = performance_profile(tasks, thresholds)
    pooled = np.concatenate(list(tasks.values()))
    assert share == pytest.approx([(pooled > t).mean() for t in thresholds])
    assert (np.diff(share) <= 0).all()
    assert (low <= high).all()
    assert share[-1] == 0
    by_hand = performance_profile({"a": np.array([1, 2]), "b": np.array([3, 4])}, np.array([0, 1, 2.5, 4]))
    assert list(by_hand[0]) == [1, 0.75, 0.5, 0]


@given(st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_are_few_and_inside(largest: float, most: int) -> None:
    marks = ticks(largest, most)
    assert marks[0] == 0
    assert 1 <= len(marks) <= most + 1
    assert all(0 <= mark <= largest * (1 + 1e-6) for mark in marks)
