"""Whole runs: the paper's counts, agreement with one-by-one verification, resume, and a planted unsound pruning."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ccenv.agents.programs import load_program
from ccenv.base.errors import CcenvError, CcenvWarning
from ccenv.benchmarks.speed import measure_synthesis
from ccenv.cli.main import main
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.synthesis import journal as journal_module
from ccenv.proofs.synthesis import run as run_module
from ccenv.proofs.synthesis.journal import Journal
from ccenv.proofs.synthesis.prove import Task, decide
from ccenv.proofs.synthesis.query.classes import members
from ccenv.proofs.synthesis.query.query import load_query
from ccenv.proofs.synthesis.query.template import Candidate
from ccenv.proofs.synthesis.result import result, why
from ccenv.proofs.synthesis.run import solve_query, start
from ccenv.proofs.synthesis.search.cegis import Run, cegis
from ccenv.proofs.synthesis.search.groups import Choice
from ccenv.proofs.synthesis.search.search import Simulator

SHIPPED = Path(run_module.__file__).parents[2] / "agents" / "synthesized"


def _answer(name: str, folder: Path, jobs: int = 1, backend: str = "processes") -> dict:
    run = start(load_query(name), folder)
    solve_query(run, jobs, backend)
    return result(run)


@pytest.mark.parametrize(("name", "keys"), [("g1_t4", 0), ("g1_t5", 4)])
def test_key_counts(name: str, keys: int, tmp_path: Path) -> None:
    answer = _answer(name, tmp_path)
    assert answer["complete"]
    assert answer["keys"] == keys
    assert answer["funnel"]["candidates"] == 37_440


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "keys"),
    [("g1_t11", 6), ("g2", 6), ("g3", 2), ("g5_infinite", 48), ("g5_small", 195), ("g5_arbitrary", 24), ("g7_large", 6),
     ("g7_large_no_loss", 4),
     ("g6", 20), ("g6_kept", 16), ("g4_arbitrary", 0), ("g4_small", 0)],
)  # fmt: skip
def test_key_counts_of_the_other_queries_of_two_rates(name: str, keys: int, tmp_path: Path) -> None:
    answer = _answer(name, tmp_path)
    assert answer["complete"]
    assert answer["keys"] == keys


def _one_by_one(name: str) -> set[tuple[Candidate, ...]]:
    """Decide every raw candidate with moving beliefs, nothing simulated, nothing grouped."""
    query = load_query(name)
    space = query.space()
    solutions, known = set(), {}
    for c in range(len(space.conditions)):
        for a in range(len(space.rates)):
            for b in range(len(space.rates)):
                candidate = Candidate((c,), (a, b))
                program = space.program(candidate, "p")
                if program.rule not in known:
                    known[program.rule] = decide(Task(query.setting(), query.goals(), program, 60, full=True)).status
                if known[program.rule] == "proved":
                    solutions.add(candidate)
    return solutions


@pytest.mark.slow
def test_a_small_template_equals_verification_one_by_one(tmp_path: Path) -> None:
    run = start(load_query("quick"), tmp_path)
    solve_query(run)
    found = {candidate for number in run.proved for candidate in members(run.space, run.simulator.rows[number])}
    assert found == _one_by_one("quick")
    assert found


def test_a_killed_run_goes_on_to_the_same_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _answer("g1_t5", tmp_path / "whole")
    run = start(load_query("g1_t5"), tmp_path / "cut")
    calls = 0

    def stop(*args, **options) -> None:  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        record(*args, **options)

    record = run_module._record
    monkeypatch.setattr(run_module, "_record", stop)
    with pytest.raises(KeyboardInterrupt):
        solve_query(run)
    monkeypatch.undo()
    with (tmp_path / "cut" / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"kind": "verdict", "cla')  # a line that the kill cut short
    again = _answer("g1_t5", tmp_path / "cut")
    for key in ("keys", "raw", "canonical", "counterexamples", "z3_calls", "funnel"):
        assert again[key] == whole[key]
    assert [s["program"] for s in again["solutions"]] == [s["program"] for s in whole["solutions"]]


def test_workers_change_nothing(tmp_path: Path) -> None:
    one, two = _answer("quick", tmp_path / "one"), _answer("quick", tmp_path / "two", jobs=2)
    for answer in (one, two):
        for name in ("cpu_seconds", "cpu_seconds_by_phase"):
            del answer[name]
        for solution in answer["solutions"]:
            for query in solution["queries"]:
                del query["seconds"]
    assert one == two


@pytest.mark.slow
def test_ray_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    one, two = _answer("quick", tmp_path / "one"), _answer("quick", tmp_path / "two", jobs=2, backend="ray")
    assert [s["program"] for s in one["solutions"]] == [s["program"] for s in two["solutions"]]
    assert one["z3_calls"] == two["z3_calls"]


def test_a_planted_unsound_pruning_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator that asks for less in flight than the query does breaks candidates on traces that are no violations."""
    goal = Simulator.goal

    def wrong(self: Simulator, trace: np.ndarray) -> np.ndarray:
        out = goal(self, trace)
        out["inflight"] //= 4  # asks for more than the query does
        return out

    monkeypatch.setattr(Simulator, "goal", wrong)
    with pytest.raises(ReplayError, match="does not show"):
        solve_query(start(load_query("g1_t5"), tmp_path))


