"""Found against proved: the windows are those of the proofs, and a search never finds less than the solver proves."""

import json
from fractions import Fraction

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.attack import attack
from ccenv.attack.cold_start import worst_cold_start
from ccenv.attack.game import Game, Scene
from ccenv.attack.gap import adversary_gap, gap_path
from ccenv.attack.windows import ANY_WINDOW, NO_WINDOW, Claim, Samples, always, converged, probed, samples_of, still
from ccenv.cli.main import main
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import make_path

pytest.importorskip("z3")


def samples(**curves):
    """Four rows of one run: a window of T = 4."""
    base = {"S": [0, 1, 2, 3], "inflight": [1] * 4, "queue": [0] * 4, "C_L": [0.9] * 4, "C_U": [1.1] * 4, "rate": [1] * 4}
    base |= {"C_L_lambda": [0.5] * 4, "q_U": [0, 0, 0.5, 0.5]}
    arrays = {name: np.array(curves.get(name, values), dtype=float)[:, None] for name, values in base.items()}
    return Samples(**arrays, jitter_steps=np.array([1]))


def test_utilisation_counts_as_the_proofs_do():
    """T = 4, D = Rm: what was delivered in three Rm over 2 C Rm."""
    assert Claim(4, always, "").worst(samples(S=[0, 1, 1, 1.5]))[0] == pytest.approx(1.5 / 2)


@pytest.mark.parametrize(
    ("curves", "counts"),
    [
        ({}, True),
        ({"C_L": [0.9, 0.9, 0.95, 0.95]}, False),  # a belief moves
        ({"C_U": [1.1, 1.1, 1.1, 1.05]}, False),
        ({"C_L": [1.1] * 4}, False),  # a belief is wrong
        ({"rate": [1, 1, 1, 1.5]}, False),  # progress
        ({"rate": [5, 1, 1, 1]}, True),  # row 0 was chosen before the window's first decision
        ({"queue": [0, 0, 0, 1]}, False),
        ({"inflight": [1, 1, 1, 2]}, False),
    ],
)
def test_still_windows(curves, counts):
    two = still(frozenset({"C_L", "C_U"}))
    assert bool(two(samples(**curves), 3)[0, 0]) is counts
    assert bool(Claim(4, two, "").worst(samples(**curves))[0] < NO_WINDOW) is counts


def test_still_windows_of_senders_that_read_more():
    """q_U moves: the window counts only if the sender does not read it."""
    assert still(frozenset({"C_L", "C_U", "C_L_lambda"}))(samples(), 3)[0, 0]
    assert not still(frozenset({"C_L", "C_U", "C_L_lambda", "q_U"}))(samples(), 3)[0, 0]
    assert not still(frozenset({"C_L", "C_U", "C_L_lambda"}))(samples(C_L_lambda=[1.2] * 4), 3)[0, 0]


def test_converged_windows():
    premise = converged(0.7, 3.0, 3.0)
    assert premise(samples(), 3)[0, 0]
    assert not premise(samples(C_L=[0.6] * 4), 3)[0, 0]
    assert not premise(samples(C_U=[3.1] * 4), 3)[0, 0]
    assert premise(samples(queue=[6] * 4), 3)[0, 0]  # 3 C (Rm + D)
    assert not premise(samples(queue=[6.1] * 4), 3)[0, 0]


def test_steady_windows_have_no_timeout_before_the_last_sample():
    """The proofs let beliefs time out at the last sample only."""
    two, one = converged(0.4, 3.0, 3.0), probed(0.01, 3.0)
    assert two(samples(C_L=[0.9, 0.9, 0.9, 0.5], C_U=[1.1, 1.1, 1.1, 2.0]), 3)[0, 0]
    assert not two(samples(C_L=[0.9, 0.9, 0.5, 0.5]), 3)[0, 0]
    assert not two(samples(C_U=[1.1, 1.1, 2.0, 2.0]), 3)[0, 0]
    assert one(samples(C_L_lambda=[0.5, 0.6, 0.6, 0.1]), 3)[0, 0]
    assert not one(samples(C_L_lambda=[0.5, 0.6, 0.1, 0.1]), 3)[0, 0]


def test_samples_of_a_batch_equal_those_of_its_trace():
    """What a search ranks by is what is measured on the recorded trace."""
    result = attack("cc_probe_drain", timing="smt", adversaries=["random_search"], budget_flow_steps=40_000, warmup_rtts=30)
    finding = result.by_adversary["random_search"]
    game = Game(result.scene)
    moves = np.array([[[1.0, 1.0, 0.5, 0.0]] * game.n_steps])
    assert game.play(moves)[0] == pytest.approx(game.measure(game.trace(RecordedAdversary("x", moves[0]))), rel=1e-12)
    assert ANY_WINDOW.worst(samples_of(finding.trace, 30))[0] == finding.worst_utilisation


def test_searches_stay_above_what_is_proved_and_below_kind(tmp_path):
    rows = adversary_gap(["cc_qdel", "copa"], budget_flow_steps=300_000, samples=5, cold_ends_rtts=[9])
    envelope, steady, copa = rows
    assert steady.bound == pytest.approx(0.835)
    assert steady.refuted == pytest.approx(0.84)
    for row in (envelope, steady):
        assert row.holds
        assert row.legal
        reached = {row.adversary: row.searched, "solver, cold start": row.cold_start, "solver, free start": row.free_start}
        reached = {name: value for name, value in reached.items() if value is not None}
        assert row.found == min(reached.values()) == reached[row.method]
        assert row.ratio == row.found / row.bound < 1.05
        assert row.cold_ratio >= row.ratio
        assert row.bound <= row.free_start < row.refuted
    assert copa.bound is None and copa.ratio is None and copa.cold_ratio is None
    assert copa.found == copa.searched < 0.1
    assert copa.method == copa.adversary


@pytest.mark.slow  # 20 s of the solver; a cold start is also part of the rows above
def test_the_solver_finds_early_windows_that_no_search_finds():
    """cc_probe_drain from an empty path: by Rm 15 a still window uses less than the .75 that searches find after the warm-up."""
    path = make_path(link_rate_mbps=6, rtt_ms=40, jitter_ms=40, buffer_bdp=6)
    claim = Claim(7, still(frozenset({"C_L", "C_U"})), "still")
    scene = Scene(make_sender("cc_probe_drain"), path, "ccac", "smt", 1, claim=claim)
    found = worst_cold_start(scene, "cc_probe_drain", "large", Fraction(7, 10), 60, 0, ends_rtts=[15])
    assert found.legal
    assert 0.5 <= found.utilisation < 0.7


def test_command_line(capsys, tmp_path):
    out = tmp_path / "gap.json"
    assert main(["gap", "vegas", "--budget", "200000", "--json", "-o", str(out)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text())["rows"] == shown["rows"]
    assert shown["scene"] is None and shown["scene_set"] is None  # a path of its own, on which nothing is trained
    assert shown["path"] == gap_path("large").to_dict() and shown["rows"][0]["trained_on_scenes"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vegas", "--buffer", "larg"], "unknown buffer 'larg'. Did you mean 'large'?"),
        (["vegas", "--T", "2"], "T is 2; it must be 3 to"),
        (["vegas", "--time-limit", "0"], "time_limit_s is 0; it must be"),
        (["vegas", "--budget", "0"], "the budget is 0 flow-steps; it must be 1 to 1000000000000"),
        (["vegass"], "unknown agent 'vegass'. Did you mean 'vegas'?"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, message, capsys):
    assert main(["gap", *arguments]) == 2
    shown = capsys.readouterr().err.strip()
    assert message in shown
    assert "\n" not in shown
