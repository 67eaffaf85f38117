"""The search for the widest shield, with a solver in its place that refutes by numbers; the frontier."""

import json
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.agents.programs import Leaf, parse_program, to_data
from ccenv.base.config import find_data
from ccenv.cli.main import main
from ccenv.proofs.claims.lemmas import SUITES, constants_of, load_suite
from ccenv.training.shields import answers as known_module
from ccenv.training.shields import search as search_module
from ccenv.training.shields.answers import SHAPE
from ccenv.training.shields.boxes import directions, move_end
from ccenv.training.shields.report import read_data, write_report
from ccenv.training.shields.widen import LEAST_SHARE, Widening, visits, widen

BASE = make_sender("learned_nominal_u78").program
QDEL = make_sender("cc_qdel").program
N = len(directions(QDEL))


class FakeVerifier:
    """Refutes a shield with an upper end above a number times C_L, or a lower end below another; the trace uses that end."""

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


def fake_obstacle(program, query, shield, values):
    lowest, largest = FakeVerifier.limits[query.name]
    side = int(values["leaf"]), int(values["end"])
    leaf = [rule for rule in program.rules() if isinstance(rule, Leaf)][side[0]]
    table = np.zeros(SHAPE, np.bool_)
    for pair in np.ndindex(SHAPE):
        table[pair] = (
            not lowest <= move_end(leaf.ends[min(side[1], len(leaf.ends) - 1)], *pair, side[1]).coefficient("C_L") <= largest
        )
    return {side: table}


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(search_module, "Verifier", FakeVerifier)
    monkeypatch.setattr(known_module, "find_obstacle", fake_obstacle)
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
    assert ends_of(found.shield) == (Fraction(9, 20), Fraction(23, 10))  # 1/2 * .9 and 2 * 1.15
    data = json.loads((tmp_path / "result.json").read_text())
    assert data["width_log2"] == found.width_log2 and data["shield"] == to_data(found.shield)
    asked = len(fake.asked)
    again = widen(task, tmp_path)
    assert again.shield == found.shield and again.finished and len(fake.asked) == asked
    record, page, picture = write_report([tmp_path], tmp_path / "report", n_paths=8)
    assert "frontier.svg" in page.read_text() and b"<svg" in picture.read_bytes()[:400]
    assert read_data(record)["rows"][0]["width_log2"] == found.width_log2


def test_a_slow_query_narrows_what_the_quick_ones_left(tmp_path, fake):
    """F.4 is asked of few shields; what the quick queries said of wider ones is not asked again before the last check."""
    fake.limits |= {"F.4 (b)": (Fraction(47, 100), Fraction(22, 10))}
    found = widen(Widening(QDEL, 0.7, 60.0), tmp_path)
    assert found.verified and found.finished and ends_of(found.shield) == (Fraction(19, 40), Fraction(22, 10))
    assert fake.asked.count("F.4 (b)") < fake.asked.count("F.7 utilisation")
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()[1:]]
    names = set(Widening(QDEL, 0.7, 60.0).queries(found.levels))
    itself = {row["query"] for row in rows if row["answer"] == "proved" and tuple(row["levels"]) == found.levels}
    assert itself == names  # the last check asked every query of the very shield


