"""Attacks: what is reported was replayed, is legal, deterministic, and within the budget."""

import re

import numpy as np
import pytest

from ccenv.adversaries.learned import load_adversary, save_adversary
from ccenv.adversaries.observation import N_FLOW, N_PATH
from ccenv.agents import make_sender
from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.attacks.catalog import SEARCHES, make_search
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.run import attack
from ccenv.attacks.scenes import PATHS
from ccenv.attacks.searches.lookahead import fork
from ccenv.attacks.searches.patterns import shapes
from ccenv.base.errors import InputError
from ccenv.network.adversary import ExternalAdversary, MlpAdversary, RecordedAdversary
from ccenv.network.metrics.trace import Window, utilisation
from ccenv.network.path import make_path

SMALL = {"steps_per_rtt": 4, "warmup_rtts": 20, "window_rtts": 20, "budget_flow_steps": 200_000}


def test_cma_es_is_deterministic():
    pytest.importorskip("cma")
    given = {**SMALL, "adversaries": ["cma_es:population=8"], "budget_flow_steps": 20_000}
    assert attack("copa", **given).worst_utilisation == attack("copa", **given).worst_utilisation


def test_a_finding_is_measured_on_its_own_trace():
    for finding in attack("cc_probe_drain", adversaries=["corners", "cem"], **SMALL).by_adversary.values():
        assert finding.worst_utilisation == pytest.approx(utilisation(Window(finding.trace, 80, 160)), rel=1e-12)


def test_a_path_without_jitter_leaves_the_panel_something_to_do():
    """Non-congestive loss alone: slow_link says that it cannot act, the others use the budget."""
    path = make_path(link_rate_mbps=12, rtt_ms=40, buffer_bdp=2)
    path = path.model_copy(update={"flows": (path.flows[0].model_copy(update={"loss_budget": 0.02}),)})
    result = attack("reno", path=path, model="cbr_delay", **SMALL)
    assert result.legal and result.by_adversary["slow_link"].preconditions == {"has_jitter": False}
    assert result.worst_utilisation < result.by_adversary["slow_link"].worst_utilisation


@pytest.mark.parametrize(
    "adversaries",
    [["corners", "cem", "kind"], ["slow_link", "beam"], ["corners", "mutation", "policy_cem"], ["evolution"], ["policy_ppo"]],
)
def test_the_least_total_budget_is_told_before_anything_is_played_and_is_enough(adversaries, monkeypatch):
    if "policy_ppo" in adversaries:
        pytest.importorskip("stable_baselines3")
    with monkeypatch.context() as nothing_runs:
        nothing_runs.setattr(Game, "engine", None)
        with pytest.raises(InputError) as refusal:
            attack("copa", adversaries=adversaries, **(SMALL | {"budget_flow_steps": 1}))
        least = int(re.search(r"at least (\d+) in all", str(refusal.value))[1])
        with pytest.raises(InputError, match=f"at least {least} in all"):
            attack("copa", adversaries=adversaries, **(SMALL | {"budget_flow_steps": least - 1}))
    result = attack("copa", adversaries=adversaries, **(SMALL | {"budget_flow_steps": least}))
    assert sum(found.flow_steps for found in result.by_adversary.values()) <= least


@pytest.mark.parametrize("name", ["corners", "slow_link", "starvation:converge_rtts=10", "kind"])
def test_what_a_fixed_adversary_takes_is_known_beforehand(name):
    result = attack("copa", adversaries=[name], **SMALL)
    search = make_search(name)
    needs = getattr(search, "least_flow_steps", lambda game: game.run_flow_steps)
    assert result.worst.flow_steps == needs(Game(result.scene))


def test_cem_takes_bbr_with_long_jitter_below_15_percent():
    """Its moves must be held: with one value per step they are not found."""
    small = {"steps_per_rtt": 8, "warmup_rtts": 60, "window_rtts": 60, "budget_flow_steps": 1_500_000}
    found = attack("bbr1", path="long_jitter", adversaries=["corners", "cem"], **small)
    assert found.legal and found.worst_utilisation < 0.15 and found.by_adversary["cem"].details["values_per_rtt"] < 8


