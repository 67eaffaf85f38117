"""Policies of senders and of networks in the curve kernel against their plain formulas."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from compare import run_both
from oracles.curve import ReferenceCurveEngine
from oracles.policies import mlp_moves_reference
from oracles.signals import signals_of
from policy_zoo import AURORA, ZOO, interface, random_policy

from ccenv.adversaries import make_adversary
from ccenv.adversaries.observation import N_FLOW, N_PATH, fill_network_observation
from ccenv.agents import make_sender
from ccenv.agents.interface.interface import OBSERVATION_VERSION, Clock
from ccenv.agents.interface.signals import MEASURES, N_SIGNALS, SIGNALS, fill_signals
from ccenv.agents.learned.convert import PolicyReference
from ccenv.base.errors import InputError
from ccenv.engine.compiled.policies import (
    FIRST_HISTORY,
    act,
    memory_words,
    mlp_level,
    network_outputs,
    new_scratch,
    pack_policies,
    remember,
)
from ccenv.engine.curve.engine import CurveEngine
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.network import observe_network
from ccenv.envs.curve.settings import EnvSettings
from ccenv.network.adversary import ExternalAdversary, MlpAdversary, RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import FlowPath, Path, Workload, make_path


@pytest.mark.parametrize("name", ZOO)
def test_networks_equal_numpy(name):
    policies = [ZOO[name](seed) for seed in range(2)]
    weights, rows = pack_policies(policies, [0, 0] if policies[0].inner else [])
    rng, scratch = np.random.default_rng(3), new_scratch(1)[0]
    for policy, row in zip(policies, rows, strict=True):
        reference, states = PolicyReference(policy), np.zeros(memory_words(policy))
        for _ in range(4):
            x = rng.normal(size=policy.interface.width)
            at = network_outputs(row, weights, x, states, scratch)
            got, wanted = scratch[at, : row["widths"][row["n_stages"]]], reference.outputs(x)
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_cells_are_those_of_torch(kind):
    torch = pytest.importorskip("torch")
    policy = random_policy(interface(signals=["queue_log2", "loss_rate"], action="rate_exp2"), (4,), stages=(kind,), scale=1.0)
    cell = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind](2, 4, dtype=torch.float64)
    arrays = (policy.weights[0].T, policy.hidden_weights[0].T, policy.biases[0], policy.hidden_biases[0])
    with torch.no_grad():
        for parameter, array in zip(cell.parameters(), arrays, strict=True):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(array)))
        seen = np.random.default_rng(0).normal(size=(6, 2))
        wanted = cell(torch.from_numpy(seen))[0].numpy() @ policy.weights[1] + policy.biases[1]
    weights, rows = pack_policies([policy])
    states, scratch = np.zeros(8), new_scratch(1)[0]
    got = [scratch[network_outputs(rows[0], weights, x, states, scratch), 0] for x in seen]
    np.testing.assert_allclose(got, wanted[:, 0], rtol=1e-12)


@pytest.mark.parametrize("name", ZOO)
def test_decisions_equal_numpy(name):
    policy = ZOO[name](5)
    weights, rows = pack_policies([policy], [0] if policy.inner else [])
    memory, signals, scratch = np.zeros(memory_words(policy)), np.zeros(N_SIGNALS), new_scratch(1)[0]
    reference, rng = PolicyReference(policy), np.random.default_rng(1)
    for _ in range(policy.interface.history + 3):
        m = np.zeros(1, MEASURES)
        for field in MEASURES.names:
            m[field] = rng.uniform(0.1, 2.0)
        a = act(rows[0], weights, m[0], memory, signals, scratch)
        assert a == pytest.approx(reference.decide(signals), abs=1e-12) and -1 <= a <= 1


def test_history_holds_the_newest_intervals_and_begins_with_the_first():
    policy = random_policy(AURORA)
    _, rows = pack_policies([policy])
    memory, signals = np.zeros(memory_words(policy)), np.arange(float(N_SIGNALS))
    for interval in range(12):
        remember(signals + 100 * interval, rows[0]["numbers"], 3, 10, memory)
        stack = memory[FIRST_HISTORY:].reshape(10, 3)
        numbers = policy.interface.numbers
        expected = [numbers + 100.0 * max(0, interval - age) for age in range(9, -1, -1)]
        np.testing.assert_array_equal(stack, expected)


def test_a_network_that_leaves_the_numbers_asks_for_the_least():
    policy = random_policy(interface(signals=["loss_rate"], action="rate_exp2"), ())
    broken = type(policy)(policy.name, policy.weights, (np.array([np.inf]),), "tanh", policy.interface)
    with pytest.raises(InputError, match="is not finite"):
        pack_policies([broken])
    huge = type(policy)("x", (np.full((1, 1), 1e308),), (np.array([-1e308]),), "tanh", policy.interface)
    weights, rows = pack_policies([huge])
    m = np.zeros(1, MEASURES)
    m["interval_s"] = m["mss_bytes"] = 1.0
    assert act(rows[0], weights, m[0], np.zeros(memory_words(huge)), np.zeros(N_SIGNALS), new_scratch(1)[0]) == -1.0


def test_every_signal_equals_its_plain_formula():
    rng = np.random.default_rng(0)
    for trial in range(300):
        m = np.zeros(1, MEASURES)
        for field in MEASURES.names:
            m[field] = 0.0 if rng.random() < 0.15 else 10 ** rng.uniform(-4, 6)
        m["interval_s"], m["mss_bytes"], m["utilised"] = rng.uniform(1e-3, 1), 1500.0, trial % 2
        if trial % 3 == 0:
            m["rate_Bps"] = m["cwnd_bytes"] = m["app_left_bytes"] = m["C_U_Bps"] = np.inf
        out = np.full(N_SIGNALS, np.nan)
        fill_signals(m[0], out)
        wanted = signals_of(dict(zip(MEASURES.names, map(float, m[0]), strict=True)))
        np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12, err_msg=str(m))


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("trial", range(3))
def test_the_curve_engine_plays_policies_as_the_plain_reference_does(name, trial):
    flows = (FlowPath(rtt_s=0.04, jitter_s=0.02), FlowPath(rtt_s=0.08, jitter_s=0.02, start_s=0.2))
    path = Path(link_rate_Bps=1e6 * (1 + trial), buffer_bytes=30_000 * (1 + trial), flows=flows)
    model, adversary = ("cbr_delay", "ccac", "ideal")[trial], make_adversary(("square", "kind", "uniform")[trial])
    senders = [ZOO[name](2 * trial), ZOO[name](2 * trial + 1)]
    engine, reference = run_both(path, model=model, senders=senders, adversary=adversary, steps=240)
    assert check_trace(engine.trace(0)) == []
    measured = engine.watch.field("decisions")
    if reference.flows[0].monitor:
        assert measured.min() > 5
        for flow, rows in zip(reference.flows, engine.watch.rows, strict=True):
            assert flow.monitor.measured["action"] == pytest.approx(rows["action_before"], abs=1e-9)
            assert flow.monitor.means[-1] == pytest.approx(rows["mean_s"], rel=1e-9)
            assert len(flow.monitor.starts) == rows["decisions"]


def test_every_measure_of_the_grid_moves_and_equals_the_reference():
    """A policy over all signals that a sender may see: its history holds each one, from the kernel."""
    names = tuple(s.name for s in SIGNALS if "curve" in s.engines and s.needs != "truth")
    policy = random_policy(interface(signals=names, action="cwnd_delta", parameters={"step": 1.0}), (8,), seed=5, scale=0.2)
    path = Path(link_rate_Bps=2e6, buffer_bytes=40_000, flows=(FlowPath(rtt_s=0.04, jitter_s=0.03),))
    seen, wanted = [], []
    engine = CurveEngine([path], model="cbr_delay", senders=[policy], adversary=make_adversary("uniform"))
    reference = ReferenceCurveEngine(
        engine.path(0), model="cbr_delay", senders=[policy], adversary=make_adversary("uniform"),
        receive_window_bytes=float(engine.flow("receive_window_bytes")[0, 0]),
    )  # fmt: skip
    for _ in range(600):
        engine.advance(1)
        reference.step()
        seen.append(engine.watch.memory[0, FIRST_HISTORY : FIRST_HISTORY + len(names)].copy())
        wanted.append(reference.flows[0].monitor.memory.history[-1])
    np.testing.assert_allclose(seen, wanted, rtol=1e-7, atol=1e-7)
    still = {name for name, low, high in zip(names, np.min(seen, axis=0), np.max(seen, axis=0), strict=True) if low == high}
    assert still == {"ecn_share"}  # nothing is marked on the grid


def test_what_the_curve_engine_does_not_have_is_refused_in_one_line():
    work = Workload(kind="finite", size_bytes=1e5)
    path = Path(link_rate_Bps=1e6, buffer_bytes=3e4, flows=(FlowPath(rtt_s=0.04, workload=work),))
    cases = [
        (interface(signals=["app_left"], action="rate_exp2"), "sees 'app_left', which the curve engine does not have"),
        (interface(signals=["true_others"], action="rate_exp2"), "sees 'true_others', which no sender can measure"),
        (interface(signals=["loss_rate"], action="rate_between"), "sets 'rate_between', which needs a shield"),
        (interface(signals=["loss_rate"], action="rate_exp2", clock=Clock(common=True)), "has a common clock"),
    ]
    for sees, words in cases:
        with pytest.raises(InputError, match=words) as failure:
            CurveEngine([path], model="ideal", senders=[random_policy(sees)])
        assert "\n" not in str(failure.value)
    for sees in (interface(signals=["qdel_upper"], action="rate_exp2"), interface(signals=["loss_rate"], action="rate_log2")):
        with pytest.raises(InputError, match="needs belief bounds"):
            CurveEngine([path], model="ideal", senders=[random_policy(sees)], beliefs=None)


@pytest.mark.parametrize("name", ["gru", "orca", "aurora"])
def test_policies_go_on_from_a_snapshot_and_do_not_depend_on_threads(name):
    path = Path(link_rate_Bps=1e6, buffer_bytes=3e4, flows=(FlowPath(rtt_s=0.04, jitter_s=0.02),) * 2)

    def build(threads=1):
        return CurveEngine(
            [path] * 40, model="ccac", senders=[ZOO[name](0), ZOO[name](1)], adversary=make_adversary("uniform"), threads=threads
        )

    one, two = build(), build(threads=2)
    for engine in (one, two):
        engine.advance(200)
    saved = one.snapshot()
    for engine in (one, two):
        engine.advance(200)
    np.testing.assert_array_equal(one._flow, two._flow)
    end = one._flow.copy()
    one.restore(saved)
    one.advance(200)
    np.testing.assert_array_equal(one._flow, end)
    one.reset()
    one.advance(400)
    np.testing.assert_array_equal(one._flow, end)


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
