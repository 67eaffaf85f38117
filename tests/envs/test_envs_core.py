"""The core: what an episode starts from, reward terms against the trace, legality, checkpoints."""

import copy
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.agents.callbacks import MOVE, VIEW
from ccenv.agents.sender import ExternalSender
from ccenv.base.errors import InputError
from ccenv.base.random import uniform
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.distribution import PathDistribution, PathSource
from ccenv.envs.curve.network import NetworkTask
from ccenv.envs.curve.settings import (
    MIXTURE_STATE,
    REWARD_TERMS,
    EnvSettings,
    MoveMixture,
    RewardWeights,
    init,
    interval_terms,
    play,
)
from ccenv.envs.curve.task import SenderTask
from ccenv.network.adversary import ExternalAdversary, RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import make_path

MODELS = ("ideal", "cbr_delay", "ccac", "strong")


def draw(distribution, n=4000, seed=0, K=8):
    return PathSource(distribution, K, 1).draw(np.full(n, seed), np.arange(n), np.zeros(n, np.int64))


def test_path_distribution_is_what_it_says():
    episodes = draw(PathDistribution())
    p = episodes.paths
    rtt_s = p.dt_s * 8
    rate = p.link_rate_Bps * rtt_s / 1500.0
    logs = np.log(rate)
    assert rate.min() >= 5 * (1 - 1e-12) and rate.max() <= 5000 * (1 + 1e-12)
    assert abs(logs.mean() - 0.5 * (math.log(5) + math.log(5000))) < 0.1  # 3 sigma of the mean is 0.095
    assert rtt_s.min() >= 0.01 * (1 - 1e-12) and rtt_s.max() <= 0.1 * (1 + 1e-12)
    assert np.bincount(p.jitter_steps[:, 0]).min() > 4000 / 9 * 0.75 and p.jitter_steps.max() == 8
    beta = p.buffer_bytes / (p.link_rate_Bps * rtt_s)
    assert beta.min() >= 0.1 * (1 - 1e-9) and beta.max() <= 8 * (1 + 1e-9)
    cold = episodes.initial_C_L_Bps == 0
    assert abs(cold.mean() - 0.5) < 0.03
    warm = ~cold
    assert (episodes.initial_C_L_Bps[warm] <= p.link_rate_Bps[warm]).all()
    assert (episodes.initial_C_L_Bps[warm] >= (1500.0 / rtt_s)[warm] * (1 - 1e-12)).all()
    assert len(np.unique(episodes.keys)) == 4000


def test_episodes_depend_on_their_three_keys_only():
    source = PathSource(PathDistribution(), 8, 2)
    seeds, lanes, numbers = np.array([3, 3, 4]), np.array([0, 9, 0]), np.array([2, 0, 2])
    together = source.draw(seeds, lanes, numbers)
    for b in range(3):
        alone = source.draw(seeds[b : b + 1], lanes[b : b + 1], numbers[b : b + 1])
        assert alone.paths.link_rate_Bps[0] == together.paths.link_rate_Bps[b] and alone.keys[0] == together.keys[b]
    assert len(np.unique(together.paths.link_rate_Bps)) == 3


def reference_terms(counts, capacity, queue, rtt_s, groups):
    out = np.zeros((rtt_s.shape[0], len(groups), len(REWARD_TERMS)))
    for b in range(rtt_s.shape[0]):
        everyone = counts[0, b]
        jain = everyone.sum() ** 2 / (len(everyone) * (everyone**2).sum()) if (everyone > 0).any() else 1.0
        for g, flows in enumerate(groups):
            S, L, acked, delay = counts[:, b, flows]
            share = S.sum() / capacity[b]
            mean_delay = (delay / rtt_s[b, flows]).sum() / acked.sum() if acked.sum() > 0 else 0.0
            out[b, g] = share, queue[b], L.sum() / capacity[b], mean_delay, jain
    return out


