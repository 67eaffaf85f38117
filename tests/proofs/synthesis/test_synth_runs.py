"""Runs of synthesis: counts, keys, groups, journals and lemmas."""

import json
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccenv.agents.programs import load_program, parse_program
from ccenv.base.errors import CcenvError, CcenvWarning, InputError
from ccenv.benchmarks.speed import measure_synthesis
from ccenv.cli.main import main
from ccenv.proofs.claims import verifier as verifier_module
from ccenv.proofs.formulas.encode import Needs, encode
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver import solvers
from ccenv.proofs.solver.solvers import to_smtlib
from ccenv.proofs.synthesis import bounds as suites
from ccenv.proofs.synthesis import journal as journal_module
from ccenv.proofs.synthesis import run as run_module
from ccenv.proofs.synthesis.journal import Journal, trace_data, trace_from
from ccenv.proofs.synthesis.prove import Task, decide
from ccenv.proofs.synthesis.query.classes import TRACE, members
from ccenv.proofs.synthesis.query.query import load_query
from ccenv.proofs.synthesis.query.template import Candidate
from ccenv.proofs.synthesis.result import result, summary, why
from ccenv.proofs.synthesis.run import solve_query, start
from ccenv.proofs.synthesis.search.cegis import Run, cegis
from ccenv.proofs.synthesis.search.factored import Cover
from ccenv.proofs.synthesis.search.groups import Choice, Hull, boxes
from ccenv.proofs.synthesis.search.search import Simulator

SHIPPED = Path(run_module.__file__).parents[2] / "agents" / "synthesized"


def _answer(name: str, folder: Path, jobs: int = 1, backend: str = "processes") -> dict:
    run = start(load_query(name), folder)
    solve_query(run, jobs, backend)
    return result(run)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the answer to a query by its name; each is searched for once."""
    answers: dict[str, dict] = {}

    def of(name: str) -> dict:
        if name not in answers:
            answers[name] = _answer(name, tmp_path_factory.mktemp(name))
        return answers[name]

    return of


@pytest.mark.parametrize(("name", "keys", "candidates"), [("g1_t4", 0, 37_440), ("g1_t5", 4, 37_440), ("quick_four", 96, 3456)])
def test_key_counts(name: str, keys: int, candidates: int, whole: Any) -> None:
    answer = whole(name)
    assert answer["complete"] and (answer["keys"], answer["funnel"]["candidates"]) == (keys, candidates)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "keys"), [
    ("g1_t11", 6), ("g2", 6), ("g3", 2), ("g5_infinite", 48), ("g5_small", 195), ("g5_arbitrary", 24), ("g7_large", 6),
    ("g7_large_no_loss", 4), ("g6", 20), ("g6_kept", 16), ("g4_arbitrary", 0), ("g4_small", 0),
])  # fmt: skip
def test_key_counts_of_the_other_queries_of_two_rates(name: str, keys: int, tmp_path: Path) -> None:
    answer = _answer(name, tmp_path)
    assert answer["complete"] and answer["keys"] == keys


def _one_by_one(name: str) -> set[tuple[Candidate, ...]]:
    """Decide every raw candidate with moving beliefs, nothing simulated, nothing grouped."""
    query = load_query(name)
    space, rates = query.space(), range(len(query.space().rates))
    solutions, known = set(), {}
    for c, a, b in product(range(len(space.conditions)), rates, rates):
        candidate = Candidate((c,), (a, b))
        program = space.program(candidate, "p")
        if program.rule not in known:
            known[program.rule] = decide(Task(query.setting(), query.objectives, program, 60, full=True)).status
        if known[program.rule] == "proved":
            solutions.add(candidate)
    return solutions


@pytest.mark.slow
def test_a_small_template_equals_verification_one_by_one(tmp_path: Path) -> None:
    run = start(load_query("quick"), tmp_path)
    solve_query(run)
    found = {candidate for number in run.proved for candidate in members(run.space, run.simulator.rows[number])}
    assert found == _one_by_one("quick") and found


@pytest.mark.parametrize(
    ("name", "owner", "where", "after"),
    [("g1_t5", Run, "record", 0), ("quick_four", run_module, "confirm_break", 2), ("quick_four", Run, "record", 1)],
)
def test_a_killed_run_goes_on_to_the_same_answer(name, owner, where, after, whole, tmp_path, monkeypatch):
    """Killed among the boxes of four rates it starts again from its seed; among the proofs it keeps the boxes' traces."""
    wrapped, calls = getattr(owner, where), 0

    def stop(*args, **named) -> None:  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        wrapped(*args, **named)

    monkeypatch.setattr(owner, where, stop)
    with pytest.raises(KeyboardInterrupt):
        _answer(name, tmp_path)
    monkeypatch.undo()
    if where == "record":
        with (tmp_path / "journal.jsonl").open("ab") as journal:
            journal.write(b'{"kind": "verdict", "cla')  # a line that the kill cut short
        monkeypatch.setattr(Cover, "attack", None)  # needed for boxes only
    keys = ("keys", "raw", "canonical", "counterexamples", "z3_calls", "funnel", "complete")
    again, first = _answer(name, tmp_path), whole(name)
    assert [again[key] for key in keys] == [first[key] for key in keys]
    assert [s["program"] for s in again["solutions"]] == [s["program"] for s in first["solutions"]]


