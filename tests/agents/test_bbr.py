"""BBRv1 and BBRv2 against numbers that follow from their drafts by hand; section numbers are the draft's."""

from itertools import pairwise

import numpy as np
import pytest
from packet_link import run_link
from signals_play import LINK, MSS, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender
from ccenv.agents.classic.bbr import bbr1, bbr2
from ccenv.agents.classic.common import UNLIMITED_BYTES


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


WATCH = ("mode", "bandwidth_Bps", "min_rtt_s", "pacing_gain", "high_inflight_bytes", "phase_start_s", "max_bandwidth_Bps")


@pytest.fixture(scope="module")
def bbr2_run():
    run = run_link(make_sender("bbr2"), 22, buffer_packets=400, watch=WATCH, **LINK)
    return run, np.array(run.states)


@pytest.fixture(scope="module")
def bbr2_shallow():
    """A buffer of 10 segments, a quarter of the BDP: STARTUP and probes lose."""
    run = run_link(make_sender("bbr2"), 22, buffer_packets=10, watch=WATCH, **LINK)
    return run, np.array(run.states)


def phases(run, states):
    """Return (start, mode) of each phase."""
    first = np.insert(np.diff(states[:, 0]) != 0, 0, True)
    return list(zip(run.column("now_s")[first], states[first, 0], strict=True))


def test_bbr2_finds_bandwidth_and_delay(bbr2_run):
    run, states = bbr2_run
    assert states[-1, 6] == pytest.approx(RATE_Bps, rel=0.01)
    assert states[-1, 2] == pytest.approx(RTT_S + MSS / RATE_Bps, rel=1e-6)
    assert run.rate_Bps(2, 22) > 0.93 * RATE_Bps
    assert not run.losses


def test_bbr2_goes_through_its_phases_in_order(bbr2_run):
    order = [mode for _, mode in phases(*bbr2_run)]
    # DRAIN has left no queue: DOWN hands on to CRUISE within the same ACK.
    assert order[:6] == [bbr2.STARTUP, bbr2.DRAIN, bbr2.CRUISE, bbr2.REFILL, bbr2.UP, bbr2.DOWN]
    follows = set(pairwise(order[2:]))
    regular = {(bbr2.DOWN, bbr2.CRUISE), (bbr2.CRUISE, bbr2.REFILL), (bbr2.REFILL, bbr2.UP), (bbr2.UP, bbr2.DOWN)}
    rare = {(bbr2.CRUISE, bbr2.PROBE_RTT), (bbr2.PROBE_RTT, bbr2.CRUISE)}
    assert regular <= follows <= regular | rare


def test_bbr2_probes_every_bdp_rounds(bbr2_run):
    """4.3.3.5: a BDP of 41 segments: after 40 or 41 rounds, at 41 ms a round, well before 2 s."""
    starts = [now for now, mode in phases(*bbr2_run) if mode == bbr2.REFILL]
    gaps = [b - a for a, b in pairwise(starts)]
    assert np.median(gaps) == pytest.approx(41 * 0.042, rel=0.1)


def test_bbr2_probe_rtt_every_five_seconds_at_half_a_bdp(bbr2_run):
    """4.3.4: after 5 s without a smaller RTT, for 200 ms and a round; half a BDP is 20.5 segments."""
    run, states = bbr2_run
    starts = [now for now, mode in phases(run, states) if mode == bbr2.PROBE_RTT]
    assert len(starts) >= 3
    assert all(b - a >= 5.0 for a, b in pairwise(starts))
    window_mss = run.column("cwnd_bytes")[states[:, 0] == bbr2.PROBE_RTT].min() / MSS
    assert window_mss == pytest.approx(20.5, rel=0.05)


def test_bbr2_bounds_the_flight_by_what_lost_too_much(bbr2_shallow):
    """41 segments fill the pipe and 10 the buffer: the bound settles near 51 segments; losses stay rare."""
    run, states = bbr2_shallow
    late = run.column("now_s") > 8
    bound_mss = states[late, 4] / MSS
    assert bound_mss.max() < 75
    assert np.median(bound_mss) == pytest.approx(51, abs=10)
    lost = sum(size for now, size, *_ in run.losses if now > 8)
    sent = run.rate_Bps(8, 22) * 14
    assert run.losses
    assert lost / sent < 0.02
    assert run.rate_Bps(8, 22) > 0.85 * RATE_Bps


def probing():
    """A flow in UP with a BDP of 40 segments and a bound of 60."""
    flow = Steady(make_sender("bbr2:initial_window_mss=80"), pieces=20)
    state = flow.state
    state.mode, state.pacing_gain, state.full_pipe, state.samples_probe = bbr2.UP, bbr2.UP_PACING_GAIN, 1.0, 1.0
    state.min_rtt_s = state.probe_min_rtt_s = RTT_S
    state.cycle_bandwidth_Bps = state.max_bandwidth_Bps = state.bandwidth_Bps = 1.5e6
    state.high_inflight_bytes = 60 * MSS
    state.cwnd_bytes = 60 * MSS
    state.round_inflight_bytes, state.round_end_bytes = 20 * MSS, 1e9
    return flow


