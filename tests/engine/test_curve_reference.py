"""The compiled engine against the plain reference, step by step, also over silences that are longer than the rings."""

import numpy as np
import pytest
from compare import compare, run_both
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.curve import ReferenceCurveEngine
from random_setup import MODELS, SILENCES, random_setup, silent_setup

from ccenv.adversaries import make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.sender import ExternalSender, PolicySender
from ccenv.engine.compiled.beliefs import belief_settings
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.curve.layout import ENV_CURSORS, ENV_DTYPE, FLOW_CURSORS, FLOW_DTYPE
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import FlowPath, Path, RateChange, RedParameters, Workload, make_path

# In these trials a sender compares numbers that are equal but for round-off more often than the test allows
# (Vegas and Copa at an exactly full pipe, cc_probe_slow at q_U = MSS).
TIED = {107, 115, 310}


@pytest.mark.parametrize(
    ("first", "last"), [(0, 20), (20, 40), (40, 60), (60, 80), pytest.param(80, 320, marks=pytest.mark.slow)]
)
def test_single_flow_closed_loop(first, last):
    for trial in range(first, last):
        if trial in TIED:
            continue
        path, run = random_setup(trial, n_flows=1)
        engine, _ = run_both(path, steps=120, **run)
        assert check_trace(engine.trace(0)) == [], f"trial {trial}"


def test_tighter_beliefs_in_closed_loop():
    for trial in range(3000, 3012):
        path, run = random_setup(trial, n_flows=1)
        run_both(path, steps=100, beliefs=belief_settings("tighter"), **run)


def open_loop(path, rates_of, steps, **run):
    """Play rates from outside in kernel and reference, step by step; return the kernel."""
    engine = CurveEngine([path], record=True, **run)
    window_bytes = float(engine.flow("receive_window_bytes")[0, 0])
    reference = ReferenceCurveEngine(engine.path(0), receive_window_bytes=window_bytes, **run)
    for _ in range(steps):
        rates = rates_of()
        engine.advance(1, actions=rates[None])
        for f, rate in zip(reference.flows, rates, strict=True):
            f.rate = rate
        reference.step()
        compare(engine, reference)
    assert check_trace(engine.trace(0)) == []
    return engine


@pytest.mark.parametrize("block", range(4))
def test_several_flows_open_loop(block):
    for trial in range(1000 + 12 * block, 1000 + 12 * (block + 1)):
        path, run = random_setup(trial)
        rng = np.random.default_rng(trial)
        run |= {"senders": [ExternalSender()] * path.n_flows, "seed": 1, "steps_per_rtt": run.pop("K")}
        n, C = path.n_flows, path.link_rate_Bps
        open_loop(path, lambda n=n, C=C, rng=rng: C * rng.uniform(0.0, 2.0, n) * (rng.random(n) < 0.8) + 1.0, 120, **run)


