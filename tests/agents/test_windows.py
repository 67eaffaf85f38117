"""Windows and rates after signals that can be followed by hand: one row per rule of a CCA, with the number of its source."""

import math
from itertools import pairwise

import numpy as np
import pytest
from signals_play import MSS, RTT_S, Steady, Step, lose, put, recover, rounds, state, step, window

from ccenv.agents import make_sender
from ccenv.agents.classic.common import UNLIMITED_BYTES
from ccenv.agents.classic.exp_delay import rate_of_delay
from ccenv.agents.classic.illinois import alpha_of_delay, beta_of_delay


def repeated(count: int, *steps: Step) -> list[Step]:
    return [*steps] * count


def followed(windows: list[float], *steps: Step) -> list[Step]:
    """Check the window after each repetition of the steps."""
    return [part for mss in windows for part in (*steps, window(mss))]


PROPORTIONAL = ("reno", "cubic", "vegas", "westwood", "illinois", "hybla", "dctcp")
AVOIDANCE = put(ssthresh_bytes=MSS)
AVOIDING = put(slow_start=0.0)
AVOIDING_4CP = put(slow_start=0.0, ssthresh_mss=1.0)
QUEUED_160 = {"rtt_s": 1.25 * RTT_S}


def cubic_curve(flow: Steady) -> None:
    """RFC 9438 eq. (1), (2): W(t) = 0.4 (t - K)^3 + W_max with K = cbrt(0.3 * 1000 / 0.4) = 9.086 s."""
    assert flow.state.k_s == pytest.approx((300 / 0.4) ** (1 / 3), rel=1e-9)
    elapsed_s = flow.now_s - flow.state.epoch_start_s
    assert flow.cwnd_mss == pytest.approx(0.4 * (elapsed_s - flow.state.k_s) ** 3 + 1000, rel=2e-3)


def limited_time_does_not_count(flow: Steady) -> None:
    elapsed_s, mss = flow.now_s - flow.state.epoch_start_s, flow.cwnd_mss
    flow.rounds(50, app_limited=1.0)
    assert flow.cwnd_mss == mss and flow.now_s - flow.state.epoch_start_s == pytest.approx(elapsed_s, abs=1e-9)


