"""Metrics against numbers worked out by hand."""

import math
import re
from functools import partial
from pathlib import Path as FilePath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccenv.base.errors import InputError, UnknownNameError
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.metrics import measures
from ccenv.network.metrics.table import METRICS, OF_RUN, OF_TRACE, measure
from ccenv.network.metrics.trace import Window, quantile_of_segments
from ccenv.network.path import FlowPath, Path, make_path
from ccenv.network.trace import Trace, TraceHeader


def by_hand(sent: list, delivered: list, lost: list | None = None, rtts_s: tuple[float, ...] = (1.0,)) -> Trace:
    """A trace on a link of 1000 bytes/s with steps of one second; curves are cumulative, one column per flow."""
    path = Path(link_rate_Bps=1000.0, flows=tuple(FlowPath(rtt_s=rtt_s) for rtt_s in rtts_s))
    A, S = (np.array(curve, dtype=float).reshape(len(curve), -1) for curve in (sent, delivered))
    L = np.zeros_like(A) if lost is None else np.array(lost, dtype=float).reshape(A.shape)
    header = TraceHeader(path=path, model="ideal", steps_per_rtt=1, dt_s=1.0, senders=("x",) * len(rtts_s), adversary="y")
    ones = np.ones_like(A)
    return Trace(
        header, A=A, L=L, L_free=0 * A, S=S, G=S.sum(axis=1), link_rate_Bps=np.full(len(A), 1000.0), rate_Bps=ones,
        cwnd_bytes=ones,
    )  # fmt: skip


def whole(trace: Trace) -> Window:
    return Window(trace, 0, trace.n_steps)


# 1000 bytes pass at once; the 2000 of the second step leave over two steps: their delay runs from 0 to 1 s.
QUEUE = by_hand([0, 1000, 3000, 3000], [0, 1000, 2000, 3000])


USED, MEAN, P95, LOSS = "utilisation", "queueing_delay_mean_s", "queueing_delay_p95_s", "loss_fraction"
near = partial(pytest.approx, abs=1e-9)
UNDEFINED = pytest.approx(math.nan, nan_ok=True)
SHARED, ALONE, WEIGHED = [[0, 0], [900, 300]], [[0, 0], [900, 0]], [[0, 0], [750, 250], [750, 250]]
WINDOWS = {
    # 95 % of 3000 bytes: byte 2850 is 1850 into the burst, which takes 2000 bytes to reach 1 s
    "burst": (whole(QUEUE), {USED: 1.0, MEAN: near(0.5 * 2 / 3), P95: near(1850 / 2000), LOSS: 0.0, "power": near(3 / 4)}),
    # the last 1000 bytes: delay from 0.5 to 1 s; nothing was sent meanwhile
    "after a warm-up": (Window(QUEUE, 2, 3), {USED: 1.0, MEAN: near(0.75), P95: near(0.5 + 0.95 * 0.5), LOSS: UNDEFINED}),
    # 1000 bytes enter in the first second, nothing moves in the second, all leave in the third: 2 s each
    "held": (whole(by_hand([0, 1000, 1000, 1000], [0, 0, 0, 1000])), {USED: near(1 / 3), MEAN: near(2.0), P95: near(2.0)}),
    # 2000 sent, 500 lost at once, 1500 enter during step 1: bytes 0-1000 enter until 2/3 s, leave until 1 s: 0 to 1/3; bytes
    # 1000-1500 enter until 1 s and leave until 2 s: 1/3 to 1
    "loss": (
        whole(by_hand([0, 2000, 2000], [0, 1000, 1500], [0, 500, 500])),
        {LOSS: 0.25, MEAN: near((1000 * (1 / 6) + 500 * (2 / 3)) / 1500)},
    ),
    "shared": (whole(by_hand(SHARED, SHARED, rtts_s=(1.0, 1.0))), {"jain_index": near(1200**2 / (2 * 900000))}),
    "alone": (whole(by_hand(ALONE, ALONE, rtts_s=(1.0, 1.0))), {"jain_index": 0.5}),
    # all bytes wait one second, three of four on a path of 1 s, the others on one of 3 s
    "weighed": (whole(by_hand(WEIGHED, [[0, 0], *WEIGHED[:2]], rtts_s=(1.0, 3.0))), {"power": near(0.5 * 1.5 / (1.5 + 1.0))}),
    "starved": (
        whole(by_hand([0, 0, 0], [0, 0, 0])),
        {USED: 0.0, "power": 0.0, **dict.fromkeys((MEAN, P95, LOSS, "jain_index"), UNDEFINED)},
    ),
    # 500 bytes were there before row 0: only bytes 500-1500 count, and enter at (b - 500)/1000: 500-1000 leave at b/1000, half a
    # second later; 1000-1500 leave in step 2, from half a second to one second later
    "unknown past": (whole(by_hand([500, 1500, 1500], [0, 1000, 1500])), {MEAN: near((0.5 + 0.75) / 2)}),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_metrics_by_hand(case: str) -> None:
    window, expected = WINDOWS[case]
    assert measure(window, list(expected)) == expected


def test_quantile_of_points_and_ranges() -> None:
    points = np.array([3.0, 1.0, 2.0])
    assert quantile_of_segments(points, points, np.array([1.0, 1.0, 2.0]), 0.25) == pytest.approx(1.0)
    assert quantile_of_segments(points, points, np.array([1.0, 1.0, 2.0]), 0.75) == pytest.approx(2.0)
    assert quantile_of_segments(np.array([0.0]), np.array([4.0]), np.array([7.0]), 0.95) == pytest.approx(3.8)
    assert math.isnan(quantile_of_segments(np.zeros(0), np.zeros(0), np.zeros(0), 0.95))


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.floats(0.1, 5)), min_size=1, max_size=8))
def test_quantile_agrees_with_fine_slices(segments: list[tuple[float, float, float]]) -> None:
    first, last, size = (np.array(column) for column in zip(*segments, strict=True))
    shares = (np.arange(2000) + 0.5) / 2000
    values = (first[:, None] + (last - first)[:, None] * shares).ravel()
    order = np.argsort(values)
    reached = np.cumsum(np.repeat(size / 2000, 2000)[order])
    sliced = values[order][np.searchsorted(reached, 0.95 * size.sum() * (1 - 1e-9))]
    found = quantile_of_segments(first, last, size, 0.95)
    at_most = sum(s * np.clip((found + 0.01 - min(a, b)) / max(abs(a - b), 1e-300), 0, 1) for a, b, s in segments)
    assert at_most >= 0.95 * size.sum() * (1 - 1e-9) and found <= sliced + 0.01


