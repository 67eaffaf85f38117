"""Classic CCAs against numbers that can be derived by hand: from their own text, on constant signals and on a plain link.

The link: 12 Mbit/s, Rm 40 ms, segments of 1500 bytes: 1000 segments/s, BDP 40 segments.
"""

import math

import numpy as np
import pytest
from packet_link import run_link
from signals_play import ack, compiled, fresh_state, loss

from ccenv.agents import make_sender
from ccenv.agents.classic import bbr1

MSS = 1500.0
RATE_Bps = 1.5e6
RTT_S = 0.04
BDP_MSS = 40.0
LINK = {"rate_Bps": RATE_Bps, "rtt_s": RTT_S}


class Steady:
    """A connection whose window is acknowledged evenly, once per RTT, in so many pieces."""

    def __init__(self, sender, *, rtt_s=RTT_S, pieces=50):
        self.init, self.on_ack, self.on_loss, _ = compiled(sender)
        self.state = fresh_state(sender)
        self.init(self.state)
        self.rtt_s, self.pieces, self.now_s, self.delivered, self.count = rtt_s, pieces, 0.0, 0.0, 0

    def step(self, **values):
        """Acknowledge one piece of the window."""
        self.now_s += self.rtt_s / self.pieces
        size = self.state.cwnd_bytes / self.pieces
        self.delivered += size
        start = float(self.count % self.pieces == 0)
        self.count += 1
        given = {
            "now_s": self.now_s,
            "acked_bytes": size,
            "delivered_bytes": self.delivered,
            "rtt_s": self.rtt_s,
            "min_rtt_s": self.rtt_s,
            "delivery_rate_Bps": self.state.cwnd_bytes / self.rtt_s,
            "inflight_bytes": self.state.cwnd_bytes - size,
            "round_start": start,
        }
        self.on_ack(self.state, ack(**(given | values)))

    def rounds(self, n, **values):
        for _ in range(n * self.pieces):
            self.step(**values)

    def lose(self, lost_bytes=MSS, **values):
        given = {
            "now_s": self.now_s,
            "lost_bytes": lost_bytes,
            "inflight_bytes": self.state.cwnd_bytes - lost_bytes,
            "delivered_bytes": self.delivered,
            "new_episode": 1.0,
        }
        self.on_loss(self.state, loss(**(given | values)))

    def leave_recovery(self):
        self.delivered += self.state.cwnd_bytes * 3

    @property
    def cwnd_mss(self):
        return self.state.cwnd_bytes / MSS


# Reno ---------------------------------------------------------------------------------------------------------------------


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


# CUBIC --------------------------------------------------------------------------------------------------------------------


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


# Vegas --------------------------------------------------------------------------------------------------------------------


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


# Copa ---------------------------------------------------------------------------------------------------------------------


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


# BBRv1 --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bbr1_run():
    watch = ("mode", "pacing_gain", "bandwidth_Bps", "rtprop_s")
    run = run_link(make_sender("bbr1"), 24, buffer_packets=400, watch=watch, **LINK)
    return run, np.array(run.states)


def test_bbr1_finds_bandwidth_and_delay(bbr1_run):
    run, states = bbr1_run
    assert states[-1, 2] == pytest.approx(RATE_Bps, rel=0.01)
    assert states[-1, 3] == pytest.approx(RTT_S + MSS / RATE_Bps, rel=1e-6)
    assert run.rate_Bps(2, 22) > 0.96 * RATE_Bps


def test_bbr1_goes_through_startup_and_drain_to_probe_bw(bbr1_run):
    _, states = bbr1_run
    modes = states[:, 0]
    changes = modes[np.insert(np.diff(modes) != 0, 0, True)]
    assert changes[:3].tolist() == [bbr1.STARTUP, bbr1.DRAIN, bbr1.PROBE_BW]
    assert set(np.round(states[modes == bbr1.PROBE_BW, 1], 9)) == {1.25, 0.75, 1.0}


def test_bbr1_window_is_two_bdp_plus_three_quanta(bbr1_run):
    run, states = bbr1_run
    windows = run.column("cwnd_bytes")[states[:, 0] == bbr1.PROBE_BW]
    bdp = states[-1, 2] * states[-1, 3]
    assert windows.max() == pytest.approx(2 * bdp + 3 * 2 * MSS, rel=0.01)  # 12 Mbit/s: quantum of two segments


def test_bbr1_probes_the_rtt_every_ten_seconds_with_four_segments(bbr1_run):
    run, states = bbr1_run
    now_s, probing = run.column("now_s"), states[:, 0] == bbr1.PROBE_RTT
    starts = now_s[1:][~probing[:-1] & probing[1:]]
    ends = now_s[1:][probing[:-1] & ~probing[1:]]
    assert len(starts) == 2
    assert np.diff(starts)[0] == pytest.approx(10.0, abs=0.7)
    for start, end in zip(starts, ends, strict=True):
        inside = (now_s > start) & (now_s < end)
        assert run.column("cwnd_bytes")[inside].max() == 4 * MSS
        # 200 ms and a round after the flight has come down to four segments, which takes about one RTT
        assert 0.2 < end - start < 0.2 + 4 * RTT_S
    assert not ((now_s > 1) & (now_s < 9) & probing).any()


