"""What the curve engine promises beside its physics: determinism, snapshots, batches, finite numbers, times, types, refusals."""

import itertools

import numpy as np
import pytest
from compare import run_both
from numba import typeof
from oracles.policies import mlp_action_reference
from random_setup import CLASSIC, MODELS, PROGRAMS

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.interface.interface import N_OBSERVATION, OBSERVATION_HIGH, OBSERVATION_LOW
from ccenv.agents.sender import ClassicSender, ExternalSender, PolicySender
from ccenv.base.errors import EngineError, InputError, PathError
from ccenv.base.random import uniform
from ccenv.engine.compiled.beliefs import BeliefSettings
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.network.adversary import Adversary, ExternalAdversary, RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import LONGEST_S, FlowPath, Path, RateChange, make_path
from ccenv.network.trace import Trace

PATHS = [make_path(link_rate_mbps=rate, rtt_ms=40, jitter_ms=20, buffer_bdp=b, n_flows=2) for rate in (12, 96) for b in (0.5, 4)]
FIELDS = ("A", "E", "L", "S", "rate_Bps", "cwnd_bytes", "C_L_Bps", "C_U_Bps", "C_L_lambda_Bps", "q_U_bytes")


def build(model="ccac", senders=("cc_qdel", "reno"), adversary="uniform", paths=PATHS, **options):
    return CurveEngine(
        paths, model=model, senders=[make_sender(s) for s in senders], adversary=make_adversary(adversary), seed=5, **options
    )


def state(engine):
    return {name: engine.flow(name) for name in FIELDS} | {"G": engine.env("tokens_bytes")}


def same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("model", MODELS)
def test_threads_and_batching_do_not_matter(model):
    """One thread, two threads, one environment at a time, one step at a time: identical to the last bit."""
    many = [*PATHS] * 40
    one, two = build(model, paths=many), build(model, paths=many, threads=2)
    one.advance(200)
    two.advance(200)
    assert same(state(one), state(two))
    stepwise = build(model, paths=many)
    for _ in range(200):
        stepwise.advance(1)
    assert same(state(one), state(stepwise))
    alone = build(model, paths=[many[7]])
    alone.reset(keys=np.array([7]))
    alone.advance(200)
    assert all(np.array_equal(state(alone)[name][0], state(one)[name][7]) for name in FIELDS)


def test_snapshot_restores_everything():
    engine = build(senders=("bbr1", "cc_probe_slow"), adversary="batch", record=True)
    engine.advance(100)
    snapshot = engine.snapshot()
    engine.advance(150)
    first, trace = state(engine), engine.trace(2)
    engine.restore(snapshot)
    engine.advance(150)
    assert same(first, state(engine)) and np.array_equal(trace.S, engine.trace(2).S)
    engine.restore(snapshot, envs=np.array([1]))
    assert engine.env("step").tolist() == [250, 100, 250, 250]


def test_reset_of_some_leaves_the_others():
    engine = build()
    engine.advance(64)
    before = state(engine)
    engine.reset(np.array([True, False, False, False]))
    assert engine.env("step").tolist() == [0, 64, 64, 64]
    assert all(np.array_equal(before[name][1:], state(engine)[name][1:]) for name in FIELDS)
    engine.advance(64)
    assert all(np.array_equal(before[name][0], state(engine)[name][0]) for name in FIELDS)  # it repeats itself


def test_new_paths_at_a_reset():
    arrays = PathArrays.from_paths(PATHS, 8)
    rate = arrays.link_rate_Bps.copy()
    engine = build(paths=arrays)
    engine.reset(np.array([True, False, False, False]), PathArrays.from_paths(PATHS[2:3], 8))
    assert engine.env("link_rate_Bps")[0] == 12e6
    assert np.array_equal(arrays.link_rate_Bps, rate)  # the caller's arrays are not touched
    with pytest.raises(InputError, match="3 paths"):
        engine.reset(np.array([True, False, False, False]), PathArrays.from_paths(PATHS[:3], 8))


def test_policy_in_the_kernel_equals_numpy():
    rng = np.random.default_rng(1)
    for activation, widths in (("tanh", [16, 16, 1]), ("relu", [8, 1]), ("tanh", [64, 64, 1])):
        sizes = [N_OBSERVATION, *widths]
        policy = PolicySender(
            "policy",
            tuple(rng.normal(size=s) / 3 for s in itertools.pairwise(sizes)),
            tuple(rng.normal(size=n) / 3 for n in sizes[1:]),
            activation,
        )
        path = make_path(link_rate_mbps=24, rtt_ms=40, jitter_ms=20, buffer_bdp=2)
        engine = CurveEngine([path], model="ccac", senders=[policy], adversary=make_adversary("uniform"))
        by_hand = CurveEngine([path], model="ccac", senders=[ExternalSender()], adversary=make_adversary("uniform"))
        floor = 1500 / 0.04
        for _ in range(40):
            action = mlp_action_reference(policy, by_hand.observations()[0, 0].astype(np.float64))
            rate = max(floor, by_hand.flow("C_L_Bps")[0, 0] * 2 ** (3 * action))
            by_hand.advance(8, actions=np.array([[rate]]))
            engine.advance(8)
            assert engine.flow("S")[0, 0] == pytest.approx(by_hand.flow("S")[0, 0], rel=1e-4)


