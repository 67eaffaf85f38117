"""Copa against numbers that follow from its paper by hand."""

import pytest
from packet_link import run_link
from steady_flow import LINK, MSS, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender


@pytest.mark.parametrize("delta", [0.5, 0.1])
def test_copa_queue_swings_between_nothing_and_two_and_a_half_over_delta(delta):
    """NSDI 2018 s.3: in equilibrium a single flow's queue goes from 0 to 2.5/delta segments, 1.25/delta on average."""
    run = run_link(make_sender(f"copa:default_delta={delta}"), 14, buffer_packets=400, **LINK)
    late = run.column("now_s") > 6
    queued = (run.column("rtt_s")[late] - run.column("rtt_s").min()) * RATE_Bps / MSS
    assert queued.mean() == pytest.approx(1.25 / delta, rel=0.2)
    assert queued.min() <= 0.1 / delta
    assert queued.max() == pytest.approx(2.5 / delta, rel=0.35)
    assert run.rate_Bps(6, 14) > 0.98 * RATE_Bps


@pytest.mark.parametrize(("queued_mss", "sign"), [(1.9, 1), (2.1, -1)])
def test_copa_target_rate_is_one_segment_over_delta_times_delay(queued_mss, sign):
    """With delta = 1/2 the target is 2 segments of queueing: rate C = 1/(delta d_q) at d_q = 2/C."""
    flow = Steady(make_sender("copa:initial_window_mss=50"))
    flow.step()
    flow.state.slow_start = 0.0
    rtt_s = RTT_S / (1 - queued_mss / 50)  # cwnd/rtt = 50/rtt; d_q = rtt - Rm; target passes at 50 * d_q/rtt = 2
    for _ in range(60):  # the standing RTT forgets the first sample
        flow.state.cwnd_bytes = 50 * MSS
        before = flow.cwnd_mss
        flow.step(rtt_s=rtt_s, round_start=0.0)
        change = flow.cwnd_mss - before
    assert change == pytest.approx(sign * 1 / 0.5 / 50, rel=1e-9)  # v/delta segments per RTT, in 50 pieces


def test_copa_velocity_doubles_after_three_rounds_in_one_direction():
    flow = Steady(make_sender("copa:initial_window_mss=1000"))
    flow.rounds(1)
    flow.state.slow_start = 0.0
    velocities = []
    for _ in range(7):
        flow.rounds(1)
        velocities.append(float(flow.state.velocity))
    assert velocities == [1, 1, 2, 4, 8, 16, 32]
    flow.rounds(1, rtt_s=RTT_S * 1.5)
    flow.rounds(2, rtt_s=RTT_S * 1.5)
    assert flow.state.velocity == 1.0


def test_copa_switches_mode_when_the_queue_never_empties():
    """NSDI 2018 s.2.2: more than five RTTs without a nearly empty queue; then 1/delta grows by one per RTT, halves on loss."""
    for switching, competitive in ((1, True), (0, False)):
        flow = Steady(make_sender(f"copa:initial_window_mss=100,mode_switching={switching}"))
        flow.rounds(1)
        for _ in range(9):
            flow.state.cwnd_bytes = 100 * MSS
            flow.rounds(1, rtt_s=RTT_S * 3)
        assert (flow.state.delta < 0.5) == competitive
        if competitive:
            inverse = 1 / flow.state.delta
            assert inverse == pytest.approx(round(inverse))
            flow.lose()
            assert 1 / flow.state.delta == pytest.approx(max(inverse / 2, 2.0))
            flow.rounds(1)  # empty again
            flow.step()
            assert flow.state.delta == 0.5


def test_copa_forgets_its_minimum_rtt_after_ten_seconds():
    """NSDI 2018 s.2.1: RTTmin is the minimum over 10 s."""
    flow = Steady(make_sender("copa"), pieces=2)
    flow.rounds(1)
    while flow.now_s < 9.9:
        flow.step(rtt_s=1.5 * RTT_S)
    assert flow.state.min_a_s == RTT_S
    while flow.now_s < 10.2:
        flow.step(rtt_s=1.5 * RTT_S)
    assert flow.state.min_a_s == 1.5 * RTT_S


def test_copa_paces_at_twice_the_window_per_standing_rtt():
    flow = Steady(make_sender("copa"))
    flow.rounds(2)
    assert flow.state.pacing_rate_Bps == pytest.approx(2 * flow.state.cwnd_bytes / RTT_S)
