"""PCC Allegro and Vivace, as in their papers and as in the Linux modules, against numbers that follow from their text by hand."""

import math
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from signals_play import MSS, RTT_S, Steady, fresh_state
from signals_play import loss as loss_signal

import ccenv
from ccenv.agents import make_sender
from ccenv.agents.classic.pcc import allegro, allegro_linux, vivace, vivace_linux
from ccenv.agents.classic.pcc import common as pcc
from ccenv.simulation.scenario import load_scenario

MBPS = 1.25e5
FIRST_Bps = 524_288.0  # of the Linux modules: 512 KiB/s


def fresh(module: ModuleType, rate_Bps: float = 1e6, **fields: float) -> Any:
    state = fresh_state(make_sender(module.__name__.rpartition(".")[2]))
    module.init(state)
    for name, value in ({"srtt_s": RTT_S, "rate_Bps": rate_Bps} | fields).items():
        state[name] = value
    return state


def distinct(values: list[float]) -> list[float]:
    """Return a list without repetitions of the value before."""
    return [value for i, value in enumerate(values) if i == 0 or value != values[i - 1]]


# Allegro.


def deciding(module: ModuleType, **fields: float) -> Any:
    state = fresh(module, **({"mode": module.DECIDING, "step": 0.01} | fields))
    module._experiment.py_func(state, 0.0)
    return state


