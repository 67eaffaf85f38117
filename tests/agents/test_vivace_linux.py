"""PCC Vivace as in the Linux module, against numbers that follow from its text by hand."""

from __future__ import annotations

import pytest
from signals_play import fresh_state
from steady_flow import MSS, Steady

import ccenv
from ccenv.agents import make_sender
from ccenv.agents.classic.pcc import vivace_linux as module

FIRST_Bps = 524_288.0


def made(mode: float = module.MOVING, rate_Bps: float = 1e6):
    state = fresh_state(make_sender("vivace_linux"))
    module.init(state)
    state.mode, state.rate_Bps, state.srtt_s = mode, rate_Bps, 0.04
    return state


def test_utility_is_linear_in_the_rate() -> None:
    assert module.utility(1e6, 0.0, 0.0) == 1e6
    assert module.utility(1e6, 0.1, 0.0) == pytest.approx(-89e6)
    assert module.utility(1e6, -0.1, 0.0) == pytest.approx(91e6)  # the module rewards a falling RTT
    assert module.utility(1e6, 0.0, 0.02) == pytest.approx(0.78e6)


def test_bound_rises_while_it_binds() -> None:
    """At most 10 %, then 17 and 24 % of the rate; 10 % again after a step that it allows."""
    state = made()
    steps = [module.bounded_step.py_func(state, step) / 1e6 for step in (9e6, 9e6, -9e6, 1e4, 9e6)]
    assert steps == pytest.approx([0.1, 0.17, -0.24, 0.01, 0.1])


def test_amplifier_rises_in_one_direction_and_a_turn_delays_it() -> None:
    state = made()
    state.last_rate_Bps = 0.9e6
    seen = []
    for up in (True, True, False, True, True):
        module._set_amplifier.py_func(state, up)
        seen.append(float(state.amplifier))
    assert seen == [3, 4, 2, 2, 3]


@pytest.mark.parametrize(("utilities", "moved"), [((9, 1, 9, 1), 1.05), ((1, 9, 1, 9), 0.95), ((9, 1, 1, 9), 1.0)])
def test_trials_must_agree(utilities: tuple[float, ...], moved: float) -> None:
    state = made(module.PROBING)
    state.rate_0_Bps = state.rate_2_Bps = 1.05e6
    state.rate_1_Bps = state.rate_3_Bps = 0.95e6
    state.utility_0, state.utility_1, state.utility_2, state.utility_3 = utilities
    module._decide_trials.py_func(state)
    assert state.rate_Bps == pytest.approx(moved * 1e6)
    assert state.mode == (module.PROBING if moved == 1.0 else module.MOVING)


def test_moving_follows_the_gradient_up_and_tries_anew_after_a_step_down() -> None:
    """50 kB/s more earned 50,000 more: a gradient of 1, 25 kB/s times the amplifier of 3; less than that, 2.2 %."""
    state = made(rate_Bps=2e6)
    state.last_rate_Bps, state.utility_0 = 1.95e6, 1.95e6
    module._decide_moving.py_func(state, 2e6)
    assert state.rate_Bps == pytest.approx(2e6 + 75e3)
    assert state.mode == module.MOVING
    module._decide_moving.py_func(state, 1.0e6)  # it earned far less
    assert state.rate_Bps == pytest.approx(0.9 * 2.075e6)
    assert state.mode == module.PROBING
    close = made(rate_Bps=2e6)
    close.last_rate_Bps, close.utility_0 = 2e6, 2e6
    module._decide_moving.py_func(close, 2e6)
    assert close.rate_Bps == pytest.approx(1.022 * 2e6)


def test_start_grows_by_half_until_the_utility_falls() -> None:
    flow = Steady(make_sender("vivace_linux"), pieces=40)
    rates = []
    for i in range(900):
        flow.step(rtt_s=flow.rtt_s * (1.0 + max(0.0, 0.004 * (i - 400))))
        rates.append(float(flow.state.rate_Bps) / FIRST_Bps)
        if flow.state.mode != module.STARTING:
            break
    order = [rate for i, rate in enumerate(rates) if i == 0 or rate != rates[i - 1]]
    assert order[:-1] == pytest.approx([1.5**i for i in range(len(order) - 1)])
    assert order[-1] == pytest.approx(order[-3])
    assert len(order) > 4


@pytest.mark.parametrize(("rate_mbps", "rtt_ms", "loss"), [(12, 40, 0.0), (100, 40, 0.0), (100, 40, 0.02)])
def test_it_fills_a_link_with_a_short_queue(rate_mbps: float, rtt_ms: float, loss: float) -> None:
    flow = {"sender": "vivace_linux", "rtt_ms": rtt_ms, "loss_rate": loss}
    links = [{"rate_mbps": rate_mbps, "buffer_bdp": 1}]
    (link,) = ccenv.simulate({"duration_s": 40, "warmup_s": 15, "links": links, "flows": [flow]}).summary()["links"]
    assert link["utilisation"] > 0.9
    assert link["queue_packets"] * MSS < 0.2 * rate_mbps * 125 * rtt_ms


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_acks_in_bursts_starve_it_as_in_the_paper(seed: int) -> None:
    """[Starvation] s.5.3: 9.9 : 99.4 Mbit/s."""
    summary = ccenv.simulate("vivace_ack_60ms", seed=seed).summary()
    assert 5 <= summary["ratio"] <= 20
    assert summary["flows"][0]["throughput_mbps"] < summary["flows"][1]["throughput_mbps"]
