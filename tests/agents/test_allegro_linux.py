"""PCC Allegro as in the Linux module: its steps, and the starvation that [Starvation] measured with it."""

import numpy as np
import pytest
from signals_play import fresh_state
from steady_flow import RTT_S, Steady

import ccenv
from ccenv.agents import make_sender
from ccenv.agents.classic.pcc import allegro_linux
from ccenv.simulation.scenario import load_scenario


def deciding(step=0.01, direction=1.0):
    state = fresh_state(make_sender("allegro_linux"))
    allegro_linux.init(state)
    state.srtt_s, state.rate_Bps, state.mode, state.step, state.direction = RTT_S, 1e6, allegro_linux.DECIDING, step, direction
    allegro_linux._experiment.py_func(state, 0.0)
    return state


def finish(state, up, down):
    """Finish a decision with these losses of the faster and the slower interval of each pair."""
    for i in range(4):
        loss = (up if state[f"rate_{i}_Bps"] > state.rate_Bps else down)[i // 2]
        state[f"acked_{i}_bytes"], state[f"lost_{i}_bytes"] = 1e6 * (1 - loss), 1e6 * loss
    allegro_linux._decide.py_func(state)


def adjust(state, loss):
    state.rate_0_Bps, state.acked_0_bytes, state.lost_0_bytes = state.rate_Bps, 1e6 * (1 - loss), 1e6 * loss
    allegro_linux._decide.py_func(state)


def test_allegro_linux_starts_at_512_KiB_per_second_and_leaves_the_starting_state_at_once():
    """An interval of an RTT delivers 512 KiB/s * 40 ms: that is added to the rate; the same loss again ends the doubling."""
    flow = Steady(make_sender("allegro_linux:initial_window_mss=40"), pieces=50)
    state = flow.state
    assert state.pacing_rate_Bps == 524288.0
    flow.step()
    assert state.interval_s == pytest.approx(40 * 1500 / 524288)  # 40 segments take longer than an RTT
    state.acked_0_bytes = 20971.52
    allegro_linux._decide.py_func(state)
    assert state.rate_Bps == pytest.approx(524288 + 20971.52)
    allegro_linux._decide.py_func(state)
    assert (state.rate_Bps, state.mode) == (524288.0, allegro_linux.DECIDING)


def test_allegro_linux_grows_its_step_with_every_decision_like_the_last():
    """Up at 1 % as before: r 1.01, then eps is 2 % and the first step r 1.02; down after up: 0.99, eps 1 %, 0.99."""
    state = deciding(direction=1.0)
    finish(state, up=(0.0, 0.0), down=(0.0, 0.0))
    assert (state.rate_Bps, state.last_rate_Bps) == (pytest.approx(1e6 * 1.01 * 1.02), pytest.approx(1e6 * 1.01))
    assert (state.step, state.mode) == (0.02, allegro_linux.ADJUSTING)
    state = deciding(direction=1.0)
    finish(state, up=(0.08, 0.08), down=(0.0, 0.0))
    assert state.rate_Bps == pytest.approx(1e6 * 0.99 * 0.99)
    assert state.direction == -1.0


def test_allegro_linux_tries_larger_steps_while_undecided():
    state = deciding()
    steps = []
    for _ in range(6):
        finish(state, up=(0.08, 0.0), down=(0.0, 0.0))
        allegro_linux._experiment.py_func(state, 0.0)
        steps.append(float(state.step))
    assert steps == pytest.approx([0.01, 0.02, 0.03, 0.04, 0.05, 0.05])
    assert state.rate_Bps == 1e6


def test_allegro_linux_adjusts_by_at_most_five_percent_and_steps_back():
    state = deciding(step=0.04)
    finish(state, up=(0.0, 0.0), down=(0.0, 0.0))
    rates = [float(state.rate_Bps)]
    for _ in range(3):
        adjust(state, 0.0)
        rates.append(float(state.rate_Bps))
    assert np.diff(np.log(rates)) == pytest.approx(np.log([1.05] * 3))
    adjust(state, 0.2)
    assert (state.rate_Bps, state.step, state.mode) == (rates[-2], 0.01, allegro_linux.DECIDING)


def run(losses, seed, duration_s=30.0):
    scenario = load_scenario("allegro_loss").model_dump()
    for flow, loss_rate in zip(scenario["flows"], losses, strict=True):
        flow["loss_rate"] = loss_rate
    return [flow["throughput_mbps"] for flow in ccenv.simulate(scenario, seed=seed, duration_s=duration_s).summary()["flows"]]


def test_allegro_linux_starves_when_only_its_own_packets_are_lost():
    """[Starvation] s.5.4: 10.3 against 99.1 Mbit/s; without the loss the two share evenly."""
    starved, other = run((0.02, 0.0), seed=1)
    assert other > 5 * starved
    first, second = run((0.0, 0.0), seed=1)
    assert first == pytest.approx(second, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_allegro_linux_starves_with_any_seed(seed):
    starved, other = run((0.02, 0.0), seed=seed, duration_s=60.0)
    assert other > 5 * starved


@pytest.mark.slow
def test_allegro_linux_alone_grows_through_the_loss_and_two_share_it():
    """[Starvation] s.5.4: alone it fills the link, here after a minute; with the loss on both neither starves."""
    scenario = load_scenario("allegro_loss").model_dump()
    scenario["flows"], scenario["reference"] = scenario["flows"][:1], None
    result = ccenv.simulate(scenario, seed=0, duration_s=120.0)
    late = result.throughput_Bps()[-2000:, 0].mean() * 8e-6
    assert late > 80
    pair = run((0.02, 0.02), seed=0, duration_s=60.0)
    assert max(pair) < 2 * min(pair)