def decide(module: ModuleType, state: Any, up: tuple[float, float], down: tuple[float, float] = (0.0, 0.0)) -> None:
    """Finish the experiment with these losses of the faster and the slower interval of each pair."""
    for i in range(4):
        loss = (up if state[f"rate_{i}_Bps"] > state.rate_Bps else down)[i // 2]
        state[f"acked_{i}_bytes"], state[f"lost_{i}_bytes"] = 1e6 * (1 - loss), 1e6 * loss
    module._decide.py_func(state)


def adjust(module: ModuleType, state: Any, loss: float) -> float:
    """Finish an interval at the rate with this loss. Return the next rate."""
    state.rate_0_Bps, state.acked_0_bytes, state.lost_0_bytes = state.rate_Bps, 1e6 * (1 - loss), 1e6 * loss
    module._decide.py_func(state)
    return float(state.rate_Bps)


UTILITIES: list[tuple[Any, tuple[float, ...], float]] = [
    # u = x (1 - L)/(1 + e^(100 (L - 0.05))) - x L: at 2 % of loss more rate is better, at 10 % less.
    (allegro.sigmoid, (0.0,), 0.5),
    (allegro.utility, (100.0, 0.0), 100 / (1 + math.exp(-5))),
    (allegro.utility, (100.0, 0.05), 100 * 0.95 * 0.5 - 5),
    (allegro.utility, (100.0, 0.06), 94 / (1 + math.e) - 6),
    # u = x^0.9 - 900 x dRTT/dT - 11.35 x L, x in Mbit/s; slopes below 0.01 are noise.
    (vivace.utility, (10 * MBPS, 0.0, 0.0), 10**0.9),
    (vivace.utility, (10 * MBPS, 0.02, 0.0), 10**0.9 - 180),
    (vivace.utility, (10 * MBPS, -0.02, 0.0), 10**0.9),  # a falling RTT earns nothing
    (vivace.utility, (10 * MBPS, 0.009, 0.0), 10**0.9),
    (vivace.utility, (10 * MBPS, 0.0, 0.1), 10**0.9 - 11.35),
    # Linear in the rate; the module rewards a falling RTT.
    (vivace_linux.utility, (1e6, 0.0, 0.0), 1e6),
    (vivace_linux.utility, (1e6, 0.1, 0.0), -89e6),
    (vivace_linux.utility, (1e6, -0.1, 0.0), 91e6),
    (vivace_linux.utility, (1e6, 0.0, 0.02), 0.78e6),
    (pcc.loss_share, (0.0, 0.0), 0.0),
    (pcc.loss_share, (98.0, 2.0), 0.02),
    (pcc.loss_share, (0.0, 5.0), 1.0),
    *[(vivace.amplifier, (float(tau),), factor) for tau, factor in ((1, 1), (2, 2), (3, 3), (4, 5), (5, 7))],
]


@pytest.mark.parametrize(("function", "arguments", "value"), UTILITIES)
def test_utilities_shares_and_amplifiers(function: Any, arguments: tuple[float, ...], value: float) -> None:
    assert function(*arguments) == pytest.approx(value)


def test_allegro_utility_gives_way_at_five_percent() -> None:
    assert allegro.utility(101.0, 0.02) > allegro.utility(100.0, 0.02)
    assert allegro.utility(101.0, 0.1) < allegro.utility(100.0, 0.1)


def test_allegro_tries_two_pairs_in_random_order() -> None:
    orders = set()
    for seed in range(40):
        state = deciding(allegro)
        state.seed, state.draws = seed, 0.0
        allegro._experiment.py_func(state, 0.0)
        rates = [float(state[f"rate_{i}_Bps"]) / 1e6 for i in range(4)]
        assert sorted(rates[:2]) == sorted(rates[2:]) == pytest.approx([0.99, 1.01])
        orders.add((rates[0] > rates[1], rates[2] > rates[3]))
        assert 1.7 * RTT_S <= state.interval_s <= 2.2 * RTT_S
    assert len(orders) == 4


@pytest.mark.parametrize(
    ("module", "step", "loss", "factors", "next_step"),
    [
        (allegro, 0.03, 0.0, (1.03, 1.01), 0.01),  # up: r (1 + eps), then 1 % more
        (allegro, 0.01, 0.08, (0.99, 0.99), 0.01),  # down when loss falls on the faster intervals
        (allegro_linux, 0.01, 0.0, (1.01, 1.02), 0.02),  # up at 1 % as before: then eps is 2 % and the first step r 1.02
        (allegro_linux, 0.01, 0.08, (0.99, 0.99), 0.01),  # down after up: 0.99, eps 1 %, 0.99
    ],
)
def test_allegro_moves_when_both_pairs_agree(module, step, loss, factors, next_step):
    state = deciding(module, step=step, **({"direction": 1.0} if module is allegro_linux else {}))
    decide(module, state, up=(loss, loss))
    assert state.rate_Bps == pytest.approx(1e6 * factors[0] * factors[1])
    assert (state.step, state.mode) == (pytest.approx(next_step), module.ADJUSTING)
    if module is allegro_linux:
        assert state.last_rate_Bps == pytest.approx(1e6 * factors[0])
        assert state.direction == math.copysign(1.0, factors[0] - 1)


@pytest.mark.parametrize("module", [allegro, allegro_linux])
def test_allegro_tries_larger_steps_when_the_pairs_disagree(module: ModuleType) -> None:
    state = deciding(module, **({"direction": 1.0} if module is allegro_linux else {}))
    steps = []
    for _ in range(6):
        decide(module, state, up=(0.08, 0.0))
        if module is allegro_linux:  # its step grows with the next experiment
            module._experiment.py_func(state, 0.0)
        steps.append(float(state.step))
    expected = [0.02, 0.03, 0.04, 0.05, 0.05, 0.05]
    assert steps == pytest.approx(expected if module is allegro else [0.01, *expected[:5]])
    assert (state.rate_Bps, state.mode) == (1e6, module.DECIDING)


@pytest.mark.parametrize(
    ("module", "step", "factors", "loss"), [(allegro, 0.01, [1.02, 1.03, 1.04], 0.1), (allegro_linux, 0.04, [1.05] * 3, 0.2)]
)
def test_allegro_moves_faster_until_the_utility_falls(module: ModuleType, step: float, factors: list[float], loss: float) -> None:
    """Steps of 1, 2, 3 % while the utility grows, as in Linux at most 5 %; then back to the rate before."""
    state = deciding(module, step=step, **({"direction": 1.0} if module is allegro_linux else {}))
    decide(module, state, up=(0.0, 0.0))
    rates = [float(state.rate_Bps), *(adjust(module, state, 0.0) for _ in factors)]
    assert [after / before for before, after in pairwise(rates)] == pytest.approx(factors)
    assert adjust(module, state, loss) == rates[-2] and (state.mode, state.step) == (module.DECIDING, 0.01)


@pytest.mark.parametrize(("share", "grows"), [(0.02, True), (0.12, False)])
def test_allegro_grows_through_two_percent_of_loss(share: float, grows: bool) -> None:
    """[Starvation] s.5.4: it is resilient to random loss below 5 %."""
    flow = Steady(make_sender("allegro:initial_window_mss=10"), pieces=50)
    flow.step()
    flow.state.mode = allegro.DECIDING
    first_Bps = float(flow.state.rate_Bps)
    for _ in range(1500):
        size = flow.state.cwnd_bytes / flow.pieces
        flow.step()
        flow.lose(size * share / (1 - share), new_episode=0.0)
    assert (flow.state.rate_Bps > 1.2 * first_Bps) == grows and (flow.state.rate_Bps < 0.9 * first_Bps) != grows


def test_allegro_starts_at_two_segments_per_round_trip() -> None:
    flow = Steady(make_sender("allegro"), pieces=20)
    flow.step()
    assert flow.state.rate_Bps == 2 * 1500 / flow.rtt_s
    assert flow.state.interval_s == pytest.approx(10 * 1500 / flow.state.rate_Bps)  # ten segments: five round trips
    assert probing(rate_Bps=10 * MSS / 1.0).state.interval_s == pytest.approx(1.0)


def test_allegro_decides_anew_after_a_timeout_at_the_same_rate() -> None:
    state = deciding(allegro, step=0.05)
    allegro.on_loss(state, loss_signal(lost_bytes=1500.0, timeout=1.0))
    assert (state.rate_Bps, state.step, state.receiving) == (1e6, 0.01, 0.0)


def test_allegro_linux_starts_at_512_KiB_per_second_and_leaves_the_starting_state_at_once() -> None:
    """An interval of an RTT delivers 512 KiB/s * 40 ms: that is added to the rate; the same loss again ends the doubling."""
    flow = Steady(make_sender("allegro_linux:initial_window_mss=40"), pieces=50)
    state = flow.state
    assert state.pacing_rate_Bps == FIRST_Bps
    flow.step()
    assert state.interval_s == pytest.approx(40 * 1500 / FIRST_Bps)  # 40 segments take longer than an RTT
    state.acked_0_bytes = 20971.52
    allegro_linux._decide.py_func(state)
    assert state.rate_Bps == pytest.approx(FIRST_Bps + 20971.52)
    allegro_linux._decide.py_func(state)
    assert (state.rate_Bps, state.mode) == (FIRST_Bps, allegro_linux.DECIDING)


def share_link(losses: tuple[float, float], seed: int, duration_s: float = 30.0) -> list[float]:
    """Return the throughputs in Mbit/s of two flows of allegro_linux with these shares of random loss."""
    scenario = load_scenario("allegro_loss").model_dump()
    for flow, loss_rate in zip(scenario["flows"], losses, strict=True):
        flow["loss_rate"] = loss_rate
    return [flow["throughput_mbps"] for flow in ccenv.simulate(scenario, seed=seed, duration_s=duration_s).summary()["flows"]]


def test_allegro_linux_starves_when_only_its_own_packets_are_lost() -> None:
    """[Starvation] s.5.4: 10.3 against 99.1 Mbit/s; without the loss the two share evenly."""
    starved, other = share_link((0.02, 0.0), seed=1)
    assert other > 5 * starved
    first, second = share_link((0.0, 0.0), seed=1)
    assert first == pytest.approx(second, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_allegro_linux_starves_with_any_seed(seed: int) -> None:
    starved, other = share_link((0.02, 0.0), seed=seed, duration_s=60.0)
    assert other > 5 * starved


@pytest.mark.slow
def test_allegro_linux_alone_grows_through_the_loss_and_two_share_it() -> None:
    """[Starvation] s.5.4: alone it fills the link, here after a minute; with the loss on both neither starves."""
    scenario = load_scenario("allegro_loss").model_dump()
    scenario["flows"], scenario["reference"] = scenario["flows"][:1], None
    result = ccenv.simulate(scenario, seed=0, duration_s=120.0)
    assert result.throughput_Bps()[-2000:, 0].mean() * 8e-6 > 80
    pair = share_link((0.02, 0.02), seed=0, duration_s=60.0)
    assert max(pair) < 2 * min(pair)


# Monitor intervals: what is sent when, and what is measured.


def probing(rate_Bps: float = 6.25e6, pieces: int = 200) -> Steady:
    """A Vivace flow at the beginning of an experiment of two intervals."""
    flow = Steady(make_sender("vivace:initial_window_mss=100"), pieces=pieces)
    flow.step()
    flow.state.mode, flow.state.rate_Bps = vivace.PROBING, rate_Bps
    vivace._experiment(flow.state, flow.now_s)
    return flow


def until_decided(flow: Steady, **signal: float) -> float:
    """Take ACKs until the rate changes. Return it over the rate before."""
    rate_Bps = float(flow.state.rate_Bps)
    while flow.state.rate_Bps == rate_Bps:
        flow.step(**signal)
    return float(flow.state.rate_Bps) / rate_Bps


def test_intervals_are_sent_one_after_the_other_and_results_awaited():
    """Two intervals of one RTT at 1.05 and 0.95 of the rate, in either order; then the base rate until all is heard of."""
    flow = probing()
    state, start_s = flow.state, flow.now_s
    rate_Bps, rates = float(state.rate_Bps), []
    while state.rate_Bps == rate_Bps:
        rates.append(float(state.pacing_rate_Bps) / rate_Bps)
        flow.step()
    order = distinct(rates)
    assert sorted(order[:2]) == pytest.approx([0.95, 1.05]) and order[2:] == pytest.approx([1.0])
    assert [rates.count(rate) for rate in order[:2]] == pytest.approx([flow.pieces] * 2, abs=1)
    assert flow.now_s - start_s == pytest.approx(3 * RTT_S, rel=0.02)


@pytest.mark.parametrize("slope", [0.2, -0.1, 0.001, 0.0])
def test_rtt_slope_is_that_of_the_regression(slope):
    """RTT = RTT0 + slope * send time: at now the byte sent at s = now - RTT is heard of."""
    flow = probing()
    while flow.state.receiving < 1:
        now_s = flow.now_s + RTT_S / flow.pieces
        flow.step(rtt_s=(RTT_S + slope * now_s) / (1 + slope))
    assert flow.state.slope_0 == pytest.approx(slope, rel=1e-6) and flow.state.lost_0_bytes == 0.0


@pytest.mark.parametrize("lost_in", [0, 1])
def test_a_loss_belongs_to_the_interval_in_which_it_was_sent(lost_in):
    """It is found when three later segments are acknowledged: what ACKs of up to three segments bring is charged before."""
    flow = probing(pieces=400)  # a signal acknowledges a fraction of a segment
    state = flow.state
    while state.receiving <= lost_in:
        flow.step()
    assert state.settling == lost_in
    flow.lose(MSS, new_episode=0.0)  # the last segment of the interval
    assert (state.lost_0_bytes, state.lost_1_bytes) == ((MSS, 0.0) if lost_in == 0 else (0.0, MSS))
    if lost_in == 0:
        while state.settling == 0:
            flow.step()
        assert state.sum_acked_bytes == pytest.approx(3 * MSS, abs=2 * state.cwnd_bytes / flow.pieces)


def test_losses_of_before_an_experiment_and_a_limited_one_decide_nothing():
    flow = probing(pieces=400)
    while flow.state.sum_acked_bytes == 0.0:
        flow.lose(MSS, new_episode=0.0)
        flow.step()
    flow.lose(MSS, new_episode=0.0)
    assert flow.state.lost_0_bytes == 0.0
    flow = probing()
    start_s, rate_Bps = float(flow.state.edge_0_s), float(flow.state.rate_Bps)
    while flow.state.edge_0_s == start_s:
        flow.step(app_limited=1.0)
    assert flow.state.rate_Bps == rate_Bps


@pytest.mark.parametrize(("sent", "kept"), [(0.9, None), (0.7, 0.7), (0.3, 0.5)])
def test_an_experiment_that_could_not_be_sent_lowers_the_rate(sent, kept):
    """Below three quarters of what was planned the rate becomes what was sent, at least half; above, the gradient decides."""
    flow = probing()
    rate_Bps = float(flow.state.rate_Bps)
    while flow.state.rate_Bps == rate_Bps:
        # What is heard of now was sent an RTT ago: the interval being received tells at which rate.
        planned_Bps = flow.state.rate_0_Bps if flow.state.receiving == 0 else flow.state.rate_1_Bps
        flow.step(acked_bytes=sent * planned_Bps * RTT_S / flow.pieces)
    if kept is None:
        assert abs(flow.state.rate_Bps / rate_Bps - 1) <= 0.05
    else:
        assert flow.state.rate_Bps / rate_Bps == pytest.approx(kept, rel=0.02)


def test_a_timeout_halves_the_rate():
    flow = probing()
    rate_Bps = float(flow.state.rate_Bps)
    flow.lose(timeout=1.0)
    assert flow.state.rate_Bps == rate_Bps / 2


# Vivace.


def test_vivace_follows_the_gradient():
    """Constant RTT, no loss, 50 Mbit/s: the gradient is (52.5^0.9 - 47.5^0.9)/5 = 0.608 Mbit/s, then twice that, and so on."""
    flow = probing(rate_Bps=50 * MBPS)
    expected = 50.0
    for factor in (1, 2, 3, 5):
        gradient = ((1.05 * expected) ** 0.9 - (0.95 * expected) ** 0.9) / (0.1 * expected)
        expected += min(factor * gradient, 0.05 * expected)  # the bound binds in the fourth round: 3.02 against 2.68
        until_decided(flow)
        assert flow.state.rate_Bps / MBPS == pytest.approx(expected)


def followed(rates, gradients):
    state = fresh(vivace, rates)
    out = []
    for gradient in gradients:
        before = float(state.rate_Bps)
        vivace.follow.py_func(state, gradient)
        out.append(float(state.rate_Bps) / before - 1)
    return out


@pytest.mark.parametrize(
    ("gradients", "steps"),
    [
        # At most 5 % at first, 10 points more for each bound that binds again, 5 % anew after a turn.
        ([100.0] * 3 + [-100.0] * 2, [0.05, 0.15, 0.25, -0.05, -0.15]),
        # After 5, 15 % a change of 3 * 0.1 Mbit/s of 12.1 (2.5 %) needs no raised bound: the next is 5 % again.
        ([100.0, 100.0, 0.1, 100.0], [0.05, 0.15, 0.3 / (10 * 1.05 * 1.15), 0.05]),
    ],
)
def test_vivace_bounds_a_change(gradients, steps):
    assert followed(10 * MBPS, gradients) == pytest.approx(steps)


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
    order = distinct(rates)
    assert order[:-1] == [2.0**i for i in range(len(order) - 1)] and order[-1] == max(order) / 2 >= 2


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


@pytest.mark.parametrize("faster_first", [True, False])
def test_vivace_measures_again_when_faster_seems_to_be_better(faster_first):
    """A slower interval in which the RTT rises more decides nothing by itself."""
    state = fresh(vivace, 10 * MBPS, mode=vivace.PROBING)
    outcome(state, slopes=(0.0, 0.1), faster_first=faster_first)
    assert (state.rate_Bps, state.checking) == (10 * MBPS, 1.0)
    outcome(state, slopes=(0.1, 0.0), faster_first=faster_first)  # the second look says: slower
    assert state.rate_Bps == pytest.approx(9.5 * MBPS) and state.checking == 0.0


def test_vivace_takes_the_mean_of_two_outcomes_that_make_no_sense():
    """Slopes of 1.1 and 1.3 % at 9.5 Mbit/s, none at 10.5: the mean gradient is thousands of Mbit/s, so the bound binds: 5 %."""
    state = fresh(vivace, 10 * MBPS, mode=vivace.PROBING)
    outcome(state, slopes=(0.0, 0.011))
    doubted = float(state.doubted_gradient)
    assert doubted == pytest.approx(10.5**0.9 - 9.5**0.9 + 900 * 9.5 * 0.011)
    outcome(state, slopes=(0.0, 0.013))
    assert state.rate_Bps / MBPS == pytest.approx(10.5)


@pytest.mark.parametrize(
    ("slopes", "losses"),
    [
        ((0.0, 0.0), (0.0, 0.02)),  # random losses fall where they like: 2 % at 9.5 Mbit/s, none at 10.5; the bound of 5 % binds
        ((-0.009, 0.009), (0.0, 0.0)),  # slopes that are noise
    ],
)
def test_vivace_does_not_doubt_losses_nor_noise(slopes, losses):
    state = fresh(vivace, 10 * MBPS, mode=vivace.PROBING)
    outcome(state, slopes=slopes, losses=losses)
    assert state.checking == 0.0
    assert state.rate_Bps > 10 * MBPS and (losses[1] == 0 or state.rate_Bps / MBPS == pytest.approx(10.5))


def test_vivace_uses_a_link_with_random_loss():
    """2 % of loss cost less than x^0.9 gains: 11.35 x L = 0.227 x."""
    link = {"links": [{"rate_mbps": 100, "buffer_bdp": 1}], "flows": [{"sender": "vivace", "rtt_ms": 40, "loss_rate": 0.02}]}
    summary = ccenv.simulate({"duration_s": 40, "warmup_s": 15, **link}).summary()
    assert summary["links"][0]["utilisation"] > 0.8


def test_vivace_linux_bound_rises_while_it_binds_and_its_amplifier_in_one_direction() -> None:
    """At most 10 %, then 17 and 24 % of the rate; 10 % again after a step that it allows."""
    state = fresh(vivace_linux, mode=vivace_linux.MOVING)
    steps = [vivace_linux.bounded_step.py_func(state, step) / 1e6 for step in (9e6, 9e6, -9e6, 1e4, 9e6)]
    assert steps == pytest.approx([0.1, 0.17, -0.24, 0.01, 0.1])
    state = fresh(vivace_linux, mode=vivace_linux.MOVING)
    state.last_rate_Bps = 0.9e6
    seen = []
    for up in (True, True, False, True, True):
        vivace_linux._set_amplifier.py_func(state, up)
        seen.append(float(state.amplifier))
    assert seen == [3, 4, 2, 2, 3]


@pytest.mark.parametrize(("utilities", "moved"), [((9, 1, 9, 1), 1.05), ((1, 9, 1, 9), 0.95), ((9, 1, 1, 9), 1.0)])
def test_vivace_linux_trials_must_agree(utilities: tuple[float, ...], moved: float) -> None:
    state = fresh(vivace_linux, mode=vivace_linux.PROBING)
    state.rate_0_Bps = state.rate_2_Bps = 1.05e6
    state.rate_1_Bps = state.rate_3_Bps = 0.95e6
    state.utility_0, state.utility_1, state.utility_2, state.utility_3 = utilities
    vivace_linux._decide_trials.py_func(state)
    assert state.rate_Bps == pytest.approx(moved * 1e6)
    assert state.mode == (vivace_linux.PROBING if moved == 1.0 else vivace_linux.MOVING)


def test_vivace_linux_follows_the_gradient_up_and_tries_anew_after_a_step_down() -> None:
    """50 kB/s more earned 50,000 more: a gradient of 1, 25 kB/s times the amplifier of 3; less than that, 2.2 %."""
    state = fresh(vivace_linux, 2e6, mode=vivace_linux.MOVING)
    state.last_rate_Bps, state.utility_0 = 1.95e6, 1.95e6
    vivace_linux._decide_moving.py_func(state, 2e6)
    assert state.rate_Bps == pytest.approx(2e6 + 75e3) and state.mode == vivace_linux.MOVING
    vivace_linux._decide_moving.py_func(state, 1.0e6)  # it earned far less
    assert state.rate_Bps == pytest.approx(0.9 * 2.075e6) and state.mode == vivace_linux.PROBING
    close = fresh(vivace_linux, 2e6, mode=vivace_linux.MOVING)
    close.last_rate_Bps, close.utility_0 = 2e6, 2e6
    vivace_linux._decide_moving.py_func(close, 2e6)
    assert close.rate_Bps == pytest.approx(1.022 * 2e6)


def test_vivace_linux_grows_by_half_until_the_utility_falls() -> None:
    flow = Steady(make_sender("vivace_linux"), pieces=40)
    rates = []
    for i in range(900):
        flow.step(rtt_s=flow.rtt_s * (1.0 + max(0.0, 0.004 * (i - 400))))
        rates.append(float(flow.state.rate_Bps) / FIRST_Bps)
        if flow.state.mode != vivace_linux.STARTING:
            break
    order = distinct(rates)
    assert order[:-1] == pytest.approx([1.5**i for i in range(len(order) - 1)])
    assert order[-1] == pytest.approx(order[-3]) and len(order) > 4


@pytest.mark.parametrize(("rate_mbps", "rtt_ms", "loss"), [(12, 40, 0.0), (100, 40, 0.0), (100, 40, 0.02)])
def test_vivace_linux_fills_a_link_with_a_short_queue(rate_mbps: float, rtt_ms: float, loss: float) -> None:
    flow = {"sender": "vivace_linux", "rtt_ms": rtt_ms, "loss_rate": loss}
    links = [{"rate_mbps": rate_mbps, "buffer_bdp": 1}]
    (link,) = ccenv.simulate({"duration_s": 40, "warmup_s": 15, "links": links, "flows": [flow]}).summary()["links"]
    assert link["utilisation"] > 0.9 and link["queue_packets"] * MSS < 0.2 * rate_mbps * 125 * rtt_ms


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_acks_in_bursts_starve_vivace_linux_as_in_the_paper(seed: int) -> None:
    """[Starvation] s.5.3: 9.9 : 99.4 Mbit/s."""
    summary = ccenv.simulate("vivace_ack_60ms", seed=seed).summary()
    assert 5 <= summary["ratio"] <= 20 and summary["flows"][0]["throughput_mbps"] < summary["flows"][1]["throughput_mbps"]
