"""Westwood+ against numbers that follow from its paper by hand."""

import numpy as np
import pytest
from packet_link import run_link
from steady_flow import BDP_MSS, LINK, MSS, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender


def test_westwood_sets_ssthresh_to_bandwidth_times_min_rtt():
    flow = Steady(make_sender("westwood:initial_window_mss=100"))
    flow.state.ssthresh_bytes = MSS
    flow.rounds(1)
    flow.state.bandwidth_Bps = 30 * MSS / RTT_S
    flow.lose()
    assert flow.cwnd_mss == pytest.approx(30)
    assert flow.state.ssthresh_bytes == pytest.approx(30 * MSS)
    flow.lose(timeout=1.0)
    assert flow.cwnd_mss == 1
    assert flow.state.ssthresh_bytes == pytest.approx(30 * MSS)


def test_westwood_does_not_raise_the_window_after_a_loss():
    flow = Steady(make_sender("westwood:initial_window_mss=20"))
    flow.rounds(1)
    flow.state.bandwidth_Bps = 300 * MSS / RTT_S
    before = flow.cwnd_mss
    flow.lose()
    assert flow.cwnd_mss == before


@pytest.mark.parametrize("pieces", [2, 50])
def test_westwood_filter_keeps_nine_tenths(pieces):
    """One sample per round: b <- 0.9 b + 0.1 sample; after n samples of X from b0: X + (b0 - X) 0.9^n."""
    flow = Steady(make_sender("westwood"), pieces=pieces)
    flow.rounds(1)
    flow.step()
    first = flow.state.bandwidth_Bps
    assert first > 0
    samples = 0
    state, before = flow.state, first
    size = 3 * first * RTT_S / pieces
    while samples < 20:
        # From one sample to the next all steps carry 3 times the first rate.
        flow.delivered += size - state.cwnd_bytes / pieces
        flow.step(acked_bytes=size)
        if state.bandwidth_Bps != before:
            before = float(state.bandwidth_Bps)
            samples += 1
    assert before == pytest.approx(3 * first + (first - 3 * first) * 0.9**20, rel=1e-6)


def test_westwood_returns_to_the_bdp_after_a_loss_on_a_link():
    """The estimate is the link's rate, so that the window after a loss is the BDP (40 segments), not half of BDP + buffer."""
    run = run_link(make_sender("westwood"), 16, buffer_packets=100, watch=("bandwidth_Bps",), **LINK)
    late = [after for now, _, _, after, new in run.losses if new and now > 8]
    assert late
    # min RTT holds one transmission time: BDP is 41 segments.
    assert np.array(late) / MSS == pytest.approx(BDP_MSS + 1, rel=0.03)
    assert run.states[-1][0] == pytest.approx(RATE_Bps, rel=0.03)
    assert run.rate_Bps(8, 16) == pytest.approx(RATE_Bps, rel=0.01)
