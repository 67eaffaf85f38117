"""Suites per packet, and the page of a run."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyarrow import parquet
from small_suite import HEAD

from ccenv.base.config import validate
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.figure import picture
from ccenv.benchmarks.cells.cell import agent_player
from ccenv.benchmarks.cells.packet import PacketCell, make_packet_cells
from ccenv.benchmarks.report.figures import draw, table
from ccenv.benchmarks.report.page import build_report
from ccenv.benchmarks.results import PARQUET, equal_seeds
from ccenv.benchmarks.run.runner import evaluate, play_cells, run_suite
from ccenv.benchmarks.suite.base import Quantity, Reference
from ccenv.benchmarks.suite.curve import load_suite, validate_suite
from ccenv.benchmarks.suite.packet import PacketSuite, parse_metric
from ccenv.benchmarks.suite.references import check, compute_interval, compute_quantity
from ccenv.benchmarks.suite.template import expand, substitute
from ccenv.cli.main import main
from ccenv.simulation import simulate


def small_packets(**changes: Any) -> dict[str, Any]:
    """A grid of two buffers and a drawn rate for the agent, and one fixed network: six cells per agent and seed."""
    data: dict[str, Any] = {
        **HEAD, "name": "packets", "engine": "packet", "duration_s": 3, "warm_up_s": 1, "agents": ["reno"],
        "scenarios": [
            {
                "name": "grid",
                "parameters": {"rate": {"low": 4, "high": 16}, "rtt": 20, "buffer": [0.5, 2]},
                "network": {"links": [{"rate_mbps": "$rate", "buffer_bdp": "$buffer"}],
                        "flows": [{"sender": "$agent", "rtt_ms": "$rtt", "jitter": {"kind": "batch", "max_rtts": 0.5}}]},
            },
            {
                "name": "fixed",
                "windows": {"late": [[2, 3]]},
                "network": {"links": [{"rate_mbps": 8, "buffer_packets": 20}],
                        "flows": [{"name": "a", "sender": "reno", "rtt_ms": 20}, {"name": "b", "sender": "cubic", "rtt_ms": 40}]},
            },
        ],
        "metrics": ["utilisation", "jain_index", "throughput_mbps[b]@late"],
    }  # fmt: skip
    return {**data, **changes}


def packets(**changes: Any) -> PacketSuite:
    return validate(PacketSuite, small_packets(**changes), "packets.yaml")


def cells(**changes: Any) -> list[PacketCell]:
    return make_packet_cells(packets(**changes), [agent_player("reno")])


def test_cells_are_the_grid_and_the_fixed_network() -> None:
    found = cells()
    assert [cell.name for cell in found] == [
        "grid[buffer=0.5]/reno/network/1", "grid[buffer=0.5]/reno/network/2", "grid[buffer=2]/reno/network/1",
        "grid[buffer=2]/reno/network/2", "fixed/network/network/1", "fixed/network/network/2",
    ]  # fmt: skip
    assert len({cell.key for cell in found}) == 6
    rates = [cell.parameters["rate"] for cell in found[:2]]
    assert all(4 <= rate <= 16 for rate in rates) and rates[0] != rates[1]
    assert found[0].metrics == ("utilisation", "jain_index")
    assert found[4].metrics == ("utilisation", "jain_index", "throughput_mbps[b]@late")


TWO_FLOWS = (("a", "reno", 20), ("b", "cubic", 40))


@pytest.mark.parametrize("rules", [1, 2])
def test_a_record_is_what_the_simulator_gives(rules: int) -> None:
    """Under the first rules with what they leave out."""
    cell = replace(cells()[4], rules=rules)
    former: tuple[dict[str, Any], ...] = ({"phase_jitter": 0}, {"recovery": "flight"}) if rules == 1 else ({}, {})
    flows = [{"name": name, "sender": sender, "rtt_ms": rtt_ms, **former[1]} for name, sender, rtt_ms in TWO_FLOWS]
    links = [{"rate_mbps": 8, "buffer_packets": 20}]
    result = simulate({**former[0], "duration_s": 3, "warmup_s": 1, "seed": cell.engine_seed, "links": links, "flows": flows})
    flows, record = result.summary()["flows"], cell.run()
    rates = [flow["throughput_mbps"] for flow in flows]
    assert record["metrics"]["utilisation"] == pytest.approx(sum(rates) / 8, rel=1e-9)
    assert record["metrics"]["jain_index"] == pytest.approx(sum(rates) ** 2 / (2 * sum(r * r for r in rates)), rel=1e-9)
    grown = result.flow_log["goodput_bytes"][[200, 300], 1]
    assert record["metrics"]["throughput_mbps[b]@late"] == pytest.approx((grown[1] - grown[0]) / 125e3, rel=1e-9)


def test_backends_pieces_and_parquet_give_the_same(tmp_path: Path) -> None:
    suite = packets()
    whole = run_suite(suite, tmp_path / "whole", pictures=False)
    run_suite(suite, tmp_path / "pieces", only=["fixed/*"], pictures=False)
    run_suite(suite, tmp_path / "pieces", limit=1, pictures=False)
    run_suite(suite, tmp_path / "pieces", backend="processes", workers=2, pictures=False)
    assert whole["n_cells"] == 6
    assert (tmp_path / "whole" / "cells.jsonl").read_bytes() == (tmp_path / "pieces" / "cells.jsonl").read_bytes()
    assert (tmp_path / "whole" / PARQUET).read_bytes() == (tmp_path / "pieces" / PARQUET).read_bytes()
    records = [json.loads(line) for line in (tmp_path / "whole" / "cells.jsonl").read_text().splitlines()]
    table = parquet.read_table(tmp_path / "whole" / PARQUET).to_pydict()
    assert table["metric.utilisation"] == [record["metrics"]["utilisation"] for record in records]
    assert table["parameter.buffer"] == [0.5, 0.5, 2, 2, None, None]
    again = evaluate(suite, "reno", seeds=[2])
    assert [r["metrics"] for r in again] == [r["metrics"] for r in records if r["seed"] == 2]
    assert validate_suite(json.loads((tmp_path / "whole" / "manifest.json").read_text())["suite"], "manifest") == suite


def test_other_seeds_play_other_paths() -> None:
    records = evaluate(packets(), "reno", seeds=[7])
    assert [record["seed"] for record in records] == [7, 7, 7]
    assert records[0]["parameters"]["rate"] != evaluate(packets(), "reno", seeds=[8])[0]["parameters"]["rate"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"engine": "pakcet"}, "Did you mean 'packet'"),
    ({"duration": 3}, "Did you mean 'duration_s'"),
    ({"warm_up_s": 3}, "warm_up_s 3 is not below duration_s 3"),
    ({"metrics": ["utilisation", "jane_index"]}, "Did you mean 'jain_index'"),
    ({"metrics": ["utilisation", "throughput_mbps[b"]}, "not of the form"),
    ({"table": {"speed": {"metric": "utilisatoin"}}}, "utilisatoin"),
    ({"scenarios": [{"name": "x", "network": {"links": [], "flows": [{"rtt_ms": "$rt"}]}}]}, "$rt is no parameter"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_refusals_name_the_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        validate_suite(small_packets(**changes), "packets.yaml")
    assert message in str(caught.value)


def test_a_network_that_cannot_be_names_its_case() -> None:
    scenarios = [{"name": "bad", "network": {"links": [{"rate_mbps": -1}], "flows": [{"sender": "reno", "rtt_ms": 20}]}}]
    with pytest.raises(InputError, match=r"scenario bad: .*rate"):
        cells(scenarios=scenarios, agents=[])


def test_metric_names_and_parameters_in_texts_and_whole_values() -> None:
    assert parse_metric("power") == ("power", None, "run")
    assert parse_metric("throughput_mbps[4CP auto]@phase0") == ("throughput_mbps", "4CP auto", "phase0")
    template = {"sender": "fourcp_fixed:tarp=$tarp", "rtt_ms": "$rtt", "keep": "$agent"}
    found = substitute(template, {"tarp": 0.000618, "rtt": 100})
    assert found == {"sender": "fourcp_fixed:tarp=0.000618", "rtt_ms": 100, "keep": "$agent"}
    with pytest.raises(InputError, match="Did you mean 'rtt'"):
        substitute({"a": "${rt}"}, {"rtt": 1})


def test_pyramid_is_the_papers() -> None:
    """[4CP] s.5.1: of h = 2 flows in T = 8 the first is there from 2 to 8 and the second from 4 to 6."""
    flow = {"name": "short", "sender": "reno", "rtt_ms": 100, "pyramid": {"period_s": 8, "height": 2}}
    network, windows = expand({"links": [], "flows": [flow]}, duration_s=17, key=1)
    spans = [(f["start_s"], f["stop_s"]) for f in network["flows"]]
    assert spans == [(2, 8), (4, 6), (10, 16), (12, 14)] and windows["phase0"] == [(0.5, 2), (8.5, 10)]
    assert windows["phase1"] == [(2.5, 4), (6.5, 8), (10.5, 12), (14.5, 16)] and windows["phase2"] == [(4.5, 6), (12.5, 14)]


def test_web_has_the_mean_gap_and_the_pareto_sizes() -> None:
    flow = {"sender": "reno", "rtt_ms": 40, "web": {"mean_size_bytes": 12000, "mean_gap_s": 0.5}}
    networks = [expand({"flows": [flow]}, duration_s=100, key=key)[0] for key in range(10)]
    sizes = sorted(f["workload"]["size_bytes"] for network in networks for f in network["flows"])
    assert len(sizes) == pytest.approx(2000, abs=4 * math.sqrt(2000))
    assert sizes[0] >= 2000  # the smallest of a Pareto distribution of shape 1.2 and mean 12000
    assert sizes[len(sizes) // 2] == pytest.approx(2000 * 2 ** (1 / 1.2), rel=0.15)
    assert expand({"flows": [flow]}, duration_s=100, key=9)[0] == networks[-1]


def test_copies_relative_times_rate_steps_and_red_thresholds() -> None:
    link = {"rate_mbps": 10, "rate_steps": [{"time_s": 1, "rate_times": 0.5}]}
    flow = {"sender": "reno", "rtt_ms": 50, "copies": 3, "start_every_rtts": 2, "jitter": {"kind": "constant", "max_rtts": 0.5}}
    red = {"rate_mbps": 10, "buffer_packets": 200, "discipline": "red", "red": {"min_share": 0.1, "max_share": 0.5}}
    network, _ = expand({"links": [link, red], "flows": [flow]}, 10, 1)
    assert network["links"][1]["red"] == {"min_packets": 20, "max_packets": 100}
    assert network["links"][0]["rate_steps"] == [{"time_s": 1, "rate_mbps": 5}]
    assert [f["start_s"] for f in network["flows"]] == [0, pytest.approx(0.1), pytest.approx(0.2)]
    assert network["flows"][0]["jitter"] == {"kind": "constant", "max_s": 0.025}


RECORDS = [
    {"scenario": f"grid[n={n}]", "agent": name, "adversary": "network", "seed": 1, "parameters": {"n": n}, "metrics": {"m": x}}
    for name, n, x in (("a", 1, 1.0), ("a", 2, 4.0), ("a", 4, 8.0), ("b", 1, 3.0), ("b", 2, None))
]


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [({"agent": "a"}, 13 / 3), ({"agent": "a", "aggregate": "min", "where": {"n": [2, 4]}}, 4.0),
     ({"agent": "a", "aggregate": "max", "where": {"n": {"high": 2}}}, 4.0),
     ({"agent": "a", "aggregate": "delta_sensitivity"}, 3.0),
     ({"agent": "a", "aggregate": "slope", "over": "n", "where": {"n": [1, 2]}}, 3.0),
     ({"scenario": "grid[n=1]", "aggregate": "sum"}, 4.0), ({"scenario": "other"}, None),
     ({"agent": "b", "where": {"n": 2}}, None)],
)  # fmt: skip
def test_quantities_by_hand(quantity: dict[str, Any], expected: float | None) -> None:
    found = compute_quantity(RECORDS, Quantity(metric="m", **quantity))
    assert found == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("claim", "agreement"),
    [({"value": 4.0}, "reproduced"), ({"value": 12.0, "neutral": 1}, "same direction"), ({"value": 12.0}, "not reproduced"),
     ({"value": 0.5, "neutral": 1}, "not reproduced"), ({"at_least": 4.0}, "reproduced"), ({"at_most": 4.0}, "not reproduced"),
     ({"above": {"metric": "m", "agent": "b"}}, "reproduced"), ({"below": {"metric": "m", "agent": "b"}}, "not reproduced"),
     ({"value": 4.0, "scenario": "nowhere"}, "not measured")],
)  # fmt: skip
def test_agreement_by_hand(claim: dict[str, Any], agreement: str) -> None:
    found = check(RECORDS, Reference(metric="m", source="by hand", **{"agent": "a", **claim}))
    assert found["agreement"] == agreement


def test_intervals_need_two_runs_of_a_case() -> None:
    quantity = Quantity(metric="m", agent="a")
    assert compute_interval(RECORDS, quantity) is None
    twice = [*RECORDS, {**RECORDS[0], "seed": 2, "metrics": {"m": 2.0}}]
    low, high = compute_interval(twice, quantity) or (0.0, 0.0)
    assert 0 < low < high


@pytest.mark.parametrize("aggregate", ["mean", "median", "iqm", "min", "max", "sum"])
def test_the_interval_is_that_of_the_aggregate(aggregate: str) -> None:
    """The worst of four cases of which one is far beyond the others lies in its own interval."""
    runs = {"a": (1.0, 1.5), "b": (1.2, 2.0), "c": (1.1, 1.3), "d": (8.0, 13.0)}
    records = [{**RECORDS[0], "scenario": case, "metrics": {"m": v}} for case, values in runs.items() for v in values]
    quantity = Quantity(metric="m", aggregate=aggregate)
    low, high = compute_interval(records, quantity) or (0.0, 0.0)
    assert low <= (compute_quantity(records, quantity) or 0.0) <= high
    assert (aggregate == "max") == (low == 8.0 and high == 13.0)


def test_company_and_standard_v2_say_what_they_are_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = load_suite("coexistence")  # the published name is company
    assert suite == load_suite("company")
    wanted = {"jain_2", "jain_4", "jain_8", "jain_rtt_20_80", "share_cubic_1bdp", "share_cubic_4bdp", "share_bbr1_1bdp"}
    assert {*wanted, "share_bbr1_4bdp", "utilisation", "p95_queue_rtts"} <= set(suite.table)
    assert all(case.values(suite.run_key(case.name, 1)) for case in suite.cases)
    for name in ("company", "standard-v2"):
        given = load_suite(name)
        names = {case.name.partition("[")[0] for case in given.cases} | {case.name for case in given.cases}
        for quantity in given.table.values():
            patterns = quantity.scenario if isinstance(quantity.scenario, tuple) else (quantity.scenario,)
            assert set(patterns) <= names
    out = ["--out", str(tmp_path / "run"), "--json"]
    assert main(["bench", "run", "company", "--only", "rtts/*/1", "--only", "beside[[]other=bbr1,buffer_bdp=1]/*/1", *out]) == 0
    found = json.loads(capsys.readouterr().out)["agents"]
    assert set(found) == set(suite.agents) and found["cubic"]["jain_2"] is None
    assert 0.4 < found["cubic"]["jain_rtt_20_80"] < 1 and found["cubic"]["share_bbr1_1bdp"] < 0.6
    assert found["bbr1"]["jain_rtt_20_80"] < found["copa"]["jain_rtt_20_80"]
    shown = main(["bench", "run", "company", "--only", "rtts/*/1", "--out", str(tmp_path / "run")])
    assert shown == 0 and "what the suite is about" in capsys.readouterr().out


@pytest.mark.parametrize(("flows", "message"), [([300], "copies is 300"), ([200, 57], "257 flows; the packet engine has room")])
def test_more_flows_than_there_is_room_for(flows: list[int], message: str, tmp_path: Path, refused) -> None:
    """One line, before any cell is played."""
    data = small_packets()
    data["scenarios"][-1]["network"]["flows"] = [{"sender": "$agent", "rtt_ms": 20, "copies": n} for n in flows]
    file, out = tmp_path / "many.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    refused(["bench", "run", str(file), "--out", str(out)], message)
    assert not out.exists() or not (out / "cells.jsonl").is_file()


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "packets.yaml"
    file.write_text(yaml.safe_dump(small_packets()), encoding="utf-8")
    assert main(["bench", "run", str(file), "--out", str(tmp_path / "run"), "--limit", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_missing"] == 4
    assert main(["bench", "run", str(file), "--out", str(tmp_path / "run")]) == 0
    assert "suite packets version 1" in capsys.readouterr().out


@pytest.mark.slow
def test_ray_gives_the_same_bytes(tmp_path: Path) -> None:
    run_suite(packets(), tmp_path / "local", pictures=False)
    run_suite(packets(), tmp_path / "ray", backend="ray", workers=2, pictures=False)
    assert (tmp_path / "local" / "cells.jsonl").read_bytes() == (tmp_path / "ray" / "cells.jsonl").read_bytes()


@pytest.mark.slow
def test_errors_in_ray_tasks_are_one_line() -> None:
    broken = [replace(cell, network={**cell.network, "links": []}) for cell in cells()]
    with pytest.raises(InputError, match="links"):
        list(play_cells(broken[:1], "ray", 1))


def test_a_suite_never_runs_a_python_file(tmp_path: Path) -> None:
    """A suite may come from somebody else; only the agent that a user names may be a Python file."""
    file = tmp_path / "mine.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nimport ccenv\nclass Mine(ccenv.PythonSender):\n    pass\n")
    data = small_packets()
    data["scenarios"][1]["network"]["flows"][1]["sender"] = str(file)
    with pytest.raises(CcenvError, match="is Python"):
        make_packet_cells(validate(PacketSuite, data, "packets.yaml"), [agent_player("reno")])
    with pytest.raises(CcenvError, match="is Python"):
        run_suite(packets(agents=[str(file)]), tmp_path / "out")
    assert not (tmp_path / "ran").exists()
    chosen = agent_player(str(file), code=True)
    assert make_packet_cells(packets(), [chosen])[0].run()["agent"] == "mine"


def test_a_cell_of_another_table_of_a_link_is_another_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = small_packets(seeds=[1])
    network = {"links": [{"trace": "link.trace", "buffer_packets": 20}], "flows": [{"sender": "$agent", "rtt_ms": 20}]}
    data |= {"scenarios": [{"name": "varying", "network": network}], "metrics": ["utilisation"]}
    file = tmp_path / "link.trace"

    def key_with(lines: str) -> str:
        file.write_text(lines)
        (cell,) = make_packet_cells(validate(PacketSuite, data, "packets.yaml"), [agent_player("reno")])
        return cell.key

    first = key_with("1\n2\n3\n4\n")
    assert key_with("1\n2\n4\n4\n") != first and key_with("1\n2\n3\n4\n") == first


FIGURES: list[dict[str, Any]] = [
    {"name": "lines", "kind": "lines", "metric": "utilisation", "x": "buffer", "by": "agent", "scenario": "grid"},
    {"name": "bars", "kind": "bars", "x": "case", "metrics": ["utilisation", "jain_index"]},
    {"name": "heat", "kind": "heatmap", "metric": "utilisation", "x": "buffer", "y": "rtt", "scenario": "grid"},
    {"name": "delta", "kind": "delta_map", "metric": "utilisation", "x": "buffer", "y": "rtt", "scenario": "grid"},
    {"name": "series", "kind": "series", "title": "<b>rates</b>"},
    {"name": "nothing", "kind": "bars", "x": "case", "metric": "utilisation", "scenario": "elsewhere"},
]
REFERENCES: list[dict[str, Any]] = [
    {"name": "a & b", "metric": "utilisation", "value": 0.9, "source": "somewhere"},
    {"name": "too high", "metric": "utilisation", "at_least": 2, "source": "somewhere", "why": "<it cannot be>"},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with all kinds of figures, and its report."""
    folder = tmp_path_factory.mktemp("report") / "run"
    data = small_packets(figures=FIGURES, references=REFERENCES, series_s=0.5, agents=["reno", "cubic"])
    run_suite(validate_suite(data, "packets"), folder, pictures=False)
    build_report(folder)
    return folder


