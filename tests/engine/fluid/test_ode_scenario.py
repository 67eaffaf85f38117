"""Scenarios and sweeps by name and as files."""

from ccenv.engine.fluid.scenario import Link
from ccenv.engine.fluid.sweep import Sweep, load_scenario, load_sweep, shipped


def test_buffer_is_in_whole_packets_of_bdp():
    link = Link(rate_mbps=100, delay_ms=10, buffer_bdp=1)
    assert link.buffer_bytes(1514) == 83 * 1514  # [BBR-fluid] validation: 1 BDP = 83 packets


def test_files_by_name_and_path(tmp_path):
    assert {"validation", "validation_short_rtt", "parking_lot"} <= set(shipped())
    for name in shipped():
        loaded = load_sweep(name) if name.startswith("validation") else load_scenario(name)
        assert loaded.title
    path = tmp_path / "mine.yaml"
    links, flows = "links: [{rate_mbps: 10, delay_ms: 5, buffer_bdp: 1}]", "flows: [{cca: cubic, access_delay_ms: 2}]"
    path.write_text(f"kind: scenario\n{links}\noverrides: {{cubic_b: 0.3}}\n{flows}\n")
    merged = load_scenario(str(path), overrides={"cubic_c": 0.5})
    assert merged.overrides == {"cubic_b": 0.3, "cubic_c": 0.5}


def test_sweep_splits_a_mix_in_halves():
    sweep = Sweep(
        mixes=["bbr1/reno"], disciplines=["red"], buffers_bdp=[2], rate_mbps=10, delay_ms=5, access_delays_ms=[1, 2, 3, 4]
    )
    scenario = sweep.scenario(*sweep.cells()[0])
    assert [f.cca for f in scenario.flows] == ["bbr1", "bbr1", "reno", "reno"]
    assert scenario.links[0].discipline == "red"
