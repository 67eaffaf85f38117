"""No program and no contract that is read sends far above what is known while there is no upper bound."""

from __future__ import annotations

import random
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ccenv.agents.learned.zoo import learned_robust_v3
from ccenv.agents.programs import interval, parse_program, reach, to_json
from ccenv.base.errors import ProgramError
from ccenv.engine.curve.engine import CurveEngine
from ccenv.leaderboard.submission.reader import _program as submitted_program
from ccenv.network.path import make_path

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
    [
        (AT_C_U, "rule"),
        ({"rate": {"C_L": "81/10"}}, "rule"),
        ({"rate": {"C_L": 8, "MSS/Rm": 9}}, "rule"),
        ({"rate": {"C_L_lambda": 5, "C_L": 4}}, "rule"),
        ({"rate": {"rate": "10001/10000"}}, "rule"),
        ({"rate": {"rate": 1, "MSS/Rm": 9}}, "rule"),
        ({"rate": {"q_U/Rm": 1}}, "rule"),
        ({"rate_between": [{"C_L": 1}, {"C_U": "1/1000"}]}, "rule"),
        ({"rate_between": [{"C_U": 1}, {"C_L": 1}]}, "rule"),
        (branch({"C_L": 8, "C_U": -1}, SLOW, AT_C_U), "rule.else"),
        (branch("loss", AT_C_U, SLOW), "rule.then"),
        (branch("utilised", SLOW, branch({"qdel_U": 1, "Rm": -1}, AT_C_U, SLOW)), "rule.else.then"),
        (branch({"C_L": 1, "rate": -1}, {"rate": {"rate": 6, "C_L": 3}}, SLOW), "rule.then"),
        (branch({"C_L": 3, "C_L_lambda": -1}, SLOW, {"rate": {"C_L": 25}}), "rule.else"),
    ],
)
def test_what_exceeds_it_is_refused_with_its_place(rule: dict[str, Any], place: str) -> None:
    with pytest.raises(ProgramError, match=rf"\Aasked\.json: {place}: "):
        parse_program(document(rule), "asked.json")
    with pytest.raises(ProgramError):
        reach.check_rates(parse_program(document(rule), bounded=False).rule, "rule")


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
        verdicts.add(reach._possible(rows))
        assert reach._possible(rows) == (solver.check() == z3.sat), rows
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
