"""PCC Vivace against numbers that follow from its paper by hand."""

import pytest
from packet_link import run_link
from signals_play import fresh_state
from steady_flow import BDP_MSS, LINK, MSS, RATE_Bps, Steady
from test_pcc import probing

import ccenv
from ccenv.agents import make_sender
from ccenv.agents.classic.pcc import vivace

MBPS = 1.25e5


def test_vivace_utility():
    """u = x^0.9 - 900 x dRTT/dT - 11.35 x L, x in Mbit/s; slopes below 0.01 are noise."""
    assert vivace.utility(10 * MBPS, 0.0, 0.0) == pytest.approx(10**0.9)
    assert vivace.utility(10 * MBPS, 0.02, 0.0) == pytest.approx(10**0.9 - 180)
    assert vivace.utility(10 * MBPS, -0.02, 0.0) == pytest.approx(10**0.9)  # a falling RTT earns nothing
    assert vivace.utility(10 * MBPS, 0.009, 0.0) == pytest.approx(10**0.9)
    assert vivace.utility(10 * MBPS, 0.0, 0.1) == pytest.approx(10**0.9 - 11.35)


def test_vivace_confidence_amplifier():
    assert [vivace.amplifier(float(tau)) for tau in (1, 2, 3, 4, 5)] == [1, 2, 3, 5, 7]


def test_vivace_follows_the_gradient():
    """Constant RTT, no loss, 50 Mbit/s: the gradient is (52.5^0.9 - 47.5^0.9)/5 = 0.608 Mbit/s, then twice that, and so on."""
    flow = probing(rate_Bps=50 * MBPS)
    expected = 50.0
    for factor in (1, 2, 3, 5):
        gradient = ((1.05 * expected) ** 0.9 - (0.95 * expected) ** 0.9) / (0.1 * expected)
        expected += min(factor * gradient, 0.05 * expected)  # the bound binds in the fourth round: 3.02 against 2.68
        before = float(flow.state.rate_Bps)
        while flow.state.rate_Bps == before:
            flow.step()
        assert flow.state.rate_Bps / MBPS == pytest.approx(expected)


def changes(rates, gradients):
    state = fresh_state(make_sender("vivace"))
    vivace.init(state)
    state.srtt_s, state.rate_Bps = 0.04, rates
    out = []
    for gradient in gradients:
        before = float(state.rate_Bps)
        vivace._follow.py_func(state, gradient)
        out.append(float(state.rate_Bps) / before - 1)
    return out


def test_vivace_bounds_a_change():
    """At most 5 % at first, 10 points more for each bound that binds again, 5 % anew after a turn."""
    assert changes(10 * MBPS, [100.0] * 3 + [-100.0] * 2) == pytest.approx([0.05, 0.15, 0.25, -0.05, -0.15])


def test_vivace_bound_falls_back_when_it_does_not_bind():
    """After 5, 15 % a change of 3 * 0.1 Mbit/s of 12.1 (2.5 %) needs no raised bound: the next is 5 % again."""
    steps = changes(10 * MBPS, [100.0, 100.0, 0.1, 100.0])
    assert steps[2] == pytest.approx(0.3 / (10 * 1.05 * 1.15))
    assert steps[3] == pytest.approx(0.05)


def test_vivace_starts_by_doubling_until_the_utility_falls():
    flow = Steady(make_sender("vivace:initial_window_mss=100"), pieces=40)
    flow.step()
    first = float(flow.state.rate_Bps)
    assert first == pytest.approx(100 * MSS / flow.rtt_s)
    rates = []
    for i in range(600):
        slow = i > 250
        flow.step(rtt_s=flow.rtt_s * (1.0 + (0.002 * (i - 250) if slow else 0.0)))
        rates.append(float(flow.state.rate_Bps) / first)
        if flow.state.mode == vivace.PROBING:
            break
    order = [rate for i, rate in enumerate(rates) if i == 0 or rate != rates[i - 1]]
    top = max(order)
    assert order[:-1] == [2.0**i for i in range(len(order) - 1)]
    assert order[-1] == top / 2
    assert top >= 4


