"""TCP Hybla against numbers that follow from its paper by hand."""

import pytest
from packet_link import run_link
from steady_flow import LINK, MSS, RATE_Bps, Steady

from ccenv.agents import make_sender


@pytest.mark.parametrize("pieces", [1, 10, 1000])
@pytest.mark.parametrize(("rtt_s", "growth"), [(0.01, 1.0), (0.025, 1.0), (0.05, 4.0), (0.25, 100.0), (0.6, 576.0)])
def test_hybla_grows_by_rho_squared_per_round(rtt_s, growth, pieces):
    """Congestion avoidance: (RTT/RTT0)^2 segments per RTT, RTT0 = 25 ms; 1 for RTT below it."""
    flow = Steady(make_sender("hybla:initial_window_mss=1000"), rtt_s=rtt_s, pieces=pieces)
    flow.state.ssthresh_bytes = MSS
    flow.rounds(1)
    assert flow.cwnd_mss - 1000 == pytest.approx(growth, rel=1e-9)


def test_hybla_rate_grows_alike_for_every_rtt():
    """The purpose: rho^2/RTT segments per second, over RTT: the rate grows by 1/RTT0^2 whatever the RTT."""
    growth = []
    for rtt_s in (0.05, 0.1, 0.2):
        flow = Steady(make_sender("hybla:initial_window_mss=100"), rtt_s=rtt_s)
        flow.state.ssthresh_bytes = MSS
        before, start_s = flow.cwnd_mss, flow.now_s
        flow.rounds(round(1 / rtt_s))
        growth.append((flow.cwnd_mss - before) / rtt_s / (flow.now_s - start_s))
    assert growth == pytest.approx([1 / 0.025**2] * 3)


@pytest.mark.parametrize(("rtt_s", "factor"), [(0.01, 2), (0.025, 2), (0.05, 4), (0.1, 16), (0.6, 16)])
def test_hybla_slow_start_multiplies_by_two_to_the_rho(rtt_s, factor):
    """One signal per window: W -> W + (2^rho - 1) W; rho at most 4."""
    flow = Steady(make_sender("hybla"), rtt_s=rtt_s, pieces=1)
    flow.rounds(1)
    assert flow.cwnd_mss == pytest.approx(10 * factor)


def test_hybla_leaves_slow_start_at_ssthresh():
    flow = Steady(make_sender("hybla"), rtt_s=0.05, pieces=1)
    flow.state.ssthresh_bytes = 25 * MSS
    flow.rounds(1)  # 5 of the 10 acknowledged segments fill up to ssthresh, the other 5 count as 5/25 of a window
    assert flow.cwnd_mss == pytest.approx(25 + 4 * 5 / 25)


def test_hybla_halves_on_loss():
    flow = Steady(make_sender("hybla:initial_window_mss=40"))
    flow.lose()
    assert flow.cwnd_mss == 20
    flow.lose(timeout=1.0)
    assert flow.cwnd_mss == 1


def test_hybla_fills_a_link():
    run = run_link(make_sender("hybla"), 10, buffer_packets=60, **LINK)
    assert run.rate_Bps(3, 10) > 0.97 * RATE_Bps