def test_reward_kernel_equals_the_plain_formulas():
    rng = np.random.default_rng(0)
    counts = rng.uniform(0, 1, (4, 20, 3))
    counts[:, 0] = 0.0
    arguments = counts, rng.uniform(1, 2, 20), rng.uniform(0, 1, 20), rng.uniform(0.01, 0.1, (20, 3))
    groups = np.array([[True, False, False], [True, True, True], [False, True, True]])
    np.testing.assert_allclose(interval_terms(*arguments, groups), reference_terms(*arguments, groups), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("model", MODELS)
def test_episode_means_are_those_of_the_trace_and_the_trace_is_legal(model):
    distribution = PathDistribution(link_rate_min_share=0.5, buffer_bdp=(0.2, 2.0))
    chosen = EnvSettings(paths=distribution, models=(model,), episode_rtts=12)
    task = SenderTask(6, chosen, record=True)
    task.core.reset(seed=5)
    rng = np.random.default_rng(1)
    for _ in range(12):
        task.step(rng.uniform(-0.5, 1.0, (6, 1)))
    assert task.core.truncated().all()
    means = task.core.means(np.ones(6, bool))[:, 0]
    for b in range(6):
        trace = task.core.trace(b)
        assert not check_trace(trace)
        ends = np.arange(8, 97, 8)
        capacity = np.cumsum(trace.link_rate_Bps[1:]) * trace.header.dt_s
        per_step = np.diff(np.concatenate([[0.0], capacity[ends - 1]]))
        served, lost = (np.diff(curve[np.concatenate([[0], ends]), 0]) for curve in (trace.S, trace.L))
        queue = np.maximum(trace.A[ends, 0] - trace.L[ends, 0] - trace.G[ends], 0.0)
        bdp = trace.link_rate_Bps[ends] * trace.header.path.flows[0].rtt_s
        assert means[b, 0] == pytest.approx((served / per_step).mean(), rel=1e-9)
        assert means[b, 1] == pytest.approx((queue / bdp).mean(), rel=1e-6, abs=1e-9)
        assert means[b, 2] == pytest.approx((lost / per_step).mean(), rel=1e-9, abs=1e-12)
    if model == "strong":
        assert any(np.ptp(task.core.trace(b).link_rate_Bps) > 0 for b in range(6))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(MODELS[1:]), st.integers(0, 2**31), st.integers(1, 8))
def test_whatever_the_network_agent_does_is_legal(model, seed, decision_steps):
    chosen = EnvSettings(
        paths=PathDistribution(link_rate_min_share=0.7), models=(model,), senders=("reno", "cc_probe_drain"),
        adversary="external", decision_steps=decision_steps, episode_rtts=16,
    )  # fmt: skip
    task = NetworkTask(2, chosen, record=True)
    task.core.reset(seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(task.core.episode_steps):
        task.step(rng.uniform(-0.2, 1.2, (2, *task.single_action_space.shape)).round(rng.integers(0, 3)))
    for b in range(2):
        assert not check_trace(task.core.trace(b))


def test_network_moves_reach_the_engine_in_the_right_column():
    path = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=4, n_flows=2)
    lossy = path.model_copy(update={"flows": tuple(f.model_copy(update={"loss_budget": 0.1}) for f in path.flows)})
    chosen = EnvSettings(
        paths=lossy, models=("cbr_delay",), senders=("reno", "reno"), adversary="external", reward=RewardWeights(),
        episode_rtts=40,
    )  # fmt: skip
    task = NetworkTask(1, chosen)
    assert task.move_names == ("service_0", "service_1", "loss_0", "loss_1")
    task.core.reset(seed=0)
    for _ in range(20):
        task.step(np.array([[1.0, 0.0, 0.0, 1.0]]))
    assert (task.core.flow("L_free")[0] > 0).tolist() == [False, True]
    delayed = task.core.flow("rtt_now_steps")[0] - task.core.flow("rtt_steps")[0]
    assert delayed[1] >= delayed[0] + 7


def test_mixture_plays_what_it_says():
    shares = dict.fromkeys(MoveMixture.model_fields, 0.0)

    def moves(kind, env, steps=400):
        adversary = MoveMixture(**{**shares, kind: 1.0}).adversary()
        state, view, move = (SimpleNamespace(**dict.fromkeys(t.names, 0.0)) for t in (MIXTURE_STATE, VIEW, MOVE))
        state.__dict__.update(adversary.parameters)
        view.steps_per_rtt, view.env = 8.0, env
        init(state, view)
        out = []
        for step in range(steps):
            view.step = float(step)
            play(state, view, move)
            out.append((float(move.service), float(move.waste)))
        return np.array(out)

    assert (moves("kind", 1.0) == 1.0).all()
    iid = moves("uniform", 2.0)
    assert abs(iid.mean() - 0.5) < 0.06 and abs(np.corrcoef(iid[1:, 0], iid[:-1, 0])[0, 1]) < 0.2
    assert iid[0, 0] == uniform(0.0, 2.0, 0.0, 5.0)
    sticky = moves("sticky", 3.0, 4000)
    assert 4000 / 16 * 0.7 < (np.diff(sticky[:, 0]) != 0).sum() < 4000 / 16 * 1.3
    bang = moves("bang_bang", 4.0)
    assert set(np.unique(bang)) == {0.0, 1.0}
    lengths = np.diff(np.flatnonzero(np.diff(bang[:, 0]) != 0))
    assert len(set(lengths)) == 1 and 1 <= lengths[0] <= 32 and (moves("uniform", 5.0) != iid).any()


