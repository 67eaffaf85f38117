"""Belief programs per packet: the bounds hold, and programs do what they do in the curve engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.engine.curve import CurveEngine
from ccenv.engine.packet import PacketEngine
from ccenv.engine.packet_beliefs import STEPS_PER_RTT
from ccenv.engine.packet_spec import NetworkSpec
from ccenv.path import MBPS_IN_BPS, make_path

MSS = 1500.0
PROGRAMS = ("cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel")


def build(name: str, rate_Bps: float, rtt_s: float, buffer_bdp: float, jitter_s: float, seconds: float) -> PacketEngine:
    jitter = {"kind": "batch", "max_s": jitter_s} if jitter_s else {}
    link = {"rate_Bps": rate_Bps, "buffer_bytes": max(MSS, buffer_bdp * rate_Bps * rtt_s)}
    network = NetworkSpec.model_validate({"links": [link], "flows": [{"sender": name, "rtt_s": rtt_s, "jitter": jitter}]})
    return PacketEngine(network, [make_sender(name)], duration_s=seconds)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(PROGRAMS), st.floats(12, 200), st.floats(0.01, 0.1), st.floats(0.1, 8), st.sampled_from([0.0, 1.0, 2.0]))
def test_bounds_hold(name: str, bdp_packets: float, rtt_s: float, buffer_bdp: float, jitter_rtts: float) -> None:
    assert bdp_packets >= STEPS_PER_RTT  # else a packet takes longer than a step
    rate_Bps = bdp_packets * MSS / rtt_s
    engine = build(name, rate_Bps, rtt_s, buffer_bdp, jitter_rtts * rtt_s, 4.0)
    slack = 1.0 if jitter_rtts == 0 else 1.0 + 1.0 / bdp_packets  # with jitter up to one packet per window
    for until_s in np.arange(0.25, 4.01, 0.25):
        engine.advance(float(until_s))
        (beliefs,) = engine.beliefs().values()
        assert beliefs["C_L_Bps"] <= rate_Bps * slack * (1 + 1e-9)
        assert beliefs["C_U_Bps"] >= rate_Bps / slack * (1 - 1e-9)


@pytest.mark.parametrize("name", ["cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_qdel"])
@pytest.mark.parametrize(("buffer_bdp", "jitter_ms"), [(1.0, 0.0), (4.0, 40.0)])
def test_programs_use_the_link_as_in_the_curve_engine(name: str, buffer_bdp: float, jitter_ms: float) -> None:
    rate_Bps, seconds, warm_up_s = 48 * MBPS_IN_BPS, 30.0, 10.0
    engine = build(name, rate_Bps, 0.04, buffer_bdp, jitter_ms / 1e3, seconds)
    engine.advance(warm_up_s)
    before = float(engine.link("served_bytes")[0])
    engine.advance(seconds)
    packet = (float(engine.link("served_bytes")[0]) - before) / rate_Bps / (seconds - warm_up_s)
    path = make_path(link_rate_mbps=48, rtt_ms=40.0, jitter_ms=jitter_ms, buffer_bdp=buffer_bdp)
    curves = CurveEngine([path], senders=[make_sender(name)], adversary=make_adversary("batch"), history_rtts=30.0)
    steps_per_s = 8 / 0.04
    curves.advance(round(warm_up_s * steps_per_s))
    start = curves.totals()["S"][0, 0]
    curves.advance(round((seconds - warm_up_s) * steps_per_s))
    curve = (curves.totals()["S"][0, 0] - start) / rate_Bps / (seconds - warm_up_s)
    assert packet == pytest.approx(curve, abs=0.03)
