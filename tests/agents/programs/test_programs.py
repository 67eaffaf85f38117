"""Belief programs: reading, printing, deciding, compiling, and no rate far above what is known."""

import json
import math
import random
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.agents.learned.zoo import learned_robust_v3
from ccenv.agents.programs import (
    BOOLEANS,
    INPUTS,
    UNIT_OF,
    Branch,
    Expression,
    Leaf,
    MAX_RATE_Bps,
    Program,
    decide,
    expression_text,
    interval,
    load_program,
    parse_program,
    pseudo_code,
    reader,
    to_data,
    to_json,
)
from ccenv.base.errors import MissingFileError, ProgramError
from ccenv.engine.compiled.program import compile_program, evaluate, stack_programs
from ccenv.engine.curve.engine import CurveEngine
from ccenv.leaderboard.submission.reader import _program as submitted_program
from ccenv.network.path import make_path

CC_QDEL = {
    "format": "ccenv-program",
    "version": 1,
    "name": "cc_qdel",
    "rule": {"if": {"qdel_L": 1}, "then": {"rate": {"C_L": "1/2"}}, "else": {"rate": {"C_L": 2}}},
}

fractions = st.builds(Fraction, st.integers(-999, 999), st.integers(1, 99)).filter(lambda f: f != 0)


def expressions(unit=None):
    units = st.just(unit) if unit else st.sampled_from(sorted(set(UNIT_OF.values())))

    def of_unit(u):
        names = [n for n, its in UNIT_OF.items() if its == u]
        return st.dictionaries(st.sampled_from(names), fractions, min_size=1).map(lambda d: Expression(tuple(d.items())))

    return units.flatmap(of_unit)


leaves = st.builds(Leaf, expressions("bytes/s"), st.integers(1, 64))
rules = st.recursive(
    leaves, lambda below: st.builds(Branch, st.one_of(expressions(), st.sampled_from(BOOLEANS)), below, below), max_leaves=12
)
programs = st.builds(Program, st.just("random"), rules, st.sampled_from(["", "a test"]), st.integers(1, 64))
finite = st.floats(0, 1e9, allow_nan=False)
input_values = st.one_of(finite, st.just(math.inf), st.just(0.0))


@given(programs)
@settings(max_examples=80, deadline=None)
def test_program_round_trips_through_json(program):
    assert parse_program(to_json(program), bounded=False) == program
    assert parse_program(to_data(program), bounded=False) == program
    assert to_json(parse_program(to_json(program), bounded=False)) == to_json(program)


@given(programs, st.lists(input_values, min_size=len(UNIT_OF), max_size=len(UNIT_OF)), st.booleans(), st.booleans())
@settings(max_examples=70, deadline=None)
def test_kernel_equals_reference(program, numbers, utilised, loss):
    inputs = dict(zip(UNIT_OF, numbers, strict=True)) | {"utilised": utilised, "loss": loss}
    inputs["MSS/Rm"] = min(inputs["MSS/Rm"], 1e9)
    vector = np.array([float(inputs[name]) for name in INPUTS])
    rate, hold = evaluate(compile_program(program).nodes, 0, vector)
    expected = decide(program, inputs)
    assert rate == expected.rate and hold == expected.hold_rtts and inputs["MSS/Rm"] <= rate <= MAX_RATE_Bps


@given(st.lists(programs, min_size=2, max_size=4), st.lists(finite, min_size=len(INPUTS), max_size=len(INPUTS)))
@settings(max_examples=40, deadline=None)
def test_stacked_programs_evaluate_as_alone(many, numbers):
    compiled = [compile_program(p) for p in many]
    nodes, first_rows = stack_programs(compiled)
    vector = np.array(numbers)
    for alone, first in zip(compiled, first_rows, strict=True):
        assert evaluate(nodes, first, vector) == evaluate(alone.nodes, 0, vector)