def test_the_page_stands_alone_and_escapes(run: Path) -> None:
    text = (run / "report.html").read_text(encoding="utf-8")
    for outside in ("http://", "https://", "<script", 'src="report'):
        assert outside not in text
    assert text.count("data:image/png;base64,") == 6  # five figures and the profiles
    assert "a &amp; b" in text and "&lt;it cannot be&gt;" in text and "&lt;b&gt;rates" in text
    assert "<b>rates" not in text and "ccenv bench run packets" in text
    for name in ("lines", "bars", "heat", "delta", "series"):
        for suffix in ("png", "svg", "csv"):
            assert (run / "report" / f"{name}.{suffix}").stat().st_size > 50
    assert not (run / "report" / "nothing.png").exists()


def test_numbers_behind_a_figure_and_equal_pictures_of_equal_runs(run: Path) -> None:
    lines = (run / "report" / "lines.csv").read_text().splitlines()
    records = [json.loads(line) for line in (run / "cells.jsonl").read_text().splitlines()]
    grid = [record for record in records if record["scenario"].startswith("grid")]
    assert lines[0] == "scenario,agent,seed,buffer,utilisation" and len(lines) == 1 + len(grid) == 9
    assert float(lines[1].split(",")[-1]) == grid[0]["metrics"]["utilisation"]
    manifest = json.loads((run / "manifest.json").read_text())
    suite = validate_suite(manifest["suite"], "manifest")
    for figure in suite.figures[:2]:
        first, second = draw(suite, records, figure), draw(suite, records, figure)
        assert first is not None and second is not None and picture(first, ".svg") == picture(second, ".svg")
        assert len(table(suite, records, figure)) > 1


def test_command_of_the_page_and_a_run_that_has_not_ended(run: Path, tmp_path: Path, refused, answer) -> None:
    result = answer(["bench", "report", str(run), "--json"])
    assert result["page"] == str(run / "report.html") and result["agreement"] == {"not reproduced": 1, "reproduced": 1}
    refused(["bench", "report", str(tmp_path / "nowhere")])
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["summary"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="has not ended yet"):
        build_report(tmp_path)


def test_equal_seeds_are_found() -> None:
    def cell(scenario: str, value: float, adversary: str = "network") -> dict[str, Any]:
        return {"scenario": scenario, "agent": "reno", "adversary": adversary, "metrics": {"utilisation": value}}

    one, two, three = [cell("one", 0.5)], [cell("two", 0.5), cell("two", 0.5)], [cell("three", 0.5), cell("three", 0.6)]
    assert equal_seeds([*one, *two, *three]) == ["two/reno"]
    assert equal_seeds([*three, cell("three", 0.6, "storm"), cell("three", 0.6, "storm")]) == ["three/reno"]
