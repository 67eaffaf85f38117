"""The papers' predictions by hand and by their own limits."""

import math

import pytest

from ccenv.base.errors import InputError, UnknownNameError
from ccenv.benchmarks.suite import theory


def test_the_detectors_root_solves_equation_8() -> None:
    for r in (1.01, 1.5, 2.0, 10.0):
        a = theory.detector_root(r)
        assert 0 < a < 1
        assert 1 - a == pytest.approx(math.exp(-a * r), abs=1e-12)
    with pytest.raises(InputError, match="must be above 1"):
        theory.detector_root(1.0)


def test_false_positives_are_those_of_the_process_of_equation_7() -> None:
    """Simulate the reflected random walk that theorem 1 is about: up at rate 1, down by c at Poisson events."""
    import numpy as np

    tarp, r, mincwnd, bound = 0.01, 1.5, 2.0, 30.0
    generator = np.random.Generator(np.random.Philox(1))
    gaps = generator.exponential(1 / (mincwnd * tarp * r), 400_000)
    drop, level, above, total = 1 / (mincwnd * tarp), -bound, 0.0, 0.0
    for gap in gaps:
        above += max(0.0, min(gap, level + gap - mincwnd))
        total += gap
        level = max(level + gap - drop, -bound)
    assert above / total == pytest.approx(theory.false_positives(bound, r, tarp, mincwnd), rel=0.03)


def test_the_guideline_is_the_inverse() -> None:
    """[4CP] eq. (9) sets wndbnd for a share f; theorem 1 with that bound gives f back up to mincwnd."""
    tarp, r, f = 0.001, 2.0, 0.05
    wndbnd = math.log(1 / f) / (2 * tarp * theory.detector_root(r) * r)
    assert theory.false_positives(wndbnd - 2, r, tarp) == pytest.approx(f)


@pytest.mark.parametrize("n", [1, 2, 4, 7, 9, 16])
def test_the_gain_is_reached_at_the_extremal_phases_and_nowhere_exceeded(n: int) -> None:
    bound = theory.throughput_gain_bound(n)
    for idle in [*(i / 50 for i in range(1, 50)), theory.extremal_idle_share(n)]:
        shares = [idle] + [0.0] * (n - 1) + [1 - idle]
        fourcp, tcp = theory.phases_equilibrium(shares, 1, 1)
        assert fourcp / tcp <= bound * (1 + 1e-9)
    assert fourcp / tcp == pytest.approx(bound)
    assert theory.throughput_gain_bound(4) == 1.25


def test_phases_by_hand() -> None:
    # Half the time alone with one TCP, half with two more: x = (1/2)((1 - x) + (1 - 3x)) = 1 - 2x, so x = 1/3; in phase 2 the
    # three TCP flows have 1/3 each, just the target.
    fourcp, tcp = theory.phases_equilibrium([0.5, 0.0, 0.5], 1, 1)
    assert fourcp == pytest.approx(1 / 3)
    assert tcp == pytest.approx(1 / 3)


def test_two_phase_limits() -> None:
    """[4CP] s.4.3.1: all TCP gets c/m for small and c/(n + m) for large load, and so does all 4CP."""
    for n, m in ((10, 5), (5, 10)):
        assert theory.two_phase_rates(n, m, 0, 1e-9)[1] == pytest.approx(1 / m)
        assert theory.two_phase_rates(n, m, 0, 1e9)[1] == pytest.approx(1 / (n + m))
        assert theory.two_phase_rates(n, m, m, 1e-9)[0] == pytest.approx(1 / m)
        assert theory.two_phase_rates(n, m, m, 1e6)[0] == pytest.approx(1 / (n + m), rel=1e-5)
    # (10, 5): bad up to a = 1/5 - 1/10, where both cases agree.
    below, above = theory.two_phase_rates(10, 5, 5, 0.1 - 1e-9)[0], theory.two_phase_rates(10, 5, 5, 0.1 + 1e-9)[0]
    assert below == pytest.approx(1 / (5 + 5), rel=1e-6)
    assert above == pytest.approx(below, rel=1e-6)


def test_response_times() -> None:
    assert theory.response_time(10, 5, 0, 0.05) == 15
    assert theory.response_time(10, 5, 5, 0.05) == 10 == theory.low_priority_response_time(10)
    assert theory.response_time(10, 10, 10, 1e-6) == pytest.approx(10, rel=1e-3)  # half of all TCP: proposition 1
    for n, m in ((10, 5), (5, 10), (10, 10), (3, 17)):
        for a in (1e-4, 0.01, 0.1, 1.0):
            assert theory.response_time(n, m, m, a) >= theory.best_response_time(n, m, m) * (1 - 1e-9)
            assert theory.response_time(n, m, m, a) >= 0.5 * theory.response_time(n, m, 0, a) * (1 - 1e-9)


def test_a_period_leaves_what_the_response_does_not_take() -> None:
    r = theory.response_time_of_period(60, 5, 10, 10, alone_s=1)
    assert r == pytest.approx(theory.response_time(5, 10, 10, 1 / (60 - r)))
    assert math.isnan(theory.response_time_of_period(10, 10, 5, 0, alone_s=1))


def test_starvation_closed_forms() -> None:
    assert theory.queue_keeper_delay_s(1.5e6, 0.1, 3000) == pytest.approx(0.102)
    assert theory.vegas_figure_of_merit(0.3, 0.1, 0.01, 2) == pytest.approx(10)
    # [Starvation] s.6.3: D = 10 ms, Rm ignored, Rmax = 100 ms and s = 2 give 2^9 of the exponential map.
    assert theory.exponential_figure_of_merit(0.1, 0.0, 0.01, 2) == pytest.approx(512)


def test_windows_and_references() -> None:
    assert theory.tcp_window_mss(0.0017, 2) == pytest.approx(21.0, abs=0.01)
    # [4CP] s.5.1: target losses of 0.0003, 0.000618, 0.0017 and target rates of 2.3805, 1.6586, 1 Mbit/s
    for tarp, rate in ((0.0003, 2.3805), (0.000618, 1.6586)):
        assert theory.tcp_window_mss(tarp) / theory.tcp_window_mss(0.0017) == pytest.approx(rate, abs=1e-4)
    assert theory.reference_rate(2, 1.0, 10) == 1.0
    assert theory.reference_rate(20, 1.0, 10) == 0.5


def test_evaluate_takes_what_it_needs() -> None:
    assert theory.evaluate("throughput_gain_bound", {"n": 4, "case": "x"}) == 1.25
    assert theory.evaluate("throughput_gain_bound", {"m": 4}) is None
    assert theory.evaluate("false_positives", {"wndbnd_mss": 1, "loss_ratio": 0.5, "tarp": 0.1}) is None
    with pytest.raises(UnknownNameError, match="Did you mean 'response_time'"):
        theory.evaluate("respons_time", {})