def test_compiled_form_when_one_rule_object_occurs_twice():
    low, high = Leaf(Expression((("C_L", Fraction(1, 2)),))), Leaf(Expression((("C_L", Fraction(2)),)))
    shared = Branch("loss", low, high)
    program = Program("shared", Branch("utilised", shared, Branch("loss", shared, low)))
    nodes = compile_program(program).nodes
    for utilised in (0, 1):
        for loss in (0, 1):
            inputs = dict.fromkeys(UNIT_OF, 7.0) | {"utilised": utilised, "loss": loss}
            vector = np.array([float(inputs[name]) for name in INPUTS])
            assert evaluate(nodes, 0, vector) == tuple(decide(program, inputs))


THIRD, LITTLE = Fraction(1, 3), Fraction(1, 100)


@pytest.mark.parametrize(
    ("rule", "inputs", "rate"),
    [
        (CC_QDEL["rule"], {"C_L": THIRD, "qdel_L": Fraction(0), "MSS/Rm": LITTLE}, Fraction(2, 3)),  # exact
        (CC_QDEL["rule"], {"C_L": THIRD, "qdel_L": THIRD, "MSS/Rm": LITTLE}, Fraction(1, 6)),
        (CC_QDEL["rule"], {"C_L": 8, "qdel_L": 0, "MSS/Rm": 1}, 16),  # conditions are strict
        ({"rate": {"C_L": -1}}, {"C_L": 5, "MSS/Rm": 2}, 2),  # line 7 keeps the rate positive
    ],
)
def test_decisions_by_hand(rule, inputs, rate):
    program = parse_program(CC_QDEL | {"rule": rule})
    assert decide(program, inputs) == (rate, 1) and program.inputs() == set(inputs)


@pytest.mark.parametrize(("excess", "holds"), [(0.0, False), (2e-13, False), (2e-11, True), (-2e-11, False)])
def test_round_off_does_not_decide(excess, holds):
    """0.1 + 0.2 - 0.3 is above 0 in floating point; exact numbers are compared exactly."""
    rule = {"if": {"C_L": 1, "C_U": 1, "C_L_lambda": -1}, "then": {"rate": {"C_L": 1}}, "else": {"rate": {"C_U": 1}}}
    program = parse_program(CC_QDEL | {"rule": rule})
    inputs = dict.fromkeys(UNIT_OF, 0.0) | {"C_L": 0.1, "C_U": 0.2 + excess, "C_L_lambda": 0.3, "utilised": 0, "loss": 0}
    expected = inputs["C_L"] if holds else inputs["C_U"]
    assert decide(program, inputs).rate == expected
    vector = np.array([float(inputs[name]) for name in INPUTS])
    assert evaluate(compile_program(program).nodes, 0, vector)[0] == expected
    exact = {"C_L": Fraction(1, 10), "C_U": Fraction(2, 10) + Fraction(1, 10**20), "C_L_lambda": Fraction(3, 10), "MSS/Rm": 0}
    assert decide(program, exact).rate == exact["C_L"]


@pytest.mark.parametrize(
    ("rate", "inputs", "expected"),
    [({"C_U": 1}, {"C_U": math.inf}, MAX_RATE_Bps), ({"C_U": -1, "C_L": 2}, {"C_U": math.inf, "C_L": 9.0}, 3.0),
     ({"C_U": 1, "q_U/Rm": -1}, {"C_U": math.inf, "q_U/Rm": math.inf}, 3.0), ({"C_L": 1}, {"C_U": math.inf, "C_L": 9.0}, 9.0)],
)  # fmt: skip
def test_infinite_inputs_give_finite_rates(rate, inputs, expected):
    program = parse_program(CC_QDEL | {"rule": {"rate": rate}}, bounded=False)
    inputs = dict.fromkeys(UNIT_OF, 0.0) | {"utilised": 0, "loss": 0, "MSS/Rm": 3.0} | inputs
    assert decide(program, inputs).rate == expected
    vector = np.array([float(inputs[name]) for name in INPUTS])
    assert evaluate(compile_program(program).nodes, 0, vector)[0] == expected


