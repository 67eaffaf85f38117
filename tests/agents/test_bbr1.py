"""BBRv1 against numbers that follow from its draft by hand; section numbers are the draft's."""

import numpy as np
import pytest
from packet_link import run_link
from steady_flow import LINK, MSS, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender
from ccenv.agents.classic.bbr import bbr1


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
