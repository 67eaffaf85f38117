"""The suite format: what is accepted, what is refused and how, hashes, and scenarios as paths."""

import math
from typing import Any

import pytest
from small_suite import small, small_suite, write_suite

from ccenv.base.config import shipped_names, validate
from ccenv.base.errors import InputError
from ccenv.benchmarks.cells.cell import agent_player
from ccenv.benchmarks.cells.curve import make_curve_cells
from ccenv.benchmarks.cells.game import game_player
from ccenv.benchmarks.run.runner import make_cells
from ccenv.benchmarks.suite.curve import PACKAGE, Suite, load_suite
from ccenv.benchmarks.suite.game import GameSuite
from ccenv.benchmarks.suite.packet import LiveSuite


@pytest.mark.parametrize("name", shipped_names(PACKAGE, ".yaml"))
def test_shipped_suites_make_cells(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    senders = suite.agents or (() if isinstance(suite, LiveSuite) else ("reno",))
    cells = make_cells(
        suite, [game_player(spec) if isinstance(suite, GameSuite) else agent_player(spec, spec) for spec in senders]
    )
    assert len({cell.key for cell in cells}) == len({cell.name for cell in cells}) == len(cells)
    assert {cell.scenario for cell in cells} == {case.name for case in suite.cases}


def test_the_quick_suite_is_six_senders_on_four_paths_against_three_adversaries() -> None:
    quick = load_suite("quick")
    assert (len(quick.agents), len(quick.cases), len(quick.adversaries)) == (6, 4, 3)


def test_a_file_is_a_suite_too(tmp_path: Any) -> None:
    suite = load_suite(str(write_suite(tmp_path)))  # its keys are in another order
    assert suite == small_suite()
    players = [agent_player("reno")]
    assert [cell.key for cell in make_curve_cells(suite, players)] == [
        cell.key for cell in make_curve_cells(small_suite(), players)
    ]


def test_the_hash_is_of_the_content() -> None:
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
    assert path.link_rate_Bps == 20 * 125_000
    assert path.flows[0].rtt_s == 0.08
    assert path.buffer_bytes == pytest.approx(2 * 20 * 125_000 * 0.08)


def test_ranges_are_drawn_by_seed_log_uniformly() -> None:
    scenario = {"name": "drawn", "model": "ideal", "link_rate_mbps": {"low": 1, "high": 100}, "rtt_ms": {"low": 10, "high": 90}}
    suite = small_suite(scenarios=[scenario])
    case = suite.cases[0]
    paths = [case.path(suite.run_key(case.name, seed)) for seed in range(400)]
    rates = [path.link_rate_Bps / 125_000 for path in paths]
    assert 1 <= min(rates) < 1.2
    assert 80 < max(rates) < 100
    # the middle of [1, 100] on a logarithmic scale is 10: 400 draws put a share of 1/2 +- 0.1 below it (4 standard deviations)
    assert abs(sum(rate < 10 for rate in rates) / 400 - 0.5) < 0.1
    rtts = [path.flows[0].rtt_s for path in paths]
    low_both = sum(rate < 10 and rtt < 0.03 for rate, rtt in zip(rates, rtts, strict=True)) / 400
    assert abs(low_both - 0.25) < 0.09  # drawn independently
    assert case.path(suite.run_key(case.name, 7)) == paths[7]
    assert math.isinf(paths[0].buffer_bytes)


def test_flows_start_one_after_the_other() -> None:
    case = small_suite().cases[1]
    assert [flow.start_s for flow in case.path(1).flows] == [0.0, pytest.approx(0.08)]


def test_seconds_and_rtts() -> None:
    assert small_suite().rows(dt_s=0.005) == (160, 40)
    seconds = small(duration_s=2.0, warm_up_s=0.5)
    del seconds["duration_rtts"], seconds["warm_up_rtts"]
    assert validate(Suite, seconds, "x").rows(dt_s=0.005) == (400, 100)
    seconds["warm_up_rtts"] = seconds.pop("warm_up_s") * 200
    with pytest.raises(InputError, match="leaves nothing"):
        validate(Suite, seconds, "x").rows(dt_s=0.005)
