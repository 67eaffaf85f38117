"""PCC Allegro against numbers that follow from its paper by hand."""

import math
from itertools import pairwise

import pytest
from packet_link import run_link
from signals_play import fresh_state
from signals_play import loss as loss_signal
from steady_flow import BDP_MSS, LINK, RATE_Bps, Steady

from ccenv.agents import make_sender
from ccenv.agents.classic.pcc import allegro


def test_allegro_utility_gives_way_at_five_percent():
    """u = x (1 - L)/(1 + e^(100 (L - 0.05))) - x L."""
    assert allegro.sigmoid(0.0) == 0.5
    assert allegro.utility(100.0, 0.0) == pytest.approx(100 / (1 + math.exp(-5)))
    assert allegro.utility(100.0, 0.05) == pytest.approx(100 * 0.95 * 0.5 - 5)
    assert allegro.utility(100.0, 0.06) == pytest.approx(94 / (1 + math.e) - 6)
    # Random loss of 2 %: more rate is better. Loss of 10 %: less rate is better.
    assert allegro.utility(101.0, 0.02) > allegro.utility(100.0, 0.02)
    assert allegro.utility(101.0, 0.1) < allegro.utility(100.0, 0.1)


def deciding(rate=1e6, step=0.01):
    state = fresh_state(make_sender("allegro"))
    allegro.init(state)
    state.srtt_s, state.rate_Bps, state.mode, state.step = 0.04, rate, allegro.DECIDING, step
    allegro._experiment.py_func(state, 0.0)
    return state


def decide(state, *, up, down):
    """Finish the experiment with these losses of the faster and the slower interval of each pair."""
    rates = [state.rate_0_Bps, state.rate_1_Bps, state.rate_2_Bps, state.rate_3_Bps]
    losses = [(up if rate > state.rate_Bps else down)[i // 2] for i, rate in enumerate(rates)]
    for i, loss in enumerate(losses):
        state[f"acked_{i}_bytes"], state[f"lost_{i}_bytes"] = 1e6 * (1 - loss), 1e6 * loss
    allegro._decide.py_func(state)


def test_allegro_tries_two_pairs_in_random_order():
    orders = set()
    for seed in range(40):
        state = deciding()
        state.seed, state.draws = seed, 0.0
        allegro._experiment.py_func(state, 0.0)
        rates = [float(r) / 1e6 for r in (state.rate_0_Bps, state.rate_1_Bps, state.rate_2_Bps, state.rate_3_Bps)]
        assert sorted(rates[:2]) == sorted(rates[2:]) == pytest.approx([0.99, 1.01])
        orders.add((rates[0] > rates[1], rates[2] > rates[3]))
        assert 1.7 * 0.04 <= state.interval_s <= 2.2 * 0.04
    assert len(orders) == 4


def test_allegro_moves_when_both_pairs_agree():
    """Up: r (1 + eps), then 1 % more; down when loss falls on the faster intervals."""
    state = deciding(step=0.03)
    decide(state, up=(0.0, 0.0), down=(0.0, 0.0))
    assert state.rate_Bps == pytest.approx(1e6 * 1.03 * 1.01)
    assert (state.mode, state.step) == (allegro.ADJUSTING, 0.01)
    state = deciding()
    decide(state, up=(0.08, 0.08), down=(0.0, 0.0))
    assert state.rate_Bps == pytest.approx(1e6 * 0.99 * 0.99)


def test_allegro_tries_larger_steps_when_the_pairs_disagree():
    state = deciding()
    steps = []
    for _ in range(6):
        decide(state, up=(0.08, 0.0), down=(0.0, 0.0))
        steps.append(float(state.step))
    assert steps == pytest.approx([0.02, 0.03, 0.04, 0.05, 0.05, 0.05])
    assert state.rate_Bps == 1e6
    assert state.mode == allegro.DECIDING


def test_allegro_moves_faster_until_the_utility_falls():
    """Steps of 1, 2, 3 % while the utility grows; then back to the rate before."""
    state = deciding()
    decide(state, up=(0.0, 0.0), down=(0.0, 0.0))
    rates = [float(state.rate_Bps)]
    for _ in range(3):
        state.rate_0_Bps, state.acked_0_bytes, state.lost_0_bytes = state.rate_Bps, 1e6, 0.0
        allegro._decide.py_func(state)
        rates.append(float(state.rate_Bps))
    assert [b / a - 1 for a, b in pairwise(rates)] == pytest.approx([0.02, 0.03, 0.04])
    state.rate_0_Bps, state.acked_0_bytes, state.lost_0_bytes = state.rate_Bps, 9e5, 1e5
    allegro._decide.py_func(state)
    assert state.rate_Bps == rates[-2]
    assert state.mode == allegro.DECIDING


def test_allegro_grows_through_two_percent_of_loss():
    """[Starvation] s.5.4: it is resilient to random loss below 5 %."""
    for share, grows in ((0.02, True), (0.12, False)):
        flow = Steady(make_sender("allegro:initial_window_mss=10"), pieces=50)
        flow.step()
        flow.state.mode = allegro.DECIDING
        first = float(flow.state.rate_Bps)
        for _ in range(1500):
            size = flow.state.cwnd_bytes / flow.pieces
            flow.step()
            flow.lose(size * share / (1 - share), new_episode=0.0)
        assert (flow.state.rate_Bps > 1.2 * first) == grows
        assert (flow.state.rate_Bps < 0.9 * first) != grows


def test_allegro_fills_a_link_with_less_than_five_percent_of_loss():
    run = run_link(make_sender("allegro"), 20, buffer_packets=BDP_MSS, **LINK)
    assert run.rate_Bps(8, 20) > 0.97 * RATE_Bps
    lost = sum(size for now, size, *_ in run.losses if now > 8)
    assert 0 < lost < 0.05 * (run.rate_Bps(8, 20) * 12 + lost)


def test_allegro_starts_at_two_segments_per_round_trip():
    flow = Steady(make_sender("allegro"), pieces=20)
    flow.step()
    assert flow.state.rate_Bps == 2 * 1500 / flow.rtt_s
    assert flow.state.interval_s == pytest.approx(10 * 1500 / flow.state.rate_Bps)  # ten segments: five round trips


def test_allegro_decides_anew_after_a_timeout_at_the_same_rate():
    state = deciding(step=0.05)
    allegro.on_loss(state, loss_signal(lost_bytes=1500.0, timeout=1.0))
    assert (state.rate_Bps, state.step, state.receiving) == (1e6, 0.01, 0.0)
