"""BBRv1, v2 and v3 against numbers that follow from their drafts by hand; section numbers are the drafts'."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from packet_link import run_link
from signals_play import BDP_MSS, LINK, MSS, RTT_S, RATE_Bps, Steady, lose, not_state, put, rounds, state, step, window

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
    assert len(starts) >= 3 and all(5.0 <= later - earlier < 6.5 for earlier, later in pairwise(starts))
    assert all(0.2 < end - start < 0.4 for start, end in zip(starts, ends, strict=False))
    assert run.column("cwnd_bytes")[inside].min() / MSS == pytest.approx(20.5, rel=0.05)


@pytest.mark.parametrize(("name", "near", "share"), [("bbr2", 10, 0.85), ("bbr3", 8, 0.9)])
def test_the_bound_in_a_shallow_buffer_is_what_fits(name, near, share):
    """41 segments fill the pipe and 10 the buffer, a quarter of the BDP: the bound settles near 51; losses stay rare."""
    run, fields = play(name, 10, 30)
    bound_mss = fields["high_inflight_bytes"][run.column("now_s") > 8] / MSS
    assert bound_mss.max() < 75 and np.median(bound_mss) == pytest.approx(51, abs=near)
    assert run.losses and sum(size for now, size, *_ in run.losses if now > 8) / (22 * run.rate_Bps(8, 30)) < 0.02
    assert run.rate_Bps(8, 30) > share * RATE_Bps
    assert name == "bbr2" or {size for _, size, *_ in run.losses} == {MSS}


def test_bbr1_goes_through_startup_and_drain_to_probe_bw_and_probes_the_rtt_every_ten_seconds():
    """PROBE_RTT: 200 ms and a round after the flight has come down to four segments, which takes about one RTT."""
    run, fields = play("bbr1")
    assert [mode for _, mode in phases(run, fields)][:3] == [bbr.STARTUP, bbr.DRAIN, bbr1.PROBE_BW]
    probing = fields["mode"] == bbr1.PROBE_BW
    assert set(np.round(fields["pacing_gain"][probing], 9)) == {1.25, 0.75, 1.0}
    bdp_bytes = fields["bandwidth_Bps"][-1] * fields["rtprop_s"][-1]  # a window of two, and three quanta of two segments
    assert run.column("cwnd_bytes")[probing].max() == pytest.approx(2 * bdp_bytes + 3 * 2 * MSS, rel=0.01)
    now_s, probing = run.column("now_s"), fields["mode"] == bbr.PROBE_RTT
    starts, ends = stays(run, probing)
    assert len(starts) == 2 and np.diff(starts)[0] == pytest.approx(10.0, abs=0.7)
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
        bbr.STARTUP: {(4 * math.log(2), 2.0)}, bbr.DRAIN: {(0.5, 2.0)}, bbr.DOWN: {(0.9, 2.0)}, bbr.CRUISE: {(1.0, 2.0)},
        bbr.REFILL: {(1.0, 2.0)}, bbr.UP: {(1.25, 2.25)}, bbr.PROBE_RTT: {(1.0, 0.5)},
    }  # fmt: skip


def test_bbr1_doubles_its_rate_per_round_in_startup():
    flow = Steady(make_sender("bbr1"), pieces=10)
    rates = []
    for _ in range(6):
        flow.rounds(1)
        rates.append(float(flow.state.pacing_rate_Bps))
    growth = np.array(rates[2:]) / np.array(rates[1:-1])
    assert (growth > 1.9).all() and flow.state.mode == bbr.STARTUP


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
    assert flow.state.rounds - rounds >= 19 and flow.state.bandwidth_Bps == 1.5e6


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


def lost(tx_mss, lost_mss, **values):
    """Lose a packet that was sent with tx_mss in flight, after which lost_mss were lost."""
    return lose(**({"tx_inflight_bytes": tx_mss * MSS, "lost_since_bytes": lost_mss * MSS, "new_episode": 0.0} | values))


def new_round(**values):
    """Take an ACK that begins a round and a loss round."""
    given = step(**({"delivery_rate_Bps": RATE_Bps} | values))
    return lambda flow: (put(round_end_bytes=0.0, loss_round_end_bytes=0.0)(flow), given(flow))


def heard(mss, at_s=0.0):
    """So much more was delivered, after so much more time."""
    return lambda flow: (setattr(flow, "delivered", flow.delivered + mss * MSS), setattr(flow, "now_s", flow.now_s + at_s))


def new(spec, pieces):
    return lambda: Steady(make_sender(spec), pieces=pieces)


def at(mode, **fields):
    return lambda: flow_in(mode, **fields)


IN_UP = at(bbr.UP, samples_probe=1.0, high_inflight_bytes=DEEP)
QUICK = {"delivery_rate_Bps": RATE_Bps}
FEW = {"inflight_bytes": 20 * MSS}
# (rule and section of the draft, flow, steps)
RULES = [
    ("bbr1 4.3.2.2: levels 1, 2, 2.5; then three rounds below 3.125 end STARTUP", new("bbr1", 1),
     [*[part for growth in (1.0, 2.0, 2.5, 3.0, 3.1)
        for part in (step(delivery_rate_Bps=growth * 1e6, inflight_bytes=1e9), state(mode=bbr.STARTUP))],
      step(delivery_rate_Bps=3.1e6, inflight_bytes=1e9), state(mode=bbr.DRAIN)]),
    *[
        (f"tcp_bbr: DRAIN ends by what is in flight when the next packet leaves, {held_mss} later: 40 + 3 * 2",
         new("bbr1:departure_time=1", 10),
         [step(delivery_rate_Bps=RATE_Bps, handshake_s=RTT_S, rtt_s=2 * RTT_S), state(rtprop_s=RTT_S),
          put(mode=bbr.DRAIN, pacing_gain=0.3, full_pipe=1.0, pacing_rate_Bps=RATE_Bps),
          step(inflight_bytes=48 * MSS, held_s=held_mss * MSS / RATE_Bps, **QUICK), state(mode=mode)])
        for held_mss, mode in ((1.9, bbr.DRAIN), (2.1, bbr1.PROBE_BW))
    ],
    ("bbr1 forgets a bandwidth after ten rounds", new("bbr1", 1),
     [step(delivery_rate_Bps=5e6), *[step(delivery_rate_Bps=1e6)] * 10, state(bandwidth_Bps=5e6), step(delivery_rate_Bps=1e6),
      state(bandwidth_Bps=1e6)]),
    ("bbr2: up to 2 % of 20 segments in flight leave the bound", probing,
     [lose(lost_bytes=0.39 * MSS, new_episode=0.0), step(**QUICK, **FEW), state(high_inflight_bytes=60 * MSS, mode=bbr.UP)]),
    ("bbr2: more lower it to what was in flight or 0.7 of the target, 40 segments: 28", probing,
     [lose(lost_bytes=0.41 * MSS, new_episode=0.0), step(**QUICK, **FEW), state(high_inflight_bytes=28 * MSS),
      not_state(mode=bbr.UP)]),
    ("bbr2 4.5.10.2: 0.15 of the bound is left for others: 60 * 0.85 = 51", probing,
     [put(mode=bbr.CRUISE, probe_wait_s=100.0, max_bandwidth_Bps=1.5e7, cycle_bandwidth_Bps=1.5e7, bandwidth_Bps=1.5e7),
      step(delivery_rate_Bps=1.5e6, inflight_bytes=50 * MSS), window(51)]),
    ("bbr2 4.5.10.3, in CRUISE: max(what was delivered, 0.7 of the bound); forgotten in REFILL", probing,
     [put(mode=bbr.CRUISE, pacing_gain=1.0, probe_wait_s=100.0, high_inflight_bytes=UNLIMITED_BYTES,
          low_inflight_bytes=50 * MSS, low_bandwidth_Bps=1.5e6),
      *[part for n in (1, 2) for part in (
          put(rounds_since_probe=-100.0), lose(lost_bytes=0.01 * MSS, new_episode=0.0),
          put(latest_bandwidth_Bps=0.0, latest_inflight_bytes=0.0, round_end_bytes=0.0), step(delivery_rate_Bps=1e3, **FEW),
          state(low_bandwidth_Bps=1.5e6 * 0.7**n, low_inflight_bytes=50 * MSS * 0.7**n))],
      state(bandwidth_Bps=1.5e6 * 0.49), put(rounds_since_probe=100.0), step(delivery_rate_Bps=1e3, **FEW),
      state(mode=bbr.REFILL, low_inflight_bytes=UNLIMITED_BYTES, bandwidth_Bps=1.5e6)]),
    ("bbr2 4.3.1.3: a round with more than 2 % and eight segments lost ends STARTUP, with the bound at the BDP",
     new("bbr2:initial_window_mss=100", 10),
     [rounds(2, delivery_rate_Bps=1e6), state(mode=bbr.STARTUP, pacing_gain=2.89, cwnd_gain=2.89),
      lose(lost_bytes=7.9 * MSS, new_episode=0.0), heard(1e6 / MSS), step(delivery_rate_Bps=2e6), state(mode=bbr.STARTUP),
      # nothing in flight that a later rise of the bound could take up
      lose(lost_bytes=8.1 * MSS, new_episode=0.0), put(round_inflight_bytes=0.0), heard(1e6 / MSS),
      step(delivery_rate_Bps=2.6e6, inflight_bytes=1e9), state(mode=bbr.DRAIN, high_inflight_bytes=2.6e6 * RTT_S)]),
    ("bbr3 s.5.6.2: 4 ln 2 times the initial window per millisecond, then per RTT", new("bbr3:initial_window_mss=20", 10),
     [state(pacing_rate_Bps=4 * math.log(2) * 20 * MSS / 0.001), step(delivery_rate_Bps=1e3),
      state(pacing_rate_Bps=4 * math.log(2) * 20 * MSS / RTT_S)]),
    ("bbr3 s.5.5.1: the packet that an ACK covers says whether a round is over, not the bytes in flight",
     at(bbr.CRUISE, round_end_bytes=60 * MSS, rounds=7.0),
     [step(prior_delivered_bytes=60 * MSS - 1), state(rounds=7.0), step(prior_delivered_bytes=60 * MSS), state(rounds=8.0),
      lambda flow: state(round_end_bytes=float(flow.delivered))(flow)]),
    *[
        (f"bbr3 s.5.5.5: {rate} of the maximum, limited: {limited}",
         at(bbr.CRUISE, cycle_bandwidth_Bps=0.0, last_cycle_bandwidth_Bps=RATE_Bps),
         [step(delivery_rate_Bps=rate * RATE_Bps, app_limited=limited), (not_state if taken else state)(cycle_bandwidth_Bps=0.0)])
        for rate, limited, taken in ((0.5, 0.0, True), (0.5, 1.0, False), (1.5, 1.0, True))
    ],
    ("bbr3 s.5.3.1.2: the rate sample of the ACK that begins a round must grow by a quarter in three rounds", new("bbr3", 10),
     [*[part for rate in (1e6, 1.3e6, 1.5e6, 1.5e6) for part in (new_round(delivery_rate_Bps=rate), state(mode=bbr.STARTUP))],
      new_round(delivery_rate_Bps=1.5e6, inflight_bytes=1e9), state(mode=bbr.DRAIN)]),
    *[
        (f"bbr3 s.5.3.1.3: a round of recovery ends STARTUP with six ranges and 2 % of 100 segments lost: {ranges}, {lost_mss}",
         new("bbr3:initial_window_mss=100", 10),
         [rounds(2, delivery_rate_Bps=1e6),
          *[lost(1e6, 0, new_episode=float(n == 0), contiguous=contiguous) for n in range(ranges)],
          new_round(delivery_rate_Bps=2e6, inflight_bytes=1e9, tx_inflight_bytes=100 * MSS, lost_since_bytes=lost_mss * MSS),
          (state if left else not_state)(mode=bbr.DRAIN),
          # the bound becomes the BDP or what was delivered
          lambda flow, left=left: not left or state(
              high_inflight_bytes=max(2e6 * RTT_S, float(flow.state.latest_inflight_bytes)))(flow)])
        for ranges, lost_mss, contiguous, left in ((6, 2.1, 0.0, True), (5, 2.1, 0.0, False), (6, 1.9, 0.0, False),
                                                   (8, 2.1, 1.0, False))  # neighbours are one range
    ],
    ("bbr3 s.5.3.2: DRAIN ends at the BDP", at(bbr.DRAIN),
     [step(inflight_bytes=41 * MSS, **QUICK), state(mode=bbr.DRAIN), step(inflight_bytes=40 * MSS, **QUICK),
      not_state(mode=bbr.DRAIN)]),
    ("bbr3 s.5.3.2: or after three rounds", at(bbr.DRAIN),
     [*[new_round(inflight_bytes=60 * MSS), state(mode=bbr.DRAIN)] * 3, new_round(inflight_bytes=60 * MSS),
      state(mode=bbr.DOWN)]),
    ("bbr3 s.5.5.10.2: 2 % of the 100 segments that were in flight when a packet was sent, whatever is in flight now",
     at(bbr.UP, samples_probe=1.0, high_inflight_bytes=DEEP, cwnd_bytes=120 * MSS),
     [lost(100, 1.9, **FEW), state(mode=bbr.UP, high_inflight_bytes=DEEP, probe_too_high=0.0), lost(100, 2.1, **FEW),
      state(mode=bbr.DOWN, probe_too_high=1.0), not_state(high_inflight_bytes=DEEP)]),
    ("bbr3 s.5.5.10.2, InflightAtLoss: 99 before it with 1 lost: 99 + (.02 * 99 - 1) / .98 = 100", IN_UP,
     [lost(100, 2.01, lost_bytes=1.01 * MSS), state(high_inflight_bytes=(98.99 + (0.02 * 98.99 - 1.0) / 0.98) * MSS)]),
    ("bbr3 s.5.5.10.2: never below .7 of the target", IN_UP, [lost(10, 1), state(high_inflight_bytes=0.7 * BDP_MSS * MSS)]),
    ("bbr3 s.5.5.10.2: is_bw_probe_sample; limited packets end the probe but leave the bound; one probe lowers it once", IN_UP,
     [lost(100, 10, app_limited=1.0), state(mode=bbr.DOWN, high_inflight_bytes=DEEP), lost(100, 11),
      state(high_inflight_bytes=DEEP)]),
    ("bbr3 s.5.3.3.9: losses of a probe count until the round after UP is over",
     at(bbr.DOWN, samples_probe=1.0, high_inflight_bytes=DEEP, ack_phase=bbr3.ACKS_STOPPING),
     [step(inflight_bytes=60 * MSS), state(samples_probe=1.0), new_round(inflight_bytes=60 * MSS), state(samples_probe=0.0),
      lost(100, 50), state(high_inflight_bytes=DEEP)]),
    ("bbr3 s.5.5.10.3: max(what was delivered, 0.7 of the bound) once per round; forgotten in REFILL",
     at(bbr.CRUISE, low_inflight_bytes=100 * MSS, low_bandwidth_Bps=RATE_Bps),
     [*[part for n in (1, 2) for part in (
          lost(100, 50), lost(100, 51), put(latest_bandwidth_Bps=0.0, latest_inflight_bytes=0.0),
          lambda flow: new_round(delivery_rate_Bps=1e3, prior_delivered_bytes=flow.delivered)(flow),
          state(low_bandwidth_Bps=RATE_Bps * 0.7**n, low_inflight_bytes=100 * MSS * 0.7**n))],
      state(bandwidth_Bps=RATE_Bps * 0.49), put(rounds_since_probe=100.0), step(delivery_rate_Bps=1e3),
      state(mode=bbr.REFILL, low_inflight_bytes=UNLIMITED_BYTES)]),
    ("bbr3 s.5.5.10.2, NoteLoss: a loss round ends with a packet sent after its first loss", at(bbr.CRUISE),
     [heard(70), lost(100, 1), state(loss_round_end_bytes=70 * MSS)]),
    *[
        (f"bbr3 s.5.3.3.9: the bound of 70 follows what was in flight with a packet that arrived, if losses were few: {lost_mss}",
         at(bbr.CRUISE, high_inflight_bytes=70 * MSS),
         [step(tx_inflight_bytes=95 * MSS, lost_since_bytes=lost_mss * MSS), state(high_inflight_bytes=bound_mss * MSS)])
        for lost_mss, bound_mss in ((1.9, 95), (2.0, 70))
    ],
    *[
        (f"bbr3 s.5.3.3.7: UP ends after three rounds without growth, unless the long-term bound limits: {ends}",
         at(bbr.UP, high_inflight_bytes=bound, full_bandwidth_Bps=RATE_Bps, cwnd_bytes=50 * MSS),
         [*[state(mode=bbr.UP), put(cwnd_bytes=50 * MSS), new_round(inflight_bytes=49 * MSS, tx_inflight_bytes=0.0)] * 3,
          (not_state if ends else state)(mode=bbr.UP)])
        for bound, ends in ((UNLIMITED_BYTES, True), (50 * MSS, False))
    ],
    ("bbr3 s.5.3.3.6: a cautious UP ends at the bound; if that lost little, REFILL and UP follow at once, without CRUISE",
     at(bbr.UP, probe_too_high=1.0, samples_probe=1.0, high_inflight_bytes=50 * MSS, cwnd_bytes=60 * MSS),
     [step(inflight_bytes=49 * MSS, tx_inflight_bytes=0.0), state(mode=bbr.UP),
      step(inflight_bytes=50 * MSS, tx_inflight_bytes=0.0), state(mode=bbr.DOWN, probe_cautious=1.0, probe_too_high=0.0),
      put(rounds_since_probe=-1e6), new_round(inflight_bytes=45 * MSS, tx_inflight_bytes=0.0), state(mode=bbr.REFILL),
      new_round(inflight_bytes=50 * MSS, tx_inflight_bytes=0.0), step(inflight_bytes=60 * MSS, tx_inflight_bytes=0.0),
      state(mode=bbr.UP)]),
    ("bbr3 s.5.3.3.6: a cautious probe that lost much is followed by CRUISE",
     at(bbr.DOWN, samples_probe=1.0, probe_cautious=1.0, ack_phase=bbr3.ACKS_STOPPING, high_inflight_bytes=80 * MSS),
     [lost(50, 2), put(high_inflight_bytes=80 * MSS), new_round(inflight_bytes=30 * MSS), state(mode=bbr.CRUISE)]),
    ("bbr3 s.5.6.4.7: 0.15 of the bound is left for others: 60 * 0.85 = 51",
     at(bbr.CRUISE, high_inflight_bytes=60 * MSS, cwnd_bytes=60 * MSS), [step(tx_inflight_bytes=0.0), window(51)]),
    *[
        (f"bbr3 s.5.3.3.1: DOWN lasts until headroom and BDP, with {inflight_mss} in flight",
         at(bbr.DOWN, high_inflight_bytes=40 * MSS),
         [step(inflight_bytes=inflight_mss * MSS, tx_inflight_bytes=0.0), state(mode=mode)])
        for inflight_mss, mode in ((40, bbr.DOWN), (34, bbr.CRUISE))
    ],
    *[
        (f"bbr3 s.5.3.3.8.3: probes as Reno would, after {rounds_since} rounds", at(bbr.CRUISE, rounds_since_probe=rounds_since),
         [step(**QUICK), state(mode=mode)])
        for rounds_since, mode in ((BDP_MSS - 0.1, bbr.CRUISE), (BDP_MSS, bbr.REFILL))
    ],
    ("bbr3 s.5.6.4.4: fast recovery only saves the window; after a time-out one segment more than what is in flight",
     at(bbr.CRUISE, cwnd_bytes=70 * MSS),
     [lost(70, 1, new_episode=1.0), window(70), state(saved_cwnd_bytes=70 * MSS),
      lost(70, 2, timeout=1.0, inflight_bytes=0.0), window(1), heard(200), put(loss_ranges=0.0),  # no short-term bound
      step(**QUICK), window(70, rel=0, abs=0.1)]),
    *[
        (f"bbr3 s.5.5.9: aggregation is remembered for ten rounds, in STARTUP for one, full pipe: {full}",
         at(bbr.CRUISE if full else bbr.STARTUP, full_pipe=full),
         [step(acked_bytes=30 * MSS, **QUICK), state(extra_a=pytest.approx(-30 * MSS, rel=0.1)),
          *[heard(0, at_s=1.0), new_round(acked_bytes=MSS)] * 4,
          state(extra_a=pytest.approx(-25 * MSS, abs=5 * MSS) if full else pytest.approx(0.0, abs=20 * MSS))])
        for full in (1.0, 0.0)
    ],
    ("bbr3 s.5.4.1: idle for more than 5 s: paced at the bandwidth, no PROBE_RTT", at(bbr.CRUISE, cycle_start_s=1e6),
     [step(**QUICK), heard(0, at_s=6.0), put(pacing_gain=1.25), lambda flow: flow.tick(inflight_bytes=0.0),
      state(pacing_rate_Bps=0.99 * RATE_Bps), step(**QUICK), not_state(mode=bbr.PROBE_RTT)]),
    ("bbr3 s.5.4.1: a flow that never pauses goes into it", at(bbr.CRUISE, cycle_start_s=1e6),
     [step(**QUICK), heard(0, at_s=6.0), put(pacing_gain=1.25), step(**QUICK), state(mode=bbr.PROBE_RTT)]),
]  # fmt: skip


@pytest.mark.parametrize(("start", "steps"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
def test_a_rule_has_its_number(start, steps):
    flow = start()
    for part in steps:
        part(flow)


def test_bbr3_packets_sent_in_probe_rtt_are_limited():
    """s.5.3.4.3: MarkConnectionAppLimited: what was sent while it held, not what is acknowledged meanwhile."""
    state = flow_in(bbr.CRUISE, limited_from_bytes=50 * MSS, limited_until_bytes=90 * MSS).state
    sent = [bbr3.is_limited(state, 0.0, mss * MSS) for mss in (49, 50, 90, 91)]
    assert sent == [False, True, True, False]


@pytest.mark.parametrize("name", ["bbr2", "bbr3"])
def test_the_bound_rises_by_a_doubling_number_of_segments_per_round(name):
    """v2 4.3.3.6, v3 s.5.3.3.9: 1, 2, 4, 8 segments per round of UP, while the bound is what limits; 1.25 BDP is far away."""
    flow = probing() if name == "bbr2" else flow_in(bbr.REFILL, pieces=40, high_inflight_bytes=60 * MSS, cwnd_bytes=60 * MSS)
    state = flow.state
    signal = {"delivery_rate_Bps": 1e6} if name == "bbr2" else {"delivery_rate_Bps": 1e8, "tx_inflight_bytes": 0.0}
    state.max_bandwidth_Bps = state.cycle_bandwidth_Bps = state.bandwidth_Bps = 1e9 if name == "bbr2" else 1e8
    bounds = []
    for _ in range(4):
        if name == "bbr2":
            state.round_end_bytes, state.round_inflight_bytes = flow.delivered + state.cwnd_bytes * 0.999, 0.0
        else:
            new_round(**signal)(flow)
            state.round_end_bytes = 1e12
        bounds.append(state.high_inflight_bytes / MSS)
        for _ in range(20 if name == "bbr2" else 39):
            flow.step(**signal)
    assert flow.state.mode == bbr.UP
    assert np.diff([*bounds, state.high_inflight_bytes / MSS]) == pytest.approx([1, 2, 4, 8], abs=1.2 if name == "bbr2" else 1.01)


@pytest.mark.parametrize("name", ["bbr2", "bbr3"])
def test_probe_times_are_drawn_between_two_and_three_seconds(name):
    """v3 s.5.3.3.8.3."""
    waits = set()
    for seed in range(30):
        flow = probing() if name == "bbr2" else flow_in(bbr.UP, samples_probe=1.0)
        flow.state.seed = seed
        lost(20, 2)(flow)
        if name == "bbr2":
            flow.step(**QUICK, **FEW)
        waits.add((float(flow.state.probe_wait_s), float(flow.state.rounds_since_probe)))
    times = [wait for wait, _ in waits]
    assert 2.0 <= min(times) < 2.3 and 2.7 < max(times) < 3.0 and {rounds for _, rounds in waits} == {0.0, 1.0}


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
