"""Closed-loop, two-phase and mutating searches, the solver as an adversary, and goals beside the utilisation."""

import numpy as np
import pytest
from oracles.policies import mlp_reference

from ccenv.agents import make_sender
from ccenv.attacks.catalog import PANEL, PANELS
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.goals import GOALS
from ccenv.attacks.run import attack
from ccenv.attacks.searches.mutation import mutate
from ccenv.attacks.searches.patterns import Shape
from ccenv.attacks.searches.policies import CONSTANT, PolicyShape, policy_shapes
from ccenv.attacks.searches.population import Normal, halve
from ccenv.attacks.searches.solver import Solver
from ccenv.attacks.searches.two_phase import Phases
from ccenv.base.errors import InputError
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.metrics.table import METRICS
from ccenv.network.path import make_path

SMALL = {"steps_per_rtt": 4, "warmup_rtts": 20, "window_rtts": 20, "budget_flow_steps": 120_000}
ONE = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=2)
TWO = ONE.model_copy(update={"flows": ONE.flows * 2})


def game(sender="cc_probe_drain", path=ONE, model="ccac", **changes):
    fields = {"steps_per_rtt": 4, "warmup_rtts": 15, "window_rtts": 15} | changes
    return Game(Scene(make_sender(sender), path, model, **fields))


@pytest.mark.parametrize("name", ["two_phase", "mutation", "policy_cem"])
@pytest.mark.parametrize(("path", "model", "goal"), [(ONE, "ccac", "utilisation"), (TWO, "cbr_delay", "fairness")])
def test_new_searches_are_legal_deterministic_and_within_their_budget(name, path, model, goal):
    given = SMALL | {"path": path, "model": model, "goal": goal, "adversaries": [name]}
    first, again = (attack("cc_probe_drain", **given).by_adversary[name] for _ in range(2))
    assert first.legal and not check_trace(first.trace) and first.flow_steps <= SMALL["budget_flow_steps"]
    np.testing.assert_array_equal(first.trace.S, again.trace.S)
    assert first.details["after_mutation"] <= first.details["before_mutation"]
    reached = first.worst_utilisation if first.value is None else first.value
    assert reached == pytest.approx(first.details["after_mutation"], rel=1e-9)  # what was found is what is played again


BUDGETED = ("two_phase", "mutation", "policy_cem", "policy_cma_es", "policy_ppo")


@pytest.mark.parametrize(
    ("name", "runs"), [*((name, runs) for name in BUDGETED for runs in (0, 1, 5, 40)), ("solver", 0), ("solver", 5)]
)
def test_any_budget_is_kept_or_refused(name, runs):
    """A budget that does not pay for one run is refused in one line; nothing spends more than it was given."""
    if name in ("policy_cma_es", "policy_ppo", "solver"):
        pytest.importorskip({"policy_cma_es": "cma", "policy_ppo": "stable_baselines3", "solver": "z3"}[name])
    budget = 160 * runs + 10
    given = SMALL | {"budget_flow_steps": budget}
    spec = "solver:steps=20,asks=1,time_limit_s=1" if name == "solver" else name
    try:
        finding = attack("cc_probe_drain", path=ONE, adversaries=[spec], **given).worst
    except InputError as error:
        assert "raise the budget" in str(error) and (runs < 40 or name == "mutation")
    else:
        assert finding.legal and finding.flow_steps <= budget


@pytest.mark.parametrize(("path", "model"), [(ONE, "ccac"), (TWO, "ccac"), (TWO, "cbr_delay")])
@pytest.mark.parametrize("calm_rtts", [0, 6])
def test_the_moves_of_a_policy_played_again_are_the_policy(path, model, calm_rtts):
    one = game(path=path, model=model, calm_rtts=calm_rtts)
    draw, distinct = np.random.default_rng(1), 0
    for shape in policy_shapes(one):
        policy = shape.adversary(one, draw.standard_normal(shape.n_values(one)))
        moves = one.moves_of(policy)
        distinct = max(distinct, len(np.unique(moves[:, one.open_moves], axis=0)))
        np.testing.assert_array_equal(moves[: one.calm_steps], np.tile(one.kind, (one.calm_steps, 1)))
        assert one.play(moves[None])[0] == one.play_adversaries([policy])[0]
    assert distinct > 5


def test_numbers_of_a_policy_are_its_layers():
    one = game()
    shape, draw = PolicyShape(3, 2), np.random.default_rng(0)
    values = draw.standard_normal(shape.n_values(one))
    policy = shape.adversary(one, values)
    assert [w.shape for w in policy.weights] == [(19, 3), (3, 2)] and not policy.weights[0][list(CONSTANT)].any()
    seen = draw.standard_normal(19)
    hidden = np.tanh(seen @ policy.weights[0] + values[48:51])
    np.testing.assert_allclose(mlp_reference(policy, seen), hidden @ values[51:57].reshape(3, 2) + values[57:] + 0.5)


def test_policies_cannot_wait_beyond_the_warm_up():
    with pytest.raises(InputError, match="calm_rtts is 25, warmup_rtts 20"):
        attack("copa", adversaries=["policy_cem"], calm_rtts=25, **SMALL)


