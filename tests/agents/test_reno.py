"""Reno against numbers that follow from RFC 5681 by hand."""

import pytest
from packet_link import run_link
from steady_flow import BDP_MSS, LINK, MSS, RATE_Bps, Steady

from ccenv.agents import make_sender
from ccenv.base.errors import InputError


@pytest.mark.parametrize("pieces", [1, 10, 5000])
def test_reno_doubles_per_rtt_in_slow_start(pieces):
    flow = Steady(make_sender("reno"), pieces=pieces)
    flow.rounds(3)
    # Even ACKs of a growing window: (1 + 1/n)^n per RTT, between 2 (n = 1) and e.
    assert flow.cwnd_mss == pytest.approx(10 * ((1 + 1 / pieces) ** pieces) ** 3, rel=1e-6)


@pytest.mark.parametrize("pieces", [1, 10, 5000])
def test_reno_adds_one_segment_per_rtt(pieces):
    """RFC 5681 eq. (3), whatever the size of the ACKs."""
    flow = Steady(make_sender("reno:initial_window_mss=40"), pieces=pieces)
    flow.lose()
    flow.leave_recovery()
    start = flow.cwnd_mss
    flow.rounds(10)
    assert flow.cwnd_mss - start == pytest.approx(10, rel=1e-9)


def test_reno_halves_the_flight_once_per_episode():
    flow = Steady(make_sender("reno:initial_window_mss=40"))
    flow.lose()
    assert flow.cwnd_mss == 20.0
    flow.lose(new_episode=0.0)
    assert flow.cwnd_mss == 20.0
    before = flow.delivered
    flow.step()  # still in recovery: no growth
    assert flow.delivered > before
    assert flow.cwnd_mss == 20.0


def test_reno_time_out_restarts_from_one_segment_up_to_half():
    flow = Steady(make_sender("reno:initial_window_mss=40"))
    flow.lose(lost_bytes=40 * MSS, timeout=1.0)
    assert flow.cwnd_mss == 1.0
    assert flow.state.ssthresh_bytes == 20 * MSS
    flow.rounds(5)
    assert 20.0 <= flow.cwnd_mss < 23.0  # slow start to 20, then one segment per RTT


def test_reno_reduces_on_marks_once_per_window_and_not_while_limited():
    flow = Steady(make_sender("reno:initial_window_mss=40"))
    flow.step(app_limited=1.0)
    assert flow.cwnd_mss == 40.0
    flow.step(ecn_fraction=1.0)
    halved = flow.cwnd_mss
    assert halved == pytest.approx(20.0)
    flow.step(ecn_fraction=1.0)
    assert flow.cwnd_mss == halved


def test_reno_saw_tooth_on_the_link():
    """Window between half and all of BDP + buffer; with a buffer of one BDP the link never idles."""
    run = run_link(make_sender("reno"), 12, buffer_packets=40, **LINK)
    windows = run.column("cwnd_bytes")[run.column("now_s") > 5] / MSS
    reductions = [(before / MSS, after / MSS) for now, _, before, after, new in run.losses if new and now > 5]
    assert len(reductions) >= 1
    for before, after in reductions:
        assert before == pytest.approx(BDP_MSS + 40, abs=4)
        assert after == pytest.approx(before / 2, abs=2)
    assert windows.max() <= BDP_MSS + 40 + 4
    assert run.rate_Bps(5, 12) > 0.99 * RATE_Bps


def test_reno_counts_an_ack_as_at_most_the_limit():
    """limit_mss=1 (RFC 5681): an ACK for four segments adds one segment in slow start, 1/cwnd of one after it."""
    flow = Steady(make_sender("reno:limit_mss=1"))
    flow.step(acked_bytes=4 * MSS)
    assert flow.cwnd_mss == pytest.approx(11.0)
    flow.state.ssthresh_bytes = flow.state.cwnd_bytes
    flow.step(acked_bytes=4 * MSS)
    assert flow.cwnd_mss == pytest.approx(11.0 + 1 / 11)
    flow.step(acked_bytes=0.5 * MSS)
    assert flow.cwnd_mss == pytest.approx(11.0 + 1 / 11 + 0.5 / (11.0 + 1 / 11))


def test_reno_refuses_a_limit_of_nothing():
    with pytest.raises(InputError, match="limit_mss is 0; it must be"):
        make_sender("reno:limit_mss=0")
