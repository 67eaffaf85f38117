"""Boxes of shields, stored answers, what counterexamples rule out, widths."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccenv.agents import make_sender
from ccenv.agents.programs import BOOLEANS, INPUTS, interval
from ccenv.base.errors import InputError
from ccenv.proofs.claims.verifier import Verifier
from ccenv.proofs.replay.exact import ReplayError
from ccenv.training.shields.answers import SHAPE, AnswerStore, allows_trace, find_obstacle, find_widest, obstacle_around
from ccenv.training.shields.boxes import by_side, directions, is_below, widen_program
from ccenv.training.shields.widen import Visits, Widening, gains, visits, width_log2

BASE = make_sender("learned_nominal_u78").program
QDEL = make_sender("cc_qdel").program
N = len(directions(QDEL))


def belief(rng):
    C_L = 10 ** rng.uniform(3, 9)
    values = {name: C_L * 10 ** rng.uniform(-2, 2) for name in INPUTS}
    return values | {"C_L": C_L, "qdel_L": float(rng.choice([0.0, 1.0]))} | {name: bool(rng.random() < 0.5) for name in BOOLEANS}


@given(
    st.lists(st.integers(0, 2), min_size=N, max_size=N), st.lists(st.integers(0, 2), min_size=N, max_size=N), st.integers(0, 999)
)
def test_larger_levels_allow_more_at_every_belief(a, b, seed):
    low, high = tuple(min(x, y) for x, y in zip(a, b, strict=True)), tuple(max(x, y) for x, y in zip(a, b, strict=True))
    assert is_below(low, high)
    inputs = belief(np.random.default_rng(seed))
    inside, around = (interval(widen_program(QDEL, levels, "c"), inputs) for levels in (low, high))
    assert around.lo <= inside.lo <= inside.hi <= around.hi


def test_level_zero_is_the_program_and_scales_keep_segments():
    assert widen_program(QDEL, (0,) * N, QDEL.name) == replace(QDEL)
    ways = directions(BASE)
    up = widen_program(BASE, tuple(int((w.leaf, w.end, w.kind) == (2, 1, "scale")) for w in ways), "c")
    leaf = [rule for rule in up.rules() if getattr(rule, "most", None) is not None]
    assert len(leaf) == 1 and leaf[0].most.coefficient("C_L") == Fraction(21, 20) * leaf[0].rate.coefficient("C_L")
    assert leaf[0].most.coefficient("MSS/Rm") == leaf[0].rate.coefficient("MSS/Rm")
    with pytest.raises(InputError, match="levels"):
        widen_program(QDEL, (0,), "c")


TASK = Widening(QDEL, 0.7, 60.0, samples=5)


def opened(file, program=QDEL, fresh=False, **question):
    with AnswerStore(file.parent, program, question, TASK.queries, fresh) as known:
        return known


ZERO, ONE, TWO = ((level,) * N for level in (0, 1, 2))


def test_answers_decide_boxes_and_survive_a_kill(tmp_path):
    file = tmp_path / "answers.jsonl"
    known = opened(file, u=1)
    known.store(TASK.queries(ONE)["F.5"], ONE, "proved", 1.0, {}, 0.5)
    known.store(TASK.queries(TWO)["F.5"], TWO, "undecided", 5.0, {}, 5.0)
    file.write_bytes(file.read_bytes() + b'{"levels": [1,')  # killed while writing
    again = opened(file, u=1)
    assert again.answers == 2 and again.answer("F.5", ZERO, 1.0) == "proved" and again.answer("F.6", ZERO, 1.0) is None
    assert again.proved_itself("F.5", ONE) and not again.proved_itself("F.5", ZERO)
    assert again.answer("F.5", TWO, 5.0) == "undecided" and again.answer("F.5", TWO, 6.0) is None
    assert again.answer("F.5", (3, *TWO[1:]), 5.0) == "undecided"  # a wider one takes longer still
    assert again.answer("F.5", (1,) * (N - 1) + (2,), 1.0) is None
    (half_way,) = again.too_slow(5.0)
    assert allows_trace(half_way, by_side(QDEL, TWO)) and not allows_trace(half_way, by_side(QDEL, ONE))
    assert again.too_slow(6.0) == []
    for other, question in ((BASE, {"u": 1}), (QDEL, {"u": 2})):
        with pytest.raises(InputError, match="holds a widening of other settings"):
            opened(file, other, **question)
    assert opened(file, fresh=True, u=2).held == {}


GOOD = {"query": "F.5", "levels": [0] * N, "answer": "proved", "limit_s": 1, "seconds": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [({"levels": [0]}, "not an answer"), ({"levels": [7] * N}, "not an answer"), ({"levels": "x"}, "not an answer"),
     ({"answer": "yes"}, "not an answer"), ({"limit_s": "long"}, "not an answer"), ({"seconds": -1}, "not an answer"),
     ({"query": "F.9"}, "'F.9' is none of the queries"), ({"answer": "refuted"}, "does not replay"),
     ({"answer": "refuted", "values": {"E_0": "1e99"}}, "does not replay"),
     ({"answer": "refuted", "values": 7}, "does not replay")],
)  # fmt: skip
def test_damaged_answers_are_refused(tmp_path, change, said):
    file = tmp_path / "answers.jsonl"
    opened(file)
    head = file.read_bytes()
    file.write_bytes(head + json.dumps(GOOD).encode() + b"\n")
    assert opened(file).answers == 1
    file.write_bytes(head + json.dumps(GOOD | change).encode() + b"\n")
    with pytest.raises(InputError, match=f"answers.jsonl, line 2: .*{said}"):
        opened(file)


@pytest.fixture(scope="module")
def refuted():
    """Return a shield around cc_qdel that a short query refutes, its query and the counterexample."""
    levels = tuple(2 * int(way.kind == "scale") for way in directions(QDEL))
    query = TASK.queries(levels)["F.7 utilisation"]
    result = Verifier(60.0, twins=False).decide(query)
    assert result.verdict == "refuted"
    return levels, query, result.values


def test_an_obstacle_says_which_shields_allow_a_counterexample(refuted):
    """The same by the exact replay of the whole trace with each shield."""
    levels, query, values = refuted
    obstacle = find_obstacle(QDEL, query, widen_program(QDEL, levels, "c"), values)
    assert obstacle and allows_trace(obstacle, by_side(QDEL, levels)) and not allows_trace(obstacle, by_side(QDEL, ZERO))
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        other = tuple(int(rng.integers(0, way.most + 1)) for way in directions(QDEL))
        asked = replace(TASK.queries(other)["F.7 utilisation"], setting=query.setting)
        try:
            find_obstacle(QDEL, asked, widen_program(QDEL, other, "c"), values)
            replays = True
        except ReplayError as error:
            assert "rate within" in str(error)
            replays = False
        assert allows_trace(obstacle, by_side(QDEL, other)) == replays
        seen.add(replays)
    assert seen == {True, False}


def test_a_changed_counterexample_is_no_obstacle(refuted, tmp_path):
    levels, query, values = refuted
    file = tmp_path / "answers.jsonl"
    opened(file).store(query, levels, "refuted", 1.0, values, 0.5)
    assert len(opened(file).obstacles) == 1
    head, row = file.read_bytes().splitlines()
    for name in ("rate_2", "C_L_1", "G_1"):
        forged = json.loads(row)
        forged["values"][name] = "99"
        file.write_bytes(head + b"\n" + json.dumps(forged).encode() + b"\n")
        with pytest.raises(InputError, match="does not replay"):
            opened(file)
    steady = {name: Fraction(1) if name.startswith("rate") else value for name, value in values.items()}
    with pytest.raises(ReplayError):
        find_obstacle(QDEL, query, widen_program(QDEL, levels, "c"), steady)


def test_the_widest_shield_avoids_every_obstacle():
    rng = np.random.default_rng(1)
    ways = directions(QDEL)
    most = tuple(min(way.most, 2) for way in ways)
    for _ in range(5):
        table = {side: np.sort(np.sort(rng.random(SHAPE), axis=0), axis=1) for side in by_side(QDEL, ZERO)}
        obstacles = [obstacle_around(QDEL, tuple(int(rng.integers(0, m + 1)) for m in most)) for _ in range(6)]
        obstacles = [obstacle for obstacle in obstacles if obstacle]
        best = -np.inf
        for levels in np.ndindex(*(m + 1 for m in most)):
            sides = by_side(QDEL, levels)
            if not any(allows_trace(obstacle, sides) for obstacle in obstacles):
                best = max(best, sum(table[side][pair] for side, pair in sides.items()))
        found = find_widest(QDEL, table, obstacles, ZERO, most)
        sides = by_side(QDEL, found)
        assert not any(allows_trace(obstacle, sides) for obstacle in obstacles)
        assert sum(table[side][pair] for side, pair in sides.items()) == pytest.approx(best, abs=1e-4)
    assert find_widest(QDEL, table, [obstacle_around(QDEL, ONE)], ONE, most) is None


def test_width_is_that_of_visited_beliefs():
    seen = visits(QDEL)
    assert seen.shares.sum() == pytest.approx(1) and len(seen.shares) == 2 and width_log2(QDEL, seen) == 0
    ways = directions(QDEL)
    doubled = widen_program(QDEL, tuple(2 * int(w.end == 1 and w.kind == "scale") for w in ways), "c")
    few = Visits(seen.beliefs[:50], seen.leaves[:50], seen.shares)
    assert 0 < width_log2(doubled, few) <= np.log2(1.1) + 1e-9
    rng, table = np.random.default_rng(2), gains(QDEL, few)
    for _ in range(5):
        levels = tuple(int(rng.integers(0, way.most + 1)) for way in ways)
        added = sum(table[side][pair] for side, pair in by_side(QDEL, levels).items())
        assert added == pytest.approx(width_log2(widen_program(QDEL, levels, "c"), few), rel=1e-9)
