"""BBRv3 where it differs from BBRv2."""

import math

import numpy as np
import pytest
from packet_link import run_link
from steady_flow import LINK, RATE_Bps, Steady

from ccenv.agents import make_sender
from ccenv.agents.classic import bbr2

WATCH = ("mode", "pacing_gain", "cwnd_gain", "max_bandwidth_Bps", "min_rtt_s")


@pytest.fixture(scope="module")
def bbr3_run():
    run = run_link(make_sender("bbr3"), 16, buffer_packets=400, watch=WATCH, **LINK)
    return run, np.array(run.states)


def test_bbr3_gains(bbr3_run):
    """Draft: STARTUP 4 ln 2 and 2; DRAIN 1/2; DOWN 0.9; UP 1.25 and 2.25; CRUISE and REFILL 1 and 2."""
    _, states = bbr3_run
    gains = {mode: set(map(tuple, states[states[:, 0] == mode, 1:3])) for mode in set(states[:, 0])}
    assert gains == {
        bbr2.STARTUP: {(4 * math.log(2), 2.0)},
        bbr2.DRAIN: {(0.5, 2.0)},
        bbr2.DOWN: {(0.9, 2.0)},
        bbr2.CRUISE: {(1.0, 2.0)},
        bbr2.REFILL: {(1.0, 2.0)},
        bbr2.UP: {(1.25, 2.25)},
        bbr2.PROBE_RTT: {(1.0, 0.5)},
    }


def test_bbr3_fills_the_link(bbr3_run):
    run, states = bbr3_run
    assert states[-1, 3] == pytest.approx(RATE_Bps, rel=0.01)
    assert run.rate_Bps(2, 16) > 0.93 * RATE_Bps
    assert not run.losses


def test_bbr3_probes_until_the_bandwidth_has_not_grown_for_three_rounds():
    """With 1.25 BDP long in flight, version 2 has ended its probe; version 3 ends it after three rounds without growth."""
    lasted = {}
    for name in ("bbr2", "bbr3"):
        flow = Steady(make_sender(name), pieces=10)
        state = flow.state
        state.full_pipe, state.mode = 1.0, bbr2.REFILL
        state.min_rtt_s = state.probe_min_rtt_s = flow.rtt_s
        state.cycle_bandwidth_Bps = state.max_bandwidth_Bps = state.bandwidth_Bps = 1.5e6
        flow.step(delivery_rate_Bps=1.5e6, acked_bytes=6e3, inflight_bytes=6e4)
        assert state.mode == bbr2.UP
        steps = 0
        while state.mode == bbr2.UP:
            flow.delivered += 6e3 - state.cwnd_bytes / 10
            flow.step(delivery_rate_Bps=1.5e6, acked_bytes=6e3, inflight_bytes=9e4)
            steps += 1
        lasted[name] = steps
    assert lasted["bbr2"] in (10, 11)  # the first step after one min RTT
    assert 3 * 10 < lasted["bbr3"] <= 5 * 16  # rounds of 9e4 bytes, 15 steps each


def test_bbr3_needs_six_lost_segments_to_leave_startup():
    for lost_mss, left in ((5.9, False), (6.1, True)):
        flow = Steady(make_sender("bbr3:initial_window_mss=100"), pieces=10)
        flow.rounds(2, delivery_rate_Bps=1e6)
        flow.lose(lost_mss * 1500, new_episode=0.0)
        flow.delivered += 1e6
        flow.step(delivery_rate_Bps=2e6, inflight_bytes=1e9)
        assert (flow.state.mode == bbr2.DRAIN) == left