def test_workers_change_nothing(whole: Any, tmp_path: Path) -> None:
    one, two = deepcopy(whole("quick")), _answer("quick", tmp_path / "two", jobs=2)
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


@pytest.mark.parametrize("name", ["g1_t5", "quick_four"])
def test_a_planted_unsound_pruning_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator that asks for less in flight than the query does breaks candidates on traces that are no violations."""
    goal = Simulator.goal

    def wrong(self: Simulator, trace: np.ndarray) -> np.ndarray:
        out = goal(self, trace)
        out["inflight"] //= 4  # asks for more than the query does
        return out

    monkeypatch.setattr(Simulator, "goal", wrong)
    with pytest.raises(ReplayError, match="does not show"):
        _answer(name, tmp_path)


@pytest.mark.parametrize(("name", "limits", "unknown"), [
    ("g1_t5", {"budget_s": 1e-6}, range(4, 5)), ("quick_four", {"budget_s": 1e-6}, range(1, 433)),
    ("quick_four", {"classes": 3}, range(1, 433)),
])  # fmt: skip
def test_what_is_not_searched_is_unknown_and_never_a_yes(name: str, limits: dict, unknown: range, tmp_path: Path) -> None:
    query = load_query(name)
    run = start(query.model_copy(update={"limits": query.limits.model_copy(update=limits)}), tmp_path)
    solve_query(run)
    answer = result(run)
    assert not answer["complete"] and answer["keys"] == answer["raw"] == 0 and answer["funnel"]["unknown"] in unknown
    assert "undecided" in summary(answer)


def test_why_prints_a_replayable_counterexample(tmp_path, monkeypatch, capsys, answer):
    monkeypatch.chdir(tmp_path)
    shipped = SHIPPED / "cc_probe_fast.json"
    assert main(["synth", "why", "g1_t5", str(shipped), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "refuted" and told["engine"] == "reproduced"
    replayed = answer(["trace", "replay", told["trace"], "--json"])
    assert replayed["legal"] and replayed["reproduced"]


@pytest.mark.parametrize(("query", "status"), [("quick_timeouts_consistent", "proved"), ("quick_timeouts", "refuted")])
def test_why_takes_time_outs_and_wrong_beliefs_into_account(query: str, status: str, tmp_path: Path) -> None:
    """Right beliefs make cc_qdel's form a solution; wrong ones do not become right within 7 samples."""
    told = why(load_query(query), load_program(SHIPPED / "cc_qdel.json"), tmp_path)
    assert told["status"] == status and (told["trace"] is None) == (status == "proved")
    assert status == "proved" or told["missed"]


def test_constant_beliefs_are_refused_with_time_outs() -> None:
    query = load_query("quick_timeouts_consistent")
    with pytest.raises(CcenvError, match="moving beliefs"):
        decide(Task(query.setting(), query.objectives, load_program(SHIPPED / "cc_qdel.json"), 60))