# (rule and source, spec, pieces of a round, RTT in s, steps)
RULES: list[tuple[str, str, int, float, list[Step]]] = [
    *[
        (f"even ACKs of a growing window: (1 + 1/n)^n per RTT, n = {n}", "reno", n, RTT_S,
         [rounds(3), window(10 * (1 + 1 / n) ** (3 * n), rel=1e-6)])
        for n in (1, 10, 5000)
    ],
    *[
        (f"RFC 5681 eq. (3): a segment per RTT, whatever the size of the ACKs, n = {n}", "reno:initial_window_mss=40", n, RTT_S,
         [lose(), recover, window(20), rounds(10), window(30)])
        for n in (1, 10, 5000)
    ],
    ("RFC 5681: the flight halves once per episode; no growth in recovery", "reno:initial_window_mss=40", 50, RTT_S,
     [lose(), window(20), lose(new_episode=0.0), window(20), step(), window(20)]),
    ("RFC 5681: one segment after a time-out, slow start to half", "reno:initial_window_mss=40", 50, RTT_S,
     [lose(lost_bytes=40 * MSS, timeout=1.0), window(1), state(ssthresh_bytes=20 * MSS), rounds(5), window(21.5, abs=1.5)]),
    ("RFC 3168: marks reduce once per window; no growth while limited", "reno:initial_window_mss=40", 50, RTT_S,
     [step(app_limited=1.0), window(40), step(ecn_fraction=1.0), window(20), step(ecn_fraction=1.0), window(20)]),
    ("RFC 5681: with limit_mss=1 an ACK for four segments counts as one", "reno:limit_mss=1", 50, RTT_S,
     [step(acked_bytes=4 * MSS), window(11), put(ssthresh_bytes=11 * MSS), step(acked_bytes=4 * MSS), window(11 + 1 / 11),
      step(acked_bytes=0.5 * MSS), window(11 + 1 / 11 + 0.5 / (11 + 1 / 11))]),
    ("RFC 9438 s.4.6: seven tenths", "cubic:initial_window_mss=1000", 100, 0.1, [lose(), recover, window(700)]),
    *[
        (f"RFC 9438 eq. (1), (2) after {t_s} s", "cubic:initial_window_mss=1000", 100, 0.1,
         [lose(), recover, rounds(round(t_s / 0.1)), cubic_curve])
        for t_s in (1.0, 3.0, 6.0, 9.086, 12.0)
    ],
    ("RFC 9438 s.4.3: W_est grows by 3 (1 - 0.7)/(1 + 0.7) per RTT", "cubic:initial_window_mss=20", 100, 0.01,
     [lose(), recover, rounds(5), window(14 + 5 * 3 * 0.3 / 1.7, rel=1e-6)]),
    ("RFC 9438 s.4.3: above the window before the loss by a segment", "cubic:initial_window_mss=20", 100, 0.01,
     [lose(), recover, rounds(12), lambda flow: (before := flow.cwnd_mss, flow.rounds(1), window(before + 1, rel=1e-6)(flow))]),
    *[
        (f"RFC 9438 s.4.7: W_max becomes cwnd (1 + 0.7)/2 below the last maximum, if fast_convergence={on}",
         f"cubic:initial_window_mss=1000,fast_convergence={on}", 50, RTT_S, [lose(), lose(), state(w_max_bytes=w_max_mss * MSS)])
        for on, w_max_mss in ((1, 700 * 0.85), (0, 700.0))
    ],
    ("RFC 9438 s.5.8: time that the application limits", "cubic:initial_window_mss=1000", 100, 0.1,
     [lose(), recover, rounds(20), limited_time_does_not_count]),
    ("RFC 9438 s.4.8: K = 0 and W_max = cwnd in the stage after a time-out", "cubic:initial_window_mss=1000", 50, RTT_S,
     [lose(lost_bytes=1000 * MSS, timeout=1.0), window(1), rounds(12),
      state(k_s=0.0, origin_bytes=pytest.approx(7e2 * MSS, abs=MSS))]),
    *[
        (f"Diff = cwnd (1 - base/RTT) of {queued} segments: {change:+} per RTT", "vegas:initial_window_mss=50", 50, RTT_S,
         [AVOIDING, rounds(1, rtt_s=RTT_S / (1 - queued / 50)), window(50), step(rtt_s=RTT_S / (1 - queued / 50)),
          window(50 + change)])
        for queued, change in ((1.9, 1), (2.1, 0), (3.9, 0), (4.1, -1))
    ],
    ("slow start grows every other round and leaves at 160 (1 - 1/1.1) = 14.5 queued", "vegas", 1, RTT_S,
     [*followed([10, 20, 20, 40, 40, 80, 80], rounds(1)), rounds(1), rounds(2, rtt_s=1.1 * RTT_S), state(slow_start=0.0),
      window(160 * 7 / 8)]),
    ("a loss takes a quarter, a time-out leaves two", "vegas:initial_window_mss=40", 50, RTT_S,
     [lose(), window(30), lose(timeout=1.0), window(2)]),
    *[
        (f"tcp_vegas: {queued} segments, rounded down: {change:+} per RTT", "vegas:initial_window_mss=50,linux_module=1",
         50, RTT_S, [step(), put(ssthresh_bytes=MSS, cwnd_bytes=50 * MSS), *repeated(49, step(rtt_s=RTT_S * (1 + queued / 50))),
                     window(50), step(rtt_s=RTT_S * (1 + queued / 50)), window(50 + change)])
        for queued, change in ((1.9, 1), (2.1, 0), (4.9, 0), (5.1, -1))
    ],
    ("tcp_vegas leaves slow start at two segments queued, with a BDP and one", "vegas:initial_window_mss=50,linux_module=1", 50,
     RTT_S, [step(), put(cwnd_bytes=50 * MSS), *repeated(49, step(rtt_s=RTT_S * 1.05)), put(cwnd_bytes=100 * MSS),
             step(rtt_s=RTT_S * 1.05), window(96), state(ssthresh_bytes=95 * MSS)]),
    ("tcp_vegas with two samples per round grows as Reno", "vegas:initial_window_mss=4,linux_module=1", 2, RTT_S,
     [put(ssthresh_bytes=MSS), rounds(1), window(4.5), rounds(1), window(5)]),
    ("tcp_vegas halves", "vegas:initial_window_mss=50,linux_module=1", 50, RTT_S, [lose(), window(25)]),
    *[
        (f"at RTT = 2 baseRTT and w = 100 the target is 50 + 20: gamma = {gamma} of the way, n = {n}",
         f"fast:gamma={gamma},initial_window_mss=100", n, RTT_S,
         [AVOIDING, rounds(1, rtt_s=2 * RTT_S), step(rtt_s=2 * RTT_S), window(100 + gamma * (70 - 100))])
        for gamma in (0.5, 1.0) for n in (1, 50)
    ],
    ("at most doubles", "fast:alpha_mss=1000,gamma=1", 1, RTT_S, [AVOIDING, rounds(2), window(20)]),
    ("doubles until 320 (1 - 1/1.25) = 64 segments are queued, more than alpha", "fast", 1, RTT_S,
     [rounds(4), window(160), *repeated(2, rounds(1, **QUEUED_160)), state(slow_start=0.0),
      window(320 + 0.5 * (320 / 1.25 + 20 - 320))]),
    ("halves on loss, two after a time-out", "fast:initial_window_mss=40", 1, RTT_S,
     [lose(), window(20), lose(timeout=1.0), window(2)]),
    *[
        (f"congestion avoidance: max(1, RTT/25 ms)^2 segments per RTT, n = {n}", "hybla:initial_window_mss=1000", n, rtt_s,
         [AVOIDANCE, rounds(1), window(1000 + growth, rel=1e-12)])
        for n in (1, 10, 1000) for rtt_s, growth in ((0.01, 1), (0.025, 1), (0.05, 4), (0.25, 100), (0.6, 576))
    ],
    *[
        ("the rate grows by 1/RTT0^2 a second at any RTT: by RTT/RTT0^2 segments", "hybla:initial_window_mss=100", 50, rtt_s,
         [AVOIDANCE, rounds(round(1 / rtt_s)), window(100 + rtt_s / 0.025**2)])
        for rtt_s in (0.05, 0.1, 0.2)
    ],
    *[
        ("slow start: W -> 2^rho W at one signal per window; rho at most 4", "hybla", 1, rtt_s, [rounds(1), window(10 * factor)])
        for rtt_s, factor in ((0.01, 2), (0.025, 2), (0.05, 4), (0.1, 16), (0.6, 16))
    ],
    ("tcp_hybla: an ACK of any length adds floor(128 rho^2/W)/128; rho is that of the handshake, in eighths: 1.75 of 1.84",
     "hybla:initial_window_mss=100,delayed_acks=1", 10, 0.05,
     [AVOIDANCE, rounds(1), window(100 + 10 * 5 / 128), step(handshake_s=0.046), window(100 + 53 / 128)]),
    ("tcp_westwood: half until recovery ends, then 30 ms packets of a bandwidth over 4.1 ticks, rounded up; whole segments",
     "westwood:initial_window_mss=100,tick_ms=10", 50, 0.041,
     [AVOIDANCE, lose(), window(50), put(bandwidth_Bps=20 * MSS / RTT_S, rough_Bps=20 * MSS / RTT_S), recover, step(), window(25),
      step(), window(25), rounds(1), window(26)]),
    ("tcp_westwood: samples of more than 50 ms, filtered twice by 7/8: none of 0 bytes at 50 ms, one at 60",
     "westwood:tick_ms=10", 50, RTT_S,
     [put(bandwidth_Bps=64e4, rough_Bps=64e4, sampling=1.0), step(now_s=0.05, acked_bytes=1e-9), state(bandwidth_Bps=64e4),
      put(sample_bytes=0.0), step(now_s=0.06), state(bandwidth_Bps=63e4, rough_Bps=56e4)]),
    *[
        (f"tcp_cubic leaves slow start at the ninth ACK of a round of {rtt_s} s, 5 ms above the smallest",
         "cubic:initial_window_mss=20,linux_module=1", 10, RTT_S,
         [rounds(1), *repeated(8, step(rtt_s=rtt_s)), state(ssthresh_bytes=UNLIMITED_BYTES), step(rtt_s=rtt_s), left])
        for rtt_s, left in ((0.0449, state(ssthresh_bytes=UNLIMITED_BYTES)),
                            (0.0451, lambda flow: state(ssthresh_bytes=pytest.approx(flow.state.cwnd_bytes, rel=0.01))(flow)))
    ],
    ("tcp_cubic leaves slow start where ACKs 1 ms apart last for half an RTT, and grows by 1/20 per RTT until a loss",
     "cubic:initial_window_mss=20,linux_module=1", 40, RTT_S,
     [*repeated(21, step()), state(ssthresh_bytes=UNLIMITED_BYTES), step(),
      lambda flow: (before := flow.cwnd_mss, flow.rounds(1), window(1.05 * before, rel=1e-2)(flow))]),
    ("of ten segments 5 fill up to ssthresh, the other 5 count as 5/25 of a window", "hybla", 1, 0.05,
     [put(ssthresh_bytes=25 * MSS), rounds(1), window(25 + 4 * 5 / 25)]),
    ("halves on loss", "hybla:initial_window_mss=40", 50, RTT_S, [lose(), window(20), lose(timeout=1.0), window(1)]),
    *[
        ("RFC 9937: a lost segment is sent again at once", f"{name}:initial_window_mss=40,prr=1", 50, RTT_S,
         [lose(inflight_bytes=39 * MSS, delivered_bytes=0.0), window(40)])
        for name in PROPORTIONAL
    ],
    ("Reno below 15 segments", "illinois:initial_window_mss=12", 50, RTT_S,
     [AVOIDANCE, rounds(2), window(14, rel=1e-6), lose(), window(7, rel=1e-6)]),
    ("beta = 1/8 when there was no queue; a time-out forgets alpha and beta", "illinois:initial_window_mss=40", 50, RTT_S,
     [rounds(2), lambda flow: (before := flow.cwnd_mss, flow.lose(), window(before * 7 / 8)(flow)), lose(timeout=1.0), window(1),
      state(alpha=1.0, beta=0.5)]),
    ("ten at once where the delay was never high", "illinois:initial_window_mss=40", 100, RTT_S,
     [AVOIDANCE, rounds(1), lambda flow: (before := flow.cwnd_mss, flow.rounds(1), window(before + 10)(flow))]),
    *[
        (f"RFC 6817 s.2.4.2: GAIN (TARGET - queueing)/TARGET per RTT at {queueing_s} s, n = {n}", "ledbat:initial_window_mss=100",
         n, RTT_S, [put(base_0_s=RTT_S), rounds(1, rtt_s=RTT_S + queueing_s), window(100 + change, rel=0, abs=0.01)])
        for n in (1, 50, 2000) for queueing_s, change in ((0.0, 1.0), (0.05, 0.5), (0.1, 0.0), (0.2, -1.0))
    ],
    ("RFC 6817 s.2.4.2: at most the flight plus ALLOWED_INCREASE", "ledbat:initial_window_mss=100", 1, RTT_S,
     [step(acked_bytes=10 * MSS, inflight_bytes=20 * MSS), window(31)]),
    ("RFC 6817: halves once per RTT; from one to MIN_CWND after a time-out", "ledbat:initial_window_mss=40", 50, RTT_S,
     [lose(), window(20), lose(), window(20), lose(timeout=1.0), window(1), step(), window(2)]),
    ("ssthresh is bandwidth times smallest RTT, also after a time-out", "westwood:initial_window_mss=100", 50, RTT_S,
     [AVOIDANCE, rounds(1), put(bandwidth_Bps=30 * MSS / RTT_S), lose(), window(30), state(ssthresh_bytes=30 * MSS),
      lose(timeout=1.0), window(1), state(ssthresh_bytes=30 * MSS)]),
    ("a loss does not raise the window", "westwood:initial_window_mss=20", 1, RTT_S,
     [rounds(1), window(40), put(bandwidth_Bps=300 * MSS / RTT_S), lose(), window(40)]),
    ("velocity doubles after three rounds in one direction, a turn takes it back", "copa:initial_window_mss=1000", 50, RTT_S,
     [rounds(1), AVOIDING, *[part for v in (1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0) for part in (rounds(1), state(velocity=v))],
      rounds(3, rtt_s=1.5 * RTT_S), state(velocity=1.0)]),
    ("NSDI 2018 s.2.1: RTTmin is forgotten after 10 s", "copa", 2, RTT_S,
     [rounds(1), rounds(246, rtt_s=1.5 * RTT_S), state(min_a_s=RTT_S), rounds(8, rtt_s=1.5 * RTT_S), state(min_a_s=1.5 * RTT_S)]),
    ("paces at twice the window per standing RTT", "copa", 50, RTT_S,
     [rounds(2), lambda flow: state(pacing_rate_Bps=float(2 * flow.state.cwnd_bytes / RTT_S))(flow)]),
    *[
        (f"eq. 3: a segment per round, n = {n}", "fourcp_fixed:initial_window_mss=40", n, RTT_S,
         [AVOIDING_4CP, rounds(10), window(50)])
        for n in (1, 50, 2000)
    ],
    ("eqs. 4 and 5, tarp 0.01: 50 - 1/(0.01 * 50) = 48 per event; 1/(0.01 * 2) = 50 below mincwnd, down to -wndbnd; back through"
     " the bad phase by a segment per round", "fourcp_fixed:tarp=0.01,initial_window_mss=50,wndbnd_mss=70", 50, RTT_S,
     [AVOIDING_4CP, lose(), state(wnd_mss=48.0), window(48), lose(new_episode=0.0), state(wnd_mss=48.0),
      put(wnd_mss=1.5, window_mss=2.0), lose(), state(wnd_mss=1.5 - 50), window(2), lose(), state(wnd_mss=-70.0),
      recover, rounds(72), window(2, rel=0, abs=1e-6), rounds(5), window(7, rel=0, abs=1e-6)]),
    ("slow start ends at half the flight; after a time-out it leads to the window of before", "fourcp_fixed", 1, RTT_S,
     [rounds(2), window(40), lose(), state(wnd_mss=20.0), window(20), lose(timeout=1.0, new_episode=0.0), window(1), recover,
      rounds(5), window(20, rel=1e-6)]),
    ("rate_based paces the window", "fourcp_fixed:initial_window_mss=40,rate_based=1", 50, RTT_S,
     [AVOIDING_4CP, rounds(1), lambda flow: state(pacing_rate_Bps=float(flow.state.window_mss * MSS / RTT_S),
                                                  cwnd_bytes=float(2 * flow.state.window_mss * MSS))(flow)]),
    *[
        (f"s.3.3: a window held at 50 takes tarp from {tarp} to 1.5/50^2",
         f"fourcp_auto:tarp={tarp},first_gain=1e-5,last_gain=1e-6,initial_window_mss=50,maxcwnd_mss=50", 20, RTT_S,
         [AVOIDING_4CP, rounds(300), window(50, rel=1e-6), state(tarp=pytest.approx(6e-4, rel=0.01))])
        for tarp in (0.0003, 0.003)
    ],
    *[
        # Algorithm 1 of [Starvation] at a rate of 2^3 mu_minus: the map passes it at a queueing delay of 100 - 3 * 10 = 70 ms.
        (f"[Starvation] s.6.3, {margin_s:+g} s of the map, rm_ms={rm_ms}", f"exp_delay:rm_ms={rm_ms}", 1, RTT_S,
         [rounds(1), put(rate_Bps=8 * 0.1 * 1.25e5), step(rtt_s=RTT_S + 0.07 + margin_s, min_rtt_s=RTT_S),
          state(pacing_rate_Bps=pytest.approx(0.8 * 1.25e5 + 0.5e6 / 8 if margin_s < 0 else 0.9 * 0.8 * 1.25e5))])
        for margin_s in (-1e-6, 1e-6) for rm_ms in (0, 40)
    ],
    *[
        (f"[Starvation] s.6.3: one decision per Rm, n = {n}", "exp_delay", n, RTT_S,
         [rounds(21), state(rate_Bps=pytest.approx(0.5e6 / 8 * (0.2 + 21), abs=1.01 * 0.5e6 / 8))])
        for n in (1, 20, 2000)
    ],
    ("[Starvation] s.6.3: ignores loss and keeps a floor of mu_minus/100", "exp_delay", 1, RTT_S,
     [rounds(3),
      lambda flow: (rate := float(flow.state.pacing_rate_Bps), flow.lose(timeout=1), state(pacing_rate_Bps=rate)(flow)),
      rounds(100, rtt_s=10.0, min_rtt_s=RTT_S), state(pacing_rate_Bps=0.01 * 0.1 * 1.25e5)]),
    ("[Starvation] s.6.2: half when the queueing delay passes 50 ms, once per round trip", "aimd_delay:initial_window_mss=40", 50,
     RTT_S, [AVOIDANCE, rounds(1, rtt_s=RTT_S + 0.049), window(41), step(rtt_s=RTT_S + 0.051), window(20.5),
             step(rtt_s=RTT_S + 0.051), window(20.5), lose(), window(20.5), recover, lose(), window(10.25), lose(timeout=1.0),
             window(1)]),
    ("INFOCOM 2003 eqs. 1, 2: 1.2 RTT passes .15 of the range up to 2 RTT at 1 - .875^n > .75, the 13th of 41/50 segments; one"
     " segment at the next sign within three round trips", "tcp_lp:initial_window_mss=40", 50, RTT_S,
     [AVOIDANCE, rounds(1), window(41), put(max_rtt_s=2 * RTT_S), *repeated(12, step(rtt_s=1.2 * RTT_S)), window(41.24),
      step(rtt_s=1.2 * RTT_S), window(20.62), rounds(1, rtt_s=1.2 * RTT_S), window(20.62), rounds(1, rtt_s=1.2 * RTT_S),
      window(1)]),
    *[
        (f"OSDI 2002 s.3, largest queueing delay 40 ms, {queued} RTT: Vegas below .2 of it, half above",
         "nice:initial_window_mss=40", 50, RTT_S,
         [AVOIDING, put(max_rtt_s=2 * RTT_S), rounds(1, rtt_s=(1 + queued) * RTT_S), window(40),
                     step(rtt_s=(1 + queued) * RTT_S), window(mss)])
        for queued, mss in ((0.04, 41), (0.08, 40), (0.19, 39), (0.21, 20))
    ],
    ("OSDI 2002 s.3: below one segment down to 1/48, paced", "nice", 50, RTT_S,
     [AVOIDING, rounds(1), put(window_mss=1.0), lose(), state(window_mss=0.5, pacing_rate_Bps=0.5 * MSS / RTT_S), window(1),
      *repeated(9, lose()), state(window_mss=1 / 48)]),
    *[
        (f"SIGCOMM 2015 eq. 4: the delay to aim at goes {change_s:+} s", "verus", 1, RTT_S,
         [rounds(1), put(slow_start=0.0, aim_s=1.5 * RTT_S, smooth_s=smooth * RTT_S, last_smooth_s=last * RTT_S, epoch_end_s=0.0),
          step(rtt_s=smooth * RTT_S, min_rtt_s=RTT_S), state(aim_s=1.5 * RTT_S + change_s)])
        for smooth, last, change_s in ((2.1, 2.1, -0.002), (1.5, 1.4, -0.001), (1.5, 1.6, 0.002))
    ],
    ("the rules of the table: 1.0 w + b per ACK below 1.1 RTT", "remy", 1, RTT_S,
     [put(multiple_1=1.0, increment_mss_1=0.5, spacing_ms_1=0.25), step(), window(15), state(pacing_rate_Bps=4000 * MSS)]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "pieces", "rtt_s", "steps"), [r[1:] for r in RULES], ids=[f"{r[1]}: {r[0]}" for r in RULES])
