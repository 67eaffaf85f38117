"""Found against proved: the windows are those of the proofs, and a search never finds less than the solver proves."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.attacks.cold_start import Questions, Window, still_window, worst_cold_start
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.gap import adversary_gap, gap_path
from ccenv.attacks.run import attack
from ccenv.attacks.windows import ANY_WINDOW, NO_WINDOW, Claim, Samples, always, converged, probed, samples_of, still
from ccenv.base.errors import InputError
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.moves import as_adversary
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.theorems.lasso import periods

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


LAMBDA, CONVERGED = frozenset({"C_L", "C_U", "C_L_lambda"}), converged(0.7, 3.0, 3.0)
# The proofs let beliefs time out at the last sample only.
STEADY, PROBED = converged(0.4, 3.0, 3.0), probed(0.01, 3.0)


@pytest.mark.parametrize(
    ("premise", "curves", "counts"),
    [
        (still(LAMBDA), {}, True),  # q_U moves: the window counts only if the sender does not read it
        (still(LAMBDA | {"q_U"}), {}, False),
        (still(LAMBDA), {"C_L_lambda": [1.2] * 4}, False),
        (CONVERGED, {}, True),
        (CONVERGED, {"C_L": [0.6] * 4}, False),
        (CONVERGED, {"C_U": [3.1] * 4}, False),
        (CONVERGED, {"queue": [6] * 4}, True),  # 3 C (Rm + D)
        (CONVERGED, {"queue": [6.1] * 4}, False),
        (STEADY, {"C_L": [0.9, 0.9, 0.9, 0.5], "C_U": [1.1, 1.1, 1.1, 2.0]}, True),
        (STEADY, {"C_L": [0.9, 0.9, 0.5, 0.5]}, False),
        (STEADY, {"C_U": [1.1, 1.1, 2.0, 2.0]}, False),
        (PROBED, {"C_L_lambda": [0.5, 0.6, 0.6, 0.1]}, True),
        (PROBED, {"C_L_lambda": [0.5, 0.6, 0.1, 0.1]}, False),
    ],
)
def test_windows_of_other_premises(premise, curves, counts):
    assert bool(premise(samples(**curves), 3)[0, 0]) is counts


def test_samples_of_a_batch_equal_those_of_its_trace():
    """What a search ranks by is what is measured on the recorded trace."""
    result = attack("cc_probe_drain", timing="smt", adversaries=["random_search"], budget_flow_steps=40_000, warmup_rtts=30)
    finding = result.by_adversary["random_search"]
    game = Game(result.scene)
    moves = np.array([[[1.0, 1.0, 0.5, 0.0]] * game.n_steps])
    assert game.play(moves)[0] == pytest.approx(game.measure(game.trace(RecordedAdversary("x", moves[0]))), rel=1e-12)
    assert ANY_WINDOW.worst(samples_of(finding.trace, 30))[0] == finding.worst_utilisation


def test_searches_stay_above_what_is_proved_and_below_kind(tmp_path):
    rows = adversary_gap(["cc_qdel", "copa"], budget_flow_steps=150_000, samples=5, cold_ends_rtts=[])
    envelope, steady, copa = rows
    assert steady.bound == pytest.approx(0.835) and steady.refuted == pytest.approx(0.84)
    for row in (envelope, steady):
        assert row.holds and row.legal
        reached = {row.adversary: row.searched, "solver, cold start": row.cold_start, "solver, free start": row.free_start}
        reached = {name: value for name, value in reached.items() if value is not None}
        assert row.found == min(reached.values()) == reached[row.method] and row.ratio == row.found / row.bound < 1.05
        assert row.cold_ratio >= row.ratio and row.bound <= row.free_start < row.refuted
    assert copa.bound is None and copa.ratio is None and copa.cold_ratio is None and copa.found == copa.searched < 0.1
    assert copa.method == copa.adversary


BELIEFS = frozenset({"C_L", "C_U"})


def questions(name, samples=7):
    claim = Claim(samples, still(BELIEFS), "still")
    scene = Scene(make_sender(name), gap_path("large"), "ccac", "smt", 1, claim=claim)
    return Questions(scene, still_window(BELIEFS), name, "large", 60, 0)


def test_a_cold_run_of_the_solver_is_one_of_the_engine_beyond_a_time_out():
    """cc_probe_drain's beliefs time out at Rm 10; the solver's window from Rm 11 on is the engine's, number by number."""
    ask = questions("cc_probe_drain")
    answer, run = ask.ask("cold", 17, Fraction(3, 4))
    assert answer.status == "sat"
    exact = run.replayed(answer)
    window = Window(exact, 11, 6)
    moves = as_adversary(as_trace(exact.as_one(), "cc_probe_drain"))
    trace = Game(replace(ask.scene, warmup_rtts=0, window_rtts=17)).trace(moves)
    assert not check_trace(trace)
    bdp_bytes = trace.header.path.bdp_bytes
    assert (trace.S[17, 0] - trace.S[11, 0]) / bdp_bytes == pytest.approx(float(window.delivered), rel=1e-9)
    for name in sorted(BELIEFS):
        solver = [float(value) for value in window.series(name)]
        assert trace.beliefs[name][11:18, 0] / trace.header.path.link_rate_Bps == pytest.approx(solver, rel=1e-9)
    assert float(window.delivered) < 0.75 * 5


def test_runs_that_the_engine_plays_are_runs_of_the_solver():
    """A window that the engine measured in a random run exists for the solver too, so its bounds speak about it."""
    ask = questions("cc_probe_drain")
    game = Game(replace(ask.scene, warmup_rtts=0, window_rtts=25))
    draw = np.random.default_rng(5)
    moves = draw.choice([0.0, 1.0], (400, game.n_steps, 4))
    lowest = {}
    for end in (13, 17):
        windows = Game(replace(ask.scene, warmup_rtts=end - 6, window_rtts=6))
        lowest[end] = min(windows.play(moves[:, : windows.n_steps]))
    assert min(lowest.values()) < NO_WINDOW
    for end, used in lowest.items():
        if used < NO_WINDOW:
            answer, _ = ask.ask("cold", end, Fraction(used).limit_denominator(10**6) + Fraction(1, 10**4))
            assert answer.status == "sat"


@pytest.mark.slow  # two minutes of the solver
def test_what_is_found_from_a_cold_start_and_what_is_proved_of_such_runs():
    found = worst_cold_start(questions("cc_probe_drain"), Fraction(1, 2), Fraction(7, 10), [15, 17])
    assert found.legal and 0.5 <= found.bound <= found.none_below <= found.utilisation < 0.7


def test_time_outs_of_other_beliefs_are_not_encoded():
    with pytest.raises(InputError, match="cc_probe_slow reads C_L_lambda, q_U, whose time-outs are not encoded"):
        periods(Setting("cbr_delay"), smt_sender("cc_probe_slow"), Needs(), 12)
    with pytest.raises(InputError, match="a run of 81 Rm"):
        periods(Setting("ccac"), smt_sender("cc_qdel"), Needs(), 81)


def test_command_line(answer, tmp_path):
    out = tmp_path / "gap.json"
    shown = answer(["gap", "vegas", "--budget", "200000", "--json", "-o", str(out)])
    assert json.loads(out.read_text())["rows"] == shown["rows"]
    assert shown["scene"] is None and shown["scene_set"] is None  # a path of its own, on which nothing is trained
    assert shown["path"] == gap_path("large").to_dict() and shown["rows"][0]["trained_on_scenes"] == []
