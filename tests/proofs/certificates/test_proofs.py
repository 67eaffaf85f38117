"""Proof objects: a query counts as proved only if the proof checker accepts a complete proof of that very query."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ccenv.base.errors import MissingExtraError
from ccenv.proofs.certificates.check import check
from ccenv.proofs.certificates.library import find, read_stored
from ccenv.proofs.certificates.proofs import CHECKED, ETHOS, RULES, ProofChecker, find_checker

pytest.importorskip("cvc5")

NONE = "(set-logic QF_LRA)\n(declare-fun x () Real)\n(assert (< x 0.0))\n(assert (or (> x 1.0) (> x 2.0)))\n(check-sat)\n"
SOME = NONE.replace("(< x 0.0)", "(< x 9.0)")
HERE = (os.environ.get(ETHOS) or shutil.which("ethos")) and os.environ.get(RULES)


def checker(folder: Path, said: str, code: int = 0) -> ProofChecker:
    """A proof checker that says always the same, and keeps what it was given."""
    script = folder / "ethos"
    script.write_text(
        f'#!/bin/sh\nfor a in "$@"; do echo "$a"; done > {folder}/given\ncat "$3" > {folder}/proof\necho "{said}"\nexit {code}\n'
    )
    script.chmod(0o755)
    return ProofChecker(str(script), str(folder / "Cpc.eo"))


@pytest.mark.parametrize(("said", "code", "answer"), [
    ("correct", 0, CHECKED), ("incomplete", 0, "unknown"), ("Error: bad step", 1, "unknown"), ("correct", 1, "unknown"),
    ("", 0, "unknown"),
])  # fmt: skip
def test_only_a_complete_and_accepted_proof_counts(said, code, answer, tmp_path) -> None:
    assert checker(tmp_path, said, code).decide(NONE, 20.0) == answer
    include, false, _ = (tmp_path / "given").read_text().split("\n")[:3]
    assert include == f"--include={tmp_path}/Cpc.eo" and false == "--require-proof-of-false"
    proof = (tmp_path / "proof").read_text()
    assert proof.startswith('(reference "query.smt2")') and "declare-const" not in proof and "(step " in proof


def test_a_query_with_a_model_or_without_an_answer_in_time_has_no_proof(tmp_path) -> None:
    assert checker(tmp_path, "correct").decide(SOME, 20.0) == "sat" and not (tmp_path / "given").exists()
    assert checker(tmp_path, "correct").decide("(set-logic QF_LRA)\n(assert (= y 1.0))\n(check-sat)\n", 20.0) == "unknown"


def test_a_proof_checker_that_is_missing_is_named_in_one_line(tmp_path, monkeypatch, refused) -> None:
    monkeypatch.setenv(ETHOS, str(tmp_path / "absent"))
    with pytest.raises(MissingExtraError, match=ETHOS):
        find_checker()
    checker(tmp_path, "correct")
    monkeypatch.setenv(ETHOS, str(tmp_path / "ethos"))
    monkeypatch.delenv(RULES, raising=False)
    refused(["certificate", "check", "cc_probe_drain", "-s", "proofs=true"], RULES)
    refused(["certificate", "check", "cc_probe_drain", "-s", "proofs=true", "--solve"], "give one of them")


def test_a_certificate_is_undecided_where_a_proof_is_not_accepted(tmp_path) -> None:
    certificate = read_stored(find("cc_probe_drain")).certificate
    seen: list[str] = []

    class Impatient(ProofChecker):
        def decide(self, text: str, limit_s: float) -> str:
            seen.append(text)
            return CHECKED if len(seen) < 3 else "unknown"

    report = check(certificate, proofs=Impatient("ethos", "Cpc.eo"), limit_s=1.0)
    assert report.verdict == "undecided" and len(seen) == len(certificate.queries)
    assert any("ethos" in line for line in report.trusted) and not any("z3" in line or "cvc5" in line for line in report.trusted)


@pytest.mark.skipif(not HERE, reason=f"no proof checker: {ETHOS} and {RULES} name none (docs/theorems.md)")
def test_real_proofs_are_checked_and_those_of_another_query_are_not(tmp_path) -> None:
    real = find_checker()
    assert real.decide(NONE, 30.0) == CHECKED
    checker(tmp_path, "correct").decide(NONE, 30.0)  # keeps the proof
    command = [real.ethos, f"--include={real.rules}", "--require-proof-of-false", str(tmp_path / "proof")]
    for asked, accepted in ((NONE, True), (SOME, False)):
        (tmp_path / "query.smt2").write_text(asked)
        assert (subprocess.run(command, capture_output=True, check=False).returncode == 0) == accepted
