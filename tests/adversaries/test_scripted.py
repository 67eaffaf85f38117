"""Scripted adversaries: compile, equal their plain Python form, stay in [0, 1], and do what they say."""

import numpy as np
import pytest
from jitter_box import compiled, delays_steps, fresh, fresh_move, run_box, view_of

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents.callbacks import ADVERSARY_SLOTS
from ccenv.base.errors import InputError

NAMES = ADVERSARIES.names("scripted")
FIELDS = ("waste", "service", "rate", "loss")


@pytest.mark.parametrize("name", NAMES)
def test_compiled_equals_plain_python_and_moves_are_in_range(name):
    adversary = make_adversary(name)
    assert len(adversary.state.names) <= ADVERSARY_SLOTS
    init, play = compiled(adversary)
    rng = np.random.default_rng(3)
    for flow in (0, 2):
        one, other = fresh(adversary), fresh(adversary)
        view = view_of(flow=flow, n_flows=3)
        init(one, view)
        adversary.init(other, view)
        for step in range(300):
            view = view_of(flow=flow, n_flows=3, now_s=step * 0.005, step=step, held_bytes=rng.choice([0.0, 1e4]))
            move_one, move_other = fresh_move(), fresh_move()
            play(one, view, move_one)
            adversary.play(other, view, move_other)
            assert move_one.tolist() == move_other.tolist() and one.tolist() == other.tolist()
            assert all(0.0 <= move_one[field] <= 1.0 for field in FIELDS)


@pytest.mark.parametrize("name", NAMES)
def test_every_move_is_set_in_every_step(name):
    """A move left over from the step before would act unseen."""
    adversary = make_adversary(name)
    state, view, move = fresh(adversary), view_of(), fresh_move()
    adversary.init(state, view)
    for step in range(40):
        view.now_s, view.step = step * view.dt_s, step
        for field in FIELDS:
            move[field] = -1.0
        adversary.play(state, view, move)
        assert all(move[field] >= 0.0 for field in FIELDS)


@pytest.mark.parametrize("name", NAMES)
def test_paths_without_jitter_are_served(name):
    """With D = 0 the box has no choice; the adversary must not divide by D or loop."""
    P, S, _ = run_box(make_adversary(name), 50, jitter_steps=0)
    np.testing.assert_array_equal(S, P)


def test_kind_slowest_and_uniform_play_what_their_names_say():
    P, S, _ = run_box(make_adversary("kind"), 50)
    np.testing.assert_array_equal(S, P)
    P, S, _ = run_box(make_adversary("slowest"), 50, jitter_steps=5)
    np.testing.assert_array_equal(S[5:], P[:-5])
    _, _, moves = run_box(make_adversary("slowest:waste=0.25,rate=0.5,loss=1"), 3)
    assert not S[:5].any() and [set(moves[field]) for field in ("waste", "rate", "loss")] == [{0.25}, {0.5}, {1.0}]
    _, _, moves = run_box(make_adversary("uniform"), 4000)
    for field in FIELDS:
        u = moves[field]
        assert abs(u.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 4000) and abs(u.var() - 1 / 12) < 0.006
        assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.07
    assert abs(np.corrcoef(moves["service"], moves["waste"])[0, 1]) < 0.07


@pytest.mark.parametrize("name", ["uniform", "batch"])
def test_random_adversaries_depend_on_seed_and_flow_only(name):
    def services(**keys):
        return run_box(make_adversary(name), 200, **keys)[2]["service"]

    np.testing.assert_array_equal(services(seed=5), services(seed=5))
    assert (services(seed=5) != services(seed=6)).any() and (services(seed=5, flow=0) != services(seed=5, flow=1)).any()


def test_batch_releases_everything_after_a_uniform_wait():
    """Waits are U[0, D): mean D/2, no hold beyond D, and everything goes at each release."""
    steps, jitter_steps = 40_000, 400
    P, S, moves = run_box(make_adversary("batch"), steps, steps_per_rtt=400, jitter_steps=jitter_steps)
    assert set(moves["service"]) == {0.0, 1.0}
    releases = np.nonzero(moves["service"])[0] + 1
    np.testing.assert_array_equal(S[releases], P[releases])
    held = np.diff(releases) * 1.0
    assert held.max() <= jitter_steps + 1
    n = len(held)
    # Releases that fall into the same step merge, which lengthens the mean by less than half a percent at 400 steps.
    assert held.mean() == pytest.approx(jitter_steps / 2, abs=4 * jitter_steps / np.sqrt(12 * n) + 2)
    # Inspection paradox: a byte that leaves at a random time waits E[w^2]/(2 E[w]) = D/3 on average.
    assert np.nanmean(delays_steps(P, S)) == pytest.approx(jitter_steps / 3, rel=0.15)
    assert S[-1] == pytest.approx(P[-1], rel=0.02)  # the average rate is kept