def test_external_moves_are_clipped_and_act():
    path = make_path(link_rate_mbps=24, rtt_ms=40, jitter_ms=40, buffer_bdp=4)
    engines = [CurveEngine([path], model="ccac", senders=[ExternalSender()], adversary=ExternalAdversary()) for _ in range(3)]
    for engine, u in zip(engines, (0.0, 1.0, 7.0), strict=True):
        engine.advance(160, actions=np.array([[2e6]]), moves=np.array([[1.0, 1.0, u, 0.0]]))
    slow, fast, clipped = (e.flow("S")[0, 0] for e in engines)
    assert slow < fast == clipped


def test_random_numbers_depend_on_their_keys_only():
    draws = [uniform(1.0, 2.0, 3.0, float(i)) for i in range(10_000)]
    assert draws == [uniform(1.0, 2.0, 3.0, float(i)) for i in range(10_000)]
    assert abs(np.mean(draws) - 0.5) < 0.02 and abs(np.std(draws) - 12**-0.5) < 0.01
    assert len({uniform(*(float(x) for x in key)) for key in np.ndindex(5, 5, 5, 5)}) == 625


def broken_on_ack(state, ack):
    state.cwnd_bytes = np.nan


def test_a_sender_that_returns_nan_is_named():
    reno = make_sender("reno")
    broken = ClassicSender("broken", reno.state, reno.init, broken_on_ack, reno.on_loss, reno.on_tick, reno.parameters)
    engine = CurveEngine([make_path(link_rate_mbps=10, rtt_ms=40)], senders=[broken])
    with pytest.raises(EngineError, match=r"'broken'.*environment 0, flow 0, at 0\.04"):
        engine.advance(100)


def test_different_jitter_per_flow_is_for_cbr_only():
    path = make_path(link_rate_mbps=24, rtt_ms=[40.0, 40.0], jitter_ms=[10.0, 20.0])
    CurveEngine([path], model="cbr_delay", senders=[make_sender("reno")] * 2).advance(10)
    with pytest.raises(PathError, match="one jitter bound"):
        CurveEngine([path], model="ccac", senders=[make_sender("reno")] * 2)


def test_paths_survive_the_arrays():
    for path in PATHS:
        again = PathArrays.from_paths([path], 8).path(0)
        assert again.link_rate_Bps == path.link_rate_Bps and again.buffer_bytes == path.buffer_bytes
        assert [f.jitter_s for f in again.flows] == pytest.approx([f.jitter_s for f in path.flows])
    assert Path.from_dict(PATHS[0].to_dict()) == PATHS[0]


@pytest.mark.parametrize("K", [1, 8, 32])
@pytest.mark.parametrize("buffer_bdp", [0.25, 1, 4, 16])
def test_the_receive_window_does_not_bind_below_a_full_buffer(K, buffer_bdp):
    """Where a buffer is finite, what fills it and the pipe, and what is lost and not yet found, fits the rings."""
    path = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=buffer_bdp)
    for beliefs in (None, BeliefSettings()):
        engine = CurveEngine([path], senders=[make_sender("reno")], steps_per_rtt=K, beliefs=beliefs)
        assert engine.flow("receive_window_bytes")[0, 0] >= path.buffer_bytes + 3 * path.bdp_bytes
        engine.advance(200 * K)
        assert engine.flow("L")[0, 0] > 0


PLAYERS = sorted(ADVERSARIES.names("scripted"))


@pytest.mark.parametrize("name", sorted(AGENTS.names()))
def test_every_sender_is_finite_and_its_network_legal(name: str) -> None:
    path = make_path(link_rate_mbps=12, rtt_ms=40.0, jitter_ms=40.0, buffer_bdp=1, n_flows=2)
    for model in MODELS if name in (*PROGRAMS, *CLASSIC, "constant") else ("cbr_delay", "ccac"):
        engine = CurveEngine(
            [path] * len(PLAYERS), model=model, senders=[make_sender(name)] * 2, steps_per_rtt=4, record=True,
            adversary=[make_adversary(player) for player in PLAYERS],
        )  # fmt: skip
        engine.advance(240)
        for field in ("A", "L", "S", "C_L_Bps", "q_U_bytes", "acked_bytes"):
            assert np.isfinite(engine.flow(field)).all(), (model, field)
        observed, totals = engine.observations(), engine.totals()
        assert observed.shape == (len(PLAYERS), 2, N_OBSERVATION)
        assert (observed >= OBSERVATION_LOW).all() and (observed <= OBSERVATION_HIGH).all(), model
        assert (totals["S"].sum(axis=1) <= totals["capacity"] * (1 + 1e-9) + 1500).all(), model
        assert (engine.flow("S") > 0).any(), model
        for env, player in enumerate(PLAYERS):
            assert check_trace(engine.trace(env)) == [], (model, player)


