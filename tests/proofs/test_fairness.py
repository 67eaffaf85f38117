"""The theorem about any number of flows: prover and checker agree, steps by hand hold on random runs, attacks break nothing."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from oracles.fair_flows import MODES, Rule, edges, play
from oracles.token_link import arrivals, shifts, token_link, work_conserving

from ccenv.agents import make_sender
from ccenv.attacks.game import Found, Scene
from ccenv.attacks.run import CurveArena
from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.network.adversary import load_moves
from ccenv.network.path import make_path
from ccenv.proofs.certificates.fairness.check import check_fair
from ccenv.proofs.certificates.fairness.reading import read_fair, shipped_fair
from ccenv.proofs.solver.solvers import Store
from ccenv.proofs.theorems.fairness.applied import coverage
from ccenv.proofs.theorems.fairness.design import SLOPES, design_of, find, search_design
from ccenv.proofs.theorems.fairness.prove import SHIPPED, _decide, decimal, values_of
from ccenv.proofs.theorems.fairness.tables import log_bounds

DATA = Path(__file__).parents[2] / "docs" / "data"
FAST = "ever_delay_eighth_fast"
BEYOND = (
    "ever_delay_full_fast", "ever_delay_tokens", "ever_delay_tokens_full", "ever_delay_unlike", "ever_delay_any_rm",
    "ever_delay_shield_wide",
)  # fmt: skip


def test_shipped_designs_have_certificates():
    assert set(SHIPPED) == set(shipped_fair())


def test_the_command_proves_a_design_keeps_the_answers_and_writes_what_the_checker_confirms(answer, tmp_path, monkeypatch):
    pytest.importorskip("z3")
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ccenv.proofs.theorems.fairness.design.SLOPES", SLOPES[2:3])  # where the best is: the rule is as shipped
    given = [f"--set={name}={value}" for name, value in SHIPPED[FAST].items()]
    told = answer(["verify", "theorem", "ever_delay", "--flows", "any", *given, "--json", "--out", str(tmp_path)])
    assert (told["verdict"], told["flows"], told["jitter_rtts"]) == ("verified", "any", 0.125)
    assert told["ratio"] <= 1.4 and told["utilisation"] == 0.5
    for place in range(1, 7):
        assert f"({place})" in told["sentence"]
    certificate = read_fair(Path(told["certificate"]))
    assert certificate.rule == read_fair(shipped_fair()[FAST]).rule
    assert check_fair(certificate).verdict == "confirmed" and told["queries"] == len(certificate.queries)
    monkeypatch.setattr("ccenv.proofs.theorems.fairness.prove.solve", None)  # of no use to what is known
    for query in certificate.queries:
        known = _decide(query.smtlib, query.lemma, 60.0, 0, Store(), False)
        assert (known.status, round(known.seconds, 4)) == ("unsat", query.seconds)


def test_a_design_that_does_not_exist_names_the_nearest(monkeypatch):
    import ccenv.proofs.theorems.fairness.design as module

    monkeypatch.setattr(module, "search_design", lambda design: None if design.shares > 60 else object())
    with pytest.raises(InputError, match="no table exists; the nearest that does has shares 50"):
        find(design_of({}))


def test_the_frontier_of_the_page_is_measured_again_at_a_point():
    from tables.fairness import RECORD, frontier

    record = json.loads(RECORD.read_text())
    point = next(row for row in record if (row["jitter"], row["fairness"], row["shares"]) == (0.125, 6.0, 10.0))
    values = {name: value for name, value in point.items() if name != "rtt_rtts"}
    assert search_design(design_of(values)).rtt_rtts == pytest.approx(point["rtt_rtts"], abs=1e-3)
    assert len(frontier(record)) == 15


def test_values():
    assert values_of({"jitter": "1/4", "gain": "2e-3"}) == {"jitter": 0.25, "gain": 0.002}
    low, high = log_bounds(Fraction(136))
    assert low <= math.log(136) <= high and decimal(Fraction(136, 1000)) == "0.136"


@pytest.mark.parametrize("flows", [2, 3, 30, 1000])
def test_entropy_does_not_depend_on_the_number_of_flows(flows):
    """L5: ln N - entropy of p is at most the logarithm of Specht's ratio at the spread; two values nearly reach it."""
    random = np.random.default_rng(flows)
    for spread in (0.1, 0.6, 1.4, 3.0):
        chord = spread / math.expm1(spread)
        bound = chord - 1 - math.log(chord)
        largest = 0.0
        for _ in range(300):
            v = spread * (random.uniform(size=flows) if random.uniform() < 0.3 else random.uniform(size=flows) < random.uniform())
            p = np.exp(v) / np.exp(v).sum()
            largest = max(largest, math.log(flows) + float((p * np.log(p)).sum()))
        assert largest <= bound + 1e-12
        assert flows < 30 or largest > 0.9 * bound


