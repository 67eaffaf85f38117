"""Scenarios: units, shipped files with the papers' figures beside, summary, picture, command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ccenv
from ccenv.base.config import shipped_names
from ccenv.cli.main import main
from ccenv.simulation import load_scenario, read_scenario, simulate

LINK = {"rate_mbps": 12, "buffer_packets": 40}


def test_units_of_people_become_units_inside() -> None:
    scenario = read_scenario(
        {"log_ms": 20, "links": [{"rate_mbps": 8, "buffer_bdp": 2}], "flows": [{"sender": "reno", "rtt_ms": r} for r in (30, 60)]}
    )
    assert scenario.links[0].rate_Bps == 1e6
    assert scenario.flows[1].rtt_s == pytest.approx(0.06)
    assert scenario.links[0].buffer_bytes == pytest.approx(2 * 1e6 * 0.03)
    assert scenario.log_s == pytest.approx(0.02)


def test_summary_counts_what_the_time_series_hold() -> None:
    flows = [{"sender": "reno", "rtt_ms": 40}, {"sender": "reno", "rtt_ms": 40, "start_s": 5, "stop_s": 10}]
    result = ccenv.simulate({"duration_s": 12, "links": [LINK], "flows": flows})
    summary = result.summary()
    assert [flow["name"] for flow in summary["flows"]] == ["reno #1", "reno #2"]
    between = (result.time_s[1:] > 5) & (result.time_s[1:] <= 10 + 1e-9)
    assert summary["flows"][1]["throughput_mbps"] == pytest.approx(result.throughput_Bps()[between, 1].mean() / 125e3)
    carried = sum(flow["throughput_mbps"] * s for flow, s in zip(summary["flows"], (12, 5), strict=True))
    assert carried == pytest.approx(summary["links"][0]["utilisation"] * 12 * 12, rel=0.02)
    assert summary["ratio"] == pytest.approx(
        summary["flows"][0]["throughput_mbps"] / summary["flows"][1]["throughput_mbps"], rel=1e-9
    )
    assert summary["flows"][0]["loss"] > 0


@pytest.mark.parametrize("name", shipped_names("ccenv.configs.sim", ".yaml"))
def test_shipped_scenarios_are_valid(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.reference is not None


# What must come out: at least 5 times where the paper has 10, 1.5 where it has about 3.
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("copa_one_early_packet", 5.0),
        ("two_bbr_40_80", 5.0),
        ("reno_delack4", 1.5),
        ("cubic_delack4", 1.5),
        ("vivace_ack_60ms", 5.0),
        ("allegro_loss", 5.0),
    ],
)
def test_starvation_has_the_direction_and_size_of_the_paper(name: str, least: float) -> None:
    summary = simulate(name).summary()
    first, second = (flow["throughput_mbps"] for flow in summary["flows"])
    assert second > first
    assert summary["ratio"] >= least
    assert summary["ratio"] <= 20


def test_a_picture_is_drawn_and_equal_runs_draw_equal_files(tmp_path) -> None:
    scenario = {"duration_s": 2, "links": [LINK], "flows": [{"sender": "cubic", "rtt_ms": 40}]}
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for file in files:
        simulate(scenario).plot(file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert len(files[0].read_bytes()) > 10_000


def test_command(tmp_path, capsys) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("links: [{rate_mbps: 12, buffer_packets: 40}]\nflows: [{sender: reno, rtt_ms: 40}]\n", encoding="utf-8")
    assert main(["sim", str(file), "--duration", "3", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["duration_s"] == 3
    assert set(shown["flows"][0]) >= {"name", "throughput_mbps", "loss", "rtt"}
    assert np.isclose(shown["flows"][0]["rtt"], 0.06, atol=0.025)
    assert shown["ratio"] is None
    assert main(["sim", "reno_delack4", "--duration", "2"]) == 0
    assert "2.7" in capsys.readouterr().out
    assert main(["sim", "reno_delak4"]) == 2
    assert "Did you mean" in capsys.readouterr().err