def test_phases_follow_each_other():
    one = game(calm_rtts=2)
    phases = Phases(Shape(2, 1), Shape(1, 2))
    values = np.array([[0.5, *np.arange(8) / 8]])
    moves = phases.moves(one, values)[0][:, one.open_moves]
    switch = 8 + 56
    assert phases.switch_step(one, 0.5) == switch
    for step in range(8, one.n_steps):
        since, at = (step - 8, 0) if step < switch else (step - switch, 4)
        place = since // 4 % 2 if step < switch else since // 2 % 2
        np.testing.assert_array_equal(moves[step], values[0, 1 + at + 2 * place : 3 + at + 2 * place])


def test_mutation_only_makes_it_worse_and_leaves_the_calm_alone():
    one = game("reno", calm_rtts=5)
    start = one.moves(np.full((1, 4, 2), 0.5))
    before = float(one.play(start)[0])
    moves, after = mutate(one, start[0], before, 40 * 17 * one.n_steps, np.random.default_rng(0))
    assert after < before and one.play(moves[None])[0] == after
    np.testing.assert_array_equal(moves[: one.calm_steps], start[0][: one.calm_steps])
    assert moves.min() >= 0 and moves.max() <= 1


def test_halving_finds_the_distribution_with_the_minimum():
    """Distances from a point that only the second of three boxes contains; the others are dropped early."""
    played = [0, 0, 0]

    def arm(which, low):
        def play(values):
            played[which] += len(values)
            return ((values - 0.7) ** 2).sum(axis=1)

        return Normal(np.full(3, low + 0.5), np.full(3, 0.5), play, 0.01, (low, low + 1.0), lambda values: values)

    arms = [arm(0, 2.0), arm(1, 0.0), arm(2, -3.0)]
    assert halve(arms, 40, 20, 4, np.random.default_rng(0)) == 1
    assert arms[1].best < 1e-3 and sum(played) == 800 and played[1] > 1.2 * played[2]


@pytest.mark.parametrize("name", GOALS)
def test_what_a_search_counts_is_what_the_trace_measures(name):
    """Two flows and random moves; the engine counts the delay of the ACKs that arrived, the trace that of delivered bytes."""
    goal = GOALS[name]
    for sender in ("reno", "cc_probe_drain"):
        one = game(sender, TWO, "cbr_delay", goal=name)
        moves = one.moves(np.random.default_rng(3).random((1, 8, len(one.open_moves))))
        measured = goal.measure(one.trace(RecordedAdversary("x", moves[0])), one.first_row)
        assert goal.badness(measured) == METRICS[goal.metric].sign * measured
        assert one.play(moves)[0] == pytest.approx(goal.badness(measured), rel=0.15 if name == "delay" else 1e-9, abs=1e-12)


def test_mutation_beats_the_first_panel_on_cc_probe_drain_and_panels_keep_their_names():
    """Panel v1 finds .916 on this scene with ten times the flow-steps; records name the adversaries that they were made with."""
    found = attack("cc_probe_drain", adversaries=["two_phase"], budget_flow_steps=2_000_000)
    assert found.legal and found.worst_utilisation < 0.90
    assert PANELS["v1"] == ("corners", "slow_link", "random_search", "cem", "greedy", "beam") and PANELS["v2"] == PANEL


@pytest.mark.slow
@pytest.mark.parametrize(("sender", "most"), [("learned_robust_d4", 0.915), ("cc_probe_drain", 0.87)])
def test_the_panel_finds_what_is_known(sender, most):
    found = attack(sender)
    assert found.legal and found.worst_utilisation <= most


def test_where_the_solver_is_too_slow_the_worst_corner_is_played(monkeypatch):
    monkeypatch.setattr(Solver, "_find_continuation", lambda *arguments: ("unknown", None, arguments[4]))
    settings = {"model": "ccac", "timing": "smt", "warmup_rtts": 20, "window_rtts": 20, "budget_flow_steps": 100_000}
    spec = "solver:steps=10,asks=2"
    finding = attack("cc_probe_drain", path="deep", adversaries=[spec], **settings).by_adversary["solver"]
    details = finding.details
    assert details["continuations"] == details["asked"] == details["corners"] == 4
    assert details["decided"] == details["continued"] == 0
    benign = attack("cc_probe_drain", path="deep", adversaries=["benign"], **settings).worst_utilisation
    assert details["before_mutation"] < benign - 0.05 and finding.legal


def test_the_solver_continues_an_episode():
    """States handed over are ones that the laws allow, so questions have answers, and the moves are legal in the engine."""
    pytest.importorskip("z3")
    solver = ["solver:steps=5,asks=2,time_limit_s=120"]
    given = {"warmup_rtts": 8, "window_rtts": 12, "budget_flow_steps": 4_000, "adversaries": solver}
    found = attack("cc_qdel", path=ONE.model_copy(update={"buffer_bytes": 6 * ONE.bdp_bytes}), timing="smt", **given)
    kind = attack("cc_qdel", path=found.scene.path, timing="smt", **(given | {"adversaries": ["kind"]}))
    details = found.worst.details
    assert found.legal and all(found.worst.preconditions.values())
    assert details["continuations"] == 4 and details["continued"] >= 3
    assert details["before_mutation"] < kind.worst_utilisation
    told = attack("copa", path=ONE, **(given | {"steps_per_rtt": 4})).worst
    assert told.preconditions["has_encoding"] is False