PLAIN = {"rtt_s": 0.04, "jitter_s": 0.02}
SPECIAL = {
    "red": Path(link_rate_Bps=6e6, buffer_bytes=480_000, flows=(FlowPath(**PLAIN), FlowPath(**PLAIN)), red=RedParameters(
        min_bytes=30_000, max_bytes=200_000, max_probability=0.2, weight=0.25,
    )),
    "rate_changes": Path(link_rate_Bps=6e6, buffer_bytes=240_000, flows=(FlowPath(**PLAIN),), rate_changes=(
        RateChange(time_s=0.2, link_rate_Bps=12e6), RateChange(time_s=0.4, link_rate_Bps=3e6),
    )),
    "workloads": Path(link_rate_Bps=6e6, buffer_bytes=240_000, flows=(
        FlowPath(**PLAIN, workload=Workload(kind="rate", rate_Bps=1e6)),
        FlowPath(**PLAIN, workload=Workload(kind="on_off", on_s=0.1, off_s=0.05)),
        FlowPath(**PLAIN, workload=Workload(kind="finite", size_bytes=300_000), start_s=0.1, stop_s=0.6),
    )),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("model", ["ideal", "cbr_delay", "ccac"])
def test_special_paths(name, model):
    path = SPECIAL[name]
    _, run = random_setup(5, n_flows=path.n_flows)
    rng = np.random.default_rng(run.pop("K"))
    run |= {"model": model, "senders": [ExternalSender()] * path.n_flows, "steps_per_rtt": 8}
    engine = open_loop(path, lambda: 6e6 * rng.uniform(0.1, 1.5, path.n_flows), 160, **run)
    assert name != "red" or engine.flow("L").sum() > 0


@pytest.mark.parametrize("proxy", [
    "lambda_proxy:target_s=0.1,window_s=1,inner=reno", "lambda_proxy:target_s=0.1,window_s=0.6,inner=cc_qdel",
    "lambda_proxy:target_s=0.06,window_s=0.3,inner=cc_probe_drain", "fixed_delay_proxy:delay_s=0.03,inner=cc_probe_drain",
])  # fmt: skip
@pytest.mark.parametrize("adversary", ["kind", "square"])
def test_proxies(proxy, adversary):
    flows = (FlowPath(rtt_s=0.04, jitter_s=0.02), FlowPath(rtt_s=0.08, jitter_s=0.02, start_s=0.2))
    path = Path(link_rate_Bps=3e6, buffer_bytes=120_000, flows=flows)
    senders = [make_sender(proxy)] * 2
    engine, _ = run_both(path, model="cbr_delay", senders=senders, adversary=make_adversary(adversary), steps=300)
    assert check_trace(engine.trace(0)) == []


@pytest.mark.parametrize("sender", ["cc_probe_slow_k:k=2", "random policy"])
@pytest.mark.parametrize("trial", range(3))
def test_started_programs_and_policies(sender, trial):
    rng = np.random.default_rng(trial)
    players = [make_sender(sender)] * 2 if sender != "random policy" else [policy(rng) for _ in range(2)]
    flows = (FlowPath(rtt_s=0.04, jitter_s=0.02), FlowPath(rtt_s=0.08, jitter_s=0.02, start_s=0.2))
    path = Path(link_rate_Bps=3e6, buffer_bytes=30_000 * (1 + trial), flows=flows)
    model, adversary = ("cbr_delay", "ccac", "ideal")[trial], make_adversary(("square", "kind", "uniform")[trial])
    engine, _ = run_both(path, model=model, senders=players, adversary=adversary, steps=240)
    assert check_trace(engine.trace(0)) == []
    if sender != "random policy":
        assert engine.flow("program_stage").max() == 1  # there was a large loss


def policy(rng):
    """Return a policy with random weights that asks for about the rate that it has found."""
    weights = (rng.normal(0, 0.3, (N_OBSERVATION, 8)), rng.normal(0, 0.2, (8, 1)))
    return PolicySender("random", weights, (rng.normal(0, 0.2, 8), np.array([0.2])), "tanh")


DENSITIES = (1, 4, 8, 16)
LONGEST_RINGS = 20
LONG_RINGS = 4  # more changes nothing that is looked at; the slow runs go on to LONGEST_RINGS
MOST_TIES = 30  # decisions at an exactly full pipe or window (Copa, Vegas, CUBIC in Orca): what they see is equal to 1e-9
NAMES = sorted(AGENTS.names(), key=lambda name: (name in AGENTS.names("packet"), name))


def play(sender, model, K, kind, rings, seed):
    """Hold kernel and reference together over one silence; return the engine."""
    path, run, steps, _ = silent_setup(np.random.default_rng(seed), kind, rings, model=model, K=K, sender=sender)
    engine, _ = run_both(path, steps=steps, K=K, most_flips=MOST_TIES, **run)
    assert check_trace(engine.trace(0)) == []
    return engine


@pytest.mark.parametrize(
    ("sender", "model", "longest"),
    [*((name, MODELS[place % len(MODELS)], LONG_RINGS) for place, name in enumerate(NAMES)),
     *(pytest.param(name, model, LONGEST_RINGS, marks=pytest.mark.slow) for name in NAMES for model in MODELS)],
)  # fmt: skip
def test_silence_of_every_sender(sender, model, longest):
    """Density and kind of silence go round, so that every sender and every model meets all of them."""
    turn = len(MODELS) * NAMES.index(sender) + MODELS.index(model)
    rng = np.random.default_rng(turn)
    rings = float(rng.choice([0.0, 1.0, 3.0, longest, rng.uniform(0, longest)]))
    play(sender, model, DENSITIES[(turn + turn // 4) % 4], SILENCES[turn % len(SILENCES)], rings, turn)


def anything(longest):
    """Draw all that ``play`` takes."""
    return given(
        sender=st.sampled_from(NAMES),
        model=st.sampled_from(MODELS),
        K=st.sampled_from(DENSITIES),
        kind=st.sampled_from(SILENCES),
        rings=st.one_of(st.sampled_from([0.0, 1.0, 3.0, float(longest)]), st.floats(0.0, longest)),
        seed=st.integers(0, 2**32 - 1),
    )


@settings(max_examples=20)
@anything(LONG_RINGS)
def test_silence_kernel_is_the_reference(sender, model, K, kind, rings, seed):
    play(sender, model, K, kind, rings, seed)


@pytest.mark.slow
@settings(max_examples=2000)
@anything(LONGEST_RINGS)
def test_silence_kernel_is_the_reference_in_many_runs(sender, model, K, kind, rings, seed):
    play(sender, model, K, kind, rings, seed)


@pytest.mark.parametrize("kind", SILENCES)
@pytest.mark.parametrize("model", MODELS)
def test_rtt_after_silence_is_what_the_curves_say(model, kind):
    """RTT and qdel_L of each acknowledged byte against inverse curves of the trace: no engine, no reference, no rings."""
    rng = np.random.default_rng(SILENCES.index(kind))
    path, run, steps, ring_steps = silent_setup(rng, kind, 5.0, model=model, K=8, sender="cubic")
    run["adversary"] = RecordedAdversary("recorded", np.where(rng.random((300, 2 + 2 * path.n_flows)) < 0.4, 0.0, 1.0))
    engine = CurveEngine([path], steps_per_rtt=8, record=True, **run)
    engine.advance(steps)
    trace = engine.trace(0)
    late = 0
    rows = np.arange(steps + 1)
    arrived = (trace.A - trace.L).sum(axis=1)
    departed = np.minimum(trace.G, arrived)
    for i in range(path.n_flows):
        entered, served = trace.A[:, i] - trace.L[:, i], trace.S[:, i]
        delivered = np.concatenate(([0.0], np.diff(served)))
        for n in np.flatnonzero(delivered > 1.0):
            known = n + 8  # one Rm after delivery
            if known > steps:
                continue
            after = int(np.flatnonzero(entered >= served[n] - 1e-6)[0])
            width = entered[after] - entered[after - 1]
            sent = after - 1 + min(1.0, max(0.0, (served[n] - entered[after - 1]) / width)) if width > 0 else after
            rtt_steps = n - sent + 8
            assert trace.beliefs["rtt_s"][known, i] == pytest.approx(rtt_steps * trace.header.dt_s, abs=1e-6), (i, n)
            place = np.interp(sent, rows, arrived)  # in the queue: first in, first out
            left = int(np.flatnonzero(departed >= place - 1e-6)[0])
            assert trace.beliefs["qdel_L"][known, i] <= max(0.0, left - sent) * trace.header.dt_s + 1e-9, (i, n)
            late += n > ring_steps + 10 * 8
    assert late >= 4, "few bytes came after the silence"


def test_silence_at_the_start_leaves_the_smallest_rtt():
    """Started at .7 s, 17.5 rings of Rm: the smallest RTT is Rm, and cc_qdel uses the link as from the start."""
    used = []
    for start_s in (0.0, 0.7):
        path = make_path(link_rate_mbps=12, rtt_ms=40, buffer_bdp=4)
        path = path.model_copy(update={"flows": (path.flows[0].model_copy(update={"start_s": start_s}),)})
        engine = CurveEngine([path], model="cbr_delay", senders=[make_sender("cc_qdel")], steps_per_rtt=8)
        engine.advance(round(start_s / 0.005) + 8 * 100)
        before = engine.totals()
        engine.advance(8 * 200)
        after = engine.totals()
        assert engine.flow("rtt_min_steps")[0, 0] == 8
        used.append(((after["S"] - before["S"])[0, 0]) / (after["capacity"] - before["capacity"])[0])
    assert used[1] == pytest.approx(used[0], rel=1e-6) and used[1] > 0.9


@pytest.mark.parametrize("sender", ["bbr1", "vegas", "copa"])
def test_silence_before_the_second_flow_does_not_take_its_share(sender):
    """A flow that starts 30 Rm after the other gets its half."""
    path = make_path(link_rate_mbps=40, rtt_ms=40, jitter_ms=10, buffer_bdp=4, n_flows=2)
    path = path.model_copy(update={"flows": (path.flows[0], path.flows[1].model_copy(update={"start_s": 30 * 0.04}))})
    engine = CurveEngine([path], model="cbr_delay", senders=[make_sender(sender)] * 2, steps_per_rtt=8)
    engine.advance(400 * 8)
    before = engine.totals()["S"]
    engine.advance(600 * 8)
    delivered = (engine.totals()["S"] - before)[0]
    assert delivered.sum() ** 2 / (2 * (delivered**2).sum()) > 0.95


def test_silence_of_all_flows_keeps_the_order_of_arrival():
    """Two flows, both silent for two rings less a few steps, on a link that serves late: first in, first out to the checker."""
    for missing in range(8):
        pause = Workload(kind="on_off", on_s=0.2, off_s=(2 * 128 - missing) * 0.005)
        path = Path(link_rate_Bps=3e6, buffer_bytes=1e6, flows=(FlowPath(rtt_s=0.04, jitter_s=0.02, workload=pause),) * 2)
        slow = make_adversary("slowest")
        engine = CurveEngine([path], model="ccac", senders=[ExternalSender()] * 2, adversary=slow, steps_per_rtt=8, record=True)
        assert engine._H == 128
        rng = np.random.default_rng(1)
        for _ in range(2 * (2 * 128 + 40)):
            engine.advance(1, actions=rng.uniform(1e6, 4e6, (1, 2)))
        assert check_trace(engine.trace(0)) == [], missing


# Fields that are compared with steps or count them and never index a ring.
FLOW_STEPS = (
    *("rtt_steps", "jitter_steps", "lag_steps", "start_step", "stop_step", "decision_step"),
    *("unfound_loss_step", "stale_step", "recovery_step", "last_ack_step", "rtt_now_steps", "rtt_min_steps"),
    *("delay_floor_steps", "srtt_steps", "rttvar_steps", "timeout_step", "utilised_run_steps", "idle_run_steps"),
    *("probe_window_steps", "hold_steps", "hold_target_steps", "hold_window_steps", "hold_until_step", "hold_rtt_min_steps"),
    *("heard_step",),
)
ENV_STEPS = ("jitter_steps", "step", "error_step")


def test_silence_no_field_of_steps_is_left_out():
    """A new field that holds a step is a cursor, which the rule of the rings moves, or says that it indexes no ring."""
    for dtype, cursors, steps in ((FLOW_DTYPE, FLOW_CURSORS, FLOW_STEPS), (ENV_DTYPE, ENV_CURSORS, ENV_STEPS)):
        fields = [name for name in dtype.names if name.endswith(("_step", "_steps")) or name == "step"]
        assert sorted(fields) == sorted(cursors + steps)


@pytest.mark.parametrize("cursor", FLOW_CURSORS + ENV_CURSORS)
def test_silence_moves_every_cursor(cursor):
    """A cursor that was left behind by any number of rings is moved up: what follows is the same to the last bit."""
    path, run, steps, ring_steps = silent_setup(
        np.random.default_rng(4), "finite_then_late", 5.0, model="cbr_delay", K=8, sender="cubic"
    )
    engine = CurveEngine([path], steps_per_rtt=8, **run)
    engine.advance(steps - 12 * 8)
    quiet = engine.snapshot()
    engine.advance(12 * 8)
    untouched = engine.snapshot().arrays
    array = "_flow" if cursor in FLOW_CURSORS else "_env"
    assert (quiet.arrays[array][cursor] > 0).all()
    for behind in (1, ring_steps, 7 * ring_steps + 3):
        quiet.arrays[array][cursor] = np.maximum(0, engine.env("step")[0] - 12 * 8 - ring_steps - behind)
        engine.restore(quiet)
        engine.advance(12 * 8)
        played = engine.snapshot().arrays
        if cursor == "judged_step":  # steps that were passed over count as not judged: the run of idle ones is shorter
            played["_flow"]["idle_run_steps"] = untouched["_flow"]["idle_run_steps"]
        for name, values in played.items():
            assert values.tobytes() == untouched[name].tobytes(), (behind, name)
