"""Candidates that share a query: full rectangles for hulls, and texts that do not depend on what was encoded before."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccenv.agents.programs import parse_program
from ccenv.proofs.formulas.encode import Needs, encode
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver.solvers import to_smtlib
from ccenv.proofs.synthesis.search.groups import Choice, Hull, boxes

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), unique=True, min_size=1, max_size=20)


@given(PAIRS)
def test_boxes_are_full_rectangles_that_cover_each_candidate_once(pairs: list[tuple[int, int]]) -> None:
    rates = dict(enumerate(pairs))
    parts = boxes(rates)
    assert sorted(number for part in parts for number in part) == list(rates)
    for part in parts:
        inside = [rates[number] for number in part]
        assert sorted(inside) == sorted(product({a for a, _ in inside}, {b for _, b in inside}))


def test_a_rectangle_with_a_corner_missing_is_two() -> None:
    assert boxes({1: (0, 0), 2: (0, 1), 3: (1, 0)}) == [[1, 2], [3]]
    assert boxes({1: (0, 0), 2: (0, 1), 3: (1, 0), 4: (1, 1)}) == [[1, 2, 3, 4]]


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
