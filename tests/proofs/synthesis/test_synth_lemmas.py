"""Lemma suites of solutions: constants are handed on, answers are kept, and a used-up budget is no proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccenv.cli.main import main
from ccenv.proofs.claims import verifier as verifier_module
from ccenv.proofs.solver import solvers
from ccenv.proofs.synthesis import lemma_suites as suites
from ccenv.proofs.synthesis.query.query import load_query

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
    assert 0.05 <= rows["F.3"]["proved"] < rows["F.3"]["refuted"]
    assert rows["F.5"]["refuted"] < rows["F.5"]["proved"]
    assert f"C_L stays at or above {rows['F.3']['proved']:.2f} C" in told["solutions"]["drains"]["summary"]

    def no_solver(*_: object) -> solvers.Answer:
        raise AssertionError("everything was solved before")

    monkeypatch.setattr(verifier_module, "solve", no_solver)
    assert suites.lemma_suites(query, [QDEL], 1, 300.0) == told


def test_a_used_up_budget_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path))
    told = suites.lemma_suites(load_query("g1_t5"), [QDEL], 1, 1e-9)["solutions"]["drains"]
    assert [row["verdict"] for row in told["lemmas"]] == ["unknown"]
    assert told["summary"] == "in 7 samples: nothing proved; not proved: F.1"


def test_where_the_lemmas_do_not_apply() -> None:
    assert "infinite or a large buffer" in suites.lemma_suites(load_query("g5_small"), [QDEL], 1, 1.0)["reason"]
    assert suites.why_not(load_query("g1_t5")) is None
    assert suites.why_not(load_query("g7_large")) is None


def test_lemmas_need_solutions_to_be_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "g1_t5", "--lemmas", "5"]) == 2
    assert "--bounds N" in capsys.readouterr().err
