"""Times of a path that are no whole steps: changes of the link rate, starts and stops, as the engine plays and records them."""

from __future__ import annotations

import numpy as np
import pytest
from compare import run_both

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.agents.sender import ExternalSender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.laws import check_trace
from ccenv.network.path import LONGEST_S, FlowPath, Path, RateChange
from ccenv.network.trace import Trace

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
    engine, _ = run_both(
        path, model=model, senders=[make_sender("reno")], adversary=make_adversary("uniform"), steps=80, most_flips=4
    )
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
    assert trace.A[-1, 1] == 0.0
    assert check_trace(trace) == []
