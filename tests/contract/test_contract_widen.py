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
from ccenv.contract import widen as widen_module
from ccenv.contract.boxes import Known, below, directions, widened
from ccenv.contract.hull import hull
from ccenv.contract.report import write_report
from ccenv.contract.widen import Widening, widen
from ccenv.contract.width import Visits, visits, width_log2
from ccenv.errors import InputError
from ccenv.programs import BOOLEANS, INPUTS, interval, parse_program, to_data
from ccenv.smt.claims.lemmas import SUITES, constants_of, load_suite

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


def test_answers_decide_boxes_and_survive_a_kill(tmp_path):
    file = tmp_path / "answers.jsonl"
    known = Known.open(file, QDEL, {"u": 1})
    one, two = (1,) * N, (2,) * N
    known.store(one, "proved", 1.0)
    known.store(two, "undecided", 5.0)
    known.store((3,) + (2,) * (N - 1), "refuted", 1.0)
    file.write_bytes(file.read_bytes() + b'{"levels": [1,')  # killed while writing
    again = Known.open(file, QDEL, {"u": 1})
    assert again.answer((0,) * N, 1.0) == "proved"
    assert again.answer((4,) * N, 1.0) == "refuted"
    assert again.answer(two, 5.0) == "undecided" and again.answer(two, 6.0) is None
    assert again.answer((1,) * (N - 1) + (2,), 1.0) is None
    again.store((0,) * N, "proved", 1.0)
    assert len(Known.open(file, QDEL, {"u": 1}).proved) == 2
    for other, question in ((BASE, {"u": 1}), (QDEL, {"u": 2})):
        with pytest.raises(InputError, match="another program or other constants"):
            Known.open(file, other, question)
    assert Known.open(file, QDEL, {"u": 2}, fresh=True).proved == []


HELD = json.dumps({"levels": [0] * N, "answer": "proved", "held": "F.5"})


@pytest.mark.parametrize("line", [HELD, '{"levels": [1], "answer": "proved"}', "[]", '{"levels": "x", "answer": "proved"}', "7"])
def test_damaged_answers_are_refused(tmp_path, line):
    file = tmp_path / "answers.jsonl"
    Known.open(file, QDEL, {})
    file.write_bytes(file.read_bytes() + line.encode() + b"\n")
    with pytest.raises(InputError):
        Known.open(file, QDEL, {})


def test_width_is_that_of_visited_beliefs():
    seen = visits(QDEL)
    assert seen.shares.sum() == pytest.approx(1) and len(seen.shares) == 2
    assert width_log2(QDEL, seen) == 0
    ways = directions(QDEL)
    doubled = widened(QDEL, tuple(2 * int(w.end == 1 and w.kind == "scale") for w in ways), "c")
    few = Visits(seen.beliefs[:50], seen.shares)
    assert 0 < width_log2(doubled, few) <= np.log2(1.1) + 1e-9


class FakeVerifier:
    """Holds whatever no upper end of is above a number times C_L."""

    asked: ClassVar[list[str]] = []

    def __init__(self, *_, **__):
        pass

    def start(self, queries):
        pass

    def stop(self):
        pass

    def decide(self, query):
        FakeVerifier.asked.append(query.name)
        most = query.sender.largest_rate()[0]
        lowest = min(rule.rate.coefficient("C_L") for rule in query.sender.program.rules() if hasattr(rule, "rate"))
        wrong = most > Fraction(23, 10) or lowest < Fraction(9, 20)
        return type("Result", (), {"verdict": "refuted" if wrong else "verified"})()