def _with_rule(rule):
    return json.dumps(CC_QDEL | {"rule": rule})


BAD = [
    ("[]", "expected a JSON object, got a list"),
    ("{", "double quotes: line 1 column 2"),
    (b"\xff{}", "not UTF-8"),
    ("[" * 60_000, "60000 levels of nesting"),
    (" " * 70_000, "longer than 65536 bytes"),
    ('{"format": "ccenv-program", "format": 1}', "key 'format' is given twice"),
    (json.dumps(CC_QDEL | {"nmae": "x"}), "unknown key 'nmae'. Did you mean 'name'"),
    (json.dumps({k: v for k, v in CC_QDEL.items() if k != "rule"}), "key 'rule' is missing"),
    (json.dumps(CC_QDEL | {"format": "x"}), "must be 'ccenv-program'"),
    (json.dumps(CC_QDEL | {"version": 3}), "version is 3; this ccenv reads ccenv-program of version 1 and 2: use a newer ccenv"),
    (json.dumps(CC_QDEL | {"version": 3, "of_the_future": 1}), "use a newer ccenv"),
    (json.dumps(CC_QDEL | {"version": True}), "version is True"),
    (json.dumps(CC_QDEL | {"name": "../x"}), "name is '../x'"),
    (json.dumps(CC_QDEL | {"source": "a\nb"}), "source is"),
    (json.dumps(CC_QDEL | {"probe_window_rtts": 0}), "probe_window_rtts is 0"),
    (json.dumps(CC_QDEL | {"probe_window_rtts": "2"}), "probe_window_rtts is '2'"),
    (_with_rule([]), "rule: expected an object"),
    (_with_rule({"rate": {"C_L": 1}, "hold_rtts": 65}), "hold_rtts is 65"),
    (_with_rule({"rate": {"C_L": 1}, "hold": 2}), "unknown key 'hold'. Did you mean 'hold_rtts'"),
    (_with_rule({"rate": {"qdel_L": 1}}), "a rate has the unit bytes/s"),
    (_with_rule({"rate": {"C_L": 1, "MSS": 1}}), "mixed units"),
    (_with_rule({"rate": {}}), "no inputs"),
    (_with_rule({"rate": {"C_L": 0}}), "the coefficient of 'C_L' is 0"),
    (_with_rule({"rate": {"C_l": 1}}), "unknown input 'C_l'. Did you mean"),
    (_with_rule({"rate": {"utilised": 1}}), "unknown input 'utilised'"),
    (_with_rule({"rate": {"C_L": True}}), "rule.rate.C_L is True"),
    (_with_rule({"rate": {"C_L": None}}), "rule.rate.C_L is None"),
    (_with_rule({"rate": {"C_L": 1.5}}), "rule.rate.C_L is 1.5; write an integer"),
    (_with_rule({"rate": {"C_L": "1e3"}}), "rule.rate.C_L is '1e3'"),
    (_with_rule({"rate": {"C_L": "1/0"}}), "rule.rate.C_L is '1/0'"),
    (_with_rule({"rate": {"C_L": " 1"}}), "rule.rate.C_L is ' 1'"),
    (_with_rule({"rate": {"C_L": "٣"}}), "rule.rate.C_L is"),
    (_with_rule({"rate": {"C_L": "1.123456789"}}), "more than 9 digits"),
    (_with_rule({"rate": {"C_L": 10**9}}), "needs more than 9 digits"),
    (_with_rule({"rate": {"C_L": 7}}).replace("7", "NaN"), "NaN is not a number"),
    (_with_rule({"rate": {"C_L": 7}}).replace("7", "-Infinity"), "-Infinity is not a number"),
    (_with_rule({"if": "utilized", "then": {"rate": {"C_L": 1}}, "else": {"rate": {"C_L": 1}}}), "Did you mean 'utilised'"),
    (_with_rule({"if": "loss", "then": {"rate": {"C_L": 1}}}), "rule: key 'else' is missing"),
    (_with_rule({"if": {"C_L": 1, "Rm": 1}, "then": {"rate": {"C_L": 1}}, "else": {"rate": {"C_L": 1}}}), "rule.if: mixed units"),
    (_with_rule({"if": 3, "then": {"rate": {"C_L": 1}}, "else": {"rate": {"C_L": 1}}}), "rule.if: expected an object of inputs"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_program_is_refused_in_one_line(text, message):
    with pytest.raises(ProgramError) as caught:
        parse_program(text)
    assert message in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 300


def _nested(depth):
    rule = {"rate": {"C_L": 1}}
    for _ in range(depth):
        rule = {"if": "loss", "then": {"rate": {"C_L": 1}}, "else": rule}
    return rule


def test_depth_cap():
    assert parse_program(_with_rule(_nested(32)))
    with pytest.raises(ProgramError, match="more than 32 nested conditions"):
        parse_program(_with_rule(_nested(33)))


def test_load_reports_the_file(tmp_path):
    with pytest.raises(MissingFileError, match="cannot be read"):
        load_program(tmp_path / "missing.json")
    file = tmp_path / "bad.json"
    file.write_text("{}")
    with pytest.raises(ProgramError, match=r"bad\.json: top level: key 'format' is missing"):
        load_program(file)
    file.write_text(json.dumps(CC_QDEL))
    assert load_program(file) == parse_program(CC_QDEL)


def test_decimals_are_exact():
    program = parse_program(_with_rule({"rate": {"C_L": "1.25", "MSS/Rm": "-0.1"}}))
    assert program.rule.rate.coefficient("C_L") == Fraction(5, 4)
    assert program.rule.rate.coefficient("MSS/Rm") == Fraction(-1, 10) and program.rule.rate.coefficient("C_U") == 0


def test_pseudo_code_moves_negative_terms_to_the_other_side():
    rule = {
        "if": {"C_U": 1, "C_L": -2, "MSS/Rm": 2},
        "then": {"rate": {"C_L": 2, "MSS/Rm": 1}, "hold_rtts": 3},
        "else": {"if": "utilised", "then": {"rate": {"C_L": 1, "MSS/Rm": "-3/2"}}, "else": {"rate": {"C_L": -1}}},
    }
    program = parse_program(CC_QDEL | {"rule": rule, "source": "a page", "probe_window_rtts": 2})
    assert pseudo_code(program).splitlines() == [
        "# cc_qdel (a page)",
        "# C_L_lambda is measured over T* = 2 Rm",
        "if C_U > 2 C_L - 2 MSS/Rm:",
        "    rate = 2 C_L + MSS/Rm  # held for 3 Rm",
        "else:",
        "    if utilised:",
        "        rate = C_L - 3/2 MSS/Rm",
        "    else:",
        "        rate = -C_L",
        "rate = max(rate, MSS/Rm)",
    ]


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({"qdel_L": 1}, "qdel_L > 0"), ({"C_L": 2, "C_U": -1}, "C_U < 2 C_L"), ({"C_L": "3/2", "C_U": -1}, "C_U < 3/2 C_L"),
        ({"qdel_L": 1, "Rm": -1}, "qdel_L > Rm"), ({"C_L": 3, "C_U": -2}, "3 C_L > 2 C_U"),
        ({"C_L": 1, "C_U": 1}, "C_L + C_U > 0"), ({"C_L": -1}, "C_L < 0"), ({"C_L": -2, "C_U": -3}, "2 C_L + 3 C_U < 0"),
    ],
)  # fmt: skip
def test_condition_text(terms, text):
    rule = {"if": terms, "then": {"rate": {"C_L": 1}}, "else": {"rate": {"C_L": 2}}}
    assert f"if {text}:" in pseudo_code(parse_program(CC_QDEL | {"rule": rule}))


