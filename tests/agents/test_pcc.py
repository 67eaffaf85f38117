"""Monitor intervals of PCC: what is sent when, and what is measured."""

import pytest
from steady_flow import MSS, RTT_S, Steady

from ccenv.agents import make_sender
from ccenv.agents.classic.pcc import common as pcc
from ccenv.agents.classic.pcc import vivace


def probing(rate_Bps=6.25e6, pieces=200):
    """A Vivace flow at the beginning of an experiment of two intervals."""
    flow = Steady(make_sender("vivace:initial_window_mss=100"), pieces=pieces)
    flow.step()
    flow.state.mode, flow.state.rate_Bps = vivace.PROBING, rate_Bps
    vivace._experiment(flow.state, flow.now_s)
    return flow


def test_intervals_are_sent_one_after_the_other_and_results_awaited():
    """Two intervals of one RTT at 1.05 and 0.95 of the rate, in either order; then the base rate until all is heard of."""
    flow = probing()
    state, start_s = flow.state, flow.now_s
    rate_Bps, rates = float(state.rate_Bps), []
    while state.rate_Bps == rate_Bps:
        rates.append(float(state.pacing_rate_Bps) / rate_Bps)
        flow.step()
    order = [rate for i, rate in enumerate(rates) if i == 0 or rate != rates[i - 1]]
    assert sorted(order[:2]) == pytest.approx([0.95, 1.05])
    assert order[2:] == pytest.approx([1.0])
    assert rates.count(order[0]) == pytest.approx(flow.pieces, abs=1)
    assert rates.count(order[1]) == pytest.approx(flow.pieces, abs=1)
    assert flow.now_s - start_s == pytest.approx(3 * RTT_S, rel=0.02)


@pytest.mark.parametrize("slope", [0.2, -0.1, 0.001])
def test_rtt_slope_is_that_of_the_regression(slope):
    """RTT = RTT0 + slope * send time: at now the byte sent at s = now - RTT is heard of."""
    flow = probing()
    while flow.state.receiving < 1:
        now_s = flow.now_s + RTT_S / flow.pieces
        flow.step(rtt_s=(RTT_S + slope * now_s) / (1 + slope))
    assert flow.state.slope_0 == pytest.approx(slope, rel=1e-6)
    assert flow.state.lost_0_bytes == 0.0


def test_slope_of_a_constant_rtt_is_zero():
    flow = probing()
    while flow.state.receiving < 1:
        flow.step()
    assert flow.state.slope_0 == 0.0


@pytest.mark.parametrize("lost_in", [0, 1])
def test_a_loss_belongs_to_the_interval_in_which_it_was_sent(lost_in):
    """It is found when three later segments are acknowledged: what ACKs of up to three segments bring is charged before."""
    flow = probing(pieces=400)  # a signal acknowledges a fraction of a segment
    state = flow.state
    while state.receiving <= lost_in:
        flow.step()
    assert state.settling == lost_in
    flow.lose(MSS, new_episode=0.0)  # the last segment of the interval
    assert (state.lost_0_bytes, state.lost_1_bytes) == ((MSS, 0.0) if lost_in == 0 else (0.0, MSS))
    if lost_in == 0:
        while state.settling == 0:
            flow.step()
        assert state.sum_acked_bytes == pytest.approx(3 * MSS, abs=2 * state.cwnd_bytes / flow.pieces)


def test_losses_of_before_an_experiment_are_not_charged_to_it():
    flow = probing(pieces=400)
    while flow.state.sum_acked_bytes == 0.0:
        flow.lose(MSS, new_episode=0.0)
        flow.step()
    flow.lose(MSS, new_episode=0.0)
    assert flow.state.lost_0_bytes == 0.0


def test_loss_share():
    assert pcc.loss_share(0.0, 0.0) == 0.0
    assert pcc.loss_share(98.0, 2.0) == pytest.approx(0.02)
    assert pcc.loss_share(0.0, 5.0) == 1.0


def test_an_interval_is_long_enough_for_ten_segments():
    flow = probing(rate_Bps=10 * MSS / 1.0)
    assert flow.state.interval_s == pytest.approx(1.0)


def test_an_application_limited_experiment_decides_nothing():
    flow = probing()
    start_s = float(flow.state.edge_0_s)
    rate_Bps = float(flow.state.rate_Bps)
    while flow.state.edge_0_s == start_s:
        flow.step(app_limited=1.0)
    assert flow.state.rate_Bps == rate_Bps


@pytest.mark.parametrize(("sent", "kept"), [(0.9, None), (0.7, 0.7), (0.3, 0.5)])
def test_an_experiment_that_could_not_be_sent_lowers_the_rate(sent, kept):
    """Below three quarters of what was planned the rate becomes what was sent, at least half; above, the gradient decides."""
    flow = probing()
    rate_Bps = float(flow.state.rate_Bps)
    while flow.state.rate_Bps == rate_Bps:
        # What is heard of now was sent an RTT ago: the interval being received tells at which rate.
        planned_Bps = flow.state.rate_0_Bps if flow.state.receiving == 0 else flow.state.rate_1_Bps
        flow.step(acked_bytes=sent * planned_Bps * RTT_S / flow.pieces)
    if kept is None:
        assert abs(flow.state.rate_Bps / rate_Bps - 1) <= 0.05
    else:
        assert flow.state.rate_Bps / rate_Bps == pytest.approx(kept, rel=0.02)


def test_a_timeout_halves_the_rate():
    flow = probing()
    rate_Bps = float(flow.state.rate_Bps)
    flow.lose(timeout=1.0)
    assert flow.state.rate_Bps == rate_Bps / 2
