"""Bad scenarios, sweeps and names: one clear line each."""

import pytest
from typer.testing import CliRunner

from ccenv.base.config import validate
from ccenv.base.errors import CcenvError, InputError
from ccenv.cli.fluid import app
from ccenv.engine.fluid.scenario import Link, Scenario
from ccenv.engine.fluid.sweep import Sweep, load_scenario, load_sweep, shipped

LINK = {"rate_mbps": 100, "delay_ms": 10, "buffer_bdp": 1}
FLOW = {"cca": "bbr1", "access_delay_ms": 5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flows": []}, "flows: .* at least 1 item"),
        ({"flows": [FLOW] * 1_001}, "flows: .* at most 1000 items"),
        ({"links": []}, "links: .* at least 1 item"),
        ({"links": [LINK | {"buffer_bdp": 0}]}, r"links.0.buffer_bdp: .* greater than 0 \(got 0\)"),
        ({"step_ms": 6}, "step_ms 6 is larger than the smallest delay, 5 ms"),
        ({"step_ms": 0}, "step_ms: .* greater than 0"),
        ({"flows": [FLOW | {"cca": "bbr"}]}, "unknown fluid CCA 'bbr'. Did you mean 'bbr"),
        ({"links": [LINK | {"discipline": "redd"}]}, "unknown discipline 'redd'. Did you mean 'red'"),
        ({"links": [LINK | {"discipline": "red", "red": {"q0": 0.5, "q1": 0.4}}]}, "q0 .0.5. must be below q1"),
        ({"params": "artifact"}, "unknown parameter set 'artifact'. Did you mean 'artefact'"),
        ({"flows": [FLOW | {"path": ["x"]}]}, "unknown link 'x'"),
        ({"flows": [FLOW | {"agent": 2}, FLOW]}, "agent numbers must differ"),
        ({"links": [LINK, LINK]}, "link names must differ"),
        ({"links": [LINK, LINK | {"name": "b"}]}, "a flow needs a path"),
        ({"flows": [FLOW | {"path": ["bottleneck", "bottleneck"]}]}, "a path may use a link once"),
        ({"measure_from_s": 9}, "measure_from_s .9. must be below duration_s"),
        ({"duration_s": float("nan")}, "duration_s: .*(finite|greater)"),
        ({"links": [LINK | {"rate_mbps": float("inf")}]}, "rate_mbps: .*finite"),
        ({"stepms": 1}, "unknown key 'stepms'. Did you mean 'step_ms'"),
    ],
)
def test_bad_scenarios(change, message):
    with pytest.raises(InputError, match=message) as error:
        validate(Scenario, {"links": [LINK], "flows": [FLOW]} | change, "test")
    assert "\n" not in str(error.value)


def test_bad_constants():
    bad = Scenario(links=[LINK], flows=[FLOW], overrides={"cubic_d": 1})
    with pytest.raises(InputError, match=r"unknown key 'cubic_d'. Did you mean 'cubic_"):
        _ = bad.constants
    bad = Scenario(links=[LINK], flows=[FLOW], overrides={"loss_threshold": 2})
    with pytest.raises(InputError, match=r"loss_threshold"):
        _ = bad.constants


def test_buffer_is_in_whole_packets_of_bdp():
    link = Link(rate_mbps=100, delay_ms=10, buffer_bdp=1)
    assert link.buffer_bytes(1514) == 83 * 1514  # [BBR-fluid] validation: 1 BDP = 83 packets


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixes": ["bbr1/renoo"]}, "unknown mix 'bbr1/renoo'. Did you mean 'bbr1/reno'"),
        ({"mixes": ["bbr1/reno/cubic"]}, "unknown mix"),
        ({"disciplines": ["codel"]}, "unknown discipline 'codel'"),
        ({"buffers_bdp": [0]}, "buffer_bdp.*greater than 0|greater than 0"),
        ({"step_ms": 7}, "step_ms 7 is larger than the smallest delay, 5.1 ms"),
        ({"params": "published"}, "unknown parameter set 'published'"),
        ({"overrides": {"cubic": 1}}, "unknown key 'cubic'"),
        ({"access_delays_ms": []}, "access_delays_ms: .* at least 1"),
        ({"access_delays_ms": [5, 6, 7]}, "even number of flows"),
        ({"access_delays_ms": [5] * 1_002}, "access_delays_ms"),
        ({"buffers_bdp": list(range(1, 20_000))}, "359982 cells of 10 flows; at most 100000"),  # asked for gigabytes before
    ],
)
def test_bad_sweeps(changes, message):
    with pytest.raises(InputError, match=message) as error:
        load_sweep("validation", **changes)
    assert "\n" not in str(error.value)


