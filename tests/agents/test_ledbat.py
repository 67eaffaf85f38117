"""LEDBAT against numbers that follow from RFC 6817 by hand."""

import pytest
from packet_link import run_link
from steady_flow import LINK, MSS, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender


@pytest.mark.parametrize(("target_ms", "start_mss"), [(100, 139), (20, 30)])
def test_ledbat_settles_at_its_target_delay(target_ms, start_mss):
    """RFC 6817 s.2.4.2: the window rests where the queueing delay is TARGET: 100 ms is 100 segments here.

    The distance decays by a factor e in TARGET/MSS*C round trips: 20 of 60 ms, or 100 of 140 ms, which starts near its rest.
    """
    run = run_link(make_sender(f"ledbat:target_ms={target_ms},initial_window_mss={start_mss}"), 8, buffer_packets=400, **LINK)
    late = run.column("now_s") > 6
    queueing_s = run.column("rtt_s")[late] - run.column("rtt_s").min()
    assert queueing_s.mean() == pytest.approx(1e-3 * target_ms, abs=2.5 * MSS / RATE_Bps)
    assert run.rate_Bps(6, 8) == pytest.approx(RATE_Bps, rel=3e-3)
    assert not run.losses


@pytest.mark.parametrize("pieces", [1, 50, 2000])
@pytest.mark.parametrize(("queueing_s", "change"), [(0.0, 1.0), (0.05, 0.5), (0.1, 0.0), (0.2, -1.0)])
def test_ledbat_moves_by_the_distance_from_the_target(pieces, queueing_s, change):
    """Per round trip: GAIN (TARGET - queueing)/TARGET segments."""
    flow = Steady(make_sender("ledbat:initial_window_mss=100"), pieces=pieces)
    flow.state.base_0_s = RTT_S
    flow.rounds(1, rtt_s=RTT_S + queueing_s)
    assert flow.cwnd_mss - 100 == pytest.approx(change, rel=0.01, abs=1e-9)


def test_ledbat_forgets_its_base_delay_after_ten_minutes():
    """RFC 6817 s.3.4.2: BASE_HISTORY of ten minutes."""
    flow = Steady(make_sender("ledbat:initial_window_mss=100"), pieces=1)
    flow.rounds(1)
    for minute in range(1, 12):
        flow.now_s = 60.0 * minute + 1
        flow.state.cwnd_bytes = 100 * MSS
        flow.rounds(8, rtt_s=RTT_S + 0.2)  # the first three still see the delay of before in the filter of four
        assert (flow.cwnd_mss < 100) == (minute < 10), minute


def test_ledbat_does_not_grow_past_what_is_in_flight():
    """RFC 6817 s.2.4.2: cwnd is at most the flight plus ALLOWED_INCREASE."""
    flow = Steady(make_sender("ledbat:initial_window_mss=100"), pieces=1)
    flow.step(acked_bytes=10 * MSS, inflight_bytes=20 * MSS)
    assert flow.cwnd_mss == 31


def test_ledbat_takes_the_smallest_of_four_samples():
    """RFC 6817 s.3.4.2: CURRENT_FILTER = 4, minimum: three delayed segments change nothing, the fourth does."""
    flow = Steady(make_sender("ledbat:initial_window_mss=100"), pieces=100)  # one segment per signal
    flow.rounds(1)
    signs = []
    for _ in range(5):
        before = flow.cwnd_mss
        flow.step(rtt_s=RTT_S + 0.3, acked_bytes=MSS)
        signs.append(flow.cwnd_mss > before)
    assert signs == [True, True, True, False, False]


def test_ledbat_halves_once_per_round_trip_and_restarts_from_one():
    flow = Steady(make_sender("ledbat:initial_window_mss=40"))
    flow.lose()
    assert flow.cwnd_mss == 20
    flow.lose()
    assert flow.cwnd_mss == 20
    flow.lose(timeout=1.0)
    assert flow.cwnd_mss == 1
    flow.step()
    assert flow.cwnd_mss == 2  # MIN_CWND