def test_vivace_uses_a_link_with_a_short_queue():
    """[Starvation] s.5.3: on an ideal link it comes close to using the link, with a queue near zero (after the first swings)."""
    run = run_link(make_sender("vivace"), 20, buffer_packets=BDP_MSS, **LINK)
    late = run.column("now_s") > 12
    queueing_s = run.column("rtt_s")[late] - run.column("rtt_s").min()
    assert run.rate_Bps(12, 20) > 0.85 * RATE_Bps
    assert queueing_s.mean() < 0.005
    lost = sum(size for now, size, *_ in run.losses if now > 12)
    assert lost < 1e-3 * run.column("delivered_bytes")[-1]


def outcome(state, *, slopes, losses=(0.0, 0.0), faster_first=True):
    """Finish an experiment of two intervals at 1.05 and 0.95 of the rate."""
    rates = (1.05, 0.95) if faster_first else (0.95, 1.05)
    order = (0, 1) if faster_first else (1, 0)
    for i in (0, 1):
        loss = losses[order[i]]
        state[f"rate_{i}_Bps"] = rates[i] * float(state.rate_Bps)
        state[f"slope_{i}"] = slopes[order[i]]
        state[f"acked_{i}_bytes"], state[f"lost_{i}_bytes"] = 1e6 * (1 - loss), 1e6 * loss
    vivace._decide.py_func(state)


def ready(rate_Bps=10 * MBPS):
    state = fresh_state(make_sender("vivace"))
    vivace.init(state)
    state.srtt_s, state.rate_Bps, state.mode = 0.04, rate_Bps, vivace.PROBING
    return state


@pytest.mark.parametrize("faster_first", [True, False])
def test_vivace_measures_again_when_faster_seems_to_be_better(faster_first):
    """A slower interval in which the RTT rises more decides nothing by itself."""
    state = ready()
    outcome(state, slopes=(0.0, 0.1), faster_first=faster_first)
    assert (state.rate_Bps, state.checking) == (10 * MBPS, 1.0)
    outcome(state, slopes=(0.1, 0.0), faster_first=faster_first)  # the second look says: slower
    assert state.rate_Bps == pytest.approx(9.5 * MBPS)
    assert state.checking == 0.0


def test_vivace_takes_the_mean_of_two_outcomes_that_make_no_sense():
    """Slopes of 1.1 and 1.3 % at 9.5 Mbit/s, none at 10.5: the mean gradient is thousands of Mbit/s, so the bound binds: 5 %."""
    state = ready()
    outcome(state, slopes=(0.0, 0.011))
    doubted = float(state.doubted_gradient)
    assert doubted == pytest.approx(10.5**0.9 - 9.5**0.9 + 900 * 9.5 * 0.011)
    outcome(state, slopes=(0.0, 0.013))
    assert state.rate_Bps / MBPS == pytest.approx(10.5)


def test_vivace_does_not_doubt_an_interval_for_its_losses():
    """2 % of loss at 9.5 Mbit/s, none at 10.5: random losses fall where they like; the gradient counts at once."""
    state = ready()
    outcome(state, slopes=(0.0, 0.0), losses=(0.0, 0.02))
    assert state.checking == 0.0
    assert state.rate_Bps / MBPS == pytest.approx(10.5)  # the bound of 5 % binds


def test_vivace_uses_a_link_with_random_loss():
    """2 % of loss cost less than x^0.9 gains: 11.35 x L = 0.227 x."""
    link = {"links": [{"rate_mbps": 100, "buffer_bdp": 1}], "flows": [{"sender": "vivace", "rtt_ms": 40, "loss_rate": 0.02}]}
    summary = ccenv.simulate({"duration_s": 40, "warmup_s": 15, **link}).summary()
    assert summary["links"][0]["utilisation"] > 0.8


def test_vivace_slopes_that_are_noise_are_not_doubted():
    state = ready()
    outcome(state, slopes=(-0.009, 0.009))
    assert state.checking == 0.0
    assert state.rate_Bps > 10 * MBPS