def test_files_by_name_and_path(tmp_path):
    assert {"validation", "validation_short_rtt", "parking_lot"} <= set(shipped())
    for name in shipped():
        loaded = load_sweep(name) if name.startswith("validation") else load_scenario(name)
        assert loaded.title
    with pytest.raises(InputError, match=r"unknown sweep 'validaton'. Did you mean 'validation'"):
        load_sweep("validaton")
    with pytest.raises(InputError, match=r"kind must be 'scenario' .got 'sweep'.; use `ccenv ode sweep`"):
        load_scenario("validation")
    path = tmp_path / "mine.yaml"
    path.write_text("- 1\n")
    with pytest.raises(InputError, match=r"expected a mapping"):
        load_scenario(str(path))
    path.write_text("kind: scenario\nlinks: [{rate_mbps: 10, delay_ms: 5, buffer_bdp: 1}]\noverrides: {cubic_b: 0.3}\n")
    with pytest.raises(InputError, match=r"mine.yaml: flows: missing"):
        load_scenario(str(path))
    path.write_text(path.read_text() + "flows: [{cca: cubic, access_delay_ms: 2}]\n")
    merged = load_scenario(str(path), overrides={"cubic_c": 0.5})
    assert merged.overrides == {"cubic_b": 0.3, "cubic_c": 0.5}


def test_sweep_splits_a_mix_in_halves():
    sweep = Sweep(
        mixes=["bbr1/reno"], disciplines=["red"], buffers_bdp=[2], rate_mbps=10, delay_ms=5, access_delays_ms=[1, 2, 3, 4]
    )
    scenario = sweep.scenario(*sweep.cells()[0])
    assert [f.cca for f in scenario.flows] == ["bbr1", "bbr1", "reno", "reno"]
    assert scenario.links[0].discipline == "red"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no_such"], "unknown scenario 'no_such'"),
        (["run", "parking_lot", "--step-ms", "50"], "step_ms 50 is larger than the smallest delay, 5 ms"),
        (["run", "parking_lot", "--set", "cubic_b=x"], "constant cubic_b must be a number"),
        (["run", "parking_lot", "--plot", "x.gif"], "a picture ends in .png or .svg"),
        (["sweep", "validation", "--mix", "bbr3"], "unknown mix 'bbr3'"),
        (["sweep", "validation", "--buffer", "8"], "--buffer is 8; the sweep 'validation' has 1, 2, 3, 4, 5, 6, 7 BDP"),
        (["compare", "--buffer", "99"], "--buffer is 99; the sweep 'validation' has"),
        (["convergence", "--buffer", "0.5"], "--buffer is 0.5; the sweep"),
        (["sweep", "validation", "--params", "artefakt"], "unknown parameter set 'artefakt'"),
        (["equilibrium", "bbr3"], "unknown reduced model 'bbr3'"),
        (["equilibrium", "bbr1", "--flows", "0"], "flows must be at least 1 .got 0"),
        (["equilibrium", "bbr1", "--buffer", "0"], "buffer must be above 0 .got 0"),
        (["equilibrium", "bbr1", "--rtt-ms", "30", "--rtt-ms", "40"], "once for each of the 10 flows .got 2"),
        (["equilibrium", "bbr1", "--flows", "2", "--rtt-ms", "30", "--rtt-ms", "40"], "closed forms need equal RTTs"),
        (["equilibrium", "bbr2", "--buffer", "0.1"], "theorem 4 needs a buffer of at least"),
        (["equilibrium", "bbr1", "--buffer", "3", "--stability"], "theorems 1, 3 and 4"),
        (["phase", "bbr1", "-o", "x.png", "--plane", "shares"], "needs two flows .got 10"),
        (["phase", "bbr1", "-o", "x.txt"], "a picture ends in"),
        (["report", "-o", "x.txt"], "the page ends in '.html'"),
        (["convergence", "--step-ms", "0.1"], "at least two different steps"),
    ],
)
def test_command_line_errors_are_one_line(arguments, message):
    import re

    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, CcenvError), result.output
    assert re.search(message, str(result.exception))
    assert "\n" not in str(result.exception)
    assert result.output == ""