def test_an_exhausted_budget_is_unknown_and_never_a_yes(tmp_path: Path) -> None:
    query = load_query("g1_t5")
    query = query.model_copy(update={"limits": query.limits.model_copy(update={"budget_s": 1e-6})})
    run: Run = start(query, tmp_path)
    solve_query(run)
    answer = result(run)
    assert not answer["complete"]
    assert answer["keys"] == 0
    assert answer["funnel"]["unknown"] == 4


def test_why_prints_a_replayable_counterexample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = SHIPPED / "cc_probe_fast.json"
    assert main(["synth", "why", "g1_t5", str(shipped), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "refuted"
    assert told["engine"] == "reproduced"
    assert main(["replay", told["trace"], "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["legal"]
    assert replayed["reproduced"]


@pytest.mark.parametrize(("query", "status"), [("quick_timeouts_consistent", "proved"), ("quick_timeouts", "refuted")])
def test_why_takes_time_outs_and_wrong_beliefs_into_account(query: str, status: str, tmp_path: Path) -> None:
    """Right beliefs make cc_qdel's form a solution; wrong ones do not become right within 7 samples."""
    told = why(load_query(query), load_program(SHIPPED / "cc_qdel.json"), tmp_path)
    assert told["status"] == status
    assert (told["trace"] is None) == (status == "proved")
    if status == "refuted":
        assert told["missed"]


def test_constant_beliefs_are_refused_with_time_outs() -> None:
    query = load_query("quick_timeouts_consistent")
    with pytest.raises(CcenvError, match="moving beliefs"):
        decide(Task(query.setting(), query.goals(), load_program(SHIPPED / "cc_qdel.json"), 60))


def test_a_proof_that_the_second_solver_leaves_open_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_module, "recheck", lambda task, solver: {"confirmed": False, "seconds": 0.0})
    assert main(["synth", "quick", "--recheck", "yices", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["recheck"]["confirmed"] == 0


def test_a_journal_of_another_solver_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(tmp_path, "query", reuse=True, code="code").append({"kind": "simulated", "left": 1, "cpu_s": 0.5})
    assert Journal(tmp_path, "query", reuse=True, code="code").of_kind("simulated")
    monkeypatch.setattr(journal_module, "version_of", lambda solver: f"{solver} 0")
    with pytest.warns(CcenvWarning, match="another solver"):
        assert not Journal(tmp_path, "query", reuse=True, code="code").lines


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["quick", "--plain", "--recheck", "yices", "--jobs", "2"], "--plain does not take --jobs, --recheck"),
        (["why", "quick", "mine.json", "--bounds", "1"], "why does not take --bounds"),
        (["quick", "--report", "page.txt"], "ends in '.html'"),
        (["quick", "--recheck", "yice"], "Did you mean 'yices'"),
        (["quick", "--jobs", "0"], "1 to 256"),
        (["quick", "--time-limit", "2e6s"], "at most 1e+06 seconds"),
        (["quick", "--time-limit", "inf"], "--time-limit is 'inf'; allowed: a number"),
        (["g6", "--plain"], "has C_L_lambda, q_U/Rm"),
    ],
)
def test_bad_arguments_end_with_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["synth", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def _edited(tmp_path: Path, old: str, new: str) -> str:
    shipped = Path(run_module.__file__).parents[2] / "configs" / "synth" / "g2.yaml"
    text = shipped.read_text()
    assert old in text
    file = tmp_path / "mine.yaml"
    file.write_text(text.replace(old, new))
    return str(file)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("inflight: 5 C*(Rm+D)", "inflight: 5 Rm", "unit of '5 Rm' does not match"),
        ("large_loss: 3 MSS", "large_loss: 3", "an amount with its unit is needed"),
        ("      MSS/Rm: [-2, -1, 0, 1, 2]", "      qdel_L: [1]", "mixed units"),
        ("C_L: [0, 1/2, 1, 2]", "C_L: []", "no candidates"),
        ("C_L: [0, 1/2, 1, 2]", "C_L: [1/3]", "multiples of 1/2"),
        ("buffer: small", "buffer: infinite", "need a finite buffer"),
        ("delay_rule: artefact", "delay_rul: artefact", "Did you mean 'delay_rule'"),
        ("T: 11", "T: 99", "less than or equal to 16"),
        ("T: 11", "T: 11\nlimits: {classes: 100}", "limits.classes is 100"),
    ],
)
def test_bad_queries_end_with_one_line(
    old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["synth", _edited(tmp_path, old, new)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_an_unknown_query_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "g1_t55"]) == 2
    assert "g1_t5" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["quick", "g1_t4"])