def test_a_rule_has_its_number(spec: str, pieces: int, rtt_s: float, steps: list[Step]) -> None:
    flow = Steady(make_sender(spec), pieces=pieces, rtt_s=rtt_s)
    for part in steps:
        part(flow)


@pytest.mark.parametrize("max_delay_s", [0.004, 1.7])
def test_illinois_curves_at_their_end_points(max_delay_s):
    """Alpha 10 up to 0.01 d_m, continuous there, 0.3 at d_m; beta 1/8 up to 0.1 d_m, 1/2 from 0.8 d_m, linear between."""
    assert alpha_of_delay(0.0, max_delay_s) == 10.0 and alpha_of_delay(0.01 * max_delay_s, max_delay_s) == 10.0
    assert alpha_of_delay(0.0100001 * max_delay_s, max_delay_s) == pytest.approx(10.0, rel=1e-3)
    assert alpha_of_delay(max_delay_s, max_delay_s) == pytest.approx(0.3)
    assert beta_of_delay(0.0, max_delay_s) == beta_of_delay(0.1 * max_delay_s, max_delay_s) == 0.125
    assert beta_of_delay(0.45 * max_delay_s, max_delay_s) == pytest.approx(0.3125)
    assert beta_of_delay(0.8 * max_delay_s, max_delay_s) == beta_of_delay(max_delay_s, max_delay_s) == 0.5
    # 1/alpha is linear in the delay: halfway between d_1 and d_m it is the mean of 1/10 and 1/0.3.
    middle = 0.5 * (0.01 + 1.0) * max_delay_s
    assert 1 / alpha_of_delay(middle, max_delay_s) == pytest.approx(0.5 * (1 / 10 + 1 / 0.3))


