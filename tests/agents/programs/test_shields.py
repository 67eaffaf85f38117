"""Shields as documents: version 2 of the format, printing, exact intervals, and what is refused."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shields_data import RULE, document, shield

from ccenv.agents.programs import BOOLEANS, INPUTS, interval, parse_program, pseudo_code, rate_at, to_data, to_json
from ccenv.base.errors import ProgramError
from ccenv.engine.compiled.program import compile_program, rate_in
from ccenv.engine.compiled.program import interval as kernel_interval
from ccenv.proofs.senders.intervals import empty_interval, require_intervals
from ccenv.proofs.senders.program import largest_rate

BELIEF = {"C_L": 8, "C_U": 16, "MSS/Rm": 1, "qdel_L": 0, "utilised": False, "loss": False}


def leaf(lo, hi, **more):
    return {"format": "ccenv-program", "version": 2, "name": "c", "rule": {"rate_between": [lo, hi], **more}}


def test_what_is_written_is_read_again_and_without_intervals_it_is_version_1():
    program = shield()
    assert parse_program(to_json(program)) == program and json.loads(to_json(program))["version"] == 2
    assert "rate in [6/5 C_L, 8/5 C_L + MSS/Rm]" in pseudo_code(program)
    assert "rate = C_L" in pseudo_code(program) and largest_rate(program) == (Fraction(8, 5), 1)
    data = {"format": "ccenv-program", "version": 1, "name": "p", "rule": {"rate": {"C_L": 1}}}
    assert to_data(parse_program({**data, "version": 2})) == to_data(parse_program(data)) == data


def test_intervals_are_exact():
    assert interval(shield(), BELIEF) == (Fraction(48, 5), Fraction(69, 5), 1)
    assert interval(shield(), {**BELIEF, "C_U": 9}) == (8, 8, 1)
    assert interval(shield(), {**BELIEF, "MSS/Rm": 20}) == (20, Fraction(164, 5), 1)  # line 7 raises both ends


@pytest.mark.parametrize(
    ("data", "said"),
    [(document(version=1), "version 1 does not know"), (document(version=3), "version"),
     (leaf({"C_L": 1}, {"qdel_L": 1}), "a rate has the unit bytes/s"), (leaf({"C_L": 1}, {"C_L": 1, "MSS": 1}), "mixed units"),
     (leaf({"C_L": 1}, {"C_L": 2}, rate={"C_L": 1}), "either 'rate' or 'rate_between'"),
     ({**leaf({}, {}), "rule": {"rate_between": [{"C_L": 1}]}}, "two expressions"),
     ({**leaf({}, {}), "rule": {"rate_between": {"C_L": 1}}}, "two expressions"),
     (leaf({"C_L": 1}, {"C_L": 1.5}), "write an integer or a text"), (leaf({"C_L": 1}, {"C_Q": 1}), "unknown input"),
     ({**leaf({}, {}), "rule": {"rate_betwen": []}}, "Did you mean")],
)  # fmt: skip
def test_damaged_shields_are_refused(data, said):
    with pytest.raises(ProgramError, match=said):
        parse_program(data)


def test_an_empty_interval_is_found_with_a_belief():
    rule = {
        "if": {"C_U": 1, "C_L": -2}, "then": RULE["then"], "else": {"rate_between": [{"C_L": 1}, {"C_U": "1/2", "MSS/Rm": 1}]},
    }  # fmt: skip
    program = parse_program(document(rule=rule))
    found = empty_interval(program)
    assert found is not None and found.lo > found.hi
    assert found.belief["C_U"] <= 2 * found.belief["C_L"]  # the leaf is reached
    assert max(found.belief["C_L"], found.belief["MSS/Rm"]) == found.lo
    with pytest.raises(ProgramError, match=r"above its upper end .* at C_L = "):
        require_intervals(program)


def test_no_interval_of_the_shield_is_empty():
    assert empty_interval(shield()) is None
    # Below MSS/Rm line 7 raises both ends alike: nothing is empty there.
    assert empty_interval(parse_program(leaf({"MSS/Rm": 1, "C_L": "1/2"}, {"C_L": "1/2", "MSS/Rm": 1}))) is None


@given(st.floats(0, 1e13), st.floats(0, 1e13), st.one_of(st.floats(), st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf])))
def test_no_position_leaves_the_interval(a, b, position):
    lo, hi = min(a, b), max(a, b)
    rate = rate_in(lo, hi, position)
    assert lo <= rate <= hi and rate == rate_at(lo, hi, position)
    if not position > 0:
        assert rate == lo
    elif position >= 1:
        assert rate == hi


@pytest.mark.parametrize("trial", range(200))
def test_the_kernel_allows_what_the_reference_allows(trial):
    rng = np.random.default_rng(trial)
    C_L = 10 ** rng.uniform(3, 9)
    inputs = {name: C_L * 10 ** rng.uniform(-1, 1) for name in INPUTS}
    inputs |= {"C_L": C_L, "qdel_L": float(rng.choice([0.0, 0.01])), "C_U": C_L * float(rng.choice([1.1, 1.3, 4.0, np.inf]))}
    inputs |= {name: bool(rng.random() < 0.5) for name in BOOLEANS}
    got = kernel_interval(compile_program(shield()).nodes, 0, np.array([float(inputs[name]) for name in INPUTS]))
    want = interval(shield(), inputs)
    assert np.allclose(got, [float(x) for x in want], rtol=1e-12)


def test_ends_that_infinite_beliefs_make_are_rates():
    program = parse_program(leaf({"C_L": 1}, {"C_U": 1}), bounded=False)
    lo, hi, _ = interval(program, {**BELIEF, "C_U": math.inf})
    assert (lo, hi) == (8, 1e12)
    lo, hi, _ = interval(program, {**BELIEF, "C_U": 4})  # refused as a shield; the engine still gets an interval
    assert (lo, hi) == (8, 8)