def test_a_widening_ends_at_what_is_refuted_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(widen_module, "Verifier", FakeVerifier)
    FakeVerifier.asked = []
    task = Widening(QDEL, 0.7, 60.0)
    found = widen(task, tmp_path)
    assert found.verified and found.finished and found.width_log2 > 0
    ends = [rule for rule in found.contract.rules() if hasattr(rule, "rate")]
    assert max(end.ends[-1].coefficient("C_L") for end in ends) == Fraction(23, 10)  # 2 * 1.15; 2.4 is refuted
    assert min(end.rate.coefficient("C_L") for end in ends) == Fraction(9, 20)  # 1/2 * .9
    data = json.loads((tmp_path / "result.json").read_text())
    assert data["width_log2"] == found.width_log2 and data["contract"] == to_data(found.contract)
    asked = len(FakeVerifier.asked)
    again = widen(task, tmp_path)
    assert again.contract == found.contract and len(FakeVerifier.asked) == asked
    page, picture = write_report([tmp_path], tmp_path / "report")
    assert "frontier.svg" in page.read_text() and b"<svg" in picture.read_bytes()[:400]


class LateFailure(FakeVerifier):
    """Refutes contracts whose upper end is too high, by one lemma alone."""

    def decide(self, query):
        FakeVerifier.asked.append((query.name, query.sender.largest_rate()[0]))
        wrong = query.name == "F.6" and query.sender.largest_rate()[0] > Fraction(21, 10)
        return type("Result", (), {"verdict": "refuted" if wrong else "verified"})()


def test_a_proof_of_one_query_holds_of_every_contract_inside(tmp_path, monkeypatch):
    monkeypatch.setattr(widen_module, "Verifier", LateFailure)
    FakeVerifier.asked = []
    task = Widening(QDEL, 0.7, 60.0)
    found = widen(task, tmp_path)
    assert found.verified and found.finished
    asked = FakeVerifier.asked
    first, last = asked.index(("F.6", Fraction(23, 10))), asked.index(("F.6", Fraction(22, 10)))
    assert ("F.7 utilisation", Fraction(23, 10)) in asked[:first]
    # F.6 refuted 2 * 1.15 after F.7 was proved of it: of 2 * 1.05 F.6 is asked first, and F.7 not again.
    assert asked[first + 1] == ("F.6", Fraction(21, 10))
    assert "F.5" in [name for name, _ in asked[first:last]] and "F.7 utilisation" not in [name for name, _ in asked[first:last]]
    assert max(rule.ends[-1].coefficient("C_L") for rule in found.contract.rules() if hasattr(rule, "rate")) == Fraction(21, 10)
    ends = (2,) + (0,) * (N - 1)
    known = Known.open(tmp_path / "more.jsonl", QDEL, {})
    known.store(ends, "refuted", 1.0, ["F.5"])
    again = Known.open(tmp_path / "more.jsonl", QDEL, {})
    assert again.holds("F.5", (1,) + (0,) * (N - 1)) and again.holds("F.5", ends)
    assert not again.holds("F.5", (3,) + (0,) * (N - 1)) and not again.holds("F.6", ends)


def test_a_suite_of_ones_own_is_kept_but_for_its_utilisation(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(widen_module, "Verifier", FakeVerifier)
    FakeVerifier.asked = []
    args = ["contract", "widen", "cc_qdel", "--utilisation", "0.7", "--lemmas", "learned_contract_u80", "--json"]
    assert main([*args, "--out", str(tmp_path / "o")]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True
    assert "F.4 C_L" in FakeVerifier.asked
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


def test_leaves_that_nobody_visits_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(widen_module, "Verifier", FakeVerifier)
    found = widen(Widening(BASE, 0.7, 60.0), tmp_path)
    seen = visits(BASE)
    rare = [i for i, share in enumerate(seen.shares) if share < widen_module.LEAST_SHARE]
    assert rare and found.finished
    assert all(level == 0 for way, level in zip(directions(BASE), found.levels, strict=True) if way.leaf in rare)


def test_a_program_that_is_not_proved_is_no_base(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(widen_module, "Verifier", FakeVerifier)
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


def test_a_hull_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "h.json"
    assert main(["contract", "hull", "cc_qdel", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["is_contract"] is False and parse_program(out.read_text()).rule == QDEL.rule


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