def test_illinois_without_a_queue_so_far():
    assert alpha_of_delay(0.0, 0.0) == 10.0 and beta_of_delay(0.0, 0.0) == 0.125


@pytest.mark.parametrize("pieces", [10, 1000])
def test_illinois_keeps_its_alpha_until_the_fifth_quiet_round_in_a_row(pieces: int) -> None:
    """At the largest delay alpha is 0.3 from the next round on; the first quiet round still decides on the delayed one."""
    flow = Steady(make_sender("illinois:initial_window_mss=40"), pieces=pieces)
    flow.state.ssthresh_bytes = MSS
    windows = []
    for rtt_s in [2 * RTT_S] * 2 + [RTT_S] * 7:
        flow.rounds(1, rtt_s=rtt_s, min_rtt_s=RTT_S)
        windows.append(flow.cwnd_mss)
    assert [after - before for before, after in pairwise(windows)] == pytest.approx([0.3] * 6 + [10.0] * 2)


def test_ledbat_forgets_its_base_delay_after_ten_minutes_and_takes_the_smallest_of_four_samples() -> None:
    """RFC 6817 s.3.4.2: BASE_HISTORY of ten minutes; CURRENT_FILTER = 4, minimum: three delayed segments change nothing."""
    flow = Steady(make_sender("ledbat:initial_window_mss=100"), pieces=1)
    flow.rounds(1)
    for minute in range(1, 12):
        flow.now_s = 60.0 * minute + 1
        flow.state.cwnd_bytes = 100 * MSS
        flow.rounds(8, rtt_s=RTT_S + 0.2)
        assert (flow.cwnd_mss < 100) == (minute < 10), minute
    flow = Steady(make_sender("ledbat:initial_window_mss=100"), pieces=100)  # one segment per signal
    flow.rounds(1)
    signs = []
    for _ in range(5):
        before = flow.cwnd_mss
        flow.step(rtt_s=RTT_S + 0.3, acked_bytes=MSS)
        signs.append(flow.cwnd_mss > before)
    assert signs == [True, True, True, False, False]


