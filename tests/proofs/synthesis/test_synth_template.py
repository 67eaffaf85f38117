"""Templates: counts of the paper, and classes that are exactly the equal programs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ccenv.agents.programs import decide
from ccenv.proofs.synthesis.query.classes import class_rows, count_classes, members
from ccenv.proofs.synthesis.query.query import load_query
from ccenv.proofs.synthesis.query.template import ALWAYS, NEVER, Candidate, Template

SPACE = load_query("g1_t5").space()
ROWS = class_rows(SPACE)


def _truth(terms: tuple[tuple[str, Fraction], ...], values: dict[str, Fraction]) -> bool:
    return sum((c * values[name] for name, c in terms), start=Fraction(0)) > 0


def test_the_two_rate_template_has_the_papers_size_and_5770_functions() -> None:
    assert SPACE.template.size() == 37_440  # [CCmatic] Table 2: 3 x 10^4
    assert (len(SPACE.condition_of), len(SPACE.rate_of)) == (64, 10)
    assert len(ROWS) == count_classes(SPACE) == 5770
    assert sum(1 for row in ROWS for _ in members(SPACE, row)) == 37_440


def test_three_and_four_rates_have_the_papers_size() -> None:
    assert load_query("g4_arbitrary").space().template.size() == 260**2 * 12**3  # 10^8
    template = SPACE.template
    assert Template(4, template.rate_domains, template.condition_domains).size() == 260**3 * 12**4  # 3 x 10^11


_POSITIVE = st.fractions(min_value=0, max_value=4, max_denominator=6)


@given(_POSITIVE, _POSITIVE, st.sampled_from(["inside", "left", "diagonal", "corner"]), st.integers(0, 5))
def test_conditions_of_a_class_agree_everywhere(above: Fraction, gap: Fraction, where: str, delay: int) -> None:
    x = Fraction(1) + (0 if where in ("left", "corner") else above)
    y = x + (0 if where in ("diagonal", "corner") else gap)
    values = {"C_L": x, "C_U": y, "MSS/Rm": Fraction(1), "qdel_L": Fraction(delay), "Rm": Fraction(1)}
    for index, terms in enumerate(SPACE.conditions):
        kind = SPACE.condition_class[index]
        truth = _truth(terms, values)
        if kind in (ALWAYS, NEVER):
            assert truth == (kind == ALWAYS)
            continue
        representative = _truth(SPACE.conditions[SPACE.condition_of[kind]], values)
        assert truth == (representative != SPACE.condition_flipped[index])


@given(st.integers(0, 37_439), _POSITIVE, _POSITIVE, st.integers(0, 4))
def test_members_decide_like_their_class(number: int, above: Fraction, gap: Fraction, delay: int) -> None:
    conditions, rates = len(SPACE.conditions), len(SPACE.rates)
    raw = Candidate((number // rates**2 % conditions,), (number // rates % rates, number % rates))
    x = 1 + above
    inputs = {"C_L": x, "C_U": x + gap, "MSS/Rm": Fraction(1), "qdel_L": Fraction(delay), "Rm": Fraction(1)}
    rate = decide(SPACE.program(raw, "raw"), inputs).rate
    # The reference reads the coefficients themselves: nothing of the classes.
    taken = raw.rates[0] if _truth(SPACE.conditions[raw.conditions[0]], inputs) else raw.rates[1]
    assert rate == max(sum((c * inputs[n] for n, c in SPACE.rates[taken]), start=Fraction(0)), 1)


def test_every_raw_candidate_is_in_exactly_one_class() -> None:
    found = [candidate for row in ROWS for candidate in members(SPACE, row)]
    assert len(set(found)) == len(found) == 37_440


def test_chain_rows_are_distinct_and_unfold_to_programs() -> None:
    space = load_query("g4_small").space()
    rows = class_rows(space)
    assert len(np.unique(rows, axis=0)) == len(rows) <= count_classes(space)
    program = space.program(Candidate(tuple(map(int, rows[-1][:2])), tuple(map(int, rows[-1][2:]))), "last")
    assert len(list(program.rules())) == 5