@pytest.mark.parametrize(
    ("terms", "text"),
    [({"C_L": 2, "MSS/Rm": 1}, "2 C_L + MSS/Rm"), ({"C_L": -1, "MSS/Rm": 3}, "3 MSS/Rm - C_L"), ({"C_L": -2}, "-2 C_L")],
)
def test_expression_text(terms, text):
    assert expression_text(Expression(tuple((n, Fraction(c)) for n, c in terms.items()))) == text


SLOW: dict[str, Any] = {"rate": {"C_L": 1}}
AT_C_U: dict[str, Any] = {"rate": {"C_U": 1}}


def branch(condition: Any, then: Any, otherwise: Any) -> dict[str, Any]:
    return {"if": condition, "then": then, "else": otherwise}


def document(rule: dict[str, Any]) -> dict[str, Any]:
    return {"format": "ccenv-program", "version": 2, "name": "asked", "rule": rule}


@pytest.mark.parametrize(
    "rule",
    [
        {"rate": {"C_L": 8, "MSS/Rm": 8}},
        {"rate": {"C_L": 7, "MSS/Rm": 9}},  # C_L is at least MSS/Rm
        {"rate": {"C_L_lambda": 4, "C_L": 4}},
        {"rate": {"rate": 1, "MSS/Rm": 8}},  # goes on from what it sent
        {"rate": {"rate": "1/2", "C_L": 4}},
        {"rate": {"C_L": 9, "C_U": -1}},  # minus infinity: line 7
        branch({"C_L": 8, "C_U": -1}, AT_C_U, SLOW),
        branch({"C_U": 1, "C_L": -8}, SLOW, AT_C_U),
        branch({"qdel_L": 1, "Rm": -1}, branch({"qdel_L": -2, "Rm": 1}, AT_C_U, SLOW), SLOW),  # no delay leads there
        branch({"qdel_L": 1, "qdel_U": -1}, AT_C_U, SLOW),
        branch("loss", branch("loss", SLOW, AT_C_U), SLOW),
        branch({"C_L": 1, "rate": -1}, {"rate": {"rate": 6, "C_L": 2}}, SLOW),  # at most 8 C_L
        branch({"C_L": 3, "C_L_lambda": -1}, SLOW, {"rate": {"C_L": 24}}),  # C_L_lambda is proved too
        {"rate_between": [{"C_L": 1}, {"C_L": 8}]},
    ],
)
def test_what_stays_near_what_is_known_is_read(rule: dict[str, Any]) -> None:
    assert to_json(parse_program(document(rule))) == to_json(parse_program(document(rule), bounded=False))