def test_a_proof_that_the_second_solver_leaves_open_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_module, "recheck", lambda task, solver: {"confirmed": False, "seconds": 0.0})
    assert main(["synth", "quick", "-s", "recheck=yices", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["recheck"]["confirmed"] == 0


def test_a_journal_of_another_solver_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(tmp_path, "query", reuse=True, code="code").append({"kind": "simulated", "left": 1, "cpu_s": 0.5})
    assert Journal(tmp_path, "query", reuse=True, code="code").of_kind("simulated")
    monkeypatch.setattr(journal_module, "version_of", lambda solver: f"{solver} 0")
    with pytest.warns(CcenvWarning, match="another solver"):
        assert not Journal(tmp_path, "query", reuse=True, code="code").lines


@pytest.mark.parametrize(("shipped", "old", "new", "said"), [
    ("g2", "inflight: 5 C*(Rm+D)", "inflight: 5 Rm", "unit of '5 Rm' does not match"),
    ("g2", "large_loss: 3 MSS", "large_loss: 3", "an amount with its unit is needed"),
    ("g2", "      MSS/Rm: [-2, -1, 0, 1, 2]", "      qdel_L: [1]", "mixed units"),
    ("g2", "C_L: [0, 1/2, 1, 2]", "C_L: []", "no candidates"), ("g2", "C_L: [0, 1/2, 1, 2]", "C_L: [1/3]", "multiples of 1/2"),
    ("g2", "buffer: small", "buffer: infinite", "need a finite buffer"),
    ("g2", "delay_rule: artefact", "delay_rul: artefact", "Did you mean 'delay_rule'"),
    ("g2", "T: 11", "T: 99", "less than or equal to 16"),
    ("g2", "T: 11", "T: 11\nlimits: {classes: 100}", "limits.classes is 100"),
    ("g6", "beliefs:\n", "beliefs:\n  timeouts: artefact\n", "C_L_lambda or q_U have none"),
    ("g6", "lambda_delay: seen", "lambda_delay: guessed", "beliefs.lambda_delay"),
    ("g7_arbitrary", "C_U: [-2, -3/2, -1, 0, 1, 3/2, 2]", "C_U: [-3, -2, -3/2, -1, 0, 1, 3/2, 2, 3]", "at most 64"),
    ("g7_arbitrary", "MSS/Rm: [-1, 0, 1]", "q_U/Rm: [0, 1]", "also reads q_U/Rm"),
    ("g7_arbitrary", "transient: falls", "transient: none", "needs objectives.transient"),
    ("quick_two_flows", "  fairness: 2\n", "", "two flows need objectives.fairness"),
    ("quick_two_flows", "  fairness: 2\n", "  fairness: 1/2\n", "greater than or equal to 1"),
    ("quick_two_flows", "flows: 2\n", "", "one flow has none"),
    ("quick_two_flows", "flows: 2\n", "flows: 3\n", "less than or equal to 2"),
    ("quick_two_flows", "buffer: infinite", "buffer: small", "two flows need network"),
    ("quick_two_flows", "C_L: [0, 2]", "C_L_lambda: [0, 2]", "C_L_lambda has no meaning"),
])  # fmt: skip
def test_bad_queries_end_with_one_line(shipped, old, new, said, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    text = (Path(run_module.__file__).parents[2] / "configs" / "synth" / f"{shipped}.yaml").read_text()
    assert old in text
    (tmp_path / "mine.yaml").write_text(text.replace(old, new))
    refused(["synth", "mine.yaml"], said)


@pytest.mark.parametrize("name", ["quick", "g1_t4"])
def test_plain_cegis_finds_the_same(name: str, whole: Any) -> None:
    slow, quick = cegis(load_query(name), 60.0), whole(name)
    assert slow["complete"]
    assert [slow[key] for key in ("keys", "raw", "canonical")] == [quick[key] for key in ("keys", "raw", "canonical")]


def test_bounds_report_and_second_solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer) -> None:
    monkeypatch.chdir(tmp_path)
    data = answer(["synth", "quick", "--bounds", "1", "-s", "report=page.html", "-s", "recheck=yices", "--json"])
    (row,) = data["ranking"]
    assert 0.5 <= row["utilisation"]["proved"] < min(1, row["utilisation"]["refuted"])
    assert row["inflight"]["refuted"] < row["inflight"]["proved"] <= 5
    assert data["recheck"]["confirmed"] == data["canonical"] == 1
    page = (tmp_path / "page.html").read_text()
    assert row["summary"].split(",")[0] in page and "rate = 2 C_L" in page
    assert len(load_program(data["files"][0]).inputs()) > 1


def test_the_choice_of_a_model_is_read_back() -> None:
    """Each number of a program has its bits, and bits beyond the last program name one that exists."""
    program = load_query("quick").space().program(Candidate((0,), (0, 0)), "p")
    for count in (1, 2, 3, 5, 8, 13):
        choice = Choice((program,) * count)
        choice.bits = list(range((count - 1).bit_length()))
        values = [{f"bit_{k}": bool(value >> k & 1) for k in choice.bits} for value in range(1 << len(choice.bits))]
        assert set(map(choice.find_picked, values)) == set(range(count))


def test_speed_is_that_of_answered_queries() -> None:
    told = measure_synthesis(["quick"], "quick")
    assert told["synth_quick_keys"] == told["synth_plain_quick_keys"] == 2 and told["synth_quick_cpu_s"] > 0
    assert told["synth_plain_quick_iterations"] > 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), unique=True, min_size=1, max_size=20))