def test_bbr1_doubles_its_rate_per_round_in_startup():
    flow = Steady(make_sender("bbr1"), pieces=10)
    rates = []
    for _ in range(6):
        flow.rounds(1)
        rates.append(float(flow.state.pacing_rate_Bps))
    growth = np.array(rates[2:]) / np.array(rates[1:-1])
    assert (growth > 1.9).all()
    assert flow.state.mode == bbr1.STARTUP


def test_bbr1_leaves_startup_after_three_rounds_without_growth():
    """4.3.2.2: the first sample sets the level, three more rounds below 1.25 times it end STARTUP."""
    flow = Steady(make_sender("bbr1"), pieces=1)
    modes = []
    for growth in (1.0, 2.0, 2.5, 3.0, 3.1, 3.1):
        flow.step(delivery_rate_Bps=growth * 1e6, inflight_bytes=1e9)
        modes.append(float(flow.state.mode))
    assert modes == [bbr1.STARTUP] * 5 + [bbr1.DRAIN]  # levels 1, 2, 2.5; then three rounds below 3.125


def test_bbr1_forgets_a_bandwidth_after_ten_rounds():
    flow = Steady(make_sender("bbr1"), pieces=1)
    flow.step(delivery_rate_Bps=5e6)
    for _ in range(10):
        flow.step(delivery_rate_Bps=1e6)
    assert flow.state.bandwidth_Bps == 5e6
    flow.step(delivery_rate_Bps=1e6)
    assert flow.state.bandwidth_Bps == 1e6


def test_bbr1_ignores_the_low_rates_of_probe_rtt():
    """4.3.5: twenty rounds of 10 ms at four segments must not replace the bandwidth, whose window is ten rounds."""
    flow = Steady(make_sender("bbr1"), rtt_s=0.01, pieces=2)
    flow.rounds(1, delivery_rate_Bps=1.5e6)
    while flow.state.mode != bbr1.PROBE_RTT:
        flow.step(rtt_s=0.011, delivery_rate_Bps=1.5e6, inflight_bytes=1.5e4)
        assert flow.now_s < 10.1
    rounds = float(flow.state.rounds)
    while flow.state.mode == bbr1.PROBE_RTT:
        flow.step(rtt_s=0.011, delivery_rate_Bps=4 * MSS / 0.01, inflight_bytes=2 * MSS, acked_bytes=2 * MSS)
    assert flow.state.rounds - rounds >= 19
    assert flow.state.bandwidth_Bps == 1.5e6


def test_bbr1_cycle_and_random_first_phase():
    """Eight phases of one RTprop: 5/4, 3/4, six times 1; the first is any but 3/4, by the counter-based generator."""
    first = set()
    for seed in range(40):
        flow = Steady(make_sender("bbr1"), pieces=10)
        flow.state.seed = seed
        while flow.state.mode != bbr1.PROBE_BW:
            flow.step(delivery_rate_Bps=1.5e6, inflight_bytes=0.0)
        assert flow.state.draws == 1.0
        first.add(float(flow.state.phase))
    assert first == {0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}
    gains = []
    for _ in range(17 * 10):
        flow.step(delivery_rate_Bps=1.5e6, inflight_bytes=1.5 * 1.5e6 * RTT_S)
        gains.append(float(flow.state.pacing_gain))
    order = [g for i, g in enumerate(gains) if i == 0 or g != gains[i - 1]]
    up = order.index(1.25)
    assert order[up : up + 5] == [1.25, 0.75, 1.0, 1.25, 0.75]
    assert gains.count(1.25) / len(gains) == pytest.approx(1 / 8, abs=0.05)


def test_bbr1_conserves_packets_for_one_round_after_a_loss():
    flow = Steady(make_sender("bbr1:initial_window_mss=100"), pieces=20)
    flow.rounds(2)
    before = flow.state.cwnd_bytes
    flow.lose(lost_bytes=10 * MSS, inflight_bytes=40 * MSS)
    assert flow.state.cwnd_bytes == 41 * MSS
    flow.step(inflight_bytes=39 * MSS, acked_bytes=MSS, round_start=0.0)
    assert flow.state.cwnd_bytes == 41 * MSS  # not above what is in flight plus what was delivered
    flow.delivered += 60 * MSS
    flow.step()
    assert flow.state.cwnd_bytes >= before  # restored at the end of recovery


# Constant -----------------------------------------------------------------------------------------------------------------


def test_constant_rate():
    run = run_link(make_sender("constant:rate_mbps=6"), 3, **LINK)
    assert run.rate_Bps(1, 3) == pytest.approx(0.75e6, rel=2e-3)


def test_link_itself_is_what_the_numbers_assume():
    """Overload: the link carries C; the last packet of a full buffer waits buffer/C."""
    run = run_link(make_sender("constant:rate_mbps=24"), 3, buffer_packets=50, **LINK)
    assert run.rate_Bps(1, 3) == pytest.approx(RATE_Bps, rel=2e-3)
    assert run.column("rtt_s").max() == pytest.approx(RTT_S + 51 * MSS / RATE_Bps, abs=2 * MSS / RATE_Bps)
    assert math.isclose(run.column("rtt_s").min(), RTT_S + MSS / RATE_Bps, rel_tol=1e-9)