def test_network_randomness_changes_with_the_episode():
    chosen = EnvSettings(
        paths=make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=4), models=("cbr_delay",), episode_rtts=4,
        adversary=MoveMixture(kind=0, uniform=1, sticky=0, bang_bang=0),
    )  # fmt: skip
    task = SenderTask(2, chosen)

    def episode():
        task.core.reset()
        return [task.step(np.full((2, 1), 0.5)).tolist() for _ in range(4)]

    task.core.reset(seed=0)
    first, second = episode(), episode()
    assert first != second and np.array(first)[:, 0].tolist() != np.array(first)[:, 1].tolist()
    task.core.reset(seed=0)
    assert episode() == first


def test_staggered_episodes_end_at_different_times_once():
    core = SenderTask(64, EnvSettings(staggered=True)).core
    core.reset(seed=0)
    lengths = core.lengths
    assert lengths.min() >= 1 and lengths.max() <= 64 and len(np.unique(lengths)) > 30
    core.reset()
    assert (core.lengths == 64).all()


def test_models_and_fixed_paths_are_dealt_to_the_environments():
    core = SenderTask(5, EnvSettings(models=("cbr_delay", "ccac"))).core
    assert [engine.model.name for engine in core._engines] == ["cbr_delay", "ccac"]
    assert sum(engine.n_envs for engine in core._engines) == 5
    assert [e.model.name for e in SenderTask(1, EnvSettings(models=("cbr_delay", "ccac"))).core._engines] == ["cbr_delay"]
    paths = [make_path(link_rate_mbps=m, rtt_ms=40, jitter_ms=10, buffer_bdp=2, n_flows=2) for m in (10, 20, 30)]
    core = SenderTask(5, EnvSettings(paths=paths, senders=("external", "reno"))).core
    core.reset(seed=3)
    np.testing.assert_array_equal(core.env("link_rate_now_Bps") / 125000.0, [10, 20, 30, 10, 20])
    with pytest.raises(InputError, match="paths of 2 flows, but 1 senders"):
        SenderTask(5, EnvSettings(paths=paths))


def test_state_goes_on_where_it_was_taken():
    chosen = EnvSettings(models=("cbr_delay", "ccac"), staggered=True, episode_rtts=6)

    def go(task, steps):
        out = []
        for i in range(steps):
            out.append(task.step(np.full((7, 1), 0.1 * (i % 5))))
            task.core.reset(task.core.truncated())
            out.append(task.observe())
        return out

    one = SenderTask(7, chosen)
    one.core.reset(seed=1)
    go(one, 9)
    state = one.core.state()
    expected = go(one, 15)
    other = SenderTask(7, chosen)
    other.core.set_state(state)
    for a, b in zip(expected, go(other, 15), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InputError, match="environment state"):
        SenderTask(8, chosen).core.set_state(state)
    state.pop("elapsed")
    with pytest.raises(InputError, match="without 'elapsed'"):
        SenderTask(7, chosen).core.set_state(state)


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task))])
def test_copies_are_independent_and_go_on_the_same(duplicate, record):
    one = SenderTask(3, EnvSettings(models=("cbr_delay", "ccac"), senders=("external", "cubic"), episode_rtts=8), record)
    one.core.reset(seed=2)
    action = np.full((3, 1), 0.4)
    for _ in range(5):
        one.step(action)
    other = duplicate(one)
    expected = [one.step(action) for _ in range(3)]
    np.testing.assert_array_equal([other.step(action) for _ in range(3)], expected)
    one.core.reset()
    other.core.reset()
    np.testing.assert_array_equal(one.step(action), other.step(action))
    if record:
        np.testing.assert_array_equal(one.core.trace(2).S, other.core.trace(2).S)


def test_core_takes_other_players():
    chosen = EnvSettings(senders=("external", "bbr1"))
    recorded = RecordedAdversary("slow", np.zeros((1, 6)))
    core = Core(2, chosen, senders=[ExternalSender(), ExternalSender()], adversary=recorded, groups=np.ones((1, 2), bool))
    core.reset(seed=0)
    assert core.advance(np.full((2, 2), 1e5)).shape == (2, 1, len(REWARD_TERMS))
    external = Core(2, chosen, senders=[ExternalSender()] * 2, adversary=ExternalAdversary(), groups=np.eye(2, dtype=bool))
    external.reset(seed=0)
    assert external.advance(np.full((2, 2), 1e5), np.ones((2, 6))).shape == (2, 2, len(REWARD_TERMS))
    with pytest.raises(InputError, match="seed"):
        core.reset(seed=-1)
    with pytest.raises(InputError, match="3 seeds for 2"):
        core.reset(seed=[1, 2, 3])