@example([(0, 0), (0, 1), (1, 0)])
def test_boxes_are_full_rectangles_that_cover_each_candidate_once(pairs: list[tuple[int, int]]) -> None:
    rates = dict(enumerate(pairs))
    parts = boxes(rates)
    assert sorted(number for part in parts for number in part) == list(rates)
    for part in parts:
        inside = [rates[number] for number in part]
        assert sorted(inside) == sorted(product({a for a, _ in inside}, {b for _, b in inside}))

    assert boxes(dict(enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]))) == [[0, 1, 2, 3]]  # not one by one


@pytest.mark.parametrize("bounds", ["full", "constant"])
def test_a_text_does_not_depend_on_what_was_encoded_before(bounds) -> None:  # type: ignore[no-untyped-def]
    setting = Setting("ccac", "arbitrary", 5, "artefact")
    needs = Needs(frozenset({"C_L", "C_U"}), frozenset({1, 2}))
    programs = tuple(
        parse_program({"format": "ccenv-program", "version": 1, "name": "p", "rule": {"rate": {"C_L": number}}})
        for number in (1, 2)
    )
    for sender in (AnySender(), ProgramSmtSender(programs[0]), Choice(programs), Hull(programs), ProgramSmtSender(programs[1])):
        encoding = encode(setting, sender, needs, bounds=bounds)
        missed = encoding.view.S[4] < 1
        assert encoding.smtlib(missed) == to_smtlib([*encoding.formulas(), missed])
        assert encoding.smtlib() == to_smtlib(encoding.formulas())


def _trace(**changes: Any) -> dict[str, Any]:
    zero = np.zeros((), TRACE)
    zero["samples"], zero["link"] = 5, 240
    return trace_data(zero) | changes