def test_a_search_that_is_stopped_keeps_what_is_proved(tmp_path, fake, monkeypatch):
    clock = [0.0]

    class Slow(FakeVerifier):
        def decide(self, query):
            clock[0] += 1.0
            return super().decide(query)

    monkeypatch.setattr(search_module, "Verifier", Slow)
    for module in ("ccenv.training.shields.search", "ccenv.training.shields.widen"):
        monkeypatch.setattr(f"{module}.time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))
    short = widen(Widening(QDEL, 0.7, 26.0), tmp_path)
    assert short.verified and not short.finished
    whole = widen(Widening(QDEL, 0.7, 600.0), tmp_path)
    assert whole.finished and whole.width_log2 >= short.width_log2
    assert ends_of(whole.shield) == (Fraction(9, 20), Fraction(23, 10))


def test_what_the_solver_gives_up_on_is_not_asked_again(tmp_path, fake, monkeypatch):
    class GivesUp(FakeVerifier):
        def decide(self, query):
            result = super().decide(query)
            result.verdict = "unknown" if result.verdict == "refuted" else result.verdict
            return result

    monkeypatch.setattr(search_module, "Verifier", GivesUp)
    found = widen(Widening(QDEL, 0.7, 60.0, call_s=5.0), tmp_path)
    assert found.verified and found.finished and found.width_log2 > 0
    low, high = ends_of(found.shield)
    assert low >= Fraction(9, 20) and high <= Fraction(23, 10)
    asked = len(fake.asked)
    widen(Widening(QDEL, 0.7, 60.0, call_s=5.0), tmp_path)
    assert len(fake.asked) == asked


def test_a_suite_of_ones_own_is_kept_but_for_its_utilisation(tmp_path, fake, capsys, refused):
    args = ["shield", "widen", "cc_qdel", "--utilisation", "0.7", "-s", "lemmas=learned_shield_u80", "--json"]
    assert main([*args, "--out", str(tmp_path / "o")]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True and "F.4 C_L" in fake.asked
    told = json.loads((tmp_path / "o" / "result.json").read_text())
    assert told["settle"] == 2
    loaded = load_suite(str(tmp_path / "o" / "lemmas.yaml"))
    numbers = constants_of(loaded.suite, "history")
    kept = [numbers[name] for name in ("utilisation", "C_L_low", "grows")]
    assert kept == [Fraction(7, 10), Fraction(147, 200), Fraction(1, 32)]
    text = find_data(SUITES, "learned_shield_u80", ".yaml", "lemma suite").read_text()
    for now, other in (
        ("  utilisation:\n", "  used:\n"),
        ("at_least: utilisation", "at_least: used"),
        ("bound: util", "bound: used #"),
    ):
        text = text.replace(now, other)
    (tmp_path / "other.yaml").write_text(text)
    refused([*args[:-2], f"lemmas={tmp_path}/other.yaml", "--out", str(tmp_path / "p")], "no constant 'utilisation'")


def test_time_outs_are_part_of_what_a_widening_keeps(tmp_path, fake, capsys, refused):
    """The lemmas are those of a suite with time-outs, gamma_L is what a time-out leaves, and answers are kept apart."""
    args = ["shield", "widen", "learned_nominal_u78", "--utilisation", "0.77", "--out", str(tmp_path / "o"), "--json"]
    fake.limits["F.3 C_L"] = (Fraction(3, 5), Fraction(9))
    assert main([*args, "-s", "timeouts=artefact"]) == 0 and json.loads(capsys.readouterr().out)["finished"] is True
    assert {"F.1 C_L at a time-out", "F.2 C_U", "F.3 C_L", "F.4 C_U"} <= set(fake.asked)
    assert ends_of(parse_program(json.loads((tmp_path / "o" / "result.json").read_text())["shield"], "here"))[0] >= Fraction(3, 5)
    kept, shipped = (load_suite(name).suite for name in (str(tmp_path / "o" / "lemmas.yaml"), "learned_nominal_u78_timeouts"))
    assert kept.timeout_preset == "artefact" and kept.lemmas == shipped.lemmas
    assert constants_of(kept, "history") == constants_of(shipped, "history")
    refused(args, "holds a widening of other settings")
    (page := tmp_path / "report").mkdir()
    write_report([tmp_path / "o"], page, n_paths=8)
    assert "| artefact |" in (page / "shields.md").read_text()


def test_leaves_that_nobody_visits_stay_as_they_are(tmp_path, fake):
    found = widen(Widening(BASE, 0.7, 60.0), tmp_path)
    seen = visits(BASE)
    rare = [i for i, share in enumerate(seen.shares) if share < LEAST_SHARE]
    assert rare and found.finished
    assert all(level == 0 for way, level in zip(directions(BASE), found.levels, strict=True) if way.leaf in rare)


def test_a_program_that_is_not_proved_is_no_base(tmp_path, fake, capsys):
    program = tmp_path / "p.json"
    program.write_text('{"format": "ccenv-program", "version": 1, "name": "p", "rule": {"rate": {"C_L": 3}}}')
    args = ["shield", "widen", str(program), "--utilisation", "0.7", "--budget", "30", "--out", str(tmp_path / "o"), "--json"]
    assert main(args) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verified"] is False and "F.7 utilisation refuted" in told["reason"]
    assert not (tmp_path / "o" / "shield.json").exists()


def test_a_frontier_has_a_row_per_point_also_where_nothing_is_proved(tmp_path, fake, capsys, refused):
    args = ["shield", "frontier", "cc_qdel", "--utilisations", "0.7,0.6", "-s", "n_paths=8", "--out", str(tmp_path), "--json"]
    assert main(args) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["utilisation"] for row in rows] == [0.7, 0.6] and all(row["finished"] for row in rows)
    assert all(set(row["scores"]) == {"lo", "middle", "hi"} and 0 < row["program_score"] <= 1 for row in rows)
    first = (tmp_path / "frontier.svg").read_bytes()
    fake.limits["F.5"] = (Fraction(1), Fraction(1))
    assert main([*args, "--fresh"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(not row["verified"] and "F.5 refuted" in row["reason"] and row["scores"] == {} for row in rows)
    assert "not proved" in (tmp_path / "shields.md").read_text() and (tmp_path / "frontier.svg").read_bytes() != first
    refused([*args[:3], "--utilisations", "0.7,x", "--out", str(tmp_path)], "numbers joined by commas")