def test_periodic_square_and_hoard_keep_their_times():
    P, S, moves = run_box(make_adversary("periodic:interval_ms=15"), 48)  # dt 5 ms, D 40 ms
    released = np.nonzero(moves["service"])[0] + 1
    np.testing.assert_array_equal(released, np.arange(3, 49, 3))
    np.testing.assert_array_equal(S[released], P[released])
    assert np.nanmax(delays_steps(P, S)) == 2
    _, _, moves = run_box(make_adversary("periodic"), 64)  # its default is the jitter bound
    np.testing.assert_array_equal(np.nonzero(moves["service"])[0] + 1, np.arange(8, 65, 8))
    _, _, moves = run_box(make_adversary("square:period_rtts=2,duty=0.25,waste=0.5"), 64)  # 8 steps per RTT
    np.testing.assert_array_equal(moves["service"], np.tile([1.0] * 4 + [0.0] * 12, 4))
    assert set(moves["waste"]) == {0.5}
    P, S, moves = run_box(make_adversary("hoard:period_rtts=2,hold=0.5"), 64)
    np.testing.assert_array_equal(moves["service"], np.tile([0.0] * 8 + [1.0] * 8, 4))
    assert not moves["waste"].any()
    assert np.diff(S).max() == pytest.approx(9 * (P[1] - P[0]), rel=1e-9)  # eight held steps and the step itself


@pytest.mark.parametrize("start_step", [0, 3, 20])
def test_one_packet_is_early_once_and_the_rest_late_by_the_bound(start_step):
    """[Starvation] s.5.1: some byte sees no jitter, every later one all of D."""
    P, S, _ = run_box(make_adversary("one_packet"), 100, jitter_steps=6, start_step=start_step)
    first = start_step + 1
    assert 0.99 * P[first] < S[first] < P[first]  # no jitter for nearly all of the first bytes
    assert not np.diff(S[first : first + 6]).any()
    np.testing.assert_array_equal(S[first + 6 :], P[first:-6])


def test_one_packet_at_a_given_time_releases_what_is_held():
    P, S, moves = run_box(make_adversary("one_packet:at_ms=100"), 100, jitter_steps=6)  # dt 5 ms
    assert np.nonzero(moves["service"])[0].tolist() == [19] and S[20] == P[20]
    np.testing.assert_array_equal(S[26:], P[20:-6])
    assert S[19] == P[13]


def test_one_packet_repeats_and_concerns_the_chosen_flow():
    _, S, moves = run_box(make_adversary("one_packet:every_ms=200"), 100, jitter_steps=6)  # dt 5 ms
    assert np.nonzero(moves["service"])[0].tolist() == [0, 39, 79]
    assert moves["service"][[39, 79]].tolist() == [1.0, 1.0] and S[40] == S[41] == S[46]

    def early(spec, flow):
        return bool(run_box(make_adversary(spec), 30, flow=flow)[2]["service"].any())

    assert early("one_packet", 0) and not early("one_packet", 1) and early("one_packet:flow=1", 1)
    assert early("one_packet:flow=-1", 0) and early("one_packet:flow=-1", 5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [("square:duty=1.5", "square: duty is 1.5; it must be a finite number at least 0 and at most 1"),
     ("square:period_rtts=0", "period_rtts is 0; it must be a finite number above 0"), ("hoard:hold=inf", "hold is inf"),
     ("periodic:interval=5", "unknown parameter 'interval'. Did you mean 'interval_ms'"),
     ("kind:x=1", "unknown parameter 'x'. It has no parameters."),
     ("one_packet:flow=0.5", "flow is 0.5; it must be a whole number"), ("square:duty", "'duty' is not of the form key=value")],
)  # fmt: skip
def test_bad_parameters_are_refused(spec, message):
    with pytest.raises(InputError) as caught:
        make_adversary(spec)
    assert message in str(caught.value)
