"""Suites of attacks, games, link traces, live runs and the theory's tables."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_suite import small
from tables.suites import select_columns, summarise_runs

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import ClassicSender
from ccenv.attacks.catalog import PANELS
from ccenv.attacks.goals import GOALS
from ccenv.base.config import validate
from ccenv.base.errors import InputError, UnknownNameError
from ccenv.base.foreign import read_json
from ccenv.benchmarks.cells.cell import agent_player
from ccenv.benchmarks.cells.curve import AttackCell, search_player
from ccenv.benchmarks.cells.game import game_player
from ccenv.benchmarks.cells.live import make_live_cells
from ccenv.benchmarks.results import summarise
from ccenv.benchmarks.run.runner import as_suite, evaluate, make_cells, run_suite
from ccenv.benchmarks.store import load_cells
from ccenv.benchmarks.suite import theory
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.curve import load_suite, validate_suite
from ccenv.benchmarks.suite.packet import LiveSuite
from ccenv.live.attacks import shipped_moves
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
        engine="attack", budget_flow_steps=40_000, seeds=[1], agents=["vegas"],
        adversaries=["kind", "random_search", "starvation:ratio=4"], scenarios=[scenario], metrics=METRICS,
    )  # fmt: skip
    return validate_suite({**data, **changes}, "attack.yaml")


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
        "name": "loss", "model": "ccac", "link_rate_mbps": 12, "rtt_ms": 40, "jitter_rtts": 1, "buffer_bdp": 0.5,
        "goal": "loss",
    }  # fmt: skip
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
    assert validate_suite(suite.model_dump(), "again").sha256 == suite.sha256
    assert "goal" not in small_attack().model_dump()["scenarios"][0]  # the hash of a suite without goals stays


def test_the_second_worst_case_suite_draws_its_paths() -> None:
    suite = load_suite("worst-case-v2")
    cells = [cell for cell in make_cells(suite, [agent_player("reno")]) if isinstance(cell, AttackCell)]
    assert set(PANELS["v2"]) | {"kind"} == set(suite.opponents) and {cell.goal for cell in cells} == set(GOALS)
    assert {len(cell.path["flows"]) for cell in cells} == {1, 2}
    rates = {(cell.scenario, cell.seed): cell.path["link_rate_Bps"] for cell in cells}
    assert len(set(rates.values())) == len(rates) == 7 * len(suite.seeds)


def small_game(**changes):
    data = load_suite("solved-v1").model_dump()
    data |= {"scenarios": [{"name": "ideal"}, {"name": "mine", "game": "ccac_small"}], "table": {}}
    data |= {"references": [], "figures": []}
    return validate_suite({**data, "name": "small", **changes}, "small")


def test_solved_v1_has_the_numbers_of_the_page(tmp_path):
    """Best play has the value as its regret; cc_qdel 51 and C_L + 1 36 on cbr_small, whose value is 34."""
    only = [f"cbr_small/{agent}/*" for agent in ("optimal", "cc_qdel", "C_L+1")]
    table = run_suite("solved-v1", tmp_path / "run", only=only, pictures=False)["table"]
    assert {agent: row["cbr_small"] for agent, row in table.items()} == {"optimal": 34, "C_L+1": 36, "cc_qdel": 51}
    assert table["optimal"]["exploitability"] == 0 and table["optimal"]["optimal_share"] == 1


def test_records_hold_the_line_up_to_the_first_error():
    records = evaluate(small_game(), "cc_probe_fast")
    lines = [record["first_error"] for record in records if record["scenario"] == "ideal"]
    assert lines[0][-1]["error"] > 0 and not any(row["error"] for row in lines[0][:-1])
    assert {record["metrics"]["value"] for record in records if record["scenario"] == "mine"} == {21}
    assert not evaluate(small_game(), "optimal")[0]["first_error"]


def test_runs_are_resumed_and_a_changed_game_is_another_cell(tmp_path):
    first = run_suite(small_game(agents=["C_L"]), tmp_path / "run", pictures=False)
    again = run_suite(small_game(agents=["C_L"]), tmp_path / "run", pictures=False, limit=1)
    assert again["n_cells"] == first["n_cells"] == 6
    suite = small_game(agents=["C_L"])

    keys = {cell.key for cell in make_cells(suite, [game_player("C_L")])}
    assert len(keys) == 6


def test_senders_that_no_board_can_drive_are_refused(tmp_path):
    with pytest.raises(InputError, match="is no belief program"):
        evaluate(small_game(), "cubic")
    rule = {"if": "loss", "then": {"rate": {"C_L": 1}}, "else": {"rate": {"C_L": 2}}}
    program = {"format": "ccenv-program", "version": 1, "name": "again", "source": "", "rule": rule}
    (tmp_path / "again.json").write_text(json.dumps(program))
    with pytest.raises(InputError, match="reads loss, which a board does not say"):
        evaluate(small_game(), str(tmp_path / "again.json"))
    with pytest.raises(InputError, match="unknown agent 'tortoise'"):
        evaluate(small_game(), "tortoise")


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"networks": ["kind"]}, "unknown network 'kind'"), ({"scenarios": [{"name": "go"}]}, "scenario go: unknown game 'go'"),
     ({"metrics": ["power"]}, "unknown metric of a game 'power'")],
)  # fmt: skip
def test_wrong_suites_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        small_game(**changes)


def test_loss_convergence_has_exact_rows():
    suite = load_suite("loss-convergence")
    rows = {(game.game, *map(str, game.changes.values())): [row["steps"] for row in game.rows()] for game in suite.solved}
    assert rows["ccac_small",] == [2, 5, 9, 14] and rows["ccac_small", "[0, 'C']"] == [3, 7, 12, 18]
    assert rows["cbr_small", "['C']"] == [1, 2, 3, 4, 5]
    assert rows["ideal",] == [row["ramp_steps"] for row in suite.solved[0].rows()]
    assert "solved" not in load_suite("fct-v1").model_dump()
    assert suite.sha256 == suite.model_copy(update={"solved": ()}).sha256


DOCS = Path(__file__).parents[2] / "docs"
RECORD, TRANSFERS = DOCS / "data" / "links.json", DOCS / "data" / "flows.json"
LINKS = ("cellular-v1", "leo-v1", "wifi-v1")
LEFT_OUT = {"constant", "packet_train", "lambda_proxy", "fixed_delay_proxy", "shield"}  # no senders of their own
PROGRAMS = "cc_"


def test_record_has_all_classic_and_learned_senders() -> None:
    record = read_json(RECORD)
    wanted = {entry.name for entry in AGENTS if entry.name not in LEFT_OUT and not entry.name.startswith(PROGRAMS)}
    assert list(record["suites"]) == list(LINKS)
    for name, found in record["suites"].items():
        assert set(found["senders"]) == wanted, name
        assert found["suite_sha256"] == as_suite(name).sha256, name
        assert found["cells"] == len(as_suite(name).cases) * 3 * len(wanted)
        for means in found["senders"].values():
            assert set(means) == set(select_columns(name)) and 0 < means["utilisation"] <= 1


def test_record_has_all_classic_senders() -> None:
    (found,) = read_json(TRANSFERS)["suites"].values()
    names = {entry.name for entry in AGENTS} - LEFT_OUT - {"gcc"}  # which sends calls
    classic = {name for name in names if isinstance(make_sender(name), ClassicSender)}
    suite = as_suite("fct-v1")
    assert set(found["senders"]) == classic
    assert found["suite_sha256"] == suite.sha256 and found["cells"] == len(suite.cases) * 2 * len(classic)
    assert all((means["p50"] or 1) >= 1 and means["done (%)"] > 0 for means in found["senders"].values())


@pytest.mark.parametrize(("name", "metric"), [("wifi-v1", "utilisation"), ("fct-v1", "fct_done_share")])
def test_a_short_form_of_a_suite_runs(tmp_path: Path, name: str, metric: str) -> None:
    suite = as_suite(name)
    data: dict[str, Any] = suite.model_dump(exclude_unset=True)
    scenario = {**data["scenarios"][0], "duration_s": 4, "warm_up_s": 1}
    short = type(suite).model_validate({**data, "scenarios": [scenario], "agents": ["cubic"], "seeds": [1], "references": []})
    run_suite(short, tmp_path / "run")
    (found,) = summarise_runs([tmp_path / "run"])["suites"].values()
    assert found["cells"] >= 1 and list(found["senders"]) == ["cubic"]
    cells = load_cells(tmp_path / "run")
    assert all(0 < round(cell["metrics"][metric], 2) <= 1 for cell in cells)
    if name == "wifi-v1":
        assert found["senders"]["cubic"]["beside CUBIC (Mbit/s)"] is None
    else:
        assert all(len(cell["slowdowns"]) == 101 and cell["slowdowns"][0] >= 1 for cell in cells)


if sys.platform != "linux":
    pytest.skip("live runs are for Linux", allow_module_level=True)


def suite() -> LiveSuite:
    found = load_suite("live-worst-case")
    assert isinstance(found, LiveSuite)
    return found


def test_each_attack_has_a_calm_run_before_it_and_another_kernel_other_numbers() -> None:
    cells = make_live_cells(suite())
    assert [cell.scenario for cell in cells[:2]] == ["reno[calm]", "reno[attacked]"]
    assert {cell.moves for cell in cells} == set(shipped_moves())
    assert all(cell.per_task >= len(cells) for cell in cells), "two live runs at a time would disturb each other"
    assert replace(cells[0], kernel="1.2.3").key != cells[0].key


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"extra_agents": ["reno"]}, "names the sender of each scenario: it takes no --agent"),
        ({"extra_adversaries": ["batch"]}, "plays stored moves: it takes no --adversary"),
    ],
)
def test_players_of_a_user_are_refused(tmp_path: Path, given: dict[str, list[str]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        run_suite("live-worst-case", tmp_path / "out", **given)  # type: ignore[arg-type]


def test_moves_that_are_not_there_are_refused() -> None:
    data = suite().model_dump()
    data["scenarios"][0]["moves"] = "nosuch.moves.npz"
    with pytest.raises(InputError, match=r"nosuch\.moves\.npz: cannot be read"):
        make_live_cells(validate(LiveSuite, data, "suite"))


@pytest.mark.slow
@pytest.mark.live
def test_a_run_keeps_the_worst_case(tmp_path: Path) -> None:
    manifest = run_suite("live-worst-case", tmp_path, only=["reno*"])
    worst = manifest["summary"][0]["worst_case"]
    assert worst["scenario"] == "reno[attacked]" and worst["value"] < 0.5
    records = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text(encoding="utf-8").splitlines()]
    assert records[0]["metrics"]["utilisation"] > 0.9 and {"kernel", "emulator"} == set(records[1]["live"])


def test_the_detectors_root_solves_equation_8() -> None:
    for r in (1.01, 1.5, 2.0, 10.0):
        a = theory.detector_root(r)
        assert 0 < a < 1 and 1 - a == pytest.approx(math.exp(-a * r), abs=1e-12)
    with pytest.raises(InputError, match="must be above 1"):
        theory.detector_root(1.0)


def test_false_positives_are_those_of_the_process_of_equation_7() -> None:
    """Simulate the reflected random walk that theorem 1 is about: up at rate 1, down by c at Poisson events."""
    tarp, r, mincwnd, bound = 0.01, 1.5, 2.0, 30.0
    generator = np.random.Generator(np.random.Philox(1))
    gaps = generator.exponential(1 / (mincwnd * tarp * r), 400_000)
    drop, level, above, total = 1 / (mincwnd * tarp), -bound, 0.0, 0.0
    for gap in gaps:
        above += max(0.0, min(gap, level + gap - mincwnd))
        total += gap
        level = max(level + gap - drop, -bound)
    assert above / total == pytest.approx(theory.false_positives(bound, r, tarp, mincwnd), rel=0.03)


def test_the_guideline_is_the_inverse() -> None:
    """[4CP] eq. (9) sets wndbnd for a share f; theorem 1 with that bound gives f back up to mincwnd."""
    tarp, r, f = 0.001, 2.0, 0.05
    wndbnd = math.log(1 / f) / (2 * tarp * theory.detector_root(r) * r)
    assert theory.false_positives(wndbnd - 2, r, tarp) == pytest.approx(f)


@pytest.mark.parametrize("n", [1, 2, 4, 7, 9, 16])
def test_the_gain_is_reached_at_the_extremal_phases_and_nowhere_exceeded(n: int) -> None:
    bound = theory.throughput_gain_bound(n)
    for idle in [*(i / 50 for i in range(1, 50)), theory.extremal_idle_share(n)]:
        shares = [idle] + [0.0] * (n - 1) + [1 - idle]
        fourcp, tcp = theory.phases_equilibrium(shares, 1, 1)
        assert fourcp / tcp <= bound * (1 + 1e-9)
    assert fourcp / tcp == pytest.approx(bound) and theory.throughput_gain_bound(4) == 1.25


def test_phases_and_two_phase_limits_by_hand() -> None:
    """[4CP] s.4.3.1: all TCP gets c/m for small and c/(n + m) for large load, and so does all 4CP."""
    # Half the time alone with one TCP, half with two more: x = (1/2)((1 - x) + (1 - 3x)) = 1 - 2x, so x = 1/3; in phase 2 the
    # three TCP flows have 1/3 each, just the target.
    fourcp, tcp = theory.phases_equilibrium([0.5, 0.0, 0.5], 1, 1)
    assert fourcp == pytest.approx(1 / 3) and tcp == pytest.approx(1 / 3)
    for n, m in ((10, 5), (5, 10)):
        assert theory.two_phase_rates(n, m, 0, 1e-9)[1] == pytest.approx(1 / m)
        assert theory.two_phase_rates(n, m, 0, 1e9)[1] == pytest.approx(1 / (n + m))
        assert theory.two_phase_rates(n, m, m, 1e-9)[0] == pytest.approx(1 / m)
        assert theory.two_phase_rates(n, m, m, 1e6)[0] == pytest.approx(1 / (n + m), rel=1e-5)
    # (10, 5): bad up to a = 1/5 - 1/10, where both cases agree.
    below, above = theory.two_phase_rates(10, 5, 5, 0.1 - 1e-9)[0], theory.two_phase_rates(10, 5, 5, 0.1 + 1e-9)[0]
    assert below == pytest.approx(1 / (5 + 5), rel=1e-6) and above == pytest.approx(below, rel=1e-6)


def test_response_times_and_periods() -> None:
    assert theory.response_time(10, 5, 0, 0.05) == 15 and theory.response_time(10, 5, 5, 0.05) == 10
    assert theory.response_time(10, 10, 10, 1e-6) == pytest.approx(10, rel=1e-3)  # half of all TCP: proposition 1
    for n, m in ((10, 5), (5, 10), (10, 10), (3, 17)):
        for a in (1e-4, 0.01, 0.1, 1.0):
            assert theory.response_time(n, m, m, a) >= theory.best_response_time(n, m, m) * (1 - 1e-9)
            assert theory.response_time(n, m, m, a) >= 0.5 * theory.response_time(n, m, 0, a) * (1 - 1e-9)
    r = theory.response_time_of_period(60, 5, 10, 10, alone_s=1)
    assert r == pytest.approx(theory.response_time(5, 10, 10, 1 / (60 - r)))
    assert math.isnan(theory.response_time_of_period(10, 10, 5, 0, alone_s=1))


def test_evaluate_takes_what_it_needs_and_closed_forms() -> None:
    assert theory.queue_keeper_delay_s(1.5e6, 0.1, 3000) == pytest.approx(0.102)
    assert theory.reference_rate(2, 1.0, 10) == 1.0 and theory.reference_rate(20, 1.0, 10) == 0.5
    assert theory.evaluate("throughput_gain_bound", {"n": 4, "case": "x"}) == 1.25
    assert theory.evaluate("throughput_gain_bound", {"m": 4}) is None
    assert theory.evaluate("false_positives", {"wndbnd_mss": 1, "loss_ratio": 0.5, "tarp": 0.1}) is None
    with pytest.raises(UnknownNameError, match="Did you mean 'response_time'"):
        theory.evaluate("respons_time", {})
