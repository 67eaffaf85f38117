"""Suites in which the adversary searches."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_suite import small

from ccenv.attacks.catalog import PANELS
from ccenv.attacks.goals import GOALS
from ccenv.base.errors import InputError, UnknownNameError
from ccenv.benchmarks.cells.cell import agent_player
from ccenv.benchmarks.cells.curve import AttackCell, search_player
from ccenv.benchmarks.run.runner import evaluate, make_cells, run_suite
from ccenv.benchmarks.run.summary import summarise
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.curve import load_suite, suite_of
from ccenv.network.laws import check_trace
from ccenv.network.metrics.table import measure
from ccenv.network.metrics.trace import Window
from ccenv.network.trace import load_trace

METRICS = ["utilisation", "power", "starvation_ratio"]
SCENARIO = {"name": "x", "model": "ccac", "link_rate_mbps": 1, "rtt_ms": 1}


def small_attack(**changes: Any) -> SuiteBase:
    """One path of 48 Mbit/s, a scripted adversary, a search and the construction of theorem 1."""
    scenario = {"name": "one", "model": "cbr_delay", "link_rate_mbps": 48, "rtt_ms": 40, "jitter_rtts": 2}
    data = small(
        engine="attack",
        budget_flow_steps=40_000,
        seeds=[1],
        agents=["vegas"],
        adversaries=["kind", "random_search", "starvation:ratio=4"],
        scenarios=[scenario],
        metrics=METRICS,
    )
    return suite_of({**data, **changes}, "attack.yaml")


def test_records_are_of_the_worst_legal_trace(tmp_path: Path) -> None:
    manifest = run_suite(small_attack(), tmp_path / "run")
    records = {r["adversary"]: r for r in map(json.loads, (tmp_path / "run" / "cells.jsonl").read_text().splitlines())}
    assert set(records) == {"kind", "random_search", "starvation:ratio=4"}
    assert records["random_search"]["metrics"]["utilisation"] < records["kind"]["metrics"]["utilisation"]
    starved = records["starvation:ratio=4"]
    assert starved["metrics"]["starvation_ratio"] == pytest.approx(4, rel=0.05)
    assert set(starved["preconditions"]) >= {"emulation_legal", "emulation_exact"}
    worst = manifest["summary"][0]["worst_case"]
    trace = load_trace(tmp_path / "run" / worst["trace"])
    assert check_trace(trace) == []
    assert measure(Window(trace, 40, trace.n_steps), ["utilisation"])["utilisation"] == worst["value"]
    again = evaluate(small_attack(), "vegas")
    assert [r["metrics"] for r in again] == [r["metrics"] for r in records.values()]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget_flow_steps": None}, "budget_flow_steps belongs to engine 'attack'"),
        ({"engine": "curve"}, "budget_flow_steps belongs to engine 'attack'"),
        ({"duration_rtts": 20.5}, "duration_rtts as a whole number"),
        ({"scenarios": [SCENARIO | {"n_flows": 1, "competitors": ["cubic"]}]}, "no competitors"),
        ({"scenarios": [SCENARIO | {"goal": "fairness"}]}, "'fairness' needs n_flows of at least 2, not 1"),
        ({"scenarios": [SCENARIO | {"goal": "fairness", "n_flows": 2}]}, "needs the metric 'jain_index'"),
        ({"scenarios": [SCENARIO | {"goal": "farness"}]}, "Did you mean 'fairness'"),
        ({"engine": "curve", "budget_flow_steps": None, "scenarios": [SCENARIO | {"goal": "delay"}]}, "for engine 'attack'"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small_attack(**changes)


def test_unknown_adversaries_are_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'starvation'"):
        make_cells(small_attack(adversaries=["kind", "starvatio"]), [agent_player("reno")])
    with pytest.raises(InputError, match="ratio"):
        search_player("starvation:rato=3")


def test_goals_of_scenarios_have_worst_cases_of_their_own() -> None:
    loss = {
        "name": "loss",
        "model": "ccac",
        "link_rate_mbps": 12,
        "rtt_ms": 40,
        "jitter_rtts": 1,
        "buffer_bdp": 0.5,
        "goal": "loss",
    }
    fair = {"name": "fair", "model": "cbr_delay", "link_rate_mbps": 12, "rtt_ms": 40, "jitter_rtts": 1, "n_flows": 2}
    metrics = ["utilisation", "power", "loss_fraction", "jain_index"]
    scenarios = [loss, fair | {"goal": "fairness"}]
    suite = small_attack(adversaries=["kind", "random_search"], scenarios=scenarios, metrics=metrics, agents=["reno"])
    records = evaluate(suite, "reno")
    worst = summarise(suite, records)[0]["worst_by_goal"]
    assert (worst["loss"]["metric"], worst["fairness"]["metric"]) == ("loss_fraction", "jain_index")
    assert worst["loss"]["scenario"] == "loss" and worst["fairness"]["scenario"] == "fair"
    assert worst["loss"]["value"] == max(r["metrics"]["loss_fraction"] for r in records if r["scenario"] == "loss")
    assert worst["fairness"]["value"] == min(r["metrics"]["jain_index"] for r in records if r["scenario"] == "fair") < 1
    assert "worst_by_goal" not in summarise(small_attack(), [])
    assert suite_of(suite.model_dump(), "again").sha256 == suite.sha256
    assert "goal" not in small_attack().model_dump()["scenarios"][0]  # the hash of a suite without goals stays


def test_the_second_worst_case_suite_draws_its_paths() -> None:
    suite = load_suite("worst-case-v2")
    cells = [cell for cell in make_cells(suite, [agent_player("reno")]) if isinstance(cell, AttackCell)]
    assert set(PANELS["v2"]) | {"kind"} == set(suite.opponents)
    assert {cell.goal for cell in cells} == set(GOALS)
    assert {len(cell.path["flows"]) for cell in cells} == {1, 2}
    rates = {(cell.scenario, cell.seed): cell.path["link_rate_Bps"] for cell in cells}
    assert len(set(rates.values())) == len(rates) == 7 * len(suite.seeds)


def test_the_worst_case_suite_is_the_panel_on_four_paths() -> None:
    from ccenv.adversaries import ADVERSARIES

    suite = load_suite("worst-case-v1")
    cells = [cell for cell in make_cells(suite, [agent_player("reno")]) if isinstance(cell, AttackCell)]
    assert len(cells) == 4 * len(suite.opponents)
    assert {"corners", "slow_link", "random_search", "cem"} <= set(suite.opponents)  # version 1 stays what was published
    scripted = [entry for entry in ADVERSARIES if "scripted" in entry.tags]
    assert all({entry.name, *entry.aliases} & set(suite.opponents) for entry in scripted)