DECISION = {"class": 3, "status": "unknown", "calls": 1, "claim": "loss", "reason": "time", "queries": []}
GROUP = {"kind": "group", "cpu_s": 0.1, "call_s": 9.0, "still": False}
GOOD = (
    {"kind": "foundation", "calls": 3, "seconds": 0.1},
    {"kind": "counterexample", "class": 1, "trace": _trace()},
    GROUP | {"decisions": [DECISION, DECISION | {"trace": _trace()}]},
    {"kind": "pairs", "cpu_s": 0, "replay_s": 0, "call_s": 9, "decisions": [DECISION | {"dropped": [4]}]},
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = Journal(tmp_path, "query", reuse=True, code="code")
    for line in GOOD:
        written.append(line)
    assert Journal(tmp_path, "query", reuse=True, code="code").lines == list(GOOD)
    assert trace_data(trace_from(_trace())) == _trace()


HOSTILE = {
    "a_list": [], "no_kind": {}, "kind_of_a_list": {"kind": []}, "unknown_kind": {"kind": "verdict"},
    "calls_below_0": {"kind": "foundation", "calls": -1, "seconds": 0.1},
    "calls_true": {"kind": "foundation", "calls": True, "seconds": 0.1},
    "seconds_as_text": {"kind": "foundation", "calls": 1, "seconds": "0.1"},
    "class_beyond_64_bits": {"kind": "counterexample", "class": 1 << 64, "trace": _trace()},
    "no_trace": {"kind": "counterexample", "class": 1, "trace": None},
    "trace_of_1000_samples": {"kind": "counterexample", "class": 1, "trace": _trace(samples=1000)},
    "trace_without_a_link": {"kind": "counterexample", "class": 1, "trace": _trace(link=0)},
    "trace_number_beyond_its_range": {"kind": "counterexample", "class": 1, "trace": _trace(E=1 << 62)},
    "trace_list_too_short": {"kind": "counterexample", "class": 1, "trace": _trace(waste=[0])},
    "trace_of_floats": {"kind": "counterexample", "class": 1, "trace": _trace(G=0.5)},
    "trace_lacks_a_field": {"kind": "counterexample", "class": 1, "trace": {"samples": 5}},
    "unknown_status": GROUP | {"decisions": [DECISION | {"status": "verified"}]},
    "decision_of_no_class": GROUP | {"decisions": [{"status": "proved"}]},
    "dropped_is_no_list": {"kind": "pairs", "cpu_s": 0, "replay_s": 0, "call_s": 9, "decisions": [DECISION | {"dropped": 4}]},
}  # fmt: skip


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_line_is_refused(name: str, tmp_path: Path) -> None:
    written = Journal(tmp_path, "query", reuse=True, code="code")
    for line in (GOOD[0], HOSTILE[name], GOOD[1]):
        written.append(line)
    with pytest.raises(InputError, match=r"journal\.jsonl, line 3: .*; --fresh starts anew\Z"):
        Journal(tmp_path, "query", reuse=True, code="code")
    with pytest.warns(CcenvWarning, match="journal.jsonl: was of older code or another solver, and begins anew"):
        assert not Journal(tmp_path, "query", reuse=True, code="other").lines  # set aside unread


def test_a_hostile_class_that_the_query_does_not_have_is_refused(tmp_path: Path) -> None:
    run = start(load_query("quick"), tmp_path)
    run.journal.append(GROUP | {"decisions": [DECISION | {"class": 10**9}]})
    with pytest.raises(InputError, match=r"class 1000000000; the query has [0-9]+: --fresh starts anew"):
        start(load_query("quick"), tmp_path)


QDEL = {
    "name": "drains",
    "program": {
        "format": "ccenv-program",
        "version": 1,
        "name": "drains",
        "rule": {"if": {"qdel_L": 1}, "then": {"rate": {"C_L": "1/2"}}, "else": {"rate": {"C_L": 2}}},
    },
}


def test_constants_are_handed_on_and_answers_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path))
    monkeypatch.setattr(suites, "SHORTEST_T", 5)
    monkeypatch.setattr(suites, "LEMMAS", ("F.1", "F.3", "F.5"))
    query = load_query("g1_t5")
    told = suites.lemma_suites(query, [QDEL], 1, 300.0)
    rows = {row["name"]: row for row in told["solutions"]["drains"]["lemmas"]}
    assert [rows[name]["verdict"] for name in rows] == ["verified"] * 3
    assert 0.05 <= rows["F.3"]["proved"] < rows["F.3"]["refuted"] and rows["F.5"]["refuted"] < rows["F.5"]["proved"]
    assert f"C_L stays at or above {rows['F.3']['proved']:.2f} C" in told["solutions"]["drains"]["summary"]

    def no_solver(*_: object) -> solvers.Answer:
        raise AssertionError("everything was solved before")

    monkeypatch.setattr(verifier_module, "solve", no_solver)
    assert suites.lemma_suites(query, [QDEL], 1, 300.0) == told


def test_lemmas_do_not_always_apply_and_a_used_up_budget_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "infinite or a large buffer" in suites.lemma_suites(load_query("g5_small"), [QDEL], 1, 1.0)["reason"]
    assert suites.why_not(load_query("g1_t5")) is None and suites.why_not(load_query("g7_large")) is None
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path))
    told = suites.lemma_suites(load_query("g1_t5"), [QDEL], 1, 1e-9)["solutions"]["drains"]
    assert [row["verdict"] for row in told["lemmas"]] == ["unknown"]
    assert told["summary"] == "in 7 samples: nothing proved; not proved: F.1"