@pytest.mark.parametrize("K", [1, 3, 8])
def test_shapes_hold_each_value_for_an_equal_part_of_an_rtt(K):
    scene = Scene(make_sender("copa"), PATHS["deep"], "ccac", steps_per_rtt=K, warmup_rtts=3, window_rtts=3)
    game = Game(scene)
    rng = np.random.default_rng(0)
    for shape in shapes(game):
        values = rng.random((2, shape.n_values, len(game.open_moves)))
        moves = shape.moves(game, values)[:, :, game.open_moves]
        steps = np.arange(6 * K)
        row = (steps // K % shape.period_rtts) * shape.values_per_rtt + steps % K * shape.values_per_rtt // K
        np.testing.assert_array_equal(moves, values[:, row])
    assert {shape.values_per_rtt for shape in shapes(game)} == {min(n, K) for n in (1, 2, 4, K)}


def test_calm_means_a_kind_network_first():
    scene = Scene(make_sender("cc_qdel"), PATHS["deep"], "ccac", steps_per_rtt=4, warmup_rtts=20, window_rtts=20, calm_rtts=10)
    game = Game(scene)
    moves = game.moves(np.zeros((1, 1, 2)))
    assert (moves[0, :40] == (1, 1, 1, 0)).all() and (moves[0, 40:, [0, 2]] == 0).all()


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


def test_a_fork_goes_on_exactly_where_its_source_was():
    """Environments copied onto each other, then played alike, stay alike; the source is unchanged."""
    scene = Scene(make_sender("copa"), PATHS["deep"], "ccac", steps_per_rtt=4, warmup_rtts=10, window_rtts=10)
    engine = Game(scene).engine(ExternalAdversary(), 4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        engine.advance(2, moves=rng.random((4, 4)))
    before = engine.flow("S")[:, 0]
    assert len(set(before)) == 4
    fork(engine, np.array([2, 2, 0, 3]))
    np.testing.assert_array_equal(engine.flow("S")[:, 0], before[[2, 2, 0, 3]])
    for _ in range(20):
        engine.advance(2, moves=np.tile(rng.random(4), (4, 1)))
    after = engine.flow("S")[:, 0]
    assert after[0] == after[1] and len(set(after)) == 3


def test_greedy_finds_at_least_the_worst_constant_of_a_memoryless_sender():
    """Against a constant rate below C only service matters, and only by what is held at the window's end."""
    sender = "constant:rate_mbps=24"
    found = attack(sender, adversaries=["greedy", "corners"], **SMALL).by_adversary
    assert found["greedy"].worst_utilisation <= found["corners"].worst_utilisation + 1e-9


def test_a_beam_narrows_to_its_budget():
    found = attack("copa", adversaries=["beam:width=256"], **SMALL).by_adversary["beam"]
    assert 1 <= found.details["width"] < 256 and found.flow_steps <= SMALL["budget_flow_steps"]
    with pytest.raises(InputError, match="raise the budget"):
        attack("copa", adversaries=["beam"], **(SMALL | {"budget_flow_steps": 1000}))


def test_evolution_reports_scenarios_that_differ_and_replay():
    found = attack("reno", adversaries=["evolution:population=16"], **SMALL).by_adversary["evolution"]
    assert found.legal
    failures = found.details["different_failures"]
    assert failures[0]["utilisation"] == pytest.approx(found.worst_utilisation)
    assert found.trace.header.path.link_rate_Bps * 8e-6 == pytest.approx(failures[0]["link_rate_mbps"])
    assert failures[0]["utilisation"] <= min(f["utilisation"] for f in failures)


def test_a_solver_trace_is_replayed(tmp_path):
    """A made-up counterexample on the K = 1 grid: hold, then release; each of its steps lasts one Rm."""
    scene = Scene(make_sender("cc_qdel"), PATHS["deep"], "ccac", timing="smt", steps_per_rtt=1, warmup_rtts=5, window_rtts=9)
    hold_then_release = RecordedAdversary("x", np.array([[0.0, 1, 0, 0], [1.0, 1, 1, 0]]), periodic=True)
    engine = Game(scene).engine(hold_then_release, 1, record=True)
    engine.advance(8)
    file = tmp_path / "trace.npz"
    engine.trace(0).save(file)
    found = attack("copa", adversaries=[str(file)], **SMALL).by_adversary[str(file)]
    assert found.legal and found.details["made_for"] == "cc_qdel" and found.flow_steps == 8 * 160


@pytest.mark.parametrize(("levels", "n_out"), [(0, 2), (3, 6)])
def test_a_learned_adversary_is_loaded_and_played(tmp_path, levels, n_out):
    n_in = N_PATH + N_FLOW
    layers = (np.zeros((n_in, n_out)),), (np.zeros(n_out),)
    policy = MlpAdversary("corner", *layers, "tanh", OBSERVATION_VERSION, (0, 2), 0, 64, levels)
    save_adversary(tmp_path, policy, {"score": 1.0})
    result = attack("copa", adversaries=[str(tmp_path), "slowest:waste=0"], **SMALL)
    worst = [finding.worst_utilisation for finding in result.by_adversary.values()]
    assert worst[0] == pytest.approx(worst[1], rel=1e-9)
    again = load_adversary(tmp_path / "adversary.json")
    assert again.columns == (0, 2) and again.levels == levels
    assert all((a == b).all() for a, b in zip(again.weights, policy.weights, strict=True))


@pytest.mark.parametrize(
    ("weights", "message"),
    [((np.zeros((19, 2)), np.zeros((3, 2))), "layer 1 has weights of shape"), ((np.full((19, 2), np.nan),), "is not finite")],
)
def test_adversaries_that_could_not_be_read_back_are_not_written(tmp_path, weights, message):
    biases = tuple(np.zeros(2) for _ in weights)
    with pytest.raises(InputError, match=message):
        save_adversary(tmp_path, MlpAdversary("x", weights, biases, "tanh", OBSERVATION_VERSION, (0, 2)))
    assert not list(tmp_path.iterdir())


def test_a_damaged_learned_adversary_is_refused(tmp_path):
    policy = MlpAdversary("x", (np.zeros((19, 2)),), (np.zeros(2),), "tanh", OBSERVATION_VERSION, (0, 2))
    save_adversary(tmp_path, policy)
    weights = tmp_path / "adversary.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8] + b"\0" * 7 + b"\1")
    with pytest.raises(InputError, match="sha256 differs"):
        load_adversary(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        attack("copa", adversaries=[str(tmp_path / "missing.safetensors")], **SMALL)
