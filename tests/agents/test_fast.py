"""FAST against numbers that follow from its paper by hand."""

import pytest
from packet_link import run_link
from steady_flow import LINK, MSS, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender


@pytest.mark.parametrize("alpha", [5, 20])
def test_fast_keeps_alpha_segments_queued(alpha):
    """Fixed point of w = (baseRTT/RTT) w + alpha: w (1 - baseRTT/RTT) = alpha."""
    run = run_link(make_sender(f"fast:alpha_mss={alpha}"), 8, buffer_packets=200, **LINK)
    late = run.column("now_s") > 5
    queued = (run.column("rtt_s")[late] - run.column("rtt_s").min()) * RATE_Bps / MSS
    assert queued.mean() == pytest.approx(alpha, abs=1)
    assert queued.max() - queued.min() <= 1 + 1e-6
    assert not run.losses
    assert run.rate_Bps(5, 8) == pytest.approx(RATE_Bps, rel=2e-3)


@pytest.mark.parametrize("pieces", [1, 50])
@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_fast_moves_gamma_of_the_way(pieces, gamma):
    """At RTT = 2 baseRTT and w = 100: target 50 + 20 = 70."""
    flow = Steady(make_sender(f"fast:gamma={gamma},initial_window_mss=100"), pieces=pieces)
    flow.state.slow_start = 0.0
    flow.rounds(1, rtt_s=2 * RTT_S)
    flow.step(rtt_s=2 * RTT_S)
    assert flow.cwnd_mss == pytest.approx(100 + gamma * (70 - 100))


def test_fast_at_most_doubles():
    flow = Steady(make_sender("fast:alpha_mss=1000,gamma=1"), pieces=1)
    flow.state.slow_start = 0.0
    flow.rounds(2)
    assert flow.cwnd_mss == 20


def test_fast_doubles_until_alpha_is_queued_and_halves_on_loss():
    flow = Steady(make_sender("fast"), pieces=1)
    flow.rounds(4)
    assert flow.cwnd_mss == 160
    flow.rounds(1, rtt_s=1.25 * RTT_S)  # 320 (1 - 1/1.25) = 64 segments queued: more than alpha
    flow.rounds(1, rtt_s=1.25 * RTT_S)
    assert flow.state.slow_start == 0.0
    assert flow.cwnd_mss == pytest.approx(320 + 0.5 * (320 / 1.25 + 20 - 320))
    before = flow.cwnd_mss
    flow.lose()
    assert flow.cwnd_mss == pytest.approx(before / 2)
    flow.lose(timeout=1.0)
    assert flow.cwnd_mss == 2.0
