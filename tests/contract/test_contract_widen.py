"""Widening: monotone boxes, stored answers, resumption, hulls, the report."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from contracts_data import contract
from hypothesis import given
from hypothesis import strategies as st

from ccenv.agents import make_sender
from ccenv.cli.main import main
from ccenv.config import find_data
from ccenv.contract import known as known_module
from ccenv.contract import search as search_module
from ccenv.contract.boxes import below, by_side, directions, moved, widened
from ccenv.contract.hull import hull
from ccenv.contract.known import Known
from ccenv.contract.obstacles import SHAPE, allows, obstacle_around, obstacle_of, widest
from ccenv.contract.report import read_data, write_report
from ccenv.contract.widen import Widening, widen
from ccenv.contract.width import LEAST_SHARE, Visits, gains, visits, width_log2
from ccenv.errors import InputError
from ccenv.programs import BOOLEANS, INPUTS, Leaf, interval, load_program, parse_program, to_data, to_json
from ccenv.smt.claims.lemmas import SUITES, constants_of, load_suite
from ccenv.smt.claims.verifier import Verifier
from ccenv.smt.replay.run import ReplayError

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
    assert below(low, high)
    inputs = belief(np.random.default_rng(seed))
    inside, around = (interval(widened(QDEL, levels, "c"), inputs) for levels in (low, high))
    assert around.lo <= inside.lo <= inside.hi <= around.hi


def test_level_zero_is_the_program_and_scales_keep_segments():
    assert widened(QDEL, (0,) * N, QDEL.name) == replace(QDEL)
    ways = directions(BASE)
    up = widened(BASE, tuple(int((w.leaf, w.end, w.kind) == (2, 1, "scale")) for w in ways), "c")
    leaf = [rule for rule in up.rules() if getattr(rule, "most", None) is not None]
    assert len(leaf) == 1
    assert leaf[0].most.coefficient("C_L") == Fraction(21, 20) * leaf[0].rate.coefficient("C_L")
    assert leaf[0].most.coefficient("MSS/Rm") == leaf[0].rate.coefficient("MSS/Rm")
    with pytest.raises(InputError, match="levels"):
        widened(QDEL, (0,), "c")


TASK = Widening(QDEL, 0.7, 60.0, samples=5)
ZERO, ONE, TWO = ((level,) * N for level in (0, 1, 2))


def test_answers_decide_boxes_and_survive_a_kill(tmp_path):
    file = tmp_path / "answers.jsonl"
    known = Known.open(file, QDEL, {"u": 1}, TASK.queries)
    known.store(TASK.queries(ONE)["F.5"], ONE, "proved", 1.0, {}, 0.5)
    known.store(TASK.queries(TWO)["F.5"], TWO, "undecided", 5.0, {}, 5.0)
    file.write_bytes(file.read_bytes() + b'{"levels": [1,')  # killed while writing
    again = Known.open(file, QDEL, {"u": 1}, TASK.queries)
    assert again.answers == 2 and again.answer("F.5", ZERO, 1.0) == "proved" and again.answer("F.6", ZERO, 1.0) is None
    assert again.proved_itself("F.5", ONE) and not again.proved_itself("F.5", ZERO)
    assert again.answer("F.5", TWO, 5.0) == "undecided" and again.answer("F.5", TWO, 6.0) is None
    assert again.answer("F.5", (3, *TWO[1:]), 5.0) == "undecided"  # a wider one takes longer still
    assert again.answer("F.5", (1,) * (N - 1) + (2,), 1.0) is None
    (half_way,) = again.too_slow(5.0)
    assert allows(half_way, by_side(QDEL, TWO)) and not allows(half_way, by_side(QDEL, ONE)) and again.too_slow(6.0) == []
    for other, question in ((BASE, {"u": 1}), (QDEL, {"u": 2})):
        with pytest.raises(InputError, match="another program or other constants"):
            Known.open(file, other, question, TASK.queries)
    assert Known.open(file, QDEL, {"u": 2}, TASK.queries, fresh=True).held == {}


GOOD = {"query": "F.5", "levels": [0] * N, "answer": "proved", "limit_s": 1, "seconds": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"levels": [0]}, "no answer"),
        ({"levels": [7] * N}, "no answer"),
        ({"levels": "x"}, "no answer"),
        ({"answer": "yes"}, "no answer"),
        ({"limit_s": "long"}, "no answer"),
        ({"seconds": -1}, "no answer"),
        ({"query": "F.9"}, "'F.9' is none of the queries"),
        ({"answer": "refuted"}, "does not replay"),
        ({"answer": "refuted", "values": {"E_0": "1e99"}}, "does not replay"),
        ({"answer": "refuted", "values": 7}, "does not replay"),
    ],
)
def test_damaged_answers_are_refused(tmp_path, change, said):
    file = tmp_path / "answers.jsonl"
    Known.open(file, QDEL, {}, TASK.queries)
    head = file.read_bytes()
    file.write_bytes(head + json.dumps(GOOD).encode() + b"\n")
    assert Known.open(file, QDEL, {}, TASK.queries).answers == 1
    file.write_bytes(head + json.dumps(GOOD | change).encode() + b"\n")
    with pytest.raises(InputError, match=f"answers.jsonl:2: .*{said}"):
        Known.open(file, QDEL, {}, TASK.queries)


@pytest.fixture(scope="module")
def refuted():
    """Return a contract around cc_qdel that a short query refutes, its query and the counterexample."""
    levels = tuple(2 * int(way.kind == "scale") for way in directions(QDEL))
    query = TASK.queries(levels)["F.7 utilisation"]
    result = Verifier(60.0, twins=False).decide(query)
    assert result.verdict == "refuted"
    return levels, query, result.values


def test_an_obstacle_says_which_contracts_allow_a_counterexample(refuted):
    """The same by the exact replay of the whole trace with each contract."""
    levels, query, values = refuted
    obstacle = obstacle_of(QDEL, query, values)
    assert obstacle and allows(obstacle, by_side(QDEL, levels)) and not allows(obstacle, by_side(QDEL, ZERO))
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        other = tuple(int(rng.integers(0, way.most + 1)) for way in directions(QDEL))
        asked = replace(TASK.queries(other)["F.7 utilisation"], setting=query.setting)
        try:
            obstacle_of(QDEL, asked, values)
            replays = True
        except ReplayError as error:
            assert "rate within" in str(error)
            replays = False
        assert allows(obstacle, by_side(QDEL, other)) == replays
        seen.add(replays)
    assert seen == {True, False}


def test_a_changed_counterexample_is_no_obstacle(refuted, tmp_path):
    levels, query, values = refuted
    file = tmp_path / "answers.jsonl"
    Known.open(file, QDEL, {}, TASK.queries).store(query, levels, "refuted", 1.0, values, 0.5)
    assert len(Known.open(file, QDEL, {}, TASK.queries).obstacles) == 1
    head, row = file.read_bytes().splitlines()
    for name in ("rate_2", "C_L_1", "G_1"):
        forged = json.loads(row)
        forged["values"][name] = "99"
        file.write_bytes(head + b"\n" + json.dumps(forged).encode() + b"\n")
        with pytest.raises(InputError, match="does not replay"):
            Known.open(file, QDEL, {}, TASK.queries)
    steady = {name: Fraction(1) if name.startswith("rate") else value for name, value in values.items()}
    with pytest.raises(ReplayError):
        obstacle_of(QDEL, query, steady)


def test_the_widest_contract_avoids_every_obstacle():
    """Against all contracts, one by one."""
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
            if not any(allows(obstacle, sides) for obstacle in obstacles):
                best = max(best, sum(table[side][pair] for side, pair in sides.items()))
        found = widest(QDEL, table, obstacles, ZERO, most)
        sides = by_side(QDEL, found)
        assert not any(allows(obstacle, sides) for obstacle in obstacles)
        assert sum(table[side][pair] for side, pair in sides.items()) == pytest.approx(best, abs=1e-4)
    assert widest(QDEL, table, [obstacle_around(QDEL, ONE)], ONE, most) is None


def test_width_is_that_of_visited_beliefs():
    seen = visits(QDEL)
    assert seen.shares.sum() == pytest.approx(1) and len(seen.shares) == 2
    assert width_log2(QDEL, seen) == 0
    ways = directions(QDEL)
    doubled = widened(QDEL, tuple(2 * int(w.end == 1 and w.kind == "scale") for w in ways), "c")
    few = Visits(seen.beliefs[:50], seen.leaves[:50], seen.shares)
    assert 0 < width_log2(doubled, few) <= np.log2(1.1) + 1e-9
    rng, table = np.random.default_rng(2), gains(QDEL, few)
    for _ in range(5):
        levels = tuple(int(rng.integers(0, way.most + 1)) for way in ways)
        added = sum(table[side][pair] for side, pair in by_side(QDEL, levels).items())
        assert added == pytest.approx(width_log2(widened(QDEL, levels, "c"), few), rel=1e-9)


class FakeVerifier:
    """Refutes a contract with an upper end above a number times C_L, or a lower end below another; the trace uses that end."""

    asked: ClassVar[list[str]] = []
    limits: ClassVar[dict[str, tuple[Fraction, Fraction]]] = {}

    def __init__(self, *_, **__):
        pass

    def start(self, queries):
        pass

    def stop(self):
        pass

    def decide(self, query):
        FakeVerifier.asked.append(query.name)
        lowest, largest = FakeVerifier.limits.get(query.name, (Fraction(-9), Fraction(9)))
        leaves = [rule for rule in query.sender.program.rules() if isinstance(rule, Leaf)]
        for number, leaf in enumerate(leaves):
            for end in (0, 1):
                if not lowest <= leaf.ends[min(end, len(leaf.ends) - 1)].coefficient("C_L") <= largest:
                    values = {"leaf": Fraction(number), "end": Fraction(end)}
                    return type("Result", (), {"verdict": "refuted", "values": values, "seconds": 0.1})()
        return type("Result", (), {"verdict": "verified", "values": {}, "seconds": 0.1})()


def fake_obstacle(program, query, values):
    lowest, largest = FakeVerifier.limits[query.name]
    side = int(values["leaf"]), int(values["end"])
    leaf = [rule for rule in program.rules() if isinstance(rule, Leaf)][side[0]]
    table = np.zeros(SHAPE, np.bool_)
    for pair in np.ndindex(SHAPE):
        table[pair] = (
            not lowest <= moved(leaf.ends[min(side[1], len(leaf.ends) - 1)], *pair, side[1]).coefficient("C_L") <= largest
        )
    return {side: table}


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(search_module, "Verifier", FakeVerifier)
    monkeypatch.setattr(known_module, "obstacle_of", fake_obstacle)
    FakeVerifier.asked, FakeVerifier.limits = [], {"F.7 utilisation": (Fraction(9, 20), Fraction(23, 10))}
    return FakeVerifier


def ends_of(program):
    ends = [rule.ends for rule in program.rules() if isinstance(rule, Leaf)]
    return min(lo.coefficient("C_L") for lo, *_ in ends), max(end[-1].coefficient("C_L") for end in ends)


def test_a_widening_ends_at_what_is_refuted_and_goes_on_where_it_stopped(tmp_path, fake):
    task = Widening(QDEL, 0.7, 60.0)
    found = widen(task, tmp_path)
    assert found.verified and found.finished and found.width_log2 > 0
    assert found.width_at_most == pytest.approx(found.width_log2, abs=search_module.LEAST_GAIN)
    assert ends_of(found.contract) == (Fraction(9, 20), Fraction(23, 10))  # 1/2 * .9 and 2 * 1.15
    data = json.loads((tmp_path / "result.json").read_text())
    assert data["width_log2"] == found.width_log2 and data["contract"] == to_data(found.contract)
    asked = len(fake.asked)
    again = widen(task, tmp_path)
    assert again.contract == found.contract and again.finished and len(fake.asked) == asked
    record, page, picture = write_report([tmp_path], tmp_path / "report", n_paths=8)
    assert "frontier.svg" in page.read_text() and b"<svg" in picture.read_bytes()[:400]
    assert read_data(record)["rows"][0]["width_log2"] == found.width_log2


def test_a_slow_query_narrows_what_the_quick_ones_left(tmp_path, fake):
    """F.4 is asked of few contracts; what the quick queries said of wider ones is not asked again before the last check."""
    fake.limits |= {"F.4 (b)": (Fraction(47, 100), Fraction(22, 10))}
    found = widen(Widening(QDEL, 0.7, 60.0), tmp_path)
    assert found.verified and found.finished
    assert ends_of(found.contract) == (Fraction(19, 40), Fraction(22, 10))
    assert fake.asked.count("F.4 (b)") < fake.asked.count("F.7 utilisation")
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()[1:]]
    names = set(Widening(QDEL, 0.7, 60.0).queries(found.levels))
    itself = {row["query"] for row in rows if row["answer"] == "proved" and tuple(row["levels"]) == found.levels}
    assert itself == names  # the last check asked every query of the very contract


def test_a_search_that_is_stopped_keeps_what_is_proved(tmp_path, fake, monkeypatch):
    clock = [0.0]

    class Slow(FakeVerifier):
        def decide(self, query):
            clock[0] += 1.0
            return super().decide(query)

    monkeypatch.setattr(search_module, "Verifier", Slow)
    for module in ("ccenv.contract.search", "ccenv.contract.widen"):
        monkeypatch.setattr(f"{module}.time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))
    short = widen(Widening(QDEL, 0.7, 26.0), tmp_path)
    assert short.verified and not short.finished
    whole = widen(Widening(QDEL, 0.7, 600.0), tmp_path)
    assert whole.finished and whole.width_log2 >= short.width_log2
    assert ends_of(whole.contract) == (Fraction(9, 20), Fraction(23, 10))


def test_what_the_solver_gives_up_on_is_not_asked_again(tmp_path, fake, monkeypatch):
    class GivesUp(FakeVerifier):
        def decide(self, query):
            result = super().decide(query)
            result.verdict = "unknown" if result.verdict == "refuted" else result.verdict
            return result

    monkeypatch.setattr(search_module, "Verifier", GivesUp)
    found = widen(Widening(QDEL, 0.7, 60.0, call_s=5.0), tmp_path)
    assert found.verified and found.finished and found.width_log2 > 0
    low, high = ends_of(found.contract)
    assert low >= Fraction(9, 20) and high <= Fraction(23, 10)
    asked = len(fake.asked)
    widen(Widening(QDEL, 0.7, 60.0, call_s=5.0), tmp_path)
    assert len(fake.asked) == asked


def test_a_suite_of_ones_own_is_kept_but_for_its_utilisation(tmp_path, fake, capsys):
    args = ["contract", "widen", "cc_qdel", "--utilisation", "0.7", "--lemmas", "learned_contract_u80", "--json"]
    assert main([*args, "--out", str(tmp_path / "o")]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True
    assert "F.4 C_L" in fake.asked
    told = json.loads((tmp_path / "o" / "result.json").read_text())
    assert told["settle"] == 1
    loaded = load_suite(str(tmp_path / "o" / "lemmas.yaml"))
    numbers = constants_of(loaded.suite, "history")
    assert (numbers["utilisation"], numbers["C_L_low"], numbers["grows"]) == (Fraction(7, 10), Fraction(18, 25), Fraction(1, 32))
    text = find_data(SUITES, "learned_contract_u80", ".yaml", "lemma suite").read_text()
    for now, other in (
        ("  utilisation:\n", "  used:\n"),
        ("at_least: utilisation", "at_least: used"),
        ("bound: util", "bound: used #"),
    ):
        text = text.replace(now, other)
    (tmp_path / "other.yaml").write_text(text)
    assert main([*args[:-2], str(tmp_path / "other.yaml"), "--out", str(tmp_path / "p")]) == 2
    assert "no constant 'utilisation'" in capsys.readouterr().err


def test_leaves_that_nobody_visits_stay_as_they_are(tmp_path, fake):
    found = widen(Widening(BASE, 0.7, 60.0), tmp_path)
    seen = visits(BASE)
    rare = [i for i, share in enumerate(seen.shares) if share < LEAST_SHARE]
    assert rare and found.finished
    assert all(level == 0 for way, level in zip(directions(BASE), found.levels, strict=True) if way.leaf in rare)


def test_a_program_that_is_not_proved_is_no_base(tmp_path, fake, capsys):
    program = tmp_path / "p.json"
    program.write_text('{"format": "ccenv-program", "version": 1, "name": "p", "rule": {"rate": {"C_L": 3}}}')
    args = ["contract", "widen", str(program), "--utilisation", "0.7", "--budget", "30", "--out", str(tmp_path / "o"), "--json"]
    assert main(args) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verified"] is False and "F.7 utilisation refuted" in told["reason"]
    assert not (tmp_path / "o" / "contract.json").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--utilisation", "1.2"], "between 0 and 1"),
        (["--utilisation", "0.7", "--budget", "0"], "budget is 0"),
        (["--utilisation", "0.7", "--jobs", "0"], "jobs"),
        (["--utilisation", "nan"], "between 0 and 1"),
        (["--utilisation", "0.7", "--budget", "nan"], "budget"),
        (["--utilisation", "0.7", "--lemmas", "cc_qdle"], "Did you mean 'cc_qdel'"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(tmp_path, capsys, more, said):
    assert main(["contract", "widen", "cc_qdel", "--out", str(tmp_path / "o"), *more]) == 2
    assert said in capsys.readouterr().err


def test_a_hull_allows_what_each_program_sends():
    ways = directions(QDEL)
    programs = [widened(QDEL, tuple(3 * int(i == n) for i in range(len(ways))), "c") for n in range(len(ways))]
    around = hull(programs, "hull")
    rng = np.random.default_rng(0)
    for _ in range(200):
        inputs = belief(rng)
        outer = interval(around, inputs)
        for program in programs:
            inner = interval(program, inputs)
            assert outer.lo <= inner.lo * (1 + 1e-12) and inner.hi <= outer.hi * (1 + 1e-12)
    with pytest.raises(InputError, match="same conditions"):
        hull([QDEL, BASE], "hull")
    with pytest.raises(InputError, match="at least one"):
        hull([], "hull")
    assert hull([contract()], "test_contract") == contract()


SUITE = """
name: short
source: a suite of one short lemma
sender: cc_qdel
model: ccac
buffer: infinite
default_T: 5
constants: {utilisation: {value: 0.5}, C_L_low: {value: 0.5}}
lemmas:
  - {name: F.1 C_L, text: a true C_L stays true, premise: C_L_true, conclusion: [C_L_true]}
  - name: F.7 utilisation
    text: utilisation with a known link
    premise: {all: [C_L_true, {C_L_at_least: C_L_low}, {queue_at_most: 1}]}
    conclusion: [{utilisation_at_least: utilisation}]
    bound: utilisation
  - name: paper
    text: what is stated as refuted is not kept
    premise: C_L_true
    conclusion: [{utilisation_at_least: utilisation}]
    expect: refuted