@pytest.mark.parametrize("pieces", [2, 50])
def test_westwood_filter_keeps_nine_tenths(pieces: int) -> None:
    """One sample per round: b <- 0.9 b + 0.1 sample; after n samples of X from b0: X + (b0 - X) 0.9^n."""
    flow = Steady(make_sender("westwood"), pieces=pieces)
    flow.rounds(1)
    flow.step()
    bandwidth_Bps = [float(flow.state.bandwidth_Bps)]
    first_Bps = bandwidth_Bps[0]
    assert first_Bps > 0
    size = 3 * first_Bps * RTT_S / pieces  # from one sample to the next all steps carry 3 times the first rate
    while len(bandwidth_Bps) <= 20:
        flow.delivered += size - flow.state.cwnd_bytes / pieces
        flow.step(acked_bytes=size)
        if flow.state.bandwidth_Bps != bandwidth_Bps[-1]:
            bandwidth_Bps.append(float(flow.state.bandwidth_Bps))
    assert bandwidth_Bps[-1] == pytest.approx(3 * first_Bps + (first_Bps - 3 * first_Bps) * 0.9**20, rel=1e-6)


@pytest.mark.parametrize(("queued_mss", "sign"), [(1.9, 1), (2.1, -1)])
def test_copa_target_rate_is_one_segment_over_delta_times_delay(queued_mss: float, sign: int) -> None:
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


