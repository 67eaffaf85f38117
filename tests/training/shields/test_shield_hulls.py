"""Hulls of programs, widening inside them with the solver, pictures."""

import json
from pathlib import Path

import numpy as np
import pytest
from shields_data import shield
from test_shield_answers import belief

from ccenv.agents import make_sender
from ccenv.agents.programs import interval, load_program, parse_program, to_json
from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.proofs.claims.lemmas import load_suite
from ccenv.training.shields.boxes import directions, hull, widen_program
from ccenv.training.shields.report import frontier_picture, read_data, write_report

BASE = make_sender("learned_nominal_u78").program
QDEL = make_sender("cc_qdel").program
N = len(directions(QDEL))


def test_a_hull_allows_what_each_program_sends():
    ways = directions(QDEL)
    programs = [widen_program(QDEL, tuple(3 * int(i == n) for i in range(len(ways))), "c") for n in range(len(ways))]
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
    assert hull([shield()], "test_shield") == shield()


SUITE = """
name: short
source: a suite of one short lemma
sender: cc_qdel
model: ccac
buffer: infinite
default_T: 5
constants: {utilisation: {value: 0.5}, C_L_low: {value: 0.5}}
lemmas:
  - {name: F.1 C_L, text: a true C_L stays true, if: C_L_true, then: [C_L_true]}
  - name: F.7 utilisation
    text: utilisation with a known link
    if: {all: [C_L_true, {C_L_at_least: C_L_low}, {queue_at_most: 1}]}
    then: [{utilisation_at_least: utilisation}]
    bound: utilisation
  - name: paper
    text: what is stated as refuted is not kept
    if: C_L_true
    then: [{utilisation_at_least: utilisation}]
    expect: refuted
"""


def test_a_solution_is_widened_inside_the_hull_of_all_solutions(tmp_path, capsys, answer, refused):
    """With the solver: synthesis, hull, widening, and the lemmas of the result."""
    suite, hulled, out = tmp_path / "s.yaml", tmp_path / "h.json", tmp_path / "o"
    suite.write_text(SUITE)
    assert main(["synth", "g1_t5", "--out", str(tmp_path / "synth"), "--json"]) == 0
    solutions = next((tmp_path / "synth").glob("*/solutions"))
    capsys.readouterr()
    told = answer(["shield", "hull", str(solutions), "--out", str(hulled), "--json"])
    assert told["is_shield"] and (told["programs"], told["left_out"]) == (4, 0)
    args = ["shield", "widen", str(sorted(solutions.glob("*.json"))[1]), "--utilisation", "0.4", "-s", f"lemmas={suite}"]
    told = answer([*args, "-s", f"inside={hulled}", "--out", str(out), "--json"])
    assert told["verified"] and told["finished"] and 0 < told["width_log2"] <= told["width_at_most"] + 1e-9
    around, found = load_program(hulled), load_program(out / "shield.json")
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
    refused([*args, "-s", "inside=cc_probe_fast", "--out", str(tmp_path / "p")], "ask different things")
    assert main([*args, "-s", "inside=cc_qdel", "--out", str(tmp_path / "p")]) == 2
    assert "is not inside 'cc_qdel'" in capsys.readouterr().err and not (tmp_path / "p" / "shield.json").exists()


def test_a_hull_from_the_command_line(tmp_path, capsys, answer):
    (tmp_path / "mixed").mkdir()
    for name in ("cc_qdel", "cc_probe_fast", "cc_probe_drain"):
        (tmp_path / "mixed" / f"{name}.json").write_text(to_json(make_sender(name).program))
    (tmp_path / "mixed" / "z.json").write_text(to_json(widen_program(QDEL, (1,) * N, "wide")))
    told = answer(["shield", "hull", str(tmp_path / "mixed"), "--out", str(tmp_path / "m.json"), "--json"])
    assert (told["programs"], told["left_out"]) == (2, 2)
    assert load_program(tmp_path / "m.json").rule == widen_program(QDEL, (1,) * N, "wide").rule
    (tmp_path / "none").mkdir()
    assert main(["shield", "hull", str(tmp_path / "none"), "--out", str(tmp_path / "n.json")]) == 2
    assert "no program" in capsys.readouterr().err and not (tmp_path / "n.json").exists()
    out = tmp_path / "h.json"
    told = answer(["shield", "hull", "cc_qdel", "--out", str(out), "--json"])
    assert told["is_shield"] is False and parse_program(out.read_text()).rule == QDEL.rule


def test_a_folder_without_a_result_has_no_report(tmp_path):
    with pytest.raises(InputError, match=r"result\.json"):
        write_report([tmp_path], tmp_path / "r", 8)
    assert not (tmp_path / "r").exists()


def test_the_pictures_of_the_page_are_those_of_the_shipped_shield_and_of_the_record(tmp_path, refused):
    out = tmp_path / "i.svg"
    assert main(["show", "learned_shield_u80", "-o", str(out)]) == 0
    page = Path(__file__).parents[3] / "docs" / "images" / "shield-interval.svg"
    assert out.read_bytes() == page.read_bytes(), "stale: ccenv show learned_shield_u80 makes it"
    refused(["show", "cc_qdel", "-o", str(tmp_path / "i.txt")], "ends in '.txt'")
    docs = Path(__file__).parents[3] / "docs"
    data = read_data(docs / "data" / "shields.json")
    assert frontier_picture(data) == (docs / "images" / "shield-frontier.svg").read_bytes()
    for row in data["rows"]:
        assert row["verified"] and 0 <= row["width_log2"] <= row["width_at_most"] + 1e-9