def test_plain_cegis_finds_the_same(name: str, tmp_path: Path) -> None:
    slow, quick = cegis(load_query(name), 60.0), _answer(name, tmp_path)
    assert slow["complete"]
    assert [slow[key] for key in ("keys", "raw", "canonical")] == [quick[key] for key in ("keys", "raw", "canonical")]


def test_bounds_report_and_second_solver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "quick", "--bounds", "1", "--report", "page.html", "--recheck", "yices", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (row,) = data["ranking"]
    assert 0.5 <= row["utilisation"]["proved"] < 1
    assert row["utilisation"]["refuted"] > row["utilisation"]["proved"]
    assert row["inflight"]["refuted"] < row["inflight"]["proved"] <= 5
    assert data["recheck"]["confirmed"] == data["canonical"] == 1
    page = (tmp_path / "page.html").read_text()
    assert row["summary"].split(",")[0] in page
    assert "rate = 2 C_L" in page
    assert len(load_program(data["files"][0]).inputs()) > 1


def test_the_choice_of_a_model_is_read_back() -> None:
    """Each number of a program has its bits, and bits beyond the last program name one that exists."""
    program = load_query("quick").space().program(Candidate((0,), (0, 0)), "p")
    for count in (1, 2, 3, 5, 8, 13):
        choice = Choice((program,) * count)
        choice.bits = list(range((count - 1).bit_length()))
        picked = {
            choice.find_picked({f"bit_{k}": bool(value >> k & 1) for k in range(len(choice.bits))})
            for value in range(1 << len(choice.bits))
        }
        assert picked == set(range(count))


def test_speed_is_that_of_answered_queries() -> None:
    told = measure_synthesis(["quick"], "quick")
    assert told["synth_quick_keys"] == told["synth_plain_quick_keys"] == 2
    assert told["synth_quick_cpu_s"] > 0
    assert told["synth_plain_quick_iterations"] > 1
