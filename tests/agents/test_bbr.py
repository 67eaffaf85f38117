"""BBRv1, v2 and v3 against numbers that follow from their drafts by hand; section numbers are the drafts'."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from packet_link import run_link
from signals_play import BDP_MSS, LINK, MSS, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender
from ccenv.agents.classic.bbr import bbr1, bbr3
from ccenv.agents.classic.bbr import common as bbr
from ccenv.agents.classic.common import UNLIMITED_BYTES

WATCH = ("mode", "pacing_gain", "cwnd_gain", "high_inflight_bytes", "max_bandwidth_Bps", "min_rtt_s")
WATCHED = {"bbr1": ("mode", "pacing_gain", "bandwidth_Bps", "rtprop_s"), "bbr2": WATCH, "bbr3": WATCH}
DEEP = 400 * MSS


@cache
def play(name, buffer_packets=400, seconds=25):
    """Return a run on the link and the watched fields of the state by name, a row per ACK."""
    run = run_link(make_sender(name), seconds, buffer_packets=buffer_packets, watch=WATCHED[name], **LINK)
    return run, dict(zip(WATCHED[name], np.array(run.states).T, strict=True))


def phases(run, fields):
    """Return (start, mode) of each phase."""
    first = np.insert(np.diff(fields["mode"]) != 0, 0, True)
    return list(zip(run.column("now_s")[first], fields["mode"][first], strict=True))


def stays(run, inside):
    """Return starts and ends of the times in a phase."""
    at_s = run.column("now_s")
    return at_s[1:][inside[1:] & ~inside[:-1]], at_s[1:][~inside[1:] & inside[:-1]]


@pytest.mark.parametrize(("name", "share"), [("bbr1", 0.96), ("bbr2", 0.93), ("bbr3", 0.93)])
def test_bandwidth_and_delay_are_found_and_the_link_filled(name, share):
    run, fields = play(name)
    assert fields[WATCHED[name][-2]][-1] == pytest.approx(RATE_Bps, rel=0.01)
    assert fields[WATCHED[name][-1]][-1] == pytest.approx(RTT_S + MSS / RATE_Bps, rel=1e-6)
    assert run.rate_Bps(2, 22) > share * RATE_Bps
    assert name == "bbr1" or not run.losses


@pytest.mark.parametrize("name", ["bbr2", "bbr3"])
def test_probe_rtt_every_five_seconds_at_half_a_bdp(name):
    """v2 4.3.4, v3 s.5.3.4: after 5 s without a smaller RTT, for 200 ms and a round; half a BDP is 20.5 segments."""
    run, fields = play(name)
    inside = fields["mode"] == bbr.PROBE_RTT
    starts, ends = stays(run, inside)
    assert len(starts) >= 3
    assert all(5.0 <= later - earlier < 6.5 for earlier, later in pairwise(starts))
    assert all(0.2 < end - start < 0.4 for start, end in zip(starts, ends, strict=False))
    assert run.column("cwnd_bytes")[inside].min() / MSS == pytest.approx(20.5, rel=0.05)


@pytest.mark.parametrize(("name", "near", "share"), [("bbr2", 10, 0.85), ("bbr3", 8, 0.9)])
def test_the_bound_in_a_shallow_buffer_is_what_fits(name, near, share):
    """41 segments fill the pipe and 10 the buffer, a quarter of the BDP: the bound settles near 51; losses stay rare."""
    run, fields = play(name, 10, 30)
    bound_mss = fields["high_inflight_bytes"][run.column("now_s") > 8] / MSS
    assert bound_mss.max() < 75
    assert np.median(bound_mss) == pytest.approx(51, abs=near)
    assert run.losses
    assert sum(size for now, size, *_ in run.losses if now > 8) / (22 * run.rate_Bps(8, 30)) < 0.02
    assert run.rate_Bps(8, 30) > share * RATE_Bps
    assert name == "bbr2" or {size for _, size, *_ in run.losses} == {MSS}


def test_bbr1_goes_through_startup_and_drain_to_probe_bw():
    run, fields = play("bbr1")
    assert [mode for _, mode in phases(run, fields)][:3] == [bbr.STARTUP, bbr.DRAIN, bbr1.PROBE_BW]
    probing = fields["mode"] == bbr1.PROBE_BW
    assert set(np.round(fields["pacing_gain"][probing], 9)) == {1.25, 0.75, 1.0}
    bdp_bytes = fields["bandwidth_Bps"][-1] * fields["rtprop_s"][-1]  # a window of two, and three quanta of two segments
    assert run.column("cwnd_bytes")[probing].max() == pytest.approx(2 * bdp_bytes + 3 * 2 * MSS, rel=0.01)


def test_bbr1_probes_the_rtt_every_ten_seconds_with_four_segments():
    """For 200 ms and a round after the flight has come down to four segments, which takes about one RTT."""
    run, fields = play("bbr1")
    now_s, probing = run.column("now_s"), fields["mode"] == bbr.PROBE_RTT
    starts, ends = stays(run, probing)
    assert len(starts) == 2
    assert np.diff(starts)[0] == pytest.approx(10.0, abs=0.7)
    for start, end in zip(starts, ends, strict=True):
        assert run.column("cwnd_bytes")[(now_s > start) & (now_s < end)].max() == 4 * MSS
        assert 0.2 < end - start < 0.2 + 4 * RTT_S
    assert not ((now_s > 1) & (now_s < 9) & probing).any()


def test_bbr2_goes_through_its_phases_in_order_every_bdp_rounds():
    """4.3.3.5: with a BDP of 41 segments it probes after 40 or 41 rounds, at 41 ms a round, well before 2 s."""
    places = phases(*play("bbr2"))
    order = [mode for _, mode in places]
    # DRAIN has left no queue: DOWN hands on to CRUISE within the same ACK.
    assert order[:6] == [bbr.STARTUP, bbr.DRAIN, bbr.CRUISE, bbr.REFILL, bbr.UP, bbr.DOWN]
    follows = set(pairwise(order[2:]))
    regular = {(bbr.DOWN, bbr.CRUISE), (bbr.CRUISE, bbr.REFILL), (bbr.REFILL, bbr.UP), (bbr.UP, bbr.DOWN)}
    rare = {(bbr.CRUISE, bbr.PROBE_RTT), (bbr.PROBE_RTT, bbr.CRUISE)}
    assert regular <= follows <= regular | rare
    gaps_s = [later - earlier for earlier, later in pairwise(now for now, mode in places if mode == bbr.REFILL)]
    assert np.median(gaps_s) == pytest.approx(41 * 0.042, rel=0.1)


def test_bbr3_gains_of_the_phases():
    """s.5.6.1: the table of pacing and window gains."""
    _, fields = play("bbr3")
    gains = {}
    for mode, *both in zip(fields["mode"], fields["pacing_gain"], fields["cwnd_gain"], strict=True):
        gains.setdefault(mode, set()).add(tuple(both))
    assert gains == {
        bbr.STARTUP: {(4 * math.log(2), 2.0)},
        bbr.DRAIN: {(0.5, 2.0)},
        bbr.DOWN: {(0.9, 2.0)},
        bbr.CRUISE: {(1.0, 2.0)},
        bbr.REFILL: {(1.0, 2.0)},
        bbr.UP: {(1.25, 2.25)},
        bbr.PROBE_RTT: {(1.0, 0.5)},
    }


def test_bbr1_doubles_its_rate_per_round_in_startup():
    flow = Steady(make_sender("bbr1"), pieces=10)
    rates = []
    for _ in range(6):
        flow.rounds(1)
        rates.append(float(flow.state.pacing_rate_Bps))
    growth = np.array(rates[2:]) / np.array(rates[1:-1])
    assert (growth > 1.9).all()
    assert flow.state.mode == bbr.STARTUP


def test_bbr1_leaves_startup_after_three_rounds_without_growth():
    """4.3.2.2: the first sample sets the level, three more rounds below 1.25 times it end STARTUP."""
    flow = Steady(make_sender("bbr1"), pieces=1)
    modes = []
    for growth in (1.0, 2.0, 2.5, 3.0, 3.1, 3.1):
        flow.step(delivery_rate_Bps=growth * 1e6, inflight_bytes=1e9)
        modes.append(float(flow.state.mode))
    assert modes == [bbr.STARTUP] * 5 + [bbr.DRAIN]  # levels 1, 2, 2.5; then three rounds below 3.125


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
    while flow.state.mode != bbr.PROBE_RTT:
        flow.step(rtt_s=0.011, delivery_rate_Bps=1.5e6, inflight_bytes=1.5e4)
        assert flow.now_s < 10.1
    rounds = float(flow.state.rounds)
    while flow.state.mode == bbr.PROBE_RTT:
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


def probing():
    """A flow in UP with a BDP of 40 segments and a bound of 60."""
    flow = Steady(make_sender("bbr2:initial_window_mss=80"), pieces=20)
    state = flow.state
    state.mode, state.pacing_gain, state.full_pipe, state.samples_probe = bbr.UP, bbr.UP_PACING_GAIN, 1.0, 1.0
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
    assert (flow.state.mode != bbr.UP) == (bound_mss == 28)


def test_bbr2_cruises_with_headroom():
    """4.5.10.2: 0.15 of the bound is left for others: 60 * 0.85 = 51."""
    flow = probing()
    flow.state.mode, flow.state.probe_wait_s = bbr.CRUISE, 100.0
    flow.state.max_bandwidth_Bps = flow.state.cycle_bandwidth_Bps = flow.state.bandwidth_Bps = 1.5e7
    flow.step(delivery_rate_Bps=1.5e6, inflight_bytes=50 * MSS)
    assert flow.cwnd_mss == pytest.approx(51)


def test_bbr2_short_term_bounds_fall_to_seven_tenths_per_lossy_round():
    """4.5.10.3, in CRUISE: max(what was delivered, 0.7 of the bound); forgotten in REFILL."""
    flow = probing()
    state = flow.state
    state.mode, state.pacing_gain, state.probe_wait_s = bbr.CRUISE, 1.0, 100.0
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
    assert state.mode == bbr.REFILL
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
    assert flow.state.mode == bbr.STARTUP
    assert (flow.state.pacing_gain, flow.state.cwnd_gain) == (2.89, 2.89)
    flow.lose(7.9 * MSS, new_episode=0.0)
    flow.delivered += 1e6
    flow.step(delivery_rate_Bps=2e6)
    assert flow.state.mode == bbr.STARTUP
    flow.lose(8.1 * MSS, new_episode=0.0)
    flow.state.round_inflight_bytes = 0.0  # nothing that a later rise of the bound could take up
    flow.delivered += 1e6
    flow.step(delivery_rate_Bps=2.6e6, inflight_bytes=1e9)
    assert flow.state.mode == bbr.DRAIN
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


def flow_in(mode, *, pieces=20, **fields):
    """A flow with a BDP of 40 segments that has filled the pipe; nothing is due."""
    flow = Steady(make_sender("bbr3:initial_window_mss=40"), pieces=pieces)
    state = flow.state
    state.mode, state.full_pipe, state.pacing_gain, state.cwnd_gain = mode, 1.0, 1.0, 2.0
    state.min_rtt_s = state.probe_min_rtt_s = RTT_S
    state.cycle_bandwidth_Bps = state.max_bandwidth_Bps = state.bandwidth_Bps = RATE_Bps
    state.pacing_rate_Bps = RATE_Bps
    state.probe_wait_s, state.rounds_since_probe = 100.0, -1e6
    state.round_end_bytes = state.loss_round_end_bytes = 1e12
    state.cwnd_bytes = BDP_MSS * MSS
    for name, value in fields.items():
        state[name] = value
    return flow


def lose(flow, tx_mss, lost_mss, **values):
    """Lose a packet that was sent with tx_mss in flight, after which lost_mss were lost."""
    told = {"tx_inflight_bytes": tx_mss * MSS, "lost_since_bytes": lost_mss * MSS, "new_episode": 0.0}
    flow.lose(**(told | values))


def new_round(flow, **values):
    """Take an ACK that begins a round and a loss round."""
    flow.state.round_end_bytes = flow.state.loss_round_end_bytes = 0.0
    flow.step(**({"delivery_rate_Bps": RATE_Bps} | values))


def test_bbr3_paces_before_the_first_rtt_and_at_it():
    """s.5.6.2: 4 ln 2 times the initial window per millisecond, then per RTT."""
    flow = Steady(make_sender("bbr3:initial_window_mss=20"), pieces=10)
    assert flow.state.pacing_rate_Bps == pytest.approx(4 * math.log(2) * 20 * MSS / 0.001)
    flow.step(delivery_rate_Bps=1e3)
    assert flow.state.pacing_rate_Bps == pytest.approx(4 * math.log(2) * 20 * MSS / RTT_S)


def test_bbr3_a_round_ends_with_a_packet_sent_after_it_began():
    """s.5.5.1: the packet that an ACK covers says whether a round is over, not the bytes in flight."""
    flow = flow_in(bbr.CRUISE, round_end_bytes=60 * MSS)
    rounds = flow.state.rounds
    flow.step(prior_delivered_bytes=60 * MSS - 1)
    assert flow.state.rounds == rounds
    flow.step(prior_delivered_bytes=60 * MSS)
    assert flow.state.rounds == rounds + 1
    assert flow.state.round_end_bytes == flow.delivered


@pytest.mark.parametrize(("rate", "limited", "taken"), [(0.5, 0.0, True), (0.5, 1.0, False), (1.5, 1.0, True)])
def test_bbr3_limited_samples_count_only_above_the_maximum(rate, limited, taken):
    """s.5.5.5."""
    flow = flow_in(bbr.CRUISE, cycle_bandwidth_Bps=0.0, last_cycle_bandwidth_Bps=RATE_Bps)
    flow.step(delivery_rate_Bps=rate * RATE_Bps, app_limited=limited)
    assert (flow.state.cycle_bandwidth_Bps > 0.0) == taken


def test_bbr3_packets_sent_in_probe_rtt_are_limited():
    """s.5.3.4.3: MarkConnectionAppLimited: what was sent while it held, not what is acknowledged meanwhile."""
    state = flow_in(bbr.CRUISE, limited_from_bytes=50 * MSS, limited_until_bytes=90 * MSS).state
    sent = [bbr3.is_limited(state, 0.0, mss * MSS) for mss in (49, 50, 90, 91)]
    assert sent == [False, True, True, False]


def test_bbr3_startup_ends_after_three_rounds_without_growth():
    """s.5.3.1.2: by the rate sample of the ACK that begins a round, which must grow by a quarter."""
    flow = Steady(make_sender("bbr3"), pieces=10)
    for rate in (1e6, 1.3e6, 1.5e6, 1.5e6):
        new_round(flow, delivery_rate_Bps=rate)
        assert flow.state.mode == bbr.STARTUP
    new_round(flow, delivery_rate_Bps=1.5e6, inflight_bytes=1e9)
    assert flow.state.mode == bbr.DRAIN


@pytest.mark.parametrize(
    ("ranges", "lost_mss", "contiguous", "left"),
    [(6, 2.1, 0.0, True), (5, 2.1, 0.0, False), (6, 1.9, 0.0, False), (8, 2.1, 1.0, False)],
)
def test_bbr3_startup_ends_after_a_round_of_recovery_with_six_ranges_and_two_percent_lost(ranges, lost_mss, contiguous, left):
    """s.5.3.1.3: 2 % of 100 segments; neighbours are one range. The bound becomes the BDP or what was delivered."""
    flow = Steady(make_sender("bbr3:initial_window_mss=100"), pieces=10)
    flow.rounds(2, delivery_rate_Bps=1e6)
    for n in range(ranges):
        lose(flow, 1e6, 0, new_episode=float(n == 0), contiguous=contiguous)
    new_round(flow, delivery_rate_Bps=2e6, inflight_bytes=1e9, tx_inflight_bytes=100 * MSS, lost_since_bytes=lost_mss * MSS)
    assert (flow.state.mode == bbr.DRAIN) == left
    if left:
        assert flow.state.high_inflight_bytes == pytest.approx(max(2e6 * RTT_S, flow.state.latest_inflight_bytes))


def test_bbr3_drain_ends_at_the_bdp_or_after_three_rounds():
    """s.5.3.2."""
    flow = flow_in(bbr.DRAIN)
    flow.step(inflight_bytes=41 * MSS, delivery_rate_Bps=RATE_Bps)
    assert flow.state.mode == bbr.DRAIN
    flow.step(inflight_bytes=40 * MSS, delivery_rate_Bps=RATE_Bps)
    assert flow.state.mode in (bbr.DOWN, bbr.CRUISE)
    flow = flow_in(bbr.DRAIN)
    for _ in range(3):
        new_round(flow, inflight_bytes=60 * MSS)
        assert flow.state.mode == bbr.DRAIN
    new_round(flow, inflight_bytes=60 * MSS)
    assert flow.state.mode == bbr.DOWN


@pytest.mark.parametrize(("lost_mss", "judged"), [(1.9, False), (2.1, True)])
def test_bbr3_each_lost_packet_is_judged_by_its_own_flight(lost_mss, judged):
    """s.5.5.10.2: 2 % of the 100 segments that were in flight when it was sent, whatever is in flight now."""
    flow = flow_in(bbr.UP, samples_probe=1.0, high_inflight_bytes=DEEP, cwnd_bytes=120 * MSS)
    lose(flow, 100, lost_mss, inflight_bytes=20 * MSS)
    assert (flow.state.mode == bbr.DOWN) == judged
    assert (flow.state.high_inflight_bytes < DEEP) == judged
    assert flow.state.probe_too_high == float(judged)


def test_bbr3_the_bound_falls_to_where_losses_crossed_the_threshold():
    """s.5.5.10.2, InflightAtLoss: 99 before it with 1 lost: 99 + (.02 * 99 - 1) / .98 = 100. Never below .7 of the target."""
    flow = flow_in(bbr.UP, samples_probe=1.0, high_inflight_bytes=DEEP)
    lose(flow, 100, 2.01, lost_bytes=1.01 * MSS)
    assert flow.state.high_inflight_bytes / MSS == pytest.approx(98.99 + (0.02 * 98.99 - 1.0) / 0.98)
    flow = flow_in(bbr.UP, samples_probe=1.0, high_inflight_bytes=DEEP)
    lose(flow, 10, 1)
    assert flow.state.high_inflight_bytes / MSS == pytest.approx(0.7 * BDP_MSS)


def test_bbr3_one_probe_lowers_the_bound_once():
    """s.5.5.10.2: is_bw_probe_sample; limited packets end the probe but leave the bound."""
    flow = flow_in(bbr.UP, samples_probe=1.0, high_inflight_bytes=DEEP)
    lose(flow, 100, 10, app_limited=1.0)
    assert flow.state.mode == bbr.DOWN
    assert flow.state.high_inflight_bytes == DEEP
    lose(flow, 100, 11)
    assert flow.state.high_inflight_bytes == DEEP


def test_bbr3_losses_of_a_probe_still_count_while_its_feedback_arrives():
    """s.5.3.3.9: until the round after UP is over."""
    flow = flow_in(bbr.DOWN, samples_probe=1.0, high_inflight_bytes=DEEP, ack_phase=bbr3.ACKS_STOPPING)
    flow.step(inflight_bytes=60 * MSS)
    assert flow.state.samples_probe == 1.0
    new_round(flow, inflight_bytes=60 * MSS)
    assert flow.state.samples_probe == 0.0
    lose(flow, 100, 50)
    assert flow.state.high_inflight_bytes == DEEP


def test_bbr3_loss_while_not_probing_lowers_the_short_term_bounds_once_per_round():
    """s.5.5.10.3: max(what was delivered, 0.7 of the bound); forgotten in REFILL."""
    flow = flow_in(bbr.CRUISE, low_inflight_bytes=100 * MSS, low_bandwidth_Bps=RATE_Bps)
    for n in (1, 2):
        lose(flow, 100, 50)
        lose(flow, 100, 51)
        flow.state.latest_bandwidth_Bps = flow.state.latest_inflight_bytes = 0.0
        new_round(flow, delivery_rate_Bps=1e3, prior_delivered_bytes=flow.delivered)
        assert flow.state.low_bandwidth_Bps == pytest.approx(RATE_Bps * 0.7**n)
        assert flow.state.low_inflight_bytes == pytest.approx(100 * MSS * 0.7**n)
    assert flow.state.bandwidth_Bps == pytest.approx(RATE_Bps * 0.49)
    flow.state.rounds_since_probe = 100.0
    flow.step(delivery_rate_Bps=1e3)
    assert flow.state.mode == bbr.REFILL
    assert flow.state.low_inflight_bytes == UNLIMITED_BYTES


def test_bbr3_a_loss_round_begins_at_its_first_loss():
    """s.5.5.10.2, NoteLoss: it ends with a packet sent after that loss."""
    flow = flow_in(bbr.CRUISE)
    flow.delivered = 70 * MSS
    lose(flow, 100, 1)
    assert flow.state.loss_round_end_bytes == 70 * MSS


def test_bbr3_the_bound_rises_by_a_doubling_number_of_segments_per_round():
    """s.5.3.3.9: 1, 2, 4, 8 segments per round of UP, while the bound is what limits."""
    flow = flow_in(bbr.REFILL, pieces=40, high_inflight_bytes=60 * MSS, cwnd_bytes=60 * MSS)
    flow.state.max_bandwidth_Bps = flow.state.cycle_bandwidth_Bps = flow.state.bandwidth_Bps = 1e8
    bounds = []
    for _ in range(4):
        new_round(flow, tx_inflight_bytes=0.0, delivery_rate_Bps=1e8)
        flow.state.round_end_bytes = 1e12
        bounds.append(flow.state.high_inflight_bytes / MSS)
        for _ in range(39):
            flow.step(delivery_rate_Bps=1e8, tx_inflight_bytes=0.0)
    assert flow.state.mode == bbr.UP
    assert np.diff([*bounds, flow.state.high_inflight_bytes / MSS]) == pytest.approx([1, 2, 4, 8], abs=1.01)


def test_bbr3_the_bound_follows_what_got_through():
    """s.5.3.3.9: to what was in flight with a packet that arrived, if losses were few."""
    for lost_mss, bound_mss in ((1.9, 95), (2.0, 70)):
        flow = flow_in(bbr.CRUISE, high_inflight_bytes=70 * MSS)
        flow.step(tx_inflight_bytes=95 * MSS, lost_since_bytes=lost_mss * MSS)
        assert flow.state.high_inflight_bytes == bound_mss * MSS


def test_bbr3_up_ends_when_the_bandwidth_has_not_grown_for_three_rounds():
    """s.5.3.3.7; not while the long-term bound limits."""
    for bound, ends in ((UNLIMITED_BYTES, True), (50 * MSS, False)):
        flow = flow_in(bbr.UP, high_inflight_bytes=bound, full_bandwidth_Bps=RATE_Bps, cwnd_bytes=50 * MSS)
        for _ in range(3):
            assert flow.state.mode == bbr.UP
            flow.state.cwnd_bytes = 50 * MSS
            new_round(flow, inflight_bytes=49 * MSS, tx_inflight_bytes=0.0)
        assert (flow.state.mode != bbr.UP) == ends


def test_bbr3_the_probe_after_one_with_much_loss_is_cautious():
    """s.5.3.3.6: UP ends at the bound; if that lost little, REFILL and UP follow at once, without CRUISE."""
    flow = flow_in(bbr.UP, probe_too_high=1.0, samples_probe=1.0, high_inflight_bytes=50 * MSS, cwnd_bytes=60 * MSS)
    flow.step(inflight_bytes=49 * MSS, tx_inflight_bytes=0.0)
    assert flow.state.mode == bbr.UP
    flow.step(inflight_bytes=50 * MSS, tx_inflight_bytes=0.0)
    assert flow.state.mode == bbr.DOWN
    assert (flow.state.probe_cautious, flow.state.probe_too_high) == (1.0, 0.0)
    flow.state.rounds_since_probe = -1e6
    new_round(flow, inflight_bytes=45 * MSS, tx_inflight_bytes=0.0)
    assert flow.state.mode == bbr.REFILL
    new_round(flow, inflight_bytes=50 * MSS, tx_inflight_bytes=0.0)
    flow.step(inflight_bytes=60 * MSS, tx_inflight_bytes=0.0)
    assert flow.state.mode == bbr.UP


def test_bbr3_a_cautious_probe_that_lost_much_is_followed_by_cruise():
    """s.5.3.3.6."""
    flow = flow_in(bbr.DOWN, samples_probe=1.0, probe_cautious=1.0, ack_phase=bbr3.ACKS_STOPPING, high_inflight_bytes=80 * MSS)
    lose(flow, 50, 2)
    flow.state.high_inflight_bytes = 80 * MSS
    new_round(flow, inflight_bytes=30 * MSS)
    assert flow.state.mode == bbr.CRUISE


def test_bbr3_cruise_leaves_headroom():
    """s.5.6.4.7: 0.15 of the bound is left for others: 60 * 0.85 = 51."""
    flow = flow_in(bbr.CRUISE, high_inflight_bytes=60 * MSS, cwnd_bytes=60 * MSS)
    flow.step(tx_inflight_bytes=0.0)
    assert flow.cwnd_mss == pytest.approx(51)


def test_bbr3_down_lasts_until_headroom_and_bdp():
    """s.5.3.3.1."""
    for inflight_mss, mode in ((40, bbr.DOWN), (34, bbr.CRUISE)):
        flow = flow_in(bbr.DOWN, high_inflight_bytes=40 * MSS)
        flow.step(inflight_bytes=inflight_mss * MSS, tx_inflight_bytes=0.0)
        assert flow.state.mode == mode


def test_bbr3_probes_come_after_two_to_three_seconds_or_as_reno_would():
    """s.5.3.3.8.3."""
    waits = set()
    for seed in range(30):
        flow = flow_in(bbr.UP, samples_probe=1.0)
        flow.state.seed = seed
        lose(flow, 20, 2)
        waits.add((float(flow.state.probe_wait_s), float(flow.state.rounds_since_probe)))
    times = [wait for wait, _ in waits]
    assert 2.0 <= min(times) < 2.3
    assert 2.7 < max(times) < 3.0
    assert {rounds for _, rounds in waits} == {0.0, 1.0}
    for rounds, mode in ((BDP_MSS - 0.1, bbr.CRUISE), (BDP_MSS, bbr.REFILL)):
        flow = flow_in(bbr.CRUISE, rounds_since_probe=rounds)
        flow.step(delivery_rate_Bps=RATE_Bps)
        assert flow.state.mode == mode


def test_bbr3_recovery_leaves_the_window_alone_and_a_time_out_leaves_a_segment():
    """s.5.6.4.4: fast recovery only saves the window; after a time-out one segment more than what is in flight."""
    flow = flow_in(bbr.CRUISE, cwnd_bytes=70 * MSS)
    lose(flow, 70, 1, new_episode=1.0)
    assert flow.cwnd_mss == 70
    assert flow.state.saved_cwnd_bytes == 70 * MSS
    lose(flow, 70, 2, timeout=1.0, inflight_bytes=0.0)
    assert flow.cwnd_mss == 1
    flow.delivered += 200 * MSS
    flow.state.loss_ranges = 0.0  # no short-term bound
    flow.step(delivery_rate_Bps=RATE_Bps)
    assert flow.cwnd_mss == pytest.approx(70, abs=0.1)


def test_bbr3_aggregation_is_remembered_for_ten_rounds_and_in_startup_for_one():
    """s.5.5.9."""
    for full, kept in ((1.0, True), (0.0, False)):
        flow = flow_in(bbr.CRUISE if full else bbr.STARTUP, full_pipe=full)
        flow.step(acked_bytes=30 * MSS, delivery_rate_Bps=RATE_Bps)
        assert flow.state.extra_a == pytest.approx(-30 * MSS, rel=0.1)
        for _ in range(4):
            flow.now_s += 1.0
            new_round(flow, acked_bytes=MSS)
        assert (flow.state.extra_a < -20 * MSS) == kept


def test_bbr3_the_quantum_is_a_millisecond_between_two_segments_and_64_kilobytes():
    """s.5.6.3 and s.5.5.8.1: at least three quanta in flight, in UP two segments more (s.5.6.4.2)."""
    state = flow_in(bbr.CRUISE).state
    budgets = []
    for rate_Bps in (1e3, 6e6, 1e9):
        state.pacing_rate_Bps = rate_Bps
        budgets.append(bbr3.budget_bytes(state, 0.0))
    assert budgets == [3 * 2 * MSS, 3 * 6e3, 3 * 65_536.0]
    state.mode = bbr.UP
    assert bbr3.budget_bytes(state, 0.0) == 3 * 65_536.0 + 2 * MSS


def test_bbr3_idleness_stands_for_probe_rtt():
    """s.5.4.1: idle for more than 5 s: paced at the bandwidth, no PROBE_RTT; a flow that never pauses goes into it."""
    for idle in (True, False):
        flow = flow_in(bbr.CRUISE, cycle_start_s=1e6)
        flow.step(delivery_rate_Bps=RATE_Bps)
        flow.now_s += 6.0
        flow.state.pacing_gain = 1.25
        if idle:
            flow.tick(inflight_bytes=0.0)
            assert flow.state.pacing_rate_Bps == pytest.approx(0.99 * RATE_Bps)
        flow.step(delivery_rate_Bps=RATE_Bps)
        assert (flow.state.mode == bbr.PROBE_RTT) != idle
