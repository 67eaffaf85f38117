"""4CP in automatic mode against its paper."""

import numpy as np
import pytest
from steady_flow import Steady

from ccenv.agents import make_sender
from ccenv.agents.classic.fourcp import friendly_window_mss


def avoiding(spec, pieces=20):
    flow = Steady(make_sender(spec), pieces=pieces)
    flow.state.slow_start = 0.0
    flow.state.ssthresh_mss = 1.0
    return flow


@pytest.mark.parametrize("pieces", [1, 50, 1000])
def test_fourcp_auto_moves_tarp_by_eq_6(pieces):
    """Per window of ACKs a (f(tarp) - cwnd): tarp 0.0015: f = sqrt(1.5/0.0015) = 31.6; cwnd goes from 20 to 21 meanwhile."""
    gain = 1e-7
    flow = avoiding(f"fourcp_auto:tarp=0.0015,first_gain={gain},last_gain={gain},initial_window_mss=20", pieces)
    flow.rounds(1)
    low, high = gain * (np.sqrt(1000) - 21) * 20 / 21, gain * (np.sqrt(1000) - 20)
    assert low * 0.999 < flow.state.tarp - 0.0015 < high


def test_fourcp_auto_gain_falls_linearly():
    """s.3.3.3: from 1e-6 to 0 over 400 segments: the steps of the first and second hundred are as 7/8 to 5/8."""
    flow = avoiding("fourcp_auto:tarp=0.01,first_gain=1e-6,last_gain=0,gain_updates=400,initial_window_mss=100", 100)
    tarps = [0.01]
    for _ in range(5):
        flow.state.wnd_mss = flow.state.window_mss = 100.0
        flow.state.cwnd_bytes = 150000.0
        flow.rounds(1)
        tarps.append(float(flow.state.tarp))
    steps = np.diff(tarps) / np.diff(tarps)[0]
    assert steps == pytest.approx([1, 5 / 7, 3 / 7, 1 / 7, 0], abs=0.02)


@pytest.mark.parametrize("tarp", [0.0003, 0.003])
def test_fourcp_auto_converges_to_the_friendly_target(tarp):
    """A window held at 50 segments: tarp goes to 1.5/50^2 = 6e-4 from either side."""
    flow = avoiding(f"fourcp_auto:tarp={tarp},first_gain=1e-5,last_gain=1e-6,initial_window_mss=50,maxcwnd_mss=50")
    flow.rounds(300)
    assert flow.cwnd_mss == pytest.approx(50)
    assert flow.state.tarp == pytest.approx(6e-4, rel=0.01)
    assert friendly_window_mss(flow.state.tarp) == pytest.approx(50, rel=0.01)


def test_fourcp_auto_is_friendly_under_random_loss():
    """At a loss event rate p the target tends to p and the mean window to sqrt(1.5/p): here p = 0.005, 17.3 segments."""
    flow = avoiding("fourcp_auto:tarp=0.002,first_gain=1e-5,last_gain=2e-6,gain_updates=20000,initial_window_mss=10", 10)
    rng = np.random.default_rng(3)
    windows, tarps = [], []
    for i in range(120_000):
        if rng.random() < 1 - np.exp(-0.005 * flow.cwnd_mss / 10):
            flow.lose()
            flow.state.recover_bytes = 0.0
        flow.step()
        if i > 60_000:
            windows.append(flow.cwnd_mss)
            tarps.append(float(flow.state.tarp))
    assert np.mean(tarps) == pytest.approx(0.005, rel=0.25)
    assert np.mean(windows) == pytest.approx(np.sqrt(1.5 / 0.005), rel=0.25)
