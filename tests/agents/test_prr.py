"""PRR (RFC 9937) in Reno and CUBIC, against numbers that follow from its s.6 by hand."""

import pytest
from packet_link import run_link
from steady_flow import LINK, MSS, Steady

from ccenv.agents import make_sender

KEPT = {"reno": 0.5, "cubic": 0.7}


def recovering(name, lost_mss=1.0):
    """A flow of 40 segments in flight that has just lost some."""
    flow = Steady(make_sender(f"{name}:initial_window_mss=40,prr=1"))
    flow.inflight = (40 - lost_mss) * MSS
    flow.lose(lost_mss * MSS, inflight_bytes=flow.inflight, delivered_bytes=0.0)
    return flow


def clock(flow, acks):
    """Take ACKs of one segment each; send what the window lets go at once. Return the segments sent after each."""
    sent = []
    for _ in range(acks):
        flow.delivered += MSS - flow.state.cwnd_bytes / flow.pieces
        flow.inflight -= MSS
        flow.step(acked_bytes=MSS, inflight_bytes=flow.inflight)
        room = int((flow.state.cwnd_bytes - flow.inflight) / MSS + 1e-9)
        sent.append(max(0, room))
        flow.inflight += sent[-1] * MSS
    return sent


@pytest.mark.parametrize("name", KEPT)
def test_a_lost_segment_is_sent_again_at_once(name):
    flow = recovering(name)
    assert flow.cwnd_mss == 40


@pytest.mark.parametrize("name", KEPT)
def test_sending_is_spread_over_the_round_trip(name):
    """Of 39 segments in flight 1/2 or 7/10 are sent, evenly, and recovery ends with ssthresh in flight."""
    flow = recovering(name)
    flow.inflight += MSS  # the retransmission
    sent = clock(flow, 38)
    assert flow.inflight / MSS == pytest.approx(40 * KEPT[name], abs=1.0)
    assert set(sent) <= {0, 1}
    first, second = sum(sent[:19]), sum(sent[19:])
    assert abs(first - second) <= 2
    clock(flow, 1)
    assert flow.cwnd_mss == pytest.approx(40 * KEPT[name], abs=1.1)


@pytest.mark.parametrize("name", KEPT)
def test_after_heavy_loss_one_segment_leaves_per_segment_that_arrives(name):
    """30 of 40 lost: fewer are in flight than ssthresh; the conservative bound of s.6 holds the flight."""
    flow = recovering(name, lost_mss=30.0)
    flow.inflight += MSS
    assert clock(flow, 8)[1:] == [1] * 7


@pytest.mark.parametrize("name", KEPT)
def test_without_it_the_window_falls_at_once(name):
    flow = Steady(make_sender(f"{name}:initial_window_mss=40"))
    flow.lose(MSS)
    assert flow.cwnd_mss == pytest.approx(40 * KEPT[name])


@pytest.mark.parametrize("name", KEPT)
def test_no_silence_after_a_loss(name):
    """On a link: what is in flight falls by less than five segments within six ACKs."""
    longest = {}
    for prr in (0, 1):
        run = run_link(make_sender(f"{name}:prr={prr}"), 12, buffer_packets=40, **LINK)
        inflight = run.column("inflight_bytes")[run.column("now_s") > 4]
        longest[prr] = max(before - after for before, after in zip(inflight[:-6], inflight[6:], strict=True)) / MSS
    assert longest[0] > 5
    assert longest[1] < 5
