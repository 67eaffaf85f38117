"""Messages: what is refused names the key, the value seen and what is allowed, in one line, with the class of its error."""

import copy
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shields_data import document, inside, shield
from small_suite import small_suite
from typer.testing import CliRunner

import ccenv
from ccenv.agents.programs import decide, parse_program, to_data
from ccenv.agents.sender import ExternalSender, PolicySender, ProgramSender, ShieldSender
from ccenv.base.config import validate
from ccenv.base.errors import CcenvError, EngineError, InputError, ProgramError, UnknownNameError
from ccenv.base.provenance import code_hash
from ccenv.base.units import MBPS, SECONDS, STEPS, quantity
from ccenv.base.workers import Workers
from ccenv.benchmarks.cells.cell import agent_player
from ccenv.benchmarks.cells.curve import make_curve_cells
from ccenv.benchmarks.compare.added_delay import advise_lambda
from ccenv.benchmarks.statistics import estimate
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.cli.fluid import app as fluid_app
from ccenv.engine.compiled.beliefs import BeliefSettings, belief_settings
from ccenv.engine.fluid.analysis.equilibria import Bottleneck, equilibrium, find_equilibrium
from ccenv.engine.fluid.scenario import Scenario
from ccenv.engine.fluid.sweep import load_scenario as load_fluid
from ccenv.engine.fluid.sweep import load_sweep
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.envs.curve.sender import SenderVectorEnv
from ccenv.envs.curve.settings import EnvSettings
from ccenv.envs.game import GameEnv
from ccenv.leaderboard.submission.identity import check_reserved
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.proofs.formulas.setting import BeliefRules, Setting
from ccenv.proofs.synthesis.query.template import Template, build_space
from ccenv.proofs.theorems.language import parse
from ccenv.simulation.ranges import load_distribution
from ccenv.training.config import load_config

PATH = ccenv.make_path(link_rate_mbps=10, rtt_ms=40, buffer_bdp=2)
RENO = ccenv.make_sender("reno")
engine: Any = ccenv.CurveEngine
call: Any = ccenv


class Mine(ccenv.PythonSender):
    """A sender that does nothing."""


LINK = {"rate_mbps": 10}
FLOW = {"sender": "reno", "rtt_ms": 20}
REPLAY = {"kind": "replay", "max_ms": 10, "interval_ms": 1}
ONE_LINK = {"links": [LINK], "flows": [FLOW], "duration_s": 0.2}
TWO_NAMES = [{**LINK, "buffer_bdp": 2, "name": "a"}, {**LINK, "buffer_bdp": 2, "name": "b"}]
HOP = {"rate_mbps": 100, "delay_ms": 10, "buffer_bdp": 1}
CCA = {"cca": "bbr1", "access_delay_ms": 5}
BELIEF = {"C_L": 8, "C_U": 16, "MSS/Rm": 1, "qdel_L": 0, "utilised": False, "loss": False}
PROGRAM = {"format": "ccenv-program", "version": 1, "name": "p", "rule": {"rate": {"C_L": 1}}}
PATHS = [ccenv.make_path(link_rate_mbps=rate, rtt_ms=40, jitter_ms=20, buffer_bdp=2, n_flows=2) for rate in (12, 12, 96, 96)]
PERIODIC = [RecordedAdversary(name, np.ones((rows, 6)), periodic=True) for name, rows in (("a", 3), ("b", 4))]
OLD = PolicySender("old", (np.zeros((3, 1)),), (np.zeros(1),), "tanh")


def wrong_call() -> None:
    """Name the calls of the public interface in the table."""


def build(model: Any = "ccac", senders: Any = ("cc_qdel", "reno"), paths: Any = PATHS, **options: Any) -> Any:
    players = [ccenv.make_sender(sender) for sender in senders]
    return engine(paths, model=model, senders=players, **({"adversary": ccenv.make_adversary("uniform")} | options))


def run_packets(sender: Any = None, **options: Any) -> None:
    network = NetworkSpec.model_validate({"links": [{"rate_Bps": 1.5e6}], "flows": [{"sender": "x", "rtt_s": 0.02}]})
    PacketEngine(network, [sender or RENO], duration_s=10, **options).advance(10)


def trace_packets(**scenario: Any) -> None:
    """Ask a short run with a packet log for its trace."""
    ccenv.simulate({**ONE_LINK, **scenario}, packet_log=True).trace()


def read_fluid(**changes: Any) -> None:
    _ = validate(Scenario, {"links": [HOP], "flows": [CCA]} | changes, "test").constants


def read_sweep(**changes: Any) -> None:
    load_sweep("validation", **changes)