"""


def test_a_solution_is_widened_inside_the_hull_of_all_solutions(tmp_path, capsys):
    """With the solver: synthesis, hull, widening, and the lemmas of the result."""
    suite, hulled, out = tmp_path / "s.yaml", tmp_path / "h.json", tmp_path / "o"
    suite.write_text(SUITE)
    assert main(["synth", "g1_t5", "--out", str(tmp_path / "synth"), "--json"]) == 0
    solutions = next((tmp_path / "synth").glob("*/solutions"))
    capsys.readouterr()
    assert main(["contract", "hull", str(solutions), "--out", str(hulled), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["is_contract"] and (told["programs"], told["left_out"]) == (4, 0)
    args = ["contract", "widen", str(sorted(solutions.glob("*.json"))[1]), "--utilisation", "0.4", "--lemmas", str(suite)]
    assert main([*args, "--inside", str(hulled), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verified"] and told["finished"] and 0 < told["width_log2"] <= told["width_at_most"] + 1e-9
    around, found = load_program(hulled), load_program(out / "contract.json")
    rng = np.random.default_rng(0)
    for _ in range(50):
        inputs = belief(rng)
        assert (
            interval(around, inputs).lo <= interval(found, inputs).lo <= interval(found, inputs).hi <= interval(around, inputs).hi
        )
    assert load_suite(str(out / "lemmas.yaml")).suite.constants["utilisation"].value == "2/5"
    assert main(["verify", "lemmas", str(out / "lemmas.yaml"), "--json", "--out", str(tmp_path / "v")]) == 0
    lemmas = {row["name"]: row["verdict"] for row in json.loads(capsys.readouterr().out)["lemmas"]}
    assert lemmas == {"F.1 C_L": "verified", "F.7 utilisation": "verified", "paper": "refuted"}
    assert main([*args, "--inside", "cc_probe_fast", "--out", str(tmp_path / "p")]) == 2
    assert "ask different things" in capsys.readouterr().err
    assert main([*args, "--inside", "cc_qdel", "--out", str(tmp_path / "p")]) == 2
    assert "is not inside 'cc_qdel'" in capsys.readouterr().err and not (tmp_path / "p" / "contract.json").exists()


def test_a_hull_from_the_command_line(tmp_path, capsys):
    (tmp_path / "mixed").mkdir()
    for name in ("cc_qdel", "cc_probe_fast", "cc_probe_drain"):
        (tmp_path / "mixed" / f"{name}.json").write_text(to_json(make_sender(name).program))
    (tmp_path / "mixed" / "z.json").write_text(to_json(widened(QDEL, (1,) * N, "wide")))
    assert main(["contract", "hull", str(tmp_path / "mixed"), "--out", str(tmp_path / "m.json"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["programs"], told["left_out"]) == (2, 2)
    assert load_program(tmp_path / "m.json").rule == widened(QDEL, (1,) * N, "wide").rule
    (tmp_path / "none").mkdir()
    assert main(["contract", "hull", str(tmp_path / "none"), "--out", str(tmp_path / "n.json")]) == 2
    assert "no program" in capsys.readouterr().err and not (tmp_path / "n.json").exists()
    out = tmp_path / "h.json"
    assert main(["contract", "hull", "cc_qdel", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["is_contract"] is False and parse_program(out.read_text()).rule == QDEL.rule


def test_a_frontier_has_a_row_per_point_also_where_nothing_is_proved(tmp_path, fake, capsys):
    args = ["contract", "frontier", "cc_qdel", "--utilisations", "0.7,0.6", "--paths", "8", "--out", str(tmp_path), "--json"]
    assert main(args) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["utilisation"] for row in rows] == [0.7, 0.6] and all(row["finished"] for row in rows)
    assert all(set(row["scores"]) == {"lo", "middle", "hi"} and 0 < row["program_score"] <= 1 for row in rows)
    first = (tmp_path / "frontier.svg").read_bytes()
    fake.limits["F.5"] = (Fraction(1), Fraction(1))
    assert main([*args, "--fresh"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(not row["verified"] and "F.5 refuted" in row["reason"] and row["scores"] == {} for row in rows)
    assert "not proved" in (tmp_path / "contracts.md").read_text() and (tmp_path / "frontier.svg").read_bytes() != first
    assert main([*args[:3], "--utilisations", "0.7,x", "--out", str(tmp_path)]) == 2
    assert "numbers joined by commas" in capsys.readouterr().err


def test_a_folder_without_a_result_has_no_report(tmp_path, capsys):
    assert main(["contract", "report", str(tmp_path), "--out", str(tmp_path / "r")]) == 2
    assert "result.json" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_the_picture_of_the_page_is_that_of_the_shipped_contract(tmp_path, capsys):
    out = tmp_path / "i.svg"
    assert main(["contract", "plot", "learned_contract_u80", "--out", str(out)]) == 0
    page = Path(__file__).parents[2] / "docs" / "images" / "contract-interval.svg"
    assert out.read_bytes() == page.read_bytes(), "stale: ccenv contract plot learned_contract_u80 makes it"
    assert main(["contract", "plot", "cc_qdel", "--out", str(tmp_path / "i.txt")]) == 2
    assert "ends in '.txt'" in capsys.readouterr().err