@pytest.mark.parametrize(("switching", "competitive"), [(1, True), (0, False)])
def test_copa_switches_mode_when_the_queue_never_empties(switching: int, competitive: bool) -> None:
    """NSDI 2018 s.2.2: more than five RTTs without a nearly empty queue; then 1/delta grows by one per RTT, halves on loss."""
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


@pytest.mark.parametrize("queueing_s", [0.02, 0.05, 0.08])
@pytest.mark.parametrize("start", [0.01, 100.0])
def test_exp_delay_stays_at_the_map(queueing_s: float, start: float) -> None:
    """At a constant delay the rate swings between b mu(d) and mu(d) + a: from both sides, for ever."""
    flow = Steady(make_sender("exp_delay"), pieces=1)
    flow.rounds(1)
    expected_Bps = rate_of_delay(queueing_s, flow.state.min_rate_Bps, 2.0, 0.01, 0.1)
    flow.state.rate_Bps = start * expected_Bps
    rates_Bps = []
    for _ in range(900):
        flow.step(rtt_s=RTT_S + queueing_s, min_rtt_s=RTT_S)
        rates_Bps.append(float(flow.state.pacing_rate_Bps))
    assert min(rates_Bps[800:]) >= 0.9 * expected_Bps
    assert expected_Bps - 0.5e6 / 8 < max(rates_Bps[800:]) < expected_Bps + 0.5e6 / 8