def test_mean_delay_agrees_with_the_engine_and_with_littles_law() -> None:
    from ccenv.adversaries import make_adversary
    from ccenv.agents import make_sender

    path = make_path(link_rate_mbps=20, rtt_ms=40, jitter_ms=20, buffer_bdp=4)
    sender, adversary = make_sender("cc_probe_drain"), make_adversary("uniform")
    engine = CurveEngine([path], model="cbr_delay", senders=[sender], adversary=adversary, seed=3, record=True)
    engine.advance(1600)
    trace = engine.trace(0)
    window = whole(trace)
    E, S = trace.E[:, 0], trace.S[:, 0]
    area = float(((E - S)[1:] + (E - S)[:-1]).sum() / 2 * trace.header.dt_s)
    delivered = S[-1]
    late = np.maximum(0.0, E - delivered)  # the area of what is still under way does not count
    area -= float((late[1:] + late[:-1]).sum() / 2 * trace.header.dt_s)
    mean_s = OF_TRACE["queueing_delay_mean_s"](window)
    assert mean_s == pytest.approx(area / delivered, rel=1e-3)
    totals = engine.totals()
    seen_s = float(totals["delay_byte_s"][0, 0] / totals["acked"][0, 0])  # at the sender, one Rm later, by whole acknowledgements
    assert mean_s == pytest.approx(seen_s, abs=trace.header.dt_s)


def test_directions_and_refusals() -> None:
    assert METRICS["utilisation"].worse(0.5, 0.6) and METRICS["loss_fraction"].worse(0.6, 0.5)
    with pytest.raises(InputError, match="no better or worse value"):
        METRICS["first_share_pct"].worse(0.6, 0.5)
    with pytest.raises(UnknownNameError, match="Did you mean 'jain_index'"):
        measure(whole(QUEUE), ["jain_indx"])
    for rows in ((3, 3), (-1, 2), (0, 4)):
        with pytest.raises(InputError, match="0 <= first < last <= 3"):
            Window(QUEUE, *rows)
    with pytest.raises(InputError):
        Window.after(QUEUE, 3.0)
    with pytest.raises(InputError, match="alone is 0"):
        measures.harm(0, 1)
    assert Window.after(QUEUE, 1.5).first_row == 2


def test_the_table_in_the_docs_is_the_table_in_the_code() -> None:
    page = (FilePath(__file__).parents[3] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (higher|lower|neither) \| (\S.*?) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(m.name, m.unit or "1", m.direction, ", ".join(m.sources), m.meaning) for m in METRICS.values()]


