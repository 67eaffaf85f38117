"""The lemma ``pays`` of theorem cc_qdel by an encoding of its own (tests/oracles/pays.py): recorded in docs/theorems.md."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ccenv.proofs.solver.solvers import solve
from tests.oracles.pays import Question

pytest.importorskip("z3")

HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("question", "status"),
    [
        (Question(share=HALF, rtts=7), "unsat"),
        (Question(share=HALF, rtts=7, violated=False), "sat"),  # such traces exist
        (Question(rtts=4), "sat"),  # too short to use three quarters
        (Question(share=HALF, rtts=4, K=2, D=HALF), "unsat"),
    ],
)
def test_the_second_encoding_decides_short_traces(question: Question, status: str) -> None:
    assert solve(question.text(), "yices", 60).status == status


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "solver", "status"),
    [
        (Question(), "z3", "unsat"),
        (Question(), "yices", "unsat"),
        (Question(share=Fraction(4, 5)), "z3", "sat"),
        (Question(K=2, share=Fraction(9, 16)), "z3", "unsat"),
        (Question(K=2), "z3", "sat"),
    ],
)
def test_pays_has_no_counterexample_in_the_second_encoding(question: Question, solver: str, status: str) -> None:
    assert solve(question.text(), solver, 3600).status == status
