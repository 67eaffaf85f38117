"""The exponential rate-delay CCA against [Starvation] s.6.3."""

import math

import numpy as np
import pytest
from packet_link import run_link
from steady_flow import LINK, RTT_S, RATE_Bps, Steady

from ccenv.agents import make_sender
from ccenv.agents.classic.exp_delay import rate_of_delay
from ccenv.base.errors import InputError


def test_exp_delay_map():
    """Eq. 2: mu_minus at the largest delay, times s for every D less; s^((Rmax - D)/D) times mu_minus at d = Rm + D."""
    assert rate_of_delay(0.1, 3.0, 2.0, 0.01, 0.1) == 3.0
    assert rate_of_delay(0.05, 3.0, 2.0, 0.01, 0.1) == pytest.approx(3.0 * 2**5)
    # The paper's example, Rmax - Rm - D = 100 ms and D = 10 ms: a range of 2^10 for s = 2 and 2^20 for s = 4.
    for s, power in ((2.0, 10), (4.0, 20)):
        ratio = rate_of_delay(0.01, 1.0, s, 0.01, 0.11) / rate_of_delay(0.11, 1.0, s, 0.01, 0.11)
        assert ratio == pytest.approx(2**power)


@pytest.mark.parametrize(("margin_s", "grows"), [(-1e-6, True), (1e-6, False)])
@pytest.mark.parametrize("rm_ms", [0, 40])
def test_exp_delay_step(margin_s, grows, rm_ms):
    """Algorithm 1 at a rate of 2^3 mu_minus: the map passes it at a queueing delay of 100 - 3 * 10 = 70 ms."""
    flow = Steady(make_sender(f"exp_delay:rm_ms={rm_ms}"), pieces=1)
    flow.rounds(1)
    flow.state.rate_Bps = rate = 8 * flow.state.min_rate_Bps
    flow.step(rtt_s=RTT_S + 0.07 + margin_s, min_rtt_s=RTT_S)
    expected = rate + 0.5e6 / 8 if grows else 0.9 * rate
    assert flow.state.pacing_rate_Bps == pytest.approx(expected)


@pytest.mark.parametrize("pieces", [1, 20, 2000])
def test_exp_delay_decides_once_per_rm(pieces):
    flow = Steady(make_sender("exp_delay"), pieces=pieces)
    flow.rounds(21)
    assert flow.state.rate_Bps / (0.5e6 / 8) == pytest.approx(0.2 + 21, abs=1.01)


def test_exp_delay_ignores_loss_and_keeps_a_floor():
    flow = Steady(make_sender("exp_delay"), pieces=1)
    flow.rounds(3)
    before = flow.state.pacing_rate_Bps
    flow.lose(timeout=1.0)
    assert flow.state.pacing_rate_Bps == before
    flow.rounds(100, rtt_s=10.0, min_rtt_s=RTT_S)
    assert flow.state.pacing_rate_Bps == pytest.approx(0.01 * flow.state.min_rate_Bps)


@pytest.mark.parametrize("queueing_s", [0.02, 0.05, 0.08])
def test_exp_delay_stays_at_the_map(queueing_s):
    """At a constant delay the rate swings between b mu(d) and mu(d) + a: from both sides, for ever."""
    for start in (0.01, 100.0):
        flow = Steady(make_sender("exp_delay"), pieces=1)
        flow.rounds(1)
        expected = rate_of_delay(queueing_s, flow.state.min_rate_Bps, 2.0, 0.01, 0.1)
        flow.state.rate_Bps = start * expected
        for _ in range(800):
            flow.step(rtt_s=RTT_S + queueing_s, min_rtt_s=RTT_S)
        rates = []
        for _ in range(100):
            flow.step(rtt_s=RTT_S + queueing_s, min_rtt_s=RTT_S)
            rates.append(float(flow.state.pacing_rate_Bps))
        assert min(rates) >= 0.9 * expected
        assert max(rates) < expected + 0.5e6 / 8
        assert max(rates) > expected - 0.5e6 / 8


def test_exp_delay_swings_around_the_delay_of_the_link_rate():
    """12 Mbit/s = mu_minus 2^6.9: the map passes it at 100 - 69 = 31 ms.

    Rate and queue integrate one after the other, so that the loop swings and empties the queue for a part of each period.
    """
    run = run_link(make_sender("exp_delay"), 14, **LINK)
    late = run.column("now_s") > 6
    queueing_s = run.column("rtt_s")[late] - run.column("rtt_s").min()
    expected_s = 0.1 - 0.01 * math.log2(12 / 0.1)
    low_s, high_s = np.percentile(queueing_s, [5, 95])
    assert low_s < expected_s < high_s < 0.1
    assert run.rate_Bps(6, 14) > 0.9 * RATE_Bps


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("exp_delay:jitter_ms=1,max_queueing_ms=1000", "fairness^(max_queueing_ms/jitter_ms) is 2^1000; it must be at most e^60"),
        ("exp_delay:decrease=1", "decrease is 1; it must be below 1"),
        ("exp_delay:fairness=1", "fairness is 1; it must be a finite number above 1"),
    ],
)
def test_exp_delay_refuses_what_has_no_map(spec, message):
    with pytest.raises(InputError) as caught:
        make_sender(spec)
    assert message in str(caught.value)