def test_exp_delay_map() -> None:
    """Eq. 2: mu_minus at the largest delay, times s for every D less; the paper's example, Rmax - Rm - D = 100 ms, D = 10 ms."""
    assert rate_of_delay(0.1, 3.0, 2.0, 0.01, 0.1) == 3.0
    assert rate_of_delay(0.05, 3.0, 2.0, 0.01, 0.1) == pytest.approx(3.0 * 2**5)
    for s, power in ((2.0, 10), (4.0, 20)):
        ratio = rate_of_delay(0.01, 1.0, s, 0.01, 0.11) / rate_of_delay(0.11, 1.0, s, 0.01, 0.11)
        assert ratio == pytest.approx(2**power)


@pytest.mark.parametrize("pieces", [1, 50, 1000])
def test_fourcp_auto_moves_tarp_by_eq_6(pieces: int) -> None:
    """Per window of ACKs a (f(tarp) - cwnd): tarp 0.0015: f = sqrt(1.5/0.0015) = 31.6; cwnd goes from 20 to 21 meanwhile."""
    gain = 1e-7
    flow = Steady(make_sender(f"fourcp_auto:tarp=0.0015,first_gain={gain},last_gain={gain},initial_window_mss=20"), pieces=pieces)
    AVOIDING_4CP(flow)
    flow.rounds(1)
    low, high = gain * (math.sqrt(1000) - 21) * 20 / 21, gain * (math.sqrt(1000) - 20)
    assert low * 0.999 < flow.state.tarp - 0.0015 < high


def test_fourcp_auto_gain_falls_linearly() -> None:
    """s.3.3.3: from 1e-6 to 0 over 400 segments: the steps of the first and second hundred are as 7/8 to 5/8."""
    spec = "fourcp_auto:tarp=0.01,first_gain=1e-6,last_gain=0,gain_updates=400,initial_window_mss=100"
    flow = Steady(make_sender(spec), pieces=100)
    AVOIDING_4CP(flow)
    tarps = [0.01]
    for _ in range(5):
        put(wnd_mss=100.0, window_mss=100.0, cwnd_bytes=150000.0)(flow)
        flow.rounds(1)
        tarps.append(float(flow.state.tarp))
    assert np.diff(tarps) / np.diff(tarps)[0] == pytest.approx([1, 5 / 7, 3 / 7, 1 / 7, 0], abs=0.02)


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
def test_sending_is_spread_over_the_round_trip(name):
    """Of 39 segments in flight 1/2 or 7/10 are sent, evenly, and recovery ends with ssthresh in flight."""
    flow = recovering(name)
    flow.inflight += MSS  # the retransmission
    sent = clock(flow, 38)
    assert flow.inflight / MSS == pytest.approx(40 * KEPT[name], abs=1.0) and set(sent) <= {0, 1}
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
