"""The sweep packet by packet: the same network as the fluid model's, metrics that can be worked out by hand."""

import json

import pytest
from typer.testing import CliRunner

from ccenv.base.errors import InputError
from ccenv.benchmarks.fluid.packets import compare, packet_cells, packet_scenario
from ccenv.cli.fluid import app
from ccenv.engine.fluid.sweep import load_sweep
from ccenv.simulation import read_scenario

SHORT = {"duration_s": 3.0, "measure_from_s": 1.0}


@pytest.fixture(scope="module")
def bbr1_cells():
    sweep = load_sweep("validation", mixes=["bbr1"], disciplines=["drop-tail"], buffers_bdp=[1, 7], **SHORT)
    return packet_cells(sweep, runs=2)


def test_the_network_is_the_sweeps():
    sweep = load_sweep("validation")
    scenario = read_scenario(packet_scenario(sweep, "bbr1/reno", "red", 2.0, 1))
    link = scenario.links[0]
    assert link.buffer_bytes == 166 * 1514  # 1 BDP is 83 packets
    assert (link.red.min_packets, link.red.max_packets, link.red.max_probability) == (0.0, 166.0, 1.0)
    assert [flow.sender for flow in scenario.flows] == ["bbr1"] * 5 + ["reno"] * 5
    assert [flow.rtt_s for flow in scenario.flows] == pytest.approx([2e-3 * (10 + d) for d in sweep.access_delays_ms])
    starts = [flow.start_s for flow in scenario.flows]
    assert max(starts) < 0.1 and len(set(starts)) == 10
    assert scenario.log_s == pytest.approx(10 * 1514 / 12.5e6)


def test_bbr1_fills_the_link_and_loses_in_the_shallow_buffer_only(bbr1_cells):
    shallow, deep = bbr1_cells
    for cell in bbr1_cells:
        assert 99 < cell["utilisation_pct"] <= 100.1
        assert 0 < cell["jain"] <= 1 and 0 < cell["occupancy_pct"] <= 100
        assert cell["jitter_ms"] > 0 and cell["runs"] == 2 and cell["spread"]["jain"] > 0
        sent_Bps = sum(cell["rate_Bps"])
        arrived_Bps = 12.5e6 * cell["utilisation_pct"] / 100 / (1 - cell["loss_pct"] / 100)
        assert sent_Bps == pytest.approx(arrived_Bps, rel=0.02)  # what is sent is served or dropped, but for what is queued
    assert shallow["loss_pct"] > 5
    assert deep["loss_pct"] < 1


def test_a_run_is_reproducible(bbr1_cells):
    sweep = load_sweep("validation", mixes=["bbr1"], disciplines=["drop-tail"], buffers_bdp=[7], **SHORT)
    assert packet_cells(sweep, runs=2) == bbr1_cells[1:]


def test_differences():
    keys = [{"mix": "bbr1", "discipline": "red", "buffer_bdp": b} for b in (1.0, 2.0, 3.0)]
    names = ("loss_pct", "occupancy_pct", "utilisation_pct", "jitter_ms", "first_share_pct")
    fluid = [key | dict.fromkeys(names, 1.0) | {"jain": jain} for key, jain in zip(keys, (0.1, 0.2, 0.3), strict=True)]
    packets = [key | dict.fromkeys(names, 1.0) | {"jain": jain} for key, jain in zip(keys, (0.2, 0.4, 0.9), strict=True)]
    rows = {row["metric"]: row for row in compare(fluid, packets)}
    assert rows["jain"]["mean_difference"] == pytest.approx(0.3)
    assert rows["jain"]["largest_difference"] == pytest.approx(0.6)
    assert rows["jain"]["at"] == "bbr1, red, 3 BDP"
    assert rows["jain"]["rank_correlation"] == pytest.approx(1.0)
    assert rows["loss_pct"]["rank_correlation"] is None


def test_compare_command():
    arguments = ["compare", "validation", "--mix", "bbr2", "--discipline", "red", "--buffer", "1", "--packet-runs", "1", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None, result.exception
    out = json.loads(result.output)
    assert len(out["cells"]) == len(out["packets"]) == 1
    assert {row["metric"] for row in out["differences"]} >= {"jain", "loss_pct"}
    with pytest.raises(InputError, match="packet runs must be at least 1"):
        packet_cells(load_sweep("validation"), 0)
