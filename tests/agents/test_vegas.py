"""Vegas against numbers that follow from its paper by hand."""

import pytest
from packet_link import run_link
from steady_flow import LINK, MSS, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender


def test_vegas_keeps_between_alpha_and_beta_segments_queued():
    run = run_link(make_sender("vegas"), 8, buffer_packets=200, **LINK)
    late = run.column("now_s") > 5
    # The RTT counts the packet's own transmission as well: subtract the smallest RTT instead of Rm.
    queued = (run.column("rtt_s")[late] - run.column("rtt_s").min()) * RATE_Bps / MSS
    assert queued.min() >= 2
    assert queued.max() <= 4 + 1  # the window may exceed the threshold by less than a segment
    assert not run.losses
    assert run.rate_Bps(5, 8) == pytest.approx(RATE_Bps, rel=2e-3)


@pytest.mark.parametrize(("queued_mss", "change"), [(1.9, 1.0), (2.1, 0.0), (3.9, 0.0), (4.1, -1.0)])
def test_vegas_decides_once_per_round(queued_mss, change):
    """Diff = cwnd (1 - base/RTT): below 2 grow, above 4 shrink, by one segment per RTT."""
    flow = Steady(make_sender("vegas:initial_window_mss=50"))
    flow.state.slow_start = 0.0
    rtt_s = RTT_S / (1 - queued_mss / 50)
    flow.rounds(1, rtt_s=rtt_s)
    assert flow.cwnd_mss == 50
    flow.step(rtt_s=rtt_s)
    assert flow.cwnd_mss == pytest.approx(50 + change)


def test_vegas_slow_start_grows_every_other_round_and_leaves_on_a_queue():
    flow = Steady(make_sender("vegas"), pieces=1)
    windows = []
    for _ in range(7):
        flow.rounds(1)
        windows.append(flow.cwnd_mss)
    assert windows == [10, 20, 20, 40, 40, 80, 80]
    flow.rounds(1)
    flow.rounds(2, rtt_s=RTT_S * 1.1)  # 160 * (1 - 1/1.1) = 14.5 segments queued: more than gamma = 1
    assert flow.state.slow_start == 0.0
    assert flow.cwnd_mss == 160 * 7 / 8


def test_vegas_loses_a_quarter_per_loss_and_restarts_from_two():
    flow = Steady(make_sender("vegas:initial_window_mss=40"))
    flow.lose()
    assert flow.cwnd_mss == 30.0
    flow.lose(timeout=1.0)
    assert flow.cwnd_mss == 2.0
