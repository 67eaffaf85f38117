"""Statistics of a board, and its entrants in groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.benchmarks.statistics import performance_profile, probability_of_improvement
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.leaderboard.evaluate.score import nominal_suite
from ccenv.leaderboard.site.board import edition
from ccenv.leaderboard.site.drawing import ticks
from ccenv.leaderboard.site.views import GROUPS, side_by_side
from ccenv.leaderboard.store.records import CellRecord

VALUES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=6).map(np.array)
TASKS = st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1)


def test_probability_of_improvement_by_hand_and_certainty_has_no_width() -> None:
    ours = {"a": np.array([1.0, 3.0]), "b": np.array([2.0])}
    theirs = {"a": np.array([2.0, 3.0]), "b": np.array([1.0, 2.0, 3.0]), "c": np.array([9.0])}
    # a: 1>2 no, 1>3 no, 3>2 yes, 3=3 half: 1.5/4; b: 2>1 yes, 2=2 half, 2>3 no: 1.5/3; c is not common.
    found = probability_of_improvement(ours, theirs)
    assert found is not None and found[0] == pytest.approx((1.5 / 4 + 1.5 / 3) / 2) and found[1] <= found[0] <= found[2]
    assert probability_of_improvement({"a": ours["a"]}, {"b": theirs["b"]}) is None
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
    assert found[0] + opposite[0] == pytest.approx(1) and 0 <= found[1] <= found[2] <= 1


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
    assert share == pytest.approx([(pooled > t).mean() for t in thresholds]) and (np.diff(share) <= 0).all()
    assert (low <= high).all() and share[-1] == 0
    by_hand = performance_profile({"a": np.array([1, 2]), "b": np.array([3, 4])}, np.array([0, 1, 2.5, 4]))
    assert list(by_hand[0]) == [1, 0.75, 0.5, 0]


@given(st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_are_few_and_inside(largest: float, most: int) -> None:
    marks = ticks(largest, most)
    assert marks[0] == 0 and 1 <= len(marks) <= most + 1 and all(0 <= mark <= largest * (1 + 1e-6) for mark in marks)


def cell(scenario: str, seed: int = 1, **metrics: float) -> CellRecord:
    return CellRecord(
        key="0" * 32, code_sha256="0" * 64, agent_sha256="0" * 64, scenario=scenario, agent="cubic", adversary="network",
        seed=seed, engine_seed=1, model="packet", path={"flows": [{"rtt_s": 0.04}]}, metrics=metrics, parameters={},
    )  # fmt: skip


def test_the_suite_says_what_stands_side_by_side() -> None:
    cells = [
        cell("one", even_power=0.8, utilisation=1.0),
        cell("deep", even_power=0.4, utilisation=0.5),
        cell("flows[n=2]", even_power=0.3, utilisation=0.9),
        cell("versus[other=cubic,buffer_bdp=1]", 1, **{"fair_share[agent]": 0.2, "even_power": 0.1, "harm[other]": 0.4}),
        cell("versus[other=bbr1,buffer_bdp=4]", 2, **{"fair_share[agent]": 1.0, "even_power": 0.3, "harm[other]": 0.6}),
    ]
    rows = side_by_side(load_suite("standard-v2"), cells)
    found = {(metric.name, aggregate): values for metric, aggregate, values in rows}
    assert list(GROUPS) == ["alone", "own_kind", "company"]
    assert found["even_power", "mean"] == pytest.approx([0.6, 0.3, 0.2])
    assert found["utilisation", "mean"][:2] == pytest.approx([0.75, 0.9]) and found["utilisation", "mean"][2] is None
    assert found["fair_share[agent]", "mean"] == [None, None, pytest.approx(0.6)]
    assert found["fair_share[agent]", "min"] == [None, None, pytest.approx(0.2)]  # a sender that starves is seen
    assert found["harm[other]", "mean"] == [None, None, pytest.approx(0.5)]


@pytest.mark.parametrize("name", ["standard-v1", "company"])
def test_other_suites_have_nothing_to_put_side_by_side(name: str) -> None:
    assert side_by_side(load_suite(name), [cell("one", utilisation=1.0)]) == []


def test_a_newer_suite_of_a_series_comes_after_every_version_of_an_older_one() -> None:
    """The nominal suite is the newest of its series, so that its table ranks and the older one is marked as superseded."""
    old, new, worst = (load_suite(name) for name in ("standard-v1", "standard-v2", "worst-case-v1"))
    assert edition(old)[0] == edition(new)[0] == "standard" and edition(old) < edition(new)
    assert edition(old.model_copy(update={"version": 9})) < edition(new)
    assert edition(worst)[0] == "worst-case" and edition(load_suite("company")) == ("company", (0, 1))
    assert nominal_suite() == "standard-v2/1" and new.score.metric == "even_power"