@pytest.mark.parametrize(
    ("rule", "place"),
    [(AT_C_U, "rule"), ({"rate": {"C_L": "81/10"}}, "rule"), ({"rate": {"C_L": 8, "MSS/Rm": 9}}, "rule"),
     ({"rate": {"C_L_lambda": 5, "C_L": 4}}, "rule"), ({"rate": {"rate": "10001/10000"}}, "rule"),
     ({"rate": {"rate": 1, "MSS/Rm": 9}}, "rule"), ({"rate": {"q_U/Rm": 1}}, "rule"),
     ({"rate_between": [{"C_L": 1}, {"C_U": "1/1000"}]}, "rule"), ({"rate_between": [{"C_U": 1}, {"C_L": 1}]}, "rule"),
     (branch({"C_L": 8, "C_U": -1}, SLOW, AT_C_U), "rule.else"), (branch("loss", AT_C_U, SLOW), "rule.then"),
     (branch("utilised", SLOW, branch({"qdel_U": 1, "Rm": -1}, AT_C_U, SLOW)), "rule.else.then"),
     (branch({"C_L": 1, "rate": -1}, {"rate": {"rate": 6, "C_L": 3}}, SLOW), "rule.then"),
     (branch({"C_L": 3, "C_L_lambda": -1}, SLOW, {"rate": {"C_L": 25}}), "rule.else")],
)  # fmt: skip
def test_what_exceeds_it_is_refused_with_its_place(rule: dict[str, Any], place: str) -> None:
    with pytest.raises(ProgramError, match=rf"\Aasked\.json: {place}: "):
        parse_program(document(rule), "asked.json")
    with pytest.raises(ProgramError):
        reader.check_rates(parse_program(document(rule), bounded=False).rule, "rule")


