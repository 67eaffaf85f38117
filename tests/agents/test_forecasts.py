"""Senders that forecast: Sprout against the grid of its paper and drawn paths, Verus' profile, Proteus, the packet train."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ccenv
from ccenv.agents.classic import sprout, verus
from ccenv.agents.classic.pcc import proteus, vivace

VOLATILITY, TICK_S, BINS = 200.0, 0.02, np.linspace(0.0, 1000.0, 256)


def grid_step(belief: np.ndarray, count: float) -> np.ndarray:
    """A tick of NSDI 2013 s.3.2: Brownian motion over the bins (reflected at the ends by renormalising), then the count."""
    spread = VOLATILITY * math.sqrt(TICK_S)
    motion = np.exp(-0.5 * ((BINS[:, None] - BINS[None, :]) / spread) ** 2)
    belief = (motion / motion.sum(axis=0)) @ belief
    expected = np.maximum(BINS * TICK_S, 1e-9)
    belief *= np.exp(count * np.log(expected) - expected - math.lgamma(count + 1.0))
    return belief / belief.sum()


@pytest.mark.parametrize(("rate_pps", "mean_error"), [(150.0, 0.08), (400.0, 0.02), (700.0, 0.02)])  # the grid ends at 0
def test_sprout_believes_what_the_grid_of_the_paper_believes(rate_pps: float, mean_error: float) -> None:
    rng = np.random.default_rng(round(rate_pps))
    belief, rate, variance = np.full(256, 1 / 256), sprout.FIRST_MEAN, sprout.FIRST_VARIANCE
    errors = []
    for tick in range(150):
        count = float(rng.poisson(rate_pps * TICK_S))
        belief = grid_step(belief, count)
        rate, variance = sprout.update.py_func(rate, variance, VOLATILITY, count, 1.0)
        if tick >= 20:
            mean = belief @ BINS
            errors.append((rate / mean, math.sqrt(variance / (belief @ (BINS - mean) ** 2))))
    means, deviations = np.array(errors).T
    assert means.mean() == pytest.approx(1, abs=mean_error)
    assert np.quantile(abs(means - 1), 0.9) < 6 * mean_error and deviations.mean() == pytest.approx(1, abs=0.1)


def test_a_count_of_an_empty_queue_only_raises_the_belief() -> None:
    full = sprout.update.py_func(500.0, 6000.0, VOLATILITY, 2.0, 1.0)
    least = sprout.update.py_func(500.0, 6000.0, VOLATILITY, 2.0, 0.0)
    many = sprout.update.py_func(500.0, 6000.0, VOLATILITY, 20.0, 0.0)
    assert full[0] < 500.0 <= least[0] < many[0] and full[1] < least[1] <= 6000.0 + VOLATILITY**2 * TICK_S


@pytest.mark.parametrize(("rate", "deviation", "ahead_s"), [(900.0, 80.0, 0.14), (300.0, 60.0, 0.2), (500.0, 200.0, 0.1)])
def test_sprout_forecasts_what_19_of_20_drawn_paths_deliver(rate: float, deviation: float, ahead_s: float) -> None:
    rng = np.random.default_rng(1)
    step_s, n = 0.002, 20_000
    start = rng.gamma((rate / deviation) ** 2, deviation**2 / rate, (n, 1))
    moves = rng.normal(0.0, VOLATILITY * math.sqrt(step_s), (n, round(ahead_s / step_s)))
    counts = rng.poisson(np.maximum(start + np.cumsum(moves, axis=1), 0.0).sum(axis=1) * step_s)
    z = sprout.normal_quantile.py_func(0.05)
    assert z == pytest.approx(-1.6448536, abs=1e-6)
    ours = sprout.forecast_mss.py_func(rate, deviation**2, VOLATILITY, ahead_s, z)
    assert ours == pytest.approx(np.quantile(counts, 0.05), rel=0.08, abs=1)


def test_verus_reads_its_profile_both_ways() -> None:
    """A link of 1000 segments/s and Rm 32 ms: 32 ms up to 32 segments, then a millisecond per segment."""
    knots = tuple(max(0.032, 2.0**i / 1000) if i <= 8 else 0.0 for i in range(verus.N_KNOTS))
    for window_mss, delay_s in ((10, 0.032), (32, 0.032), (48, 0.048), (200, 0.2)):
        assert verus.delay_of.py_func(knots, window_mss) == pytest.approx(delay_s)
    for delay_s, window_mss in ((0.04, 40), (0.1, 100), (0.256, 256), (0.3, 300), (9.0, 512), (0.01, 1)):
        assert verus.window_of.py_func(knots, delay_s) == pytest.approx(window_mss)
    assert verus.window_of.py_func((0.0,) * verus.N_KNOTS, 0.1) == 2.0
    assert verus.window_of.py_func((0.03,) * 3 + (0.0,) * 13, 0.1) == 8.0


def test_proteus_scavenger_pays_for_a_delay_that_moves() -> None:
    """SIGCOMM 2020 s.4: u_S = u_P - 1500 x sigma, x in Mbit/s: 2 ms at 10 Mbit/s cost 30."""
    primary, scavenger = (proteus.utility.py_func(kind, 1.25e6, 0.0, 0.002, 1e6, 1e4) for kind in (0.0, 1.0))
    assert primary == vivace.utility.py_func(1.25e6, 0.0, 1e4 / 1.01e6) and primary - scavenger == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("rate_mbps", "spec", "jitter", "least", "most"),
    [
        *[(rate_mbps, "packet_train", {}, 0.97, 1.002) for rate_mbps in (3.0, 48.0, 768.0)],
        (48.0, "packet_train:train_mss=100,trains=10", {"kind": "batch", "max_ms": 2}, 0.75, 1.002),  # drawn: it averages out
        (48.0, "packet_train:train_mss=100,trains=10", {"kind": "interval", "max_ms": 40, "interval_ms": 40}, 0.0, 0.6),  # chosen
    ],
)
def test_a_packet_train_finds_any_rate_at_once_unless_jitter_is_chosen(rate_mbps, spec, jitter, least, most):
    flow = {"sender": spec, "rtt_ms": 40} | ({"jitter": jitter} if jitter else {})
    scene = {
        "duration_s": 4, "warmup_s": 2, "seed": 3, "links": [{"rate_mbps": rate_mbps, "buffer_packets": 200}], "flows": [flow],
    }  # fmt: skip
    summary = ccenv.simulate(scene).summary()
    assert least <= summary["links"][0]["utilisation"] <= most
