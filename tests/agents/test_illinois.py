"""TCP-Illinois against numbers that follow from its paper by hand."""

from itertools import pairwise

import pytest
from packet_link import run_link
from steady_flow import BDP_MSS, LINK, MSS, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender
from ccenv.agents.classic.illinois import alpha_of_delay, beta_of_delay


@pytest.mark.parametrize("max_delay_s", [0.004, 1.7])
def test_illinois_curves_at_their_end_points(max_delay_s):
    """Alpha 10 up to 0.01 d_m, continuous there, 0.3 at d_m; beta 1/8 up to 0.1 d_m, 1/2 from 0.8 d_m, linear between."""
    assert alpha_of_delay(0.0, max_delay_s) == 10.0
    assert alpha_of_delay(0.01 * max_delay_s, max_delay_s) == 10.0
    assert alpha_of_delay(0.0100001 * max_delay_s, max_delay_s) == pytest.approx(10.0, rel=1e-3)
    assert alpha_of_delay(max_delay_s, max_delay_s) == pytest.approx(0.3)
    assert beta_of_delay(0.0, max_delay_s) == beta_of_delay(0.1 * max_delay_s, max_delay_s) == 0.125
    assert beta_of_delay(0.45 * max_delay_s, max_delay_s) == pytest.approx(0.3125)
    assert beta_of_delay(0.8 * max_delay_s, max_delay_s) == beta_of_delay(max_delay_s, max_delay_s) == 0.5
    # 1/alpha is linear in the delay: halfway between d_1 and d_m it is the mean of 1/10 and 1/0.3.
    middle = 0.5 * (0.01 + 1.0) * max_delay_s
    assert 1 / alpha_of_delay(middle, max_delay_s) == pytest.approx(0.5 * (1 / 10 + 1 / 0.3))


def test_illinois_without_a_queue_so_far():
    assert alpha_of_delay(0.0, 0.0) == 10.0
    assert beta_of_delay(0.0, 0.0) == 0.125


@pytest.mark.parametrize("pieces", [10, 1000])
def test_illinois_grows_by_alpha_per_round(pieces):
    flow = Steady(make_sender("illinois:initial_window_mss=40"), pieces=pieces)
    flow.state.ssthresh_bytes = MSS
    flow.rounds(1, rtt_s=2 * RTT_S, min_rtt_s=RTT_S)  # at the largest delay: alpha is 0.3 from the next round on
    before = flow.cwnd_mss
    flow.rounds(1, rtt_s=2 * RTT_S, min_rtt_s=RTT_S)
    assert flow.cwnd_mss - before == pytest.approx(0.3)
    windows = []
    for _ in range(7):
        windows.append(flow.cwnd_mss)
        flow.rounds(1)
    windows.append(flow.cwnd_mss)
    growth = [b - a for a, b in pairwise(windows)]
    # The first round still decides on the delayed one; alpha is kept until the fifth quiet round in a row.
    assert growth[:5] == pytest.approx([0.3] * 5)
    assert growth[5:] == pytest.approx([10.0] * 2)


def test_illinois_is_reno_below_fifteen_segments():
    flow = Steady(make_sender("illinois:initial_window_mss=12"))
    flow.state.ssthresh_bytes = MSS
    flow.rounds(2)
    assert flow.cwnd_mss == pytest.approx(14)
    flow.lose()
    assert flow.cwnd_mss == pytest.approx(7)


def test_illinois_takes_an_eighth_away_when_there_was_no_queue():
    flow = Steady(make_sender("illinois:initial_window_mss=40"))
    flow.rounds(2, rtt_s=RTT_S)
    before = flow.cwnd_mss
    flow.lose()
    assert flow.cwnd_mss == pytest.approx(before * 7 / 8)
    flow.lose(timeout=1.0)
    assert flow.cwnd_mss == 1
    assert (flow.state.alpha, flow.state.beta) == (1.0, 0.5)


def test_illinois_fills_a_link():
    """A buffer of one BDP: losses come at the largest delay, so beta = 1/2 and the window stays above one BDP."""
    run = run_link(make_sender("illinois"), 20, buffer_packets=BDP_MSS, **LINK)
    assert run.rate_Bps(5, 20) > 0.95 * RATE_Bps
    kept = [after / before for now, _, before, after, new in run.losses if new and now > 5]
    assert kept
    assert min(kept) == pytest.approx(0.5, abs=0.03)


def test_illinois_grows_by_ten_at_once_where_the_delay_was_never_high():
    """The five rounds are waited for after a high delay only."""
    flow = Steady(make_sender("illinois:initial_window_mss=40"), pieces=100)
    flow.state.ssthresh_bytes = MSS
    flow.rounds(1)
    before = flow.cwnd_mss
    flow.rounds(1)
    assert flow.cwnd_mss - before == pytest.approx(10.0)