def test_every_metric_is_computed_from_something_and_names_its_source() -> None:
    assert {*OF_TRACE, *OF_RUN} == set(METRICS)
    for function in OF_TRACE.values():
        assert "Reference:" in str(function.__doc__)


NONE = pytest.approx(math.nan, nan_ok=True)
# Inside 10 +- 20 % at 0.5, then from 1.5 on.
RATES = ([0, 0.5, 1, 1.5, 2, 2.5, 3], [0, 10, 7, 8, 10, 12, 10])
TENTHS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
BY_HAND = [
    (measures.jain, ([3, 3, 3],), 1), (measures.jain, ([1, 0, 0, 0],), 0.25), (measures.jain, ([1, 3],), 16 / 20),
    (measures.jain, ([0, 0],), NONE), (measures.jain_or_one, (np.zeros(2),), 1), (measures.jain_or_one, (np.array([1, 3]),), 0.8),
    (measures.starvation_ratio, ([8.8, 95],), 95 / 8.8), (measures.starvation_ratio, ([1, 0],), math.inf),
    (measures.starvation_ratio, ([5],), NONE),
    # Flow 1 has 10 bytes/s throughout; flow 2 nothing for 2 s, then 20 bytes/s: 40/20 at 3 s, 40/40 at 4 s. 2 at 2 and 3 s.
    (measures.s_fairness, ([0, 1, 2, 3, 4], [[0, 0], [10, 0], [20, 10], [30, 15], [40, 40]]), 2),
    (measures.s_fairness, ([0, 1, 2], [[0, 0], [1, 0], [2, 0]]), math.inf),
    (measures.harm, (10, 5), 0.5), (measures.harm, (10, 12), -0.2), (partial(measures.harm, sign=-1.0), (10, 40), 0.75),
    (measures.delta_sensitivity, ([17.9, 12.4],), pytest.approx(0.53, abs=0.005)),  # [Delta] s.4.1.1
    (measures.delta_sensitivity, ([7.7, 35.4],), pytest.approx(2.2, abs=0.005)),  # s.4.1.3, stall time
    (measures.delta_sensitivity, ([5, 5, 5],), 0), (measures.delta_sensitivity, ([1, 0],), math.inf),
    (measures.power, (0.9, 0.04, 0.02), 0.6),
    (measures.convergence_time_s, (*RATES, 10), 1.5), (partial(measures.convergence_time_s, hold_s=0), (*RATES, 10), 0.5),
    (measures.convergence_time_s, (*RATES, 100), NONE),
    (measures.time_to_reach_s, ([2, 3, 4, 5], [0, 0.5, 0.95, 0.2], 0.9), 2),
    (measures.time_to_reach_s, ([0, 1], [0, 0.1], 0.9), NONE),
    (partial(measures.loss_events, gap_s=0.15), (TENTHS, [1500, 3000, 0, 0, 1500, 0]), 2),
    (partial(measures.loss_events, gap_s=0.15), (TENTHS, [1] * 6), 3),  # at 0, 0.2 and 0.4
    (partial(measures.loss_events, gap_s=0.15), (TENTHS, [0] * 6), 0),
    (partial(measures.loss_events, gap_s=0.25), ([0, 0.25, 0.5], [1] * 3), 2),  # what comes gap_s later still belongs to it
    # Two transfers of 100 bytes at 1 s and 5 s; a third at 9 s is not done.
    (partial(measures.completion_times_s, every_s=4, start_s=1),
     ([0, 1, 2, 3, 6, 7, 9.5], [0, 0, 60, 100, 150, 200, 250], 100), [2, 2]),
    (measures.weighted_quantile, ([3, 1, 2], [1, 1, 2], 0.5), 2), (measures.weighted_quantile, ([3, 1, 2], [1, 1, 2], 0.25), 1),
    (measures.weighted_quantile, ([3, 1, 2], [0.01, 1, 2], 0.95), 2), (measures.weighted_quantile, ([1], [0], 0.5), NONE),
    (measures.weighted_quantile, ([3, 1, 2], [1, 1, 2], 0.26), 2),
    (measures.slope, ([0, 1, 2], [1, 3, 5]), 2), (measures.slope, ([1, 1], [1, 2]), NONE),
]  # fmt: skip


@pytest.mark.parametrize(("measure_of", "arguments", "value"), BY_HAND)
def test_measures_by_hand(measure_of, arguments, value) -> None:
    found = measure_of(*arguments)
    assert found == (pytest.approx(value) if isinstance(value, int | float | list) else value)
