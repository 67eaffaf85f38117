"""Adversary policies in the kernel: the same as the environment's observation and a NumPy network, played from outside."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ccenv.adversaries import make_adversary
from ccenv.adversaries.observation import N_FLOW, N_PATH, fill_network_observation
from ccenv.agents import make_sender
from ccenv.agents.interface.interface import OBSERVATION_VERSION
from ccenv.base.errors import InputError
from ccenv.engine.compiled.policies import mlp_level, mlp_moves_reference
from ccenv.engine.curve.engine import CurveEngine
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.network import observe_network
from ccenv.envs.curve.settings import EnvSettings
from ccenv.network.adversary import ExternalAdversary, MlpAdversary, RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import make_path

PATH = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=3)
TWO = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=3, n_flows=2)


def policy(n_flows=1, columns=(0, 2), seed=0, **more):
    rng = np.random.default_rng(seed)
    n_out = len(columns) * max(1, more.get("levels", 0))
    widths = [N_PATH + n_flows * N_FLOW, 8, n_out]
    weights = tuple(rng.normal(0, 0.3, (a, b)) for a, b in itertools.pairwise(widths))
    biases = (rng.normal(0, 0.3, 8), np.full(n_out, 0.5))
    return MlpAdversary("policy", weights, biases, "tanh", OBSERVATION_VERSION, columns, **more)


def core_of(path, senders, model, adversary):
    settings = EnvSettings(paths=path, models=(model,), senders=tuple(senders), steps_per_rtt=4, episode_rtts=40)
    players = [make_sender(name) for name in senders]
    core = Core(1, settings, senders=players, adversary=adversary, groups=np.ones((1, len(senders)), np.bool_))
    core.reset(seed=0)
    return core


@pytest.mark.parametrize(
    ("path", "model", "senders"), [(PATH, "ccac", ["cc_qdel"]), (TWO, "cbr_delay", ["copa", "cc_probe_drain"])]
)
def test_kernel_observation_equals_the_environments(path, model, senders):
    core = core_of(path, senders, model, ExternalAdversary())
    engine = core._engines[0]
    out = np.zeros(N_PATH + len(senders) * N_FLOW)
    rng = np.random.default_rng(1)
    for step in range(30):
        fill_network_observation(engine._env[0], engine._flow, 0, len(senders), step / 40, out)
        np.testing.assert_allclose(out, observe_network(core)[0], rtol=1e-6, atol=1e-6)
        core.advance(moves=rng.random((1, 2 + 2 * len(senders))))


@pytest.mark.parametrize(("levels", "seed"), [(0, 0), (3, 2)])
def test_policy_in_the_kernel_plays_what_it_plays_from_outside(levels, seed):
    adversary = policy(episode_rtts=40, levels=levels, seed=seed)
    inside = core_of(PATH, ["cc_qdel"], "ccac", adversary)
    outside = core_of(PATH, ["cc_qdel"], "ccac", ExternalAdversary())
    played = set()
    for _ in range(30):
        answer = mlp_moves_reference(adversary, levels, observe_network(outside)[0])
        played.add(tuple(answer))
        outside.advance(moves=np.array([[answer[0], 1.0, answer[1], 0.0]]))
        inside.advance()
        assert inside.flow("S")[0, 0] == pytest.approx(outside.flow("S")[0, 0], rel=1e-5)
    assert 0.1 < inside.flow("S")[0, 0] / inside.env("capacity_bytes")[0] < 0.999
    assert len(played) > 1 and (not levels or {value for moves in played for value in moves} <= {0.0, 0.5, 1.0})


def test_a_discrete_move_is_the_value_with_the_highest_score():
    scores = np.array([0.0, 2.0, 1.0, 7.0, 7.0, -1.0])
    flat = MlpAdversary("flat", (np.zeros((3, 6)),), (scores,), "tanh", OBSERVATION_VERSION, (0, 2), levels=3)
    assert mlp_moves_reference(flat, 3, np.ones(3)).tolist() == [0.5, 0.0]
    assert [mlp_level(scores, which, 3) for which in (0, 1)] == [0.5, 0.0]


def test_each_environment_may_have_another_policy():
    """Pools: policies and recorded patterns side by side; the trace of each is legal."""
    pool = [policy(seed=1), policy(seed=2, decision_steps=1), RecordedAdversary("corner", np.array([[0.0, 1.0, 0.0, 0.0]]))]
    together = CurveEngine([PATH] * 3, model="ccac", senders=[make_sender("copa")], adversary=pool, steps_per_rtt=4, record=True)
    together.advance(200)
    for b, one in enumerate(pool):
        alone = CurveEngine([PATH], model="ccac", senders=[make_sender("copa")], adversary=one, steps_per_rtt=4, record=True)
        alone.reset(keys=np.array([b]))
        alone.advance(150)
        alone.advance(50)
        np.testing.assert_array_equal(alone.trace(0).S, together.trace(b).S)
        assert not check_trace(together.trace(b))


def test_a_snapshot_holds_the_moves():
    engine = CurveEngine([PATH], model="ccac", senders=[make_sender("copa")], adversary=policy(), steps_per_rtt=4)
    engine.advance(42)  # within an interval
    state = engine.snapshot()
    engine.advance(30)
    first = engine.flow("S")
    engine.restore(state)
    engine.advance(30)
    np.testing.assert_array_equal(engine.flow("S"), first)


def test_policies_that_do_not_fit_are_refused():
    for wrong, message in (
        (policy(n_flows=2), "1 flows have"),
        (policy(columns=(0, 9)), "distinct ones below 4"),
        (policy(columns=(2, 2)), "distinct ones below 4"),
        (replace(policy(), levels=3), "of 3 levels for 2 outputs"),
        (policy(levels=1), "at least 2"),
    ):
        with pytest.raises(InputError, match=message):
            CurveEngine([PATH], model="ccac", senders=[make_sender("copa")], adversary=wrong, steps_per_rtt=4)


def test_policies_scripted_and_recorded_players_share_a_batch():
    """Each environment plays as it does alone, in whatever order and number the kinds stand beside each other."""
    draw = np.random.default_rng(5)
    recorded = RecordedAdversary("recorded", draw.random((40, 4)))
    players = [policy(seed=1), policy(seed=2), make_adversary("square"), recorded, policy(seed=3), make_adversary("hoard")]

    def delivered(adversaries):
        settings = EnvSettings(paths=PATH, models=("ccac",), senders=("cc_qdel",), steps_per_rtt=4, episode_rtts=40)
        senders = [make_sender("cc_qdel")]
        core = Core(len(adversaries), settings, senders=senders, adversary=adversaries, groups=np.ones((1, 1), np.bool_))
        core.reset(seed=0)
        for _ in range(30):
            core.advance()
        return core.delivered_bytes[:, 0]

    together = delivered(players)
    np.testing.assert_array_equal(together, [delivered([player])[0] for player in players])
    assert len(set(together)) == len(players)
