"""What players are worth to each other, against traces, the evaluation of training, and plain sums."""

import numpy as np
import pytest
from small import small

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.attacks.game import Game
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.envs.curve.distribution import DRAWN, PathSource, SomeGivenPaths
from ccenv.network.adversary import RecordedAdversary
from ccenv.training.evaluation import evaluate_in_world
from ccenv.training.league.answers import assign_environments
from ccenv.training.league.games import MixedGame, draw_scenes, make_scene, nominal_scores, play_payoffs
from ccenv.training.path_sets import PathSet

CONFIG = small()
PATHS, HOLD_OUTS = draw_scenes(CONFIG)


def test_a_payoff_is_what_the_trace_says() -> None:
    sender, one = make_sender("bbr1"), make_adversary("square")
    value = play_payoffs(CONFIG, sender, PATHS[0], [one])[0]
    trace = Game(make_scene(CONFIG, sender, PATHS[0])).trace(one)
    first = CONFIG.warmup_rtts * CONFIG.steps_per_rtt
    capacity = trace.link_rate_Bps[first + 1 :].sum() * trace.header.dt_s
    measured = float((trace.S[-1] - trace.S[first]).sum() - (trace.L[-1] - trace.L[first]).sum()) / capacity
    assert value == pytest.approx(measured, rel=1e-9) and 0 < value < 1


def test_a_mixture_gets_the_mean_and_the_worst_is_kept() -> None:
    senders = [make_sender(name) for name in ("cc_probe_drain", "reno")]
    game = MixedGame([make_scene(CONFIG, sender, PATHS[1]) for sender in senders], [0.6, 0.2])
    draw = np.random.default_rng(0)
    networks = [RecordedAdversary(f"{n}", draw.random((CONFIG.run_steps, 4))) for n in range(5)]
    own = np.array([play_payoffs(CONFIG, sender, PATHS[1], networks) for sender in senders])
    np.testing.assert_allclose(game.play_adversaries(networks[:3]), (0.75 * own[0] + 0.25 * own[1])[:3], rtol=1e-12)
    game.play_adversaries(networks[3:])
    mixed = 0.75 * own[0] + 0.25 * own[1]
    assert game.worst_payoff == pytest.approx(mixed.min()) and game.worst.name == str(mixed.argmin())
    assert game.flow_steps == 5 * CONFIG.run_steps


def test_nominal_scores_are_those_of_the_evaluation() -> None:
    sender = make_sender("cc_probe_drain")
    world = CONFIG.training_config(0, 1).environment
    known = evaluate_in_world(world, sender, CONFIG.nominal_paths, CONFIG.seed, path_set=PathSet.SELECT)
    assert nominal_scores(CONFIG, sender).mean() == pytest.approx(known.score, rel=1e-12)


def test_scenes_are_drawn_apart_and_always_the_same() -> None:
    again = draw_scenes(CONFIG)
    assert again == (PATHS, HOLD_OUTS) and not set(map(repr, PATHS)) & set(map(repr, HOLD_OUTS))
    assert draw_scenes(small(seed=1))[0] != PATHS


def test_attacked_lanes_play_the_scenes_and_others_what_they_would_without() -> None:
    distribution = CONFIG.training.environment.paths
    lanes = np.arange(6)
    scene = np.array([DRAWN, DRAWN, 0, 1, 1, 0])
    source = SomeGivenPaths(distribution, 2, PATHS, scene)
    seeds, episodes = np.full(6, 7), np.full(6, 3)
    drawn = source.draw(seeds, lanes, episodes)
    plain = PathSource(distribution, 2, 1).draw(seeds, lanes, episodes)
    own = PathArrays.from_paths(PATHS, 2)
    for name in ("link_rate_Bps", "buffer_bytes", "dt_s", "jitter_steps", "mss_bytes", "rtt_steps"):
        np.testing.assert_array_equal(getattr(drawn.paths, name)[:2], getattr(plain.paths, name)[:2])
        np.testing.assert_array_equal(getattr(drawn.paths, name)[2:], getattr(own, name)[scene[2:]])
    assert not drawn.initial_C_L_Bps[2:].any()
    np.testing.assert_array_equal(drawn.keys, plain.keys)


def test_environments_are_divided_by_the_mixture() -> None:
    scene, network = assign_environments(CONFIG, np.array([[0.5, 0.0], [0.5, 1.0]]))
    assert scene.tolist() == [DRAWN] * 4 + [0, 0, 1, 1] and network.tolist()[4:] == [0, 1, 1, 1]