@pytest.mark.parametrize("flows", [2, 3, 8, 64])
@pytest.mark.parametrize("name", ["ever_delay", "ever_delay_quarter_2", FAST, "ever_delay_shield", *BEYOND])
def test_attacks_from_the_edges_break_nothing(name, flows):
    certificate = read_fair(shipped_fair()[name])
    rule, random = Rule.of(certificate), np.random.default_rng(flows)
    bounds = certificate.bounds
    worst = play(rule, *edges(rule, len(MODES) * max(2, 12 // flows), flows, random), 20, MODES, random)
    assert worst.ratio <= float(bounds.ratio) and worst.load >= float(bounds.utilisation)
    assert worst.rtt <= float(bounds.rtt_rtts) and worst.beyond <= 1e-6
    assert worst.spread <= math.log(float(certificate.constants.spread))


def test_the_simulator_sees_a_gain_that_is_too_large():
    """With a hundred times the gain, the same starts leave the tables and the spread."""
    certificate = read_fair(shipped_fair()["ever_delay"])
    rule, random = Rule.of(certificate), np.random.default_rng(1)
    worst = play(replace(rule, gain=100 * rule.gain), *edges(rule, 24, 2, random), 40, ["static"], random)
    assert worst.beyond > 0.01


@pytest.mark.parametrize(("delay", "broken", "early", "late"), [
    (1, "", True, True), (6, "", True, True), (6, "waste_backlog", True, False), (6, "save_all", False, True),
])  # fmt: skip
def test_a_token_link_serves_within_the_delay_of_the_work_conserving_queue(delay, broken, early, late):
    """*Early and unlike*: bytes leave at most D before and D after; both are reached. Links that break the model break both."""
    furthest = (0, 0)
    for seed in range(60):
        arrived = arrivals(random.Random(seed), 400)
        served = token_link(random.Random(seed), arrived, delay, **({broken: True} if broken else {}))
        furthest = tuple(max(pair) for pair in zip(furthest, shifts(served, work_conserving(arrived)), strict=True))
    assert (furthest[0] == delay, furthest[1] == delay) == (early, late)


def test_certificates_of_token_links_take_their_early_service_for_granted():
    for name in ("ever_delay_tokens", "ever_delay_tokens_full"):
        design = read_fair(shipped_fair()[name]).design
        assert Fraction(design.early) == Fraction(design.jitter_rtts)


TOKENS = "ever_delay:fairness=2.5,jitter_rtts=0.125,shares=100"


@pytest.mark.parametrize(("spec", "arguments", "verdict", "reason"), [
    ("ever_delay", "--model cbr_delay --at-least 0.64", "verified", None),
    ("ever_delay", "--model ideal --buffer 9", "verified", None), (TOKENS, "--model ccac --at-least 0.49", "verified", None),
    ("ever_delay", "--model cbr_delay --at-least 0.65", "unknown", "every f below 0.65"),
    ("ever_delay", "--model cbr_delay --buffer 8", "unknown", "at least 8.7899"),
    ("ever_delay", "--model cbr_delay --buffer small", "unknown", "at least 8.7899"),
    ("ever_delay", "--model ccac", "unknown", "about cbr_delay"),
])  # fmt: skip
def test_f_efficiency_follows_from_the_theorem(spec, arguments, verdict, reason, capsys):
    code = main(["verify", "property", spec, "--property", "f-efficient", *arguments.split(), "--json"])
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], code) == (verdict, 0 if verdict == "verified" else 3)
    assert (data["reason"] is None) if reason is None else (reason in data["reason"])
    assert (data["bound"] is None) == (verdict == "unknown")


def test_options_that_the_theorem_does_not_read_are_refused(capsys):
    for option in ("--at-most", "--T"):
        assert main(["verify", "property", "ever_delay", "--property", "f-efficient", option, "3"]) == 2
        assert f"leave out {option}" in capsys.readouterr().err


@pytest.mark.parametrize(("spec", "path", "model", "broken"), [
    ("ever_delay:rm_ms=40", {}, "cbr_delay", ()),
    ("ever_delay:rm_ms=40", {"buffer_bdp": 8.7}, "cbr_delay", ("(2) nothing is lost: the buffer holds 8.7 C U",)),
    ("ever_delay", {}, "cbr_delay", ("(1) every flow knows Rm",)),
    ("ever_delay:rm_ms=30", {}, "cbr_delay", ("(1) every flow knows Rm: rm_ms is 30",)),
    ("ever_delay:rm_ms=40", {"jitter_ms": 80}, "cbr_delay", ("(1) jitter is at most 1 units: it is 2",)),
    ("ever_delay:rm_ms=40", {"link_rate_mbps": 7}, "cbr_delay", ("(5) C/N is in [4, 400] Mbit/s: it is 3.5",)),
    ("ever_delay:rm_ms=40", {}, "ccac", ("(2) the queue is work-conserving",)),
    (f"{TOKENS},unit_ms=40", {"jitter_ms": 5}, "ccac", ()),
    (f"{TOKENS},unit_ms=40", {"jitter_ms": 10}, "cbr_delay", ("(1) every flow knows Rm up", "(1) jitter is at most 0.125")),
])  # fmt: skip
def test_an_attack_tells_which_assumptions_its_network_breaks(spec, path, model, broken):
    """Time in steps and a start on an empty link always; the others where they are broken, each by one change."""
    network = make_path(**{"link_rate_mbps": 48, "rtt_ms": 40, "jitter_ms": 40, "buffer_bdp": 20, "n_flows": 2} | path)
    told = coverage(make_sender(spec), network, model, 8)["broken"]
    assert told[0].startswith("(1) time") and told[-1].startswith("(6)")
    assert len(told) == 2 + len(broken) and all(line.startswith(start) for line, start in zip(told[1:-1], broken, strict=True))


@pytest.mark.parametrize("name", ["small buffer", "no unit"])
def test_recorded_refutations_replay(name):
    """Where more than the start is outside the theorem, the stored moves drive two flows beyond its bound, on a legal trace."""
    row = json.loads((DATA / "fairness-attacks.json").read_text(encoding="utf-8"))[name]
    stored = load_moves(DATA / "fairness-moves" / f"{name.replace(' ', '-')}.moves.npz")
    scene = Scene(make_sender(row["command"].split()[2]), stored.header.path, stored.header.model, goal="starvation")
    arena = CurveArena(scene)
    replayed = arena.replay(Found(stored.adversary))
    assert replayed.value == pytest.approx(row["ratio"], rel=1e-6)
    assert replayed.value > float(read_fair(shipped_fair()["ever_delay"]).bounds.ratio) and not arena.check(replayed.trace)
    assert any(line.startswith("(2) nothing is lost") for line in row["broken"])


def test_recorded_attacks_stay_below_the_bound_where_only_the_start_is_outside():
    rows = json.loads((DATA / "fairness-attacks.json").read_text(encoding="utf-8"))
    inside = {name: row for name, row in rows.items() if "flows" in name}
    assert len(inside) == 12 and all(row["legal"] and row["flow_steps"] > 19e6 for row in inside.values())
    assert max(row["ratio"] for row in inside.values()) < float(read_fair(shipped_fair()["ever_delay"]).bounds.ratio)
    broken = {name: [line[:3] for line in row["broken"]] for name, row in inside.items()}
    assert broken.pop("8 flows, 24 Mbit/s") == ["(1)", "(5)", "(6)"] and all(one == ["(1)", "(6)"] for one in broken.values())
