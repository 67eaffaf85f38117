"""CUBIC against numbers that follow from RFC 9438 by hand."""

import pytest
from packet_link import run_link
from steady_flow import LINK, MSS, RATE_Bps, Steady

from ccenv.agents import make_sender


def _cubic_after_loss(w_mss, *, rtt_s=0.1):
    flow = Steady(make_sender(f"cubic:initial_window_mss={w_mss}"), rtt_s=rtt_s, pieces=100)
    flow.lose()
    flow.leave_recovery()
    return flow


def test_cubic_reduces_to_seven_tenths():
    assert _cubic_after_loss(1000).cwnd_mss == pytest.approx(700)


@pytest.mark.parametrize("t_s", [1.0, 3.0, 6.0, 9.086, 12.0])
def test_cubic_follows_its_curve(t_s):
    """RFC 9438 eq. (1), (2): W(t) = 0.4 (t - K)^3 + W_max with K = cbrt(0.3 * 1000 / 0.4) = 9.086 s."""
    flow = _cubic_after_loss(1000)
    flow.rounds(round(t_s / 0.1))
    assert flow.state.k_s == pytest.approx((300 / 0.4) ** (1 / 3), rel=1e-9)
    elapsed = flow.now_s - flow.state.epoch_start_s
    assert flow.cwnd_mss == pytest.approx(0.4 * (elapsed - flow.state.k_s) ** 3 + 1000, rel=2e-3)


def test_cubic_is_reno_friendly_at_small_windows():
    """RFC 9438 s.4.3: W_est grows by alpha = 3 (1 - 0.7)/(1 + 0.7) = 0.529 segments per RTT."""
    flow = _cubic_after_loss(20, rtt_s=0.01)
    flow.rounds(5)
    assert flow.cwnd_mss == pytest.approx(14 + 5 * 3 * 0.3 / 1.7, rel=1e-6)
    flow.rounds(7)  # above the window before the loss it grows by a whole segment per RTT
    before = flow.cwnd_mss
    assert before > 20
    flow.rounds(1)
    assert flow.cwnd_mss - before == pytest.approx(1.0, rel=1e-6)


def test_cubic_fast_convergence():
    """RFC 9438 s.4.7: below the last maximum, W_max becomes cwnd * (1 + 0.7)/2."""
    for fast_convergence, expected in ((1, 700 * 0.85), (0, 700)):
        flow = Steady(make_sender(f"cubic:initial_window_mss=1000,fast_convergence={fast_convergence}"))
        flow.lose()
        flow.lose()
        assert flow.state.w_max_bytes / MSS == pytest.approx(expected)


def test_cubic_time_that_the_application_limits_does_not_count():
    """RFC 9438 s.5.8."""
    flow = _cubic_after_loss(1000)
    flow.rounds(20)
    elapsed, window = flow.now_s - flow.state.epoch_start_s, flow.cwnd_mss
    flow.rounds(50, app_limited=1.0)
    assert flow.cwnd_mss == window
    assert flow.now_s - flow.state.epoch_start_s == pytest.approx(elapsed, abs=1e-9)


def test_cubic_after_a_time_out_has_its_plateau_at_the_end_of_slow_start():
    """RFC 9438 s.4.8: K = 0 and W_max = cwnd in the stage after a time-out."""
    flow = Steady(make_sender("cubic:initial_window_mss=1000"))
    flow.lose(lost_bytes=1000 * MSS, timeout=1.0)
    assert flow.cwnd_mss == 1.0
    flow.rounds(12)
    assert flow.state.k_s == 0.0
    assert flow.state.origin_bytes / MSS == pytest.approx(700, abs=1)


def test_cubic_fills_a_link_with_a_buffer_of_one_bdp():
    run = run_link(make_sender("cubic"), 8, buffer_packets=40, **LINK)
    assert run.rate_Bps(3, 8) > 0.99 * RATE_Bps
