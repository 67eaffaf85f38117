"""Policies in the kernels: networks against NumPy and torch, and the signals that they see against the plain curve reference."""

from __future__ import annotations

import numpy as np
import pytest
from compare import run_both
from oracles.curve import ReferenceCurveEngine
from oracles.signals import signals_of
from policy_zoo import AURORA, ZOO, interface, random_policy

from ccenv.adversaries import make_adversary
from ccenv.agents.interface.interface import Clock
from ccenv.agents.interface.signals import MEASURES, N_SIGNALS, SIGNALS, fill_signals
from ccenv.agents.learned.convert import PolicyReference
from ccenv.base.errors import InputError
from ccenv.engine.compiled.policies import (
    FIRST_HISTORY,
    act,
    memory_words,
    network_outputs,
    new_scratch,
    pack_policies,
    remember,
)
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.laws import check_trace
from ccenv.network.path import FlowPath, Path, Workload


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
        (interface(signals=["loss_rate"], action="rate_between"), "sets 'rate_between', which needs a contract"),
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