RTT_S, DT_S = 0.04, 0.005


def random_changes(rng):
    """Return changes that crowd: several within a step, on the grid, just beside it, within the first step, after the end."""
    near = rng.integers(0, 40, 6) * DT_S + rng.choice([0.0, 1e-12, -1e-12, 1e-6], 6)
    times = np.concatenate((rng.uniform(0, 0.2, 8), near, [1e-15, 1e-3, 2e-3, LONGEST_S]))
    times = np.unique(times[times > 0])
    return tuple(RateChange(time_s=float(t), link_rate_Bps=float(rng.uniform(1e6, 2e7))) for t in times)


@pytest.mark.parametrize("model", ["ideal", "cbr_delay", "ccac"])
@pytest.mark.parametrize("seed", range(6))
def test_random_rate_changes_are_played_and_recorded(tmp_path, model, seed):
    """Of the changes within one step the last one holds; the trace's path has those that were played, and can be read again."""
    rng = np.random.default_rng(seed)
    flow = FlowPath(rtt_s=RTT_S, jitter_s=0.0 if model == "ideal" else 0.02)
    path = Path(link_rate_Bps=5e6, buffer_bytes=1e6, flows=(flow,), rate_changes=random_changes(rng))
    senders, adversary = [make_sender("reno")], make_adversary("uniform")
    engine, _ = run_both(path, model=model, senders=senders, adversary=adversary, steps=80, most_flips=4)
    trace = engine.trace(0)
    assert check_trace(trace) == []
    for k in range(1, 81):
        begun = [c.link_rate_Bps for c in path.rate_changes if c.time_s <= (k - 1) * DT_S + 1e-9 * DT_S and k > 1]
        assert trace.link_rate_Bps[k] == (begun[-1] if begun else 5e6), k
    trace.save(tmp_path / "run.npz")
    assert Trace.load(tmp_path / "run.npz").header.path == trace.header.path


def test_two_changes_in_one_step_are_one_in_the_trace():
    changes = (RateChange(time_s=0.011, link_rate_Bps=1e6), RateChange(time_s=0.014, link_rate_Bps=9e6))
    path = Path(link_rate_Bps=5e6, flows=(FlowPath(rtt_s=RTT_S),), rate_changes=changes)
    engine = CurveEngine([path], model="ideal", senders=[ExternalSender()], record=True)
    engine.advance(8)
    trace = engine.trace(0)
    assert [(c.time_s, c.link_rate_Bps) for c in trace.header.path.rate_changes] == [(pytest.approx(0.015), 9e6)]
    assert trace.link_rate_Bps.tolist() == [5e6] * 4 + [9e6] * 5


@pytest.mark.parametrize(("start_s", "stop_s"), [(0.0, 0.001), (0.012, 0.013), (0.0, 1e-15), (LONGEST_S, np.inf), (1.0, 1e300)])
def test_a_flow_that_is_active_within_a_step_only_sends_nothing(start_s, stop_s):
    flows = (FlowPath(rtt_s=RTT_S), FlowPath(rtt_s=RTT_S, start_s=start_s, stop_s=stop_s))
    path = Path(link_rate_Bps=5e6, buffer_bytes=1e6, flows=flows)
    engine = CurveEngine([path], model="ideal", senders=[make_sender("reno")] * 2, record=True)
    engine.advance(80)
    trace = engine.trace(0)
    assert trace.A[-1, 1] == 0.0 and check_trace(trace) == []


PATH = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=2)


def recorded(order: str, writable: bool) -> RecordedAdversary:
    moves = np.full((20, 4), 0.5, order=order)  # type: ignore[call-overload]
    moves.flags.writeable = writable
    return RecordedAdversary("recorded", moves)


@pytest.mark.parametrize("player", [recorded("C", True), recorded("C", False), recorded("F", False)])
def test_recorded_moves_of_any_kind_have_the_types_of_none(player: Adversary) -> None:
    def types(adversary: Adversary | None) -> object:
        engine = CurveEngine([PATH], model="ccac", senders=[make_sender("reno")], adversary=adversary, steps_per_rtt=4)
        return typeof(engine.kernel_arrays)

    assert types(player) == types(None)
