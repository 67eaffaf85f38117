"""Flows that are silent for longer than the rings: kernel, reference, and what follows from the recorded curves alone."""

from __future__ import annotations

import numpy as np
import pytest
from compare import run_both
from hypothesis import given, settings
from hypothesis import strategies as st
from random_setup import MODELS
from silent_setup import SILENCES, silent_setup

from ccenv.adversaries import make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import ExternalSender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.curve.layout import ENV_CURSORS, ENV_DTYPE, ENV_STEPS, FLOW_CURSORS, FLOW_DTYPE, FLOW_STEPS
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import FlowPath, Path, Workload, make_path

DENSITIES = (1, 4, 8, 16)
LONGEST_RINGS = 20
LONG_RINGS = 5  # more changes nothing that is looked at; the slow runs go on to LONGEST_RINGS
MOST_TIES = 30  # decisions at an exactly full pipe or window (Copa, Vegas, CUBIC in Orca): what they see is equal to 1e-9
NAMES = sorted(AGENTS.names(), key=lambda name: (name in AGENTS.names("packet"), name))


def play(sender, model, K, kind, rings, seed):
    """Hold kernel and reference together over one silence; return the engine."""
    path, run, steps, _ = silent_setup(np.random.default_rng(seed), kind, rings, model=model, K=K, sender=sender)
    engine, _ = run_both(path, steps=steps, K=K, most_flips=MOST_TIES, **run)
    assert check_trace(engine.trace(0)) == []
    return engine


def play_turn(sender, model, longest):
    """Density and kind of silence go round, so that every sender and every model meets all of them."""
    turn = len(MODELS) * NAMES.index(sender) + MODELS.index(model)
    rng = np.random.default_rng(turn)
    rings = float(rng.choice([0.0, 1.0, 3.0, longest, rng.uniform(0, longest)]))
    play(sender, model, DENSITIES[(turn + turn // 4) % 4], SILENCES[turn % len(SILENCES)], rings, turn)


@pytest.mark.parametrize("sender", NAMES)
def test_silence_of_every_sender(sender):
    """On a model each, in turn."""
    play_turn(sender, MODELS[NAMES.index(sender) % len(MODELS)], LONG_RINGS)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sender", NAMES)
def test_silence_of_every_sender_on_every_model(sender, model):
    play_turn(sender, model, LONGEST_RINGS)


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


@settings(max_examples=40)
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
    assert used[1] == pytest.approx(used[0], rel=1e-6)
    assert used[1] > 0.9


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
