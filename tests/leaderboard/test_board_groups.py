"""A sender's page: alone, with its own kind and in company, side by side."""

from __future__ import annotations

import pytest

from ccenv.benchmarks.suite.curve import load_suite
from ccenv.leaderboard.evaluate.score import nominal_suite
from ccenv.leaderboard.site.board import edition
from ccenv.leaderboard.site.views import GROUPS, side_by_side
from ccenv.leaderboard.store.records import CellRecord


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