def run_ode(*arguments: str) -> None:
    result = CliRunner().invoke(fluid_app, list(arguments))
    assert result.output == ""
    raise result.exception or AssertionError


def read_written(load: Callable[[str], object], name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")
    load(name)


def read_case(**changes: Any) -> None:
    small_suite(scenarios=[{"name": "one", "model": "ccac", "link_rate_mbps": 12, "rtt_ms": 40, **changes}])


def make_off_grid() -> None:
    scenario = {"name": "one", "model": "ccac", "link_rate_mbps": 12, "rtt_ms": 40, "jitter_rtts": 0.3}
    make_curve_cells(small_suite(scenarios=[scenario]), [agent_player("reno")])


def nest_conditions(depth: int) -> None:
    rule: Any = {"rate": {"C_L": 1}}
    for _ in range(depth):
        rule = {"if": "loss", "then": rule, "else": rule}
    parse_program({**PROGRAM, "rule": rule})


def read_env(**settings: Any) -> None:
    validate(EnvSettings, settings, "env")


def make_space(rate: dict[str, tuple[Fraction, ...]]) -> None:
    build_space(Template(2, rate, ()), 5)


def logged(*overrides: str) -> None:
    load_config("quick_sender", ["log.tensorboard=false", *overrides])


Call = Callable[[], object] | tuple[Any, ...] | list[str] | dict[str, Any]
# (what is called, class of the error, [(its arguments, or the whole call, words of the message as a pattern)])
REFUSED: list[tuple[Callable[..., object], type[Exception], list[tuple[Call, str]]]] = [
    (wrong_call, CcenvError, [
        (lambda: engine(PATH), r"CurveEngine\(\[path\]"),
        (lambda: engine([PATH]), "senders is missing"),
        (lambda: engine([PATH], senders=["reno"]), r"make_sender\('reno'\)"),
        (lambda: engine([PATH], senders="reno"), "a list is needed"),
        (lambda: engine([PATH], senders=RENO), "a list is needed"),
        (lambda: engine([PATH], senders=[]), "senders is empty"),
        (lambda: engine([PATH], senders=[None]), "senders.0. is None"),
        (lambda: engine([PATH], senders=[Mine]), "is the class Mine"),
        (lambda: engine(["deep"], senders=[RENO]), "no path"),
        (lambda: engine([PATH], senders=[RENO], adversary="uniform"), r"make_adversary\('uniform'\)"),
        (lambda: engine([PATH], senders=[RENO], model=3), "unknown model"),
        (lambda: engine([PATH], senders=[RENO], seed="1"), "seed"),
        (lambda: engine([PATH], senders=[RENO], steps_per_rtt="8"), "steps_per_rtt"),
        (lambda: engine([PATH], senders=[RENO], threads=0), "threads is 0"),
        (lambda: engine([PATH], senders=[RENO]).advance(-1), "n_steps is -1"),
        (lambda: engine([PATH], senders=[RENO]).advance(1.5), "n_steps is 1.5"),
        (lambda: engine([PATH], senders=[RENO], record=True).trace(7), "env is 7"),
        (lambda: call.evaluate("quick", "copaa"), "Did you mean 'copa'"),
        (lambda: call.evaluate("quick", ["copa"]), "no spec of a sender"),
        (lambda: call.evaluate("quick", "copa", seeds=3), "seeds is 3"),
        (lambda: call.evaluate(3, "copa"), "3 is no suite"),
        (lambda: call.run_suite("quick", 3), "out is 3"),
        (lambda: call.run_suite("quick", "x", extra_agents="copa"), "a list is needed"),
        (lambda: call.make_sender(3), "3 is no sender"),
        (lambda: call.make_sender("reno", nope=3), "unknown parameter 'nope'"),
        (lambda: call.make_sender("nofile.py"), "No such file"),
        (lambda: call.make_adversary(None), "None is no adversary"),
        (lambda: call.make_path(link_rate_mbps="10mbps"), "it must be a number"),
        (lambda: call.compare("cubic"), "a list is needed"),
        (lambda: call.compare(["cubic", 3]), "3 is no sender"),
        (lambda: call.compare([Mine()]), "give the class Mine"),
        (lambda: call.compare(["cubic"], flows=1.5), "flows is 1.5"),
        (lambda: call.compare(["cubic"], seed="x"), "seed is 'x'"),
        (lambda: call.compare(["cubic"], jitter="20ms"), "give network too"),
        (lambda: call.compare(["cubic"], metrics=["powr"]), "Did you mean 'power'"),
        (lambda: call.attack("reno", budget_flow_steps="1M"), "the budget is '1M'"),
        (lambda: call.attack(3), "3 is no sender"),
        (lambda: call.simulate(3), "scenario is 3"),
        (lambda: call.verify(Mine), "is no name"),
        (lambda: call.verify("cc_qdel", "utilisation", at_least=2), "at most 1"),
        (lambda: call.train(3), "3 is no training config"),
        (lambda: call.from_sb3("model.zip"), "load it first"),
        (lambda: call.from_onnx(3), "file is 3"),
        (lambda: call.Observation("rate"), "Did you mean 'rate_ratio'"),
        (lambda: call.save_policy("x", RENO), "'reno' is no policy"),
        (lambda: call.load_trace(3), "trace is 3"),
        (lambda: call.list_agents("clasic"), "Did you mean 'classic'"),
    ]),
    (build, CcenvError, [
        (lambda: call.make_path(link_rate_mbps=0), "link_rate_Bps"),
        (lambda: call.make_path(link_rate_mbps=10, jitter_ms=-1), "jitter_s"),
        (lambda: call.make_path(link_rate_mbps=10, rtt_ms=0), "rtt_s"),
        (lambda: call.make_path(link_rate_mbps=float("nan")), "link_rate_Bps"),
        (lambda: build(paths=[call.make_path(link_rate_mbps=10, rtt_ms=40, jitter_ms=7, n_flows=2)]), "whole number of steps"),
        (lambda: build(steps_per_rtt=[8, 4]), "mix step sizes"),
        (lambda: build(steps_per_rtt=0), "at least 1"),
        (lambda: build(model="ccas"), "Did you mean 'ccac'"),
        (lambda: build(timing="smt"), "needs steps_per_rtt 1"),
        (lambda: build(senders=("reno",)), "flows"),
        (lambda: build(loss_detection="ack"), "Did you mean 'acks'"),
        (lambda: build().advance(1, actions=np.ones((4, 3))), "shape"),
        (lambda: build(senders=("reno", "reno")).flow("C_l"), "C_L"),
        (lambda: build().trace(0), "record=True"),
        (lambda: copy.deepcopy(build()), "cannot be copied"),
        (lambda: build(model="cbr_delay", senders=["reno"] * 2, seed=-1), "seed"),
        (lambda: build(paths=PATHS[:2], adversary=PERIODIC), "periodic"),
        (lambda: engine(PATHS, senders=[ExternalSender()] * 2).advance(1, actions=np.zeros((4, 2))), "not positive"),
        (lambda: engine(PATHS, senders=[ExternalSender()] * 2).advance(1, actions=np.full((4, 2), -5.0)), "not positive"),
        (lambda: engine([PATH], senders=[ShieldSender("c", shield(), "policy", OLD)]), "has 3 inputs"),
    ]),
    (BeliefSettings, InputError, [
        ({"jitter_known": False}, "rtt_known=False"),
        ({"tight_ratio": 0.5}, "tight_ratio"),
        ({"rtt_known": False, "jitter_known": False, "tighter": True}, "rtt_known"),
    ]),
    (belief_settings, InputError, [(("artifact",), "artefact")]),
    (decide, ProgramError, [
        ((shield(), BELIEF), "is a shield"),
        ((parse_program({**PROGRAM, "rule": {"rate": {"C_L_lambda": 1}}}), {"C_L": 1, "MSS/Rm": 1}), "reads 'C_L_lambda'"),
    ]),
    (ProgramSender, ProgramError, [(("c", shield()), "somebody must choose")]),
    (ShieldSender, ProgramError, [(("c", parse_program(PROGRAM), "lo"), "is no shield")]),
    (ShieldSender, InputError, [
        (("c", shield(), "best"), "allowed are policy, lo"),
        (("c", shield(), "policy"), "needs a policy"),
    ]),
    (nest_conditions, ProgramError, [((10,), "2047 branches and leaves")]),
    (ccenv.make_adversary, UnknownNameError, [(("slowst",), "Did you mean 'slowest'")]),
    (ccenv.simulate, InputError, [
        (({"links": [LINK], "flows": []},), "flows"),
        (({"links": [], "flows": [FLOW]},), "links"),
        (({**ONE_LINK, "flows": [{**FLOW, "route": ["bottelneck"]}]},), "Did you mean 'bottleneck'"),
        (({"links": [{**LINK, "rate_mbps": -1}], "flows": [FLOW]},), "rate_mbps"),
        (({"links": [{**LINK, "rate_mbps": math.nan}], "flows": [FLOW]},), "links.0.rate_mbps: a finite number is needed"),
        (({"links": [{**LINK, "rate_mbps": "fast"}], "flows": [FLOW]},), "links.0.rate_mbps: a finite number .* .got 'fast'"),
        (({"links": [{**LINK, "rate_Bps": 1e6}], "flows": [FLOW]},), "given twice"),
        (({"links": [{**LINK, "buffer_packets": 0.5}], "flows": [FLOW]},), "holds no packet"),
        (({"links": [{**LINK, "buffer_packets": 5, "buffer_bdp": 1}], "flows": [FLOW]},), "one of them"),
        (({"links": [{**LINK, "delay_ms": 30}], "flows": [FLOW]},), "longer than its rtt_s"),
        (({**ONE_LINK, "flows": [{**FLOW, "workload": {"kind": "rate"}}]},), "never send"),
        (({**ONE_LINK, "flows": [{**FLOW, "jitter": {"kind": "batch"}}]},), "max_s > 0"),
        (({**ONE_LINK, "flows": [{**FLOW, "sender": "rneo"}]},), "Did you mean 'reno'"),
        (({"links": [LINK], "flows": [FLOW], "duration_s": math.inf},), "duration_s"),
        (({"links": [LINK], "flows": [FLOW], "log_s": 1e-9},), "rows; at most"),
        (({**ONE_LINK, "flows": [{**FLOW, "workload": {"kind": "on_off", "on_s": 1e-9, "off_s": 1}}]},), "at least 0.0001"),
        (({**ONE_LINK, "flows": [{**FLOW, "jitter": {"kind": "batch", "max_s": 1e-9}}]},), "at least 1e-05"),
        (({"links": [LINK], "flows": [FLOW], "durations": 1},), "Did you mean 'duration_s'"),
        (({"links": [LINK], "flows": [{"sender": "reno", "rtt_mss": 20}]},), "'flows.0.rtt_mss'. Did you mean 'rtt_s'"),
        (({"links": [LINK], "flows": [{"sender": "reno"}]},), "flows.0.rtt_s: missing"),
        (({"links": [LINK], "flows": [FLOW], "warmup_s": 60},), "not below"),
        (({"links": [LINK, LINK], "flows": [FLOW]},), "distinct names"),
        (({"links": [{**LINK, "rate_mbps": 1e9}], "flows": [FLOW]},), "events; at most 2e\\+10"),
        (({"links": [LINK], "flows": [{**FLOW, "sender": "cc_qdel", "rtt_ms": 1e-6}]},), "events; at most"),
        (({**ONE_LINK, "flows": [{**FLOW, "receiver": {"aggregation": "interval"}}]},), "needs aggregate_s"),
        (({**ONE_LINK, "flows": [{**FLOW, "receiver": {"merge": True}}]},), "need an ACK aggregation"),
        (({**ONE_LINK, "flows": [{**FLOW, "receiver": {"aggregation": "often"}}]},), "aggregation"),
        (({**ONE_LINK, "flows": [{**FLOW, "jitter": {"kind": "replay", "max_s": 1, "interval_s": 1}}]},), "needs delays_s"),
        (({**ONE_LINK, "flows": [{**FLOW, "jitter": {**REPLAY, "delays_ms": [5, 50]}}]},), "above max_s"),
        (({**ONE_LINK, "flows": [{**FLOW, "jitter": {**REPLAY, "delays_ms": [5, math.nan]}}]},), "delays_ms: a finite"),
        (({**ONE_LINK, "flows": [{**FLOW, "jitter": {**REPLAY, "delays_file": "nowhere.txt"}}]},), "nowhere.txt: cannot be read"),
        (({**ONE_LINK, "flows": [{**FLOW, "sender": "lambda_proxy:inner=fixed_delay_proxy"}]},), "cannot stand behind a proxy"),
        (lambda: ccenv.simulate(ONE_LINK, profile="linus"), "linus.*linux"),
        (({**ONE_LINK, "profile": "linus"},), "profile"),
        *[(({**ONE_LINK, "flows": [{**FLOW, "recovery": value}]},), "flows.0.recovery.*'sack', 'rack' or 'flight'")
          for value in ("rak", 3, None, ["rack"])],
    ]),
    (run_packets, InputError, [
        ((ExternalSender(),), "flow 0: sender 'external' cannot run per packet"),
        ((inside("external"),), "external chooser"),
        ({"max_events": 0}, "max_events is 0; it must be at least 1"),
    ]),
    (run_packets, EngineError, [({"max_events": 1000}, "passed 1000 events at")]),
    (trace_packets, CcenvError, [
        ({"links": [{"trace": "wifi_40", "buffer_packets": 40}]}, "changes in steps"),
        ({"links": [{**LINK, "discipline": "codel"}]}, "one drop-tail link"),
        ({"links": TWO_NAMES}, "one drop-tail link"),
        ({"flows": [FLOW, {"sender": "reno", "rtt_ms": 33.77}]}, "no grid of up to .* steps per Rm"),
        (lambda: ccenv.simulate(ONE_LINK).trace(), "kept no packet log"),
    ]),
    (load_distribution, UnknownNameError, [(("singel",), "Did you mean 'single'")]),
    (read_fluid, InputError, [
        ({"flows": []}, "flows: .* at least 1 item"),
        ({"flows": [CCA] * 1_001}, "flows: .* at most 1000 items"),
        ({"links": []}, "links: .* at least 1 item"),
        ({"links": [HOP | {"buffer_bdp": 0}]}, r"links.0.buffer_bdp: .* greater than 0 \(got 0\)"),
        ({"step_ms": 6}, "step_ms 6 is larger than the smallest delay, 5 ms"),
        ({"step_ms": 0}, "step_ms: .* greater than 0"),
        ({"flows": [CCA | {"cca": "bbr"}]}, "unknown fluid CCA 'bbr'. Did you mean 'bbr"),
        ({"links": [HOP | {"discipline": "redd"}]}, "unknown discipline 'redd'. Did you mean 'red'"),
        ({"links": [HOP | {"discipline": "red", "red": {"q0": 0.5, "q1": 0.4}}]}, "q0 .0.5. must be below q1"),
        ({"params": "artifact"}, "unknown parameter set 'artifact'. Did you mean 'artefact'"),
        ({"flows": [CCA | {"path": ["x"]}]}, "unknown link 'x'"),
        ({"flows": [CCA | {"agent": 2}, CCA]}, "agent numbers must differ"),
        ({"links": [HOP, HOP]}, "link names must differ"),
        ({"links": [HOP, HOP | {"name": "b"}]}, "a flow needs a path"),
        ({"flows": [CCA | {"path": ["bottleneck", "bottleneck"]}]}, "a path may use a link once"),
        ({"measure_from_s": 9}, "measure_from_s .9. must be below duration_s"),
        ({"duration_s": float("nan")}, "duration_s: .*(finite|greater)"),
        ({"links": [HOP | {"rate_mbps": float("inf")}]}, "rate_mbps: .*finite"),
        ({"stepms": 1}, "unknown key 'stepms'. Did you mean 'step_ms'"),
        ({"overrides": {"cubic_d": 1}}, "unknown key 'cubic_d'. Did you mean 'cubic_"),
        ({"overrides": {"loss_threshold": 2}}, "loss_threshold"),
    ]),
    (read_sweep, InputError, [
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
    ]),
    (load_sweep, InputError, [(("validaton",), "unknown sweep 'validaton'. Did you mean 'validation'")]),
    (load_fluid, InputError, [(("validation",), "kind must be 'scenario' .got 'sweep'.; use `ccenv ode sweep`")]),
    (run_ode, CcenvError, [
        (["run", "no_such"], "unknown scenario 'no_such'"),
        (["run", "parking_lot", "-s", "step_ms=50"], "step_ms 50 is larger than the smallest delay, 5 ms"),
        (["run", "parking_lot", "--set", "cubic_b=x"], "-s cubic_b"),
        (["run", "parking_lot", "--plot", "x.gif"], "a picture ends in .png or .svg"),
        (["sweep", "validation", "-s", "mixes=bbr3"], "unknown mix 'bbr3'"),
        (["sweep", "validation", "-s", "buffers_bdp=8"], "buffers_bdp is 8; the sweep 'validation' has 1, 2, 3, 4, 5, 6, 7 BDP"),
        (["sweep", "-s", "buffers_bdp=0.5", "-s", "steps=0.01,0.1"], "buffers_bdp is 0.5; the sweep"),
        (["sweep", "validation", "--params", "artefakt"], "unknown parameter set 'artefakt'"),
        (["equilibrium", "bbr3"], "unknown reduced model 'bbr3'"),
        (["equilibrium", "bbr1", "--flows", "0"], "flows must be at least 1 .got 0"),
        (["equilibrium", "bbr1", "--buffer", "0"], "buffer must be above 0 .got 0"),
        (["equilibrium", "bbr1", "-s", "rtt_ms=30,40"], "one for each of the 10 flows .got 2"),
        (["equilibrium", "bbr1", "--flows", "2", "-s", "rtt_ms=30,40"], "closed forms need equal RTTs"),
        (["equilibrium", "bbr2", "--buffer", "0.1"], "theorem 4 needs a buffer of at least"),
        (["equilibrium", "bbr1", "--buffer", "3", "--stability"], "theorems 1, 3 and 4"),
        (["equilibrium", "bbr1", "--plot", "x.png", "-s", "plane=shares"], "needs two flows .got 10"),
        (["equilibrium", "bbr1", "--plot", "x.txt"], "a picture ends in"),
        (["sweep", "-s", "steps=0.1"], "at least two different steps"),
    ]),
    (Bottleneck, InputError, [
        ((1e6, ()), "at least one flow .got 0"),
        ((1e6, (0.1, 0.0)), "rtt_s must be above 0 and finite .got 0"),
        ((1e6, (0.1,), 0.0), "buffer_bytes must be above 0 .got 0"),
        ((math.nan, (0.1,)), "capacity_Bps must be above 0 .got nan"),
    ]),
    (equilibrium, InputError, [(("bbr2", Bottleneck(12.5e6, (0.035,) * 10, 43_750.0)), "buffer of at least")]),
    (find_equilibrium, EngineError, [  # theorem 4 needs a buffer of 2/13 d C
        ({"model": "bbr2", "path": Bottleneck(1e6, (0.1,) * 5, 1e4), "tries": 1}, "no equilibrium of bbr2 found: .*residual"),
    ]),
    (check_trace, InputError, [((None, tolerance), "tolerance is") for tolerance in (-1e-9, 1.0, math.nan)]),
    (load_config, CcenvError, [
        (("quik_sender", []), "Did you mean 'quick_sender'"),
        (("quick_sender", ["ppo.n_step=3"]), "unknown key 'ppo.n_step'. Did you mean 'n_steps'"),
        (("quick_sender", ["environment.staggerd=true"]), "Did you mean 'staggered'"),
        (("quick_sender", ["environment.paths.rtt=1"]), "Did you mean 'rtt_s'"),
        (("quick_sender", ["environment.models=[cccac]"]), "Did you mean 'ccac'"),
        (("quick_sender", ["ppo"]), "neither of the form"),
        (("quick_sender", ["ppo=3"]), "ppo"),
        (("quick_sender", ["seed.x=3"]), "not a group of settings"),
        (("quick_sender", ["seed=[1"]), "not valid YAML"),
        (("quick_sender", ["seed=-1"]), "greater than or equal to 0"),
        (("quick_sender", ["ppo.learning_rate=.nan"]), "ppo.learning_rate"),
        (("quick_sender", ["ppo.n_steps=2.5"]), "ppo.n_steps"),
        (("quick_sender", ["ppo.batch_size=1000"]), "not a multiple"),
        (("quick_sender", ["ppo.hidden=[512]"]), "1 to 256"),
        (("quick_sender", ["name=a/b"]), "must be a letter"),
        (("quick_sender", ["environment.senders=[external, external]"]), "exactly one 'external'"),
        (("quick_sender", ["environment.action=discrete", "algorithm=sac"]), "action 'box'"),
        (("network_discrete", ["algorithm=sac"]), "PPO may have discrete actions"),
        (("network_discrete", ["environment.n_actions=129"]), "n_actions is 129; at most 128 for waste, service"),
        (("quick_sender", ["algorithm=dqn"]), "algorithm"),
        (("quick_sender", ["sac.gradient_step=3"]), "Did you mean 'gradient_steps'"),
        (("quick_sender", ["td3.hidden=[300]"]), "1 to 256"),
        (("quick_sender", ["trains=network", "environment.senders=[external]"]), "no 'external'"),
        (("quick_sender", ["algorithm=sac", "robust={start_step: 1, round_steps: 1}"]), "for PPO senders"),
        (("quick_sender", ["curriculum=[{until_step: 5}, {until_step: 5}]"]), "must rise"),
        (("quick_sender", ["curriculum=[{until_step: 5, model: [ideal]}]"]), "Did you mean 'models'"),
        (("quick_sender", ["early_stop.patience=2", "evaluation.every_steps=0"]), "set evaluation.every_steps"),
        (("shared_sender", ["environment.senders=[external, reno]"]), "two or more 'external' flows"),
        (("shared_sender", ["shared_policy=false"]), "exactly one 'external' sender; for several set shared_policy"),
        (("shared_sender", ["trains=network"]), "shared_policy is for senders"),
        (("shared_sender", ["ppo.batch_size=1000"]), "num_envs .* flows"),
        (("quick_sender", ["shared_policy=true"]), "two or more 'external' flows"),
        (("quick_sender", ["environment.step_info=true"]), "leave it out"),
        (("quick_sender", ["ppo.rollouts=kernal"]), "kernel"),
        (("learned_robust", ["robust.paths=[depe]"]), "Did you mean 'deep'"),
    ]),
    (logged, InputError, [
        (("log.video=true", "evaluation.every_steps=0"), "log.video needs evaluations: set evaluation.every_steps"),
        (("log.networks=[slowst]", "evaluation.every_steps=256"), "Did you mean 'slowest'"),
        (("log.exploitability_flow_steps=-1",), "greater than or equal to 0"),
    ]),
    (read_written, CcenvError, [
        ((load_config, "mine.yaml", "- 1\n"), "mapping"),
        ((load_config, "mine.yaml", "a: [\n"), "not valid YAML at line"),
        ((load_config, "mine.yaml", "seed: 1\n"), "total_steps: missing"),
        ((load_config, "mine.yaml", "extends: quick"), "quick_sender"),
        ((load_fluid, "mine.yaml", "- 1\n"), "expected a mapping"),
        ((load_fluid, "mine.yaml", "kind: scenario\nlinks: [{rate_mbps: 10, delay_ms: 5, buffer_bdp: 1}]\n"), "flows: missing"),
    ]),
    (read_env, CcenvError, [
        ({"shield": to_data(ccenv.make_sender("cc_qdel").program)}, "is no shield"),
        ({"shield": 7}, "neither a name, a file nor a shield"),
        ({"shield": document(), "senders": ("cc_qdel",)}, "no 'external' flow"),
        ({"shield": document(rule={"rate_between": [{"C_L": 2}, {"C_L": 1}]})}, "above its upper end"),
        ({"shield": "cc_qdel"}, "has no shield"),
        ({"shield": "nowhere.json"}, "nowhere.json"),
    ]),
    (small_suite, InputError, [
        ({"scenarioz": []}, "^small.yaml: unknown key 'scenarioz'. Did you mean 'scenarios'"),
        ({"format_version": 2}, "format_version"),
        ({"name": "Not A Name"}, "name"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [1, 1]}, "seeds: 1 is listed twice"),
        ({"seeds": [-1]}, "seeds.0"),
        ({"agents": ["reno", "reno"]}, "agents: 'reno' is listed twice"),
        ({"duration_s": 3}, "either duration_rtts or duration_s"),
        ({"warm_up_rtts": 20}, "warm_up_rtts 20 is not below duration_rtts 20"),
        ({"metrics": ["utilisation", "power", "power"]}, "metrics: 'power' is listed twice"),
        ({"metrics": {"utilisation": "lower", "power": "higher"}}, "utilisation: higher is better, not 'lower'"),
        ({"metrics": ["utilization"]}, "Did you mean 'utilisation'"),
        ({"score": {"metric": "queueing_delay_p95_s", "adversary": "kind"}}, "score: metric 'queueing_delay_p95_s'"),
        ({"score": {"metric": "power", "adversary": "kinds"}}, "Did you mean 'kind'?"),
        ({"references": [{"metric": "power", "value": 1.0, "source": ""}]}, "references.0.source"),
    ]),
    (read_case, InputError, [
        ({"model": "ccacc"}, "Did you mean 'ccac'"),
        ({"link_rate_mbps": {"low": 5}}, "a range {low, high}"),
        ({"link_rate_mbps": {"low": 5, "high": 5}}, "low 5.0 is not below high 5.0"),
        ({"link_rate_mbps": {"low": -5, "high": 5}}, "greater than 0"),
        ({"rtt_ms": [40, 40]}, "a value is listed twice"),
        ({"rtt_ms": []}, "give a number"),
        ({"rtt_ms": "forty"}, "valid number"),
        ({"jitter_rtts": {"low": 0.5, "high": 1}}, "jitter_rtts cannot be a range"),
        ({"link_rate_mbps": 0}, "link_rate_mbps is 0; it must be above 0 and finite"),
        ({"rtt_ms": [40, -1]}, "rtt_ms is -1; it must be above 0 and finite"),
        ({"rtt_ms": math.nan}, "rtt_ms is nan"),
        ({"rtt_ms": math.inf}, "rtt_ms is inf"),
        ({"jitter_rtts": -0.5}, "jitter_rtts is -0.5; it must be at least 0"),
        ({"buffer_bdp": 0}, "buffer_bdp is 0; it must be above 0"),
        ({"n_flows": 0}, "n_flows"),
        ({"n_flow": 1}, "Did you mean 'n_flows'"),
    ]),
    (make_off_grid, InputError, [((), "jitter_s 0.012 is not a whole number of steps")]),
    (load_suite, UnknownNameError, [(("quik",), "Did you mean 'quick'")]),
    (estimate, InputError, [((tasks,), "at least one") for tasks in ([], [[]], [[1.0], []], [[math.nan]], [[math.inf, 1.0]])]),
    (make_space, InputError, [
        (({"C_L": (Fraction(1),), "qdel_L": (Fraction(1),)},), "mixed units"),
        (({"C_L": ()},), "no candidates"),
        (({"C_l": (Fraction(1),)},), "unknown input 'C_l'"),
        (({"qdel_L": (Fraction(1),)},), "bytes/s"),
        (({"C_L": (Fraction(1),)},), "needs conditions|need conditions"),
    ]),
    (parse, InputError, [
        (("peak_inflight + peak_queue <= 1", "here", {}, {}), "need not be at one time"),
        (("2**1 <= C_L", "here", {}, {}), "a factor is missing"),
        (("1 1 C_L <= 2", "here", {}, {}), "follows a factor without"),
        (("C_L * <= 2", "here", {}, {}), "a term is missing"),
        (("* C_L <= 2", "here", {}, {}), "a factor is missing"),
        ((" * ".join(["2"] * 9) + " <= C_L", "here", {}, {}), "9th one"),
    ]),
    (Setting, InputError, [
        ({"samples": 6, "steps_per_rtt": 2, "past_steps": 3}, "whole Rm"),
        ({"samples": 7, "steps_per_rtt": 2, "past_steps": 3, "jitter_rtts": Fraction(1, 3)}, "whole number of steps"),
        ({"samples": 7, "steps_per_rtt": 2, "jitter_rtts": Fraction(1)}, "a past of D or more"),
        ({"past_steps": 65}, "past_steps is 65; it must be 0 to 64"),
        ({"delay_rule": "artefact", "past_steps": 1}, "published delay rule"),
        ({"past_start": "empty"}, "needs past_steps"),
    ]),
    (BeliefRules, InputError, [({"tighter": True}, "exact windows of C_U and without time-outs")]),
    (check_reserved, InputError, [
        (("mine", author, ccenv.make_sender("cc_probe_fast")), "is kept for what comes with ccenv")
        for author in ("ccenv", "team ccenv", "The CCENV team", "cc-env contributors", "reviewed code of cc\u0435nv")
    ]),
    (advise_lambda, InputError, [
        *[((paths_s,), "advise_lambda") for paths_s in ([], [0.01], [0.01, 0.01], [0.01, 0.0], [0.01, math.nan])],
        *[({"paths_s": [0.01, 0.08], "size_bytes": size, "duration_s": 1}, "do not end in 1 s") for size in (1e9, 1e30)],
    ]),
    (GameEnv, InputError, [
        ({"game": "chess"}, "unknown game 'chess'"),
        ({"network": "kind"}, "network: "),
        ({"horizon": 3}, "unknown key 'horizon'"),
        ({"horizon_steps": 0}, "horizon_steps: "),
        ({"render_mode": "rgb_array"}, "render_mode must be None"),
    ]),
    (SenderVectorEnv, InputError, [
        ({"num_envs": 2, "max_episode_steps": wrong}, "max_episode_steps") for wrong in (0, 1, -3, 2.5, True, "9")
    ]),
    (quantity, InputError, [
        (("--x", text, units), "^--x is .*; allowed: a .*number of at least 0 with a unit of .*; without a unit it ")
        for units, texts in (
            (SECONDS, ("", "s", "-1", "nan", "inf", "1e999", "10 parsecs", "1 2", "10s s", "0x10")),
            (MBPS, ("48s", "48MB/s", "48 mps")),
            (STEPS, ("60s", "0.5", "1.5steps")),
        )
        for text in texts
    ]),
    (Workers, InputError, [((0, "processes"), "1 to 256"), ((2, "rays"), "Did you mean 'ray'")]),
    (code_hash, LookupError, [((Path,), "no code of this package"), ((lambda: 0,), "no code of this package")]),
]  # fmt: skip
ROWS = [(function, error, call, words) for function, error, rows in REFUSED for call, words in rows]


@pytest.mark.parametrize(
    ("function", "error", "call", "words"), ROWS, ids=[f"{function.__name__}: {words}"[:80] for function, _, _, words in ROWS]
)
def test_a_refusal_says_in_one_line_what_is_wrong(function, error, call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words) as caught:
        if isinstance(call, dict):
            function(**call)
        elif isinstance(call, tuple | list):
            function(*call)
        else:
            call()
    assert "\n" not in str(caught.value)
    assert {file.name for file in tmp_path.iterdir()} <= {"mine.yaml"}  # no run has begun


def test_a_misspelt_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'compare'"):
        call.compar  # noqa: B018


@pytest.mark.parametrize("kind", ["ccenv/Sender-v0", "ccenv/Network-v0", "ccenv/Packet-v0"])
@pytest.mark.parametrize("action", ["left", None, [1.0, [2.0]], {"rate": 1.0}])
def test_an_action_that_is_no_number_is_one_line(kind: str, action: object) -> None:
    import gymnasium

    env = gymnasium.make(kind, disable_env_checker=True)
    env.reset(seed=0)
    with pytest.raises(CcenvError, match=r"^action is .*; numbers are needed, of the shape that action_space says$"):
        env.step(action)