@pytest.mark.parametrize(("lost_mss", "bound_mss"), [(0.39, 60), (0.41, 28)])
def test_bbr2_lowers_its_bound_above_two_percent_of_loss(lost_mss, bound_mss):
    """20 segments in flight: 2 % are 0.4. The bound becomes what was in flight or 0.7 of the target, 40 segments: 28."""
    flow = probing()
    flow.lose(lost_mss * MSS, new_episode=0.0)
    flow.step(delivery_rate_Bps=1.5e6, inflight_bytes=20 * MSS)
    assert flow.state.high_inflight_bytes == pytest.approx(bound_mss * MSS)
    assert (flow.state.mode != bbr2.UP) == (bound_mss == 28)


def test_bbr2_cruises_with_headroom():
    """4.5.10.2: 0.15 of the bound is left for others: 60 * 0.85 = 51."""
    flow = probing()
    flow.state.mode, flow.state.probe_wait_s = bbr2.CRUISE, 100.0
    flow.state.max_bandwidth_Bps = flow.state.cycle_bandwidth_Bps = flow.state.bandwidth_Bps = 1.5e7
    flow.step(delivery_rate_Bps=1.5e6, inflight_bytes=50 * MSS)
    assert flow.cwnd_mss == pytest.approx(51)


def test_bbr2_short_term_bounds_fall_to_seven_tenths_per_lossy_round():
    """4.5.10.3, in CRUISE: max(what was delivered, 0.7 of the bound); forgotten in REFILL."""
    flow = probing()
    state = flow.state
    state.mode, state.pacing_gain, state.probe_wait_s = bbr2.CRUISE, 1.0, 100.0
    state.high_inflight_bytes = UNLIMITED_BYTES
    state.low_inflight_bytes, state.low_bandwidth_Bps = 50 * MSS, 1.5e6
    for n in (1, 2):
        state.rounds_since_probe = -100.0
        flow.lose(0.01 * MSS, new_episode=0.0)
        state.latest_bandwidth_Bps = state.latest_inflight_bytes = 0.0
        state.round_end_bytes = 0.0
        flow.step(delivery_rate_Bps=1e3, inflight_bytes=20 * MSS)
        assert state.low_bandwidth_Bps == pytest.approx(1.5e6 * 0.7**n)
        assert state.low_inflight_bytes == pytest.approx(50 * MSS * 0.7**n)
    assert state.bandwidth_Bps == pytest.approx(1.5e6 * 0.49)
    state.rounds_since_probe = 100.0
    flow.step(delivery_rate_Bps=1e3, inflight_bytes=20 * MSS)
    assert state.mode == bbr2.REFILL
    assert state.low_inflight_bytes == UNLIMITED_BYTES
    assert state.bandwidth_Bps == pytest.approx(1.5e6)


def test_bbr2_bound_grows_by_a_doubling_number_of_segments_per_round():
    """4.3.3.6: 1, 2, 4, 8 segments per round while the bound is what limits."""
    flow = probing()
    state = flow.state
    state.max_bandwidth_Bps = state.cycle_bandwidth_Bps = state.bandwidth_Bps = 1e9  # 1.25 BDP is far away
    bounds = []
    for _ in range(4):
        state.round_end_bytes = flow.delivered + state.cwnd_bytes * 0.999
        state.round_inflight_bytes = 0.0
        bounds.append(state.high_inflight_bytes / MSS)
        for _ in range(20):
            flow.step(delivery_rate_Bps=1e6)
    growth = np.diff([*bounds, state.high_inflight_bytes / MSS])
    assert growth == pytest.approx([1, 2, 4, 8], rel=0.15)


def test_bbr2_startup_gains_and_exit_by_loss():
    """4.3.1.3: a round with more than 2 % and eight segments lost ends STARTUP, with the bound at the BDP."""
    flow = Steady(make_sender("bbr2:initial_window_mss=100"), pieces=10)
    flow.rounds(2, delivery_rate_Bps=1e6)
    assert flow.state.mode == bbr2.STARTUP
    assert (flow.state.pacing_gain, flow.state.cwnd_gain) == (2.89, 2.89)
    flow.lose(7.9 * MSS, new_episode=0.0)
    flow.delivered += 1e6
    flow.step(delivery_rate_Bps=2e6)
    assert flow.state.mode == bbr2.STARTUP
    flow.lose(8.1 * MSS, new_episode=0.0)
    flow.state.round_inflight_bytes = 0.0  # nothing that a later rise of the bound could take up
    flow.delivered += 1e6
    flow.step(delivery_rate_Bps=2.6e6, inflight_bytes=1e9)
    assert flow.state.mode == bbr2.DRAIN
    assert flow.state.high_inflight_bytes == pytest.approx(2.6e6 * RTT_S)


def test_bbr2_probe_times_are_drawn_between_two_and_three_seconds():
    waits = set()
    for seed in range(30):
        flow = probing()
        flow.state.seed = seed
        flow.lose(MSS, new_episode=0.0)
        flow.step(delivery_rate_Bps=1.5e6, inflight_bytes=20 * MSS)
        waits.add((float(flow.state.probe_wait_s), float(flow.state.rounds_since_probe)))
    times = np.array([wait for wait, _ in waits])
    assert 2.0 <= times.min() < 2.3
    assert 2.7 < times.max() < 3.0
    assert {rounds for _, rounds in waits} == {0.0, 1.0}
