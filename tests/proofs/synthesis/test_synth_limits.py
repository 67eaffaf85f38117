"""What queries may ask of the simulator's integers, and what a run makes of classes that were open, broken or proved before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ccenv.base.errors import InputError, ProgramError
from ccenv.cli.main import main
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.synthesis.prove import Task, decide
from ccenv.proofs.synthesis.query import template as template_module
from ccenv.proofs.synthesis.query.classes import ANY_LOSS, GOAL, LARGEST, MOST_SAMPLES
from ccenv.proofs.synthesis.query.query import Query, load_query
from ccenv.proofs.synthesis.query.template import Candidate
from ccenv.proofs.synthesis.result import result
from ccenv.proofs.synthesis.run import solve_query, start
from ccenv.proofs.synthesis.search.cegis import cegis
from ccenv.proofs.synthesis.search.factored import Cover
from ccenv.proofs.synthesis.search.functions import raw_rows
from ccenv.proofs.synthesis.search.kernel import CURVES, ILLEGAL, SURVIVES, score, simulate
from ccenv.proofs.synthesis.search.search import Simulator, repertoire

BASE: dict[str, Any] = {
    "name": "mine",
    "title": "small",
    "network": {"model": "ccac"},
    "T": 5,
    "template": {"rates": 2, "rate": {"C_L": [0, 1, 2]}, "conditions": [{"qdel_L": [-1, 0, 1], "Rm": [-1, 0, 1]}]},
}


def _with(part: str, **changes: Any) -> dict[str, Any]:
    return BASE | {part: BASE.get(part, {}) | changes}


def _template(**changes: Any) -> dict[str, Any]:
    return _with("template", **changes)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (_with("objectives", inflight="1/0 MSS"), "a number such as 1"),
        (_with("network", buffer="1e30"), "at most 1000"),
        (_with("network", buffer="1/100000007"), "a multiple of 1/"),
        (_with("network", sent_before="3 MSS", delay_rule="artefact"), "needs network.delay_rule sound"),
        (_with("beliefs", upper="exact"), "unknown key 'beliefs.upper'"),
        (_template(rate={"C_L": [0, 10**30]}), "sum up to at most 16"),
        (_template(rate={"C_U": [1]}), "C_U is not searched over"),
        (_template(conditions=[{"q_U": [1], "MSS": [-1]}]), "MSS is not searched over"),
        (_template(conditions=[{"qdel_U": [1], "Rm": [-1]}]), "qdel_U is not searched over"),
        (_template(conditions=[{"qdel_L": [1], "Rm": [-3]}]) | {"network": {"delay_rule": "artefact"}, "T": 4}, "up to 2 Rm"),
        (_with("limits", call_s=float("inf")), "less than or equal to 1000000"),
        (_template(conditions=[{"qdel_L": ["1/2"], "Rm": [-3]}]), "up to 4 Rm, got qdel_L 1/2 with Rm -3"),
    ],
)
def test_what_the_integers_do_not_hold_is_refused_in_one_line(
    data: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(yaml.safe_dump(data))
    assert main(["synth", "mine.yaml"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_more_expressions_than_rows_can_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "MOST_TERMS", 8)
    with pytest.raises(InputError, match="9 conditions; rows hold at most 8"):
        Query.model_validate(BASE).space()


def test_thresholds_that_no_trace_can_miss_are_as_good_as_none() -> None:
    """An amount beyond 63 bits is never reached; it must not wrap around to one that is."""
    data = _with("objectives", inflight="99999999999999999999 MSS", lossy_steps=10**30, large_loss="9999999999999999999 MSS")
    query = Query.model_validate(data | {"network": {"model": "ccac", "buffer": "small"}})
    goal = query.goals().goal(query.setting(), LARGEST, LARGEST // 100, LARGEST // 2)
    assert (goal["inflight"], goal["step_loss"], goal["lossy_steps"]) == (ANY_LOSS, ANY_LOSS, query.T)


def test_delays_longer_than_the_trace_are_told_apart() -> None:
    """In 3 samples a byte of the past may be 5 Rm late by the sound rule; by the published one no trace shows that."""
    late = Query.model_validate(_template(conditions=[{"qdel_L": [1], "Rm": [-4]}]) | {"T": 3})
    assert late.space().condition_class.tolist() == [0]
    program = late.space().program(Candidate((0,), (1, 2)), "late")
    with pytest.raises(ProgramError, match="delays of 6 steps apart"):
        decide(Task(load_query("quick").setting(), late.goals(), program, 1.0))


def test_a_program_that_sends_too_much_for_the_integers_is_not_judged() -> None:
    query = load_query("quick")
    simulator = Simulator(query.setting(), query.goals(), query.space(), np.zeros((1, 3), np.int16))
    traces = repertoire(simulator.setting, 40, np.random.default_rng(0), 0.0, probes=False)
    fastest = int(np.argmax(simulator.rates["C_L"]))
    row = np.array([0, fastest, fastest], np.int16)
    curves = np.zeros((CURVES, MOST_SAMPLES), np.int64)

    def found(trace: np.ndarray) -> int:
        return simulate(trace, simulator.goal(trace), 2, row, simulator.conditions, simulator.rates, curves)

    assert SURVIVES in map(found, traces)
    traces["C_L"] = traces["C_U"] = 4 * LARGEST
    assert {found(trace) for trace in traces} == {ILLEGAL}


def test_boxes_split_where_a_rate_is_no_whole_number() -> None:
    """Half of an odd C_L cannot be run; the programs beside it can, and what a trace does to them is not the same."""
    query = load_query("quick_four")
    query = query.model_copy(update={"network": query.network.model_copy(update={"delay_rule": "sound"})})
    space = query.space()
    sizes = [len(space.condition_of)] * 3 + [len(space.rate_of)] * 4
    rows = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(-1, 7).astype(np.int16)
    simulator = Simulator(query.setting(), query.goals(), space, raw_rows(space, rows))
    traces = repertoire(simulator.setting, 2000, np.random.default_rng(1), 0.0, probes=False)
    traces["C_L"] -= 1 - traces["C_L"] % 2
    goals = np.array([simulator.goal(trace) for trace in traces], dtype=GOAL)
    out = np.zeros((len(traces), len(rows)), np.int8)
    score(traces, goals, 4, simulator.rows, simulator.conditions, simulator.rates, out)
    broken = (out != SURVIVES) & (out != ILLEGAL)
    uneven = np.flatnonzero(broken.any(axis=1) & (out == ILLEGAL).any(axis=1))
    weak = uneven[np.argsort(broken[uneven].sum(axis=1), kind="stable")][:12]
    left = rows[~broken[weak].any(axis=0)]
    found = Cover(query, space, list(traces[weak])).survivors(len(rows))
    assert len(weak) == 12
    assert found is not None
    assert 0 < len(left) < len(rows)
    np.testing.assert_array_equal(found, left)


def test_open_classes_that_fall_later_are_not_unknown_and_proved_ones_must_not_fall(tmp_path: Path) -> None:
    run = start(load_query("quick"), tmp_path)
    run.unknown = {0: "timeout", 1: "timeout"}
    run.simulator.alive = run.simulator.alive[1:]
    run.settle()
    assert run.unknown == {1: "timeout"}
    run.proved = {1: {}}
    run.settle()
    assert run.unknown == {}
    run.proved = {0: {}}
    with pytest.raises(ReplayError, match="class 0 is proved, and broken"):
        run.settle()


def test_a_limit_on_what_was_sent_before_the_trace(tmp_path: Path) -> None:
    """Simulated pasts obey it, and the answer is that of plain CEGIS."""
    query = Query.model_validate(_with("network", sent_before="1/2 C*Rm"))
    run = start(query, tmp_path)
    solve_query(run)
    answer, plain = result(run), cegis(query, 100.0)
    assert answer["complete"]
    assert plain["complete"]
    assert run.counterexamples > 0
    assert answer["raw"] == plain["raw"] == 3