def test_many_conditions_are_decided_at_once() -> None:
    generator = random.Random(1)
    names = ("C_L", "C_L_lambda", "MSS/Rm", "rate", "q_U/Rm")
    rule: dict[str, Any] = {"rate": {"rate": 9, "C_L": 1}}
    for _ in range(32):
        rule = branch({name: generator.choice((-1, 1)) * generator.randint(1, 999) for name in names}, rule, SLOW)
    before = time.process_time()
    parse_program(document(rule))  # such conditions hold together nowhere
    assert time.process_time() - before < 0.5


def test_the_answer_is_that_of_a_solver() -> None:
    z3 = pytest.importorskip("z3")
    generator, names = random.Random(3), ("C_L", "C_L_lambda", "MSS/Rm", "rate")
    verdicts = set()
    for _ in range(150):
        rows = [({"MSS/Rm": Fraction(1)}, True)]
        for _ in range(generator.randint(1, 8)):
            terms = {name: Fraction(generator.randint(-4, 4)) for name in generator.sample(names, generator.randint(1, 3))}
            rows.append((terms, generator.random() < 0.5))
        values, solver = {name: z3.Real(name) for name in names}, z3.Solver()
        solver.add([value >= 0 for value in values.values()])
        for terms, strict in rows:
            total = sum(int(factor) * values[name] for name, factor in terms.items())
            solver.add(total > 0 if strict else total >= 0)
        verdicts.add(reader._possible(rows))
        assert reader._possible(rows) == (solver.check() == z3.sat), rows
    assert verdicts == {True, False}


def test_what_a_board_holds_already_is_still_read() -> None:
    content = to_json(parse_program(document(AT_C_U), bounded=False)).encode()
    assert submitted_program(content, "asked", "board", bounded=False)[0].name == "asked"
    with pytest.raises(ProgramError.__mro__[1]):
        submitted_program(content, "asked", "board", bounded=True)


def test_the_leaf_for_losses_with_long_jitter_is_bounded() -> None:
    """Before, one decision after a loss without an upper bound was 10^12 bytes/s."""
    program = learned_robust_v3().program
    known = {"C_L": 100, "MSS/Rm": 1, "qdel_L": 0, "qdel_U": 2, "Rm": 1, "loss": True, "utilised": False}
    assert interval(program, {**known, "C_U": float("inf")})[:2] == (Fraction(225, 2), 225)
    assert interval(program, {**known, "C_U": 200})[:2] == (110, 220)


def test_no_rate_of_it_is_far_above_the_link() -> None:
    generator = np.random.default_rng(2026)
    for _ in range(8):
        mbps, rtt, jitter = np.exp(generator.uniform(0, 5)), np.exp(generator.uniform(2.5, 4.5)), generator.integers(10, 25) / 8
        path = make_path(link_rate_mbps=mbps, rtt_ms=rtt, jitter_ms=rtt * jitter, buffer_bdp=generator.uniform(0.3, 2))
        engine = CurveEngine([path], model="ccac", senders=[learned_robust_v3()], steps_per_rtt=8, record=True)
        engine.advance(400)
        rates = engine.trace(0).rate_Bps
        assert rates.max() <= 10 * path.link_rate_Bps + 8 * path.mss_bytes / path.flows[0].rtt_s
