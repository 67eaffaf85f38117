"""Queries about several flows: the search against one-by-one decisions, exact move replay, resume, and retried limits."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ccenv.agents.programs import Program, parse_program
from ccenv.cli.main import main
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.replay.exact import ReplayError, replay
from ccenv.proofs.synthesis.flows import BOUNDS, broken_query, replay_moves
from ccenv.proofs.synthesis.prove import Decision, Task, claims, collect_values, decide
from ccenv.proofs.synthesis.query.flows import NEVER_REPEATS
from ccenv.proofs.synthesis.query.objectives import Amount, Objectives
from ccenv.proofs.synthesis.query.query import load_query
from ccenv.proofs.synthesis.result import result
from ccenv.proofs.synthesis.run import solve_query, start
from ccenv.proofs.synthesis.search import groups
from ccenv.proofs.synthesis.search.cegis import Run

SETTING = Setting("ccac", "infinite", 6)
GOALS = Objectives(inflight=Amount(Fraction(10)), fairness=Fraction(2))


def _program(then: dict, otherwise: dict) -> Program:
    rule = {"if": {"qdel_L": 1}, "then": {"rate": then}, "else": {"rate": otherwise}}
    return parse_program({"format": "ccenv-program", "version": 1, "name": "p", "rule": rule})


def _task(then: dict, otherwise: dict, flows: int = 2) -> Task:
    return Task(SETTING, GOALS, _program(then, otherwise), 60, flows=flows)


@pytest.mark.parametrize(("then", "otherwise", "claim"), [
    ({"rate": "1/2"}, {"rate": 1, "MSS/Rm": 1}, ""), ({"C_L": "1/2"}, {"C_L": 2}, "fairness"),
    ({"MSS/Rm": 1}, {"MSS/Rm": 1}, "utilisation"), ({"rate": 1, "MSS/Rm": 1}, {"rate": 1, "MSS/Rm": 1}, NEVER_REPEATS),
])  # fmt: skip
def test_what_is_fair(then: dict, otherwise: dict, claim: str) -> None:
    """Additive increase with halving on delay shares the link; rates in proportion to what was once delivered do not."""
    said = decide(_task(then, otherwise))
    assert said.status == ("refuted" if claim else "proved") and said.claim == claim


def test_replay_reproduces_a_counterexample_and_exact_numbers_refuse_another_program() -> None:
    qdel, halved = claims(_task({"C_L": "1/2"}, {"C_L": 2})), claims(_task({"C_L": "1/2"}, {"C_L": 1}))
    moves = decide(_task({"C_L": "1/2"}, {"C_L": 2})).view
    assert moves is not None
    again = replay_moves(moves, qdel[0])
    assert again is not None and again.G == moves.G
    for played, told in zip(again.flows, moves.flows, strict=True):
        assert (played.E, played.S, played.rate, played.C_L) == (told.E, told.S, told.rate, told.C_L)
    assert broken_query(moves, qdel) == "fairness"
    with pytest.raises(ReplayError, match="first in, first out"):
        replay(SETTING, collect_values(again), BOUNDS, 1, halved[0].sender.decider(), 2)


def test_three_flows_of_a_program_that_shares_the_link() -> None:
    """Together three flows start with more than two, so more bytes may be in flight; what repeats is as fair."""
    three = _task({"rate": "1/2"}, {"rate": 1, "MSS/Rm": 1}, flows=3)
    said = decide(three)
    assert [query["name"] for query in said.queries] == ["utilisation", "fairness"]
    assert (said.status, said.claim) == ("refuted", "inflight") and said.view is not None and len(said.view.flows) == 3
    assert broken_query(said.view, claims(three)) == "inflight"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = start(load_query("quick_two_flows"), tmp_path_factory.mktemp("pairs"))
    solve_query(run)
    return run


def test_what_replay_drops_the_solver_refutes_too(quick: Run) -> None:
    dropped = [n for line in quick.journal.of_kind("pairs") for item in line["decisions"] for n in item["dropped"]]
    assert len(dropped) > 10
    for number in dropped[::9]:
        assert decide(quick.task(number)).status == "refuted"


def test_a_resumed_run_has_the_same_answer(quick: Run, tmp_path: Path) -> None:
    whole = quick.journal.file.read_bytes().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_bytes(b"".join(whole[:-3]) + whole[-3][:20])
    run = start(load_query("quick_two_flows"), tmp_path)
    assert len(run.undecided)
    solve_query(run)
    assert run.proved.keys() == quick.proved.keys() and run.refuted == quick.refuted
    assert np.array_equal(run.simulator.alive, quick.simulator.alive)
    answer = result(run)
    assert answer["complete"] and answer["solutions"][0]["keys"] == ["1 qdel_L ; 1/2 rate ; 1 rate"]


def test_undecided_classes_are_asked_again_with_a_larger_limit(quick, tmp_path, monkeypatch):
    def gives_up(task: Task) -> Decision:
        return Decision("unknown", 1, task.seconds, reason="timeout")

    def limited(call_s: float):  # type: ignore[no-untyped-def]
        query = load_query("quick_two_flows")
        return query.model_copy(update={"limits": query.limits.model_copy(update={"call_s": call_s})})

    monkeypatch.setattr(groups, "decide", gives_up)
    run = start(limited(1.0), tmp_path)
    solve_query(run)
    assert len(run.unknown) == len(run.simulator.rows)
    monkeypatch.undo()
    assert not len(start(limited(1.0), tmp_path).undecided)
    run = start(limited(2.0), tmp_path)
    assert len(run.undecided) == len(run.simulator.rows)


@pytest.mark.slow
def test_the_search_equals_decisions_one_by_one(quick: Run) -> None:
    proved = {number for number in range(len(quick.simulator.rows)) if decide(quick.task(number)).status == "proved"}
    assert proved == set(quick.proved)


def test_why_knows_two_flows_and_registered_names(tmp_path, monkeypatch, capsys, refused):
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "why", "quick_two_flows", "cc_qdel", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["missed"] == "fairness" and told["engine"] == "reproduced"
    assert main(["trace", "replay", told["trace"], "--json"]) == 0 and json.loads(capsys.readouterr().out)["legal"]
    refused(["synth", "why", "quick_two_flows", "cc_qdell"], "Did you mean 'cc_qdel'")
    refused(["synth", "why", "quick_two_flows", "reno"], "is no belief program")
