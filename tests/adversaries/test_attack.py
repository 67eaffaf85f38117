"""Attacks: what is reported was replayed, is legal, deterministic, and within the budget."""

import numpy as np
import pytest

from ccenv.adversaries.search import PANEL, PATHS, SEARCHES, attack
from ccenv.adversaries.search.game import Game, Scene, worst_window
from ccenv.agents import make_sender
from ccenv.errors import InputError, UnknownNameError
from ccenv.metrics import Window, utilisation

SMALL = {"steps_per_rtt": 4, "warmup_rtts": 20, "window_rtts": 20, "budget_flow_steps": 100_000}


@pytest.fixture(scope="module")
def result():
    return attack("cc_probe_drain", seed=3, **SMALL)


def test_every_finding_is_legal_and_measured_on_its_own_trace(result):
    assert set(result.by_adversary) == set(PANEL)
    assert result.legal
    for finding in result.by_adversary.values():
        assert finding.legal
        assert not finding.violations
        window = Window(finding.trace, 80, 160)
        assert finding.worst_utilisation == pytest.approx(utilisation(window), rel=1e-12)
    assert result.worst_utilisation == min(f.worst_utilisation for f in result.by_adversary.values())
    assert result.trace is result.by_adversary[result.worst_adversary].trace


def test_budget_is_kept(result):
    spent = sum(f.flow_steps for f in result.by_adversary.values())
    assert 0.5 * SMALL["budget_flow_steps"] < spent <= SMALL["budget_flow_steps"]


def test_equal_seeds_give_equal_findings(result):
    again = attack("cc_probe_drain", seed=3, **SMALL)
    for name, finding in result.by_adversary.items():
        assert again.by_adversary[name].worst_utilisation == finding.worst_utilisation
        np.testing.assert_array_equal(again.by_adversary[name].trace.S, finding.trace.S)


def test_searches_are_no_worse_than_kind(result):
    kind = attack("cc_probe_drain", adversaries=["kind"], **SMALL)
    assert result.worst_utilisation < kind.worst_utilisation


def test_unknown_names_get_suggestions():
    with pytest.raises(UnknownNameError, match="cem"):
        attack("copa", adversaries=["cme"], **SMALL)
    with pytest.raises(UnknownNameError, match="hoard"):
        attack("copa", adversaries=["hord"], **SMALL)
    with pytest.raises(UnknownNameError, match="shallow"):
        attack("copa", path="shalow", **SMALL)
    with pytest.raises(InputError, match="twice"):
        attack("copa", adversaries=["cem", "cem"], **SMALL)


def test_a_network_without_choices_is_refused():
    with pytest.raises(InputError, match="no choice"):
        attack("copa", model="ideal", **SMALL)


def test_a_budget_below_one_run_is_refused():
    with pytest.raises(InputError, match="raise the budget"):
        attack("copa", adversaries=["cem"], **(SMALL | {"budget_flow_steps": 100}))


def test_calm_means_a_kind_network_first():
    scene = Scene(make_sender("cc_qdel"), PATHS["deep"], "ccac", steps_per_rtt=4, warmup_rtts=20, window_rtts=20, calm_rtts=10)
    game = Game(scene)
    moves = game.moves(np.zeros((1, 1, 2)))
    assert (moves[0, :40] == (1, 1, 1, 0)).all()
    assert (moves[0, 40:, [0, 2]] == 0).all()


def test_worst_window_counts_as_the_proofs_do():
    """Nine Rm, D = Rm: what was delivered over 8 C Rm, at the worst moment."""
    served = np.concatenate([np.arange(20.0), 19 + np.arange(1.0, 21.0) / 2])[:, None]
    assert worst_window(served, np.array([1.0]), 1)[0] == pytest.approx(9 * 0.5 / 8)


def test_proof_timing_measures_the_worst_window():
    result = attack("cc_qdel", timing="smt", adversaries=["corners"], window_rtts=20, warmup_rtts=20)
    trace = result.trace
    gains = trace.S[20 + 9 :, 0] - trace.S[20:-9, 0]
    bdp = trace.header.path.bdp_bytes
    assert result.worst_utilisation == pytest.approx(gains.min() / (8 * bdp))


@pytest.mark.parametrize("name", SEARCHES.names())
def test_parameters_are_checked(name):
    with pytest.raises(InputError, match="unknown parameter"):
        attack("copa", adversaries=[f"{name}:nonsense=1"], **SMALL)
