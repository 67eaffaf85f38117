"""The suite format, statistics of cells, and records for the pages."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_suite import small, small_suite, write_suite
from tables.bench_records import read_records, write_record
from test_bench_packet import small_packets

from ccenv.base.config import shipped_names, validate
from ccenv.base.errors import InputError
from ccenv.benchmarks.cells.cell import agent_player
from ccenv.benchmarks.cells.curve import make_curve_cells
from ccenv.benchmarks.cells.game import game_player
from ccenv.benchmarks.report.page import build_report
from ccenv.benchmarks.run.runner import make_cells, run_suite
from ccenv.benchmarks.statistics import estimate, interquartile_mean
from ccenv.benchmarks.suite.curve import PACKAGE, Suite, load_suite, validate_suite
from ccenv.benchmarks.suite.fluid import FluidSuite
from ccenv.benchmarks.suite.game import GameSuite
from ccenv.benchmarks.suite.packet import LiveSuite


@pytest.mark.parametrize("name", shipped_names(PACKAGE, ".yaml"))
def test_shipped_suites_make_cells(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    senders = suite.agents or (() if isinstance(suite, (FluidSuite, LiveSuite)) else ("reno",))
    players = [game_player(spec) if isinstance(suite, GameSuite) else agent_player(spec, spec) for spec in senders]
    cells = make_cells(suite, players)
    assert len({cell.key for cell in cells}) == len({cell.name for cell in cells}) == len(cells)
    assert {cell.scenario for cell in cells} == {case.name for case in suite.cases}


def test_a_file_is_a_suite_too_and_the_hash_is_of_the_content(tmp_path: Any) -> None:
    suite = load_suite(str(write_suite(tmp_path)))  # its keys are in another order
    assert suite == small_suite()
    players = [agent_player("reno")]
    ours, theirs = (make_curve_cells(one, players) for one in (suite, small_suite()))
    assert [cell.key for cell in ours] == [cell.key for cell in theirs]
    assert small_suite().sha256 == small_suite().sha256
    reordered = dict(reversed(list(small().items())))
    assert validate(Suite, reordered, "x").sha256 == small_suite().sha256
    others = [small_suite(version=2), small_suite(seeds=[1, 3]), small_suite(score={"metric": "utilisation"})]
    others.append(small_suite(duration_rtts=21))
    assert len({suite.sha256 for suite in [small_suite(), *others]}) == 5
    assert small_suite(summary="new", tags=["quick"]).sha256 == small_suite().sha256


def test_a_grid_is_one_case_per_point() -> None:
    scenario = {"name": "grid", "model": "ideal", "link_rate_mbps": [10, 20], "rtt_ms": [20, 50, 80], "buffer_bdp": 2}
    suite = small_suite(scenarios=[scenario])
    assert [case.name for case in suite.cases][:2] == ["grid[link_rate_mbps=10,rtt_ms=20]", "grid[link_rate_mbps=10,rtt_ms=50]"]
    assert len(suite.cases) == 6
    path = suite.cases[-1].path(0)
    assert path.link_rate_Bps == 20 * 125_000 and path.flows[0].rtt_s == 0.08
    assert path.buffer_bytes == pytest.approx(2 * 20 * 125_000 * 0.08)


def test_ranges_are_drawn_by_seed_log_uniformly() -> None:
    scenario = {"name": "drawn", "model": "ideal", "link_rate_mbps": {"low": 1, "high": 100}, "rtt_ms": {"low": 10, "high": 90}}
    suite = small_suite(scenarios=[scenario])
    case = suite.cases[0]
    paths = [case.path(suite.run_key(case.name, seed)) for seed in range(400)]
    rates = [path.link_rate_Bps / 125_000 for path in paths]
    assert 1 <= min(rates) < 1.2 and 80 < max(rates) < 100
    # the middle of [1, 100] on a logarithmic scale is 10: 400 draws put a share of 1/2 +- 0.1 below it (4 standard deviations)
    assert abs(sum(rate < 10 for rate in rates) / 400 - 0.5) < 0.1
    rtts = [path.flows[0].rtt_s for path in paths]
    low_both = sum(rate < 10 and rtt < 0.03 for rate, rtt in zip(rates, rtts, strict=True)) / 400
    assert abs(low_both - 0.25) < 0.09  # drawn independently
    assert case.path(suite.run_key(case.name, 7)) == paths[7] and math.isinf(paths[0].buffer_bytes)


def test_starts_and_lengths_in_seconds_and_rtts() -> None:
    case = small_suite().cases[1]
    assert [flow.start_s for flow in case.path(1).flows] == [0.0, pytest.approx(0.08)]
    assert small_suite().rows(dt_s=0.005) == (160, 40)
    seconds = small(duration_s=2.0, warm_up_s=0.5)
    del seconds["duration_rtts"], seconds["warm_up_rtts"]
    assert validate(Suite, seconds, "x").rows(dt_s=0.005) == (400, 100)
    seconds["warm_up_rtts"] = seconds.pop("warm_up_s") * 200
    with pytest.raises(InputError, match="leaves nothing"):
        validate(Suite, seconds, "x").rows(dt_s=0.005)


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([9.0, 1.0, 2.0, 3.0])) == 2.5  # 1 and 9 are left out
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0  # a quarter of three is no value
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, -50.0, 4.0, 5.0, 6.0])) == 3.5  # 2, 3, 4 and 5
    assert interquartile_mean(np.array([7.0])) == 7.0
    assert list(interquartile_mean(np.array([[1.0, 2.0, 3.0, 9.0], [4.0, 4.0, 4.0, 4.0]]))) == [2.5, 4.0]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_interquartile_mean_is_rliables(values: list[float]) -> None:
    from scipy.stats import trim_mean  # a second to import, in every process that collects this

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


def test_runs_are_never_resampled_across_tasks_and_the_interval_can_be_made_again() -> None:
    """Tasks without spread have no uncertainty, however different they are from one another."""
    found = estimate([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
    assert (found.low, found.iqm, found.high) == (1.75, 1.75, 1.75)  # of 0, 1, 1 and 5
    assert found.n_runs == 6
    runs = [list(np.random.Generator(np.random.Philox(1)).uniform(size=40))]
    assert estimate(runs) == estimate(runs) and estimate(runs, seed=1) != estimate(runs, seed=2)


def test_the_interval_covers_a_known_mean() -> None:
    """300 experiments of twenty normal runs: percentile intervals of so few runs are known to be a little narrow."""
    generator = np.random.Generator(np.random.Philox(5))
    covered = 0
    for i in range(300):
        found = estimate([list(generator.normal(0, 1, 20))], replicates=400, seed=i)
        covered += found.low <= 0 <= found.high
    assert 0.88 <= covered / 300 <= 0.985


DOCS = Path(__file__).parents[2] / "docs"
REFERENCES: list[dict[str, Any]] = [
    {"name": "full", "metric": "utilisation", "at_least": 0.5, "source": "s"},
    {"name": "too high", "metric": "utilisation", "at_least": 2, "source": "s", "why": "cannot be"},
]
FIGURES: list[dict[str, Any]] = [{"name": "bars", "kind": "bars", "x": "case", "metric": "utilisation"}]


def test_a_record_of_a_run(tmp_path: Path) -> None:
    suite = validate_suite(small_packets(references=REFERENCES, figures=FIGURES), "packets")
    run_suite(suite, tmp_path / "run", limit=1, pictures=False)
    with pytest.raises(InputError, match="not complete"):
        write_record(tmp_path / "run", tmp_path / "bench")
    run_suite(suite, tmp_path / "run", pictures=False)
    build_report(tmp_path / "run")
    write_record(tmp_path / "run", tmp_path / "bench")
    folder = tmp_path / "bench" / "packets"
    record = json.loads((folder / "record.json").read_text())
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (record["n_cells"], record["suite_sha256"]) == (6, manifest["suite_sha256"])
    measured = manifest["references"][0]["measured"]
    assert record["references"][0]["measured"] == pytest.approx(measured, rel=1e-5)
    assert (folder / "bars.png").stat().st_size < 60_000
    assert [one["agreement"] for one in read_records(tmp_path / "bench")[0]["references"]] == ["reproduced", "not reproduced"]
    with pytest.raises(InputError, match="holds no records"):
        read_records(tmp_path / "nowhere")


def test_every_suite_of_a_paper_has_a_record_of_its_version() -> None:
    records = {record["suite"]: record for record in read_records(DOCS / "data" / "bench")}
    suites = {name: load_suite(name) for name in shipped_names(PACKAGE, ".yaml")}
    papers = {name: suite for name, suite in suites.items() if "paper" in suite.tags}
    assert set(records) == set(papers)
    for name, suite in papers.items():
        assert (records[name]["version"], records[name]["complete"]) == (suite.version, True)
        assert [r["name"] for r in records[name]["references"]] == [r.name for r in suite.references]
        if suite.sha256 != records[name]["suite_sha256"]:
            pytest.fail(f"suite {name} changed since its record was made: run it again, or bump its version")
