"""Metrics of the packet engine on logs written by hand, and on runs where the answer is known."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from ccenv.base.errors import InputError, UnknownNameError
from ccenv.engine.packet.layout import FLOW_LOG, LINK_LOG
from ccenv.network.metrics.packet import NAMES, AppRun
from ccenv.network.metrics.table import OF_RUN, measure_run
from ccenv.simulation import Result, read_scenario, simulate

MSS = 1000.0


def by_hand(flows: list[dict[str, list[float]]], queue_bytes: list[float], **changes: Any) -> Result:
    """A run of 4 s logged every second on a link of 8 Mbit/s with Rm = 0.1 s; fields that are not given stay 0."""
    scenario = read_scenario(
        {
            "duration_s": 4,
            "log_s": 1,
            "mss_bytes": MSS,
            "links": [{"rate_mbps": 8, "buffer_bytes": 50_000}],
            "flows": [{"name": f"f{i % 2}", "sender": "reno", "rtt_ms": 100, **changes} for i in range(len(flows))],
        }
    )
    flow_log = np.zeros((5, len(flows)), [(name, "<f8") for name in FLOW_LOG])
    link_log = np.zeros((5, 1), [(name, "<f8") for name in LINK_LOG])
    for index, flow in enumerate(flows):
        for name, values in flow.items():
            flow_log[name][:, index] = values
    link_log["rate_Bps"], link_log["queue_bytes"][:, 0] = 1e6, queue_bytes
    link_log["arrived_bytes"][:, 0] = [0, 10_000, 810_000, 1_610_000, 2_410_000]
    link_log["dropped_bytes"][:, 0] = [0, 0, 5_000, 5_000, 15_000]
    link_log["served_bytes"][:, 0] = [0, 0, 800_000, 1_600_000, 2_400_000]
    link_log["queue_byte_s"][:, 0] = np.concatenate(([0.0], np.cumsum(queue_bytes[:-1])))
    return Result(scenario, flow_log, link_log, np.array([2.5, math.inf, 3.0][: len(flows)]), 0, 0.0)


FIRST = {
    "goodput_bytes": [0, 0, 600_000, 1_200_000, 1_800_000], "sent_bytes": [0, 10_000, 620_000, 1_230_000, 1_840_000],
    "dropped_bytes": [0, 0, 5_000, 5_000, 10_000], "random_lost_bytes": [0, 0, 0, 5_000, 5_000],
    "rtt_sum_s": [0, 0, 60.6, 133.2, 217.8],  # 600 ACKs a second: 0.1, 0.12 and 0.14 s, and 1 ms of service
    "rtt_samples": [0, 0, 600, 1200, 1800], "one_way_sum_s": [0, 0, 30, 60, 90], "one_way_samples": [0, 0, 600, 1200, 1800],
    "rtt_s": [0, 0, 0.1, 0.12, 0.14], "cwnd_bytes": [2000, 2000, 5000, 2000, 9000],
}  # fmt: skip
SECOND = {"goodput_bytes": [0, 0, 200_000, 400_000, 600_000], "sent_bytes": [0, 0, 200_000, 400_000, 600_000]}
WINDOW = [(1.0, 4.0)]

BY_HAND = [
    ("utilisation", None, 2.4 / 3), ("utilisation", "f0", 1.8 / 3), ("throughput_mbps", "f0", 4.8),
    ("throughput_mbps", None, (4.8 + 1.6) / 2), ("jain_index", None, (4.8 + 1.6) ** 2 / (2 * (4.8**2 + 1.6**2))),
    ("starvation_ratio", None, 3.0), ("least_share", None, 1.6 / 3.2), ("s_fairness", None, 3.0),
    ("queueing_delay_mean_s", "f0", 0.02), ("queueing_delay_p95_s", "f0", 0.04), ("queueing_delay_p95_ms", "f0", 40),
    ("queueing_delay_p50_s", "f0", 0.02), ("queueing_delay_p99_s", "f0", 0.04), ("queueing_delay_p95_rtts", "f0", 0.4),
    ("fair_share", None, 2.4 / 3),
    ("fair_share", "f0", 1.8 / 1.0),  # its transfer is done after 2.5 s: half of 1 MB/s for two of the three seconds
    ("shortfall", "f0", 0), ("shortfall", "f1", 1 - 0.6 / 2.0),  # half of 1 MB/s for two seconds, all of it for one
    ("in_range", "f1", 0), ("in_range", None, 1), ("harm", "f0", 1 - 1.8 / 3), ("rtt_mean_s", "f0", 0.121),
    ("rtt_min_s", "f0", 0.1), ("rtt_max_s", "f0", 0.12),  # rows 1 to 3: the row at the end belongs to the next window
    ("one_way_delay_s", "f0", 0.05), ("loss_fraction", "f0", 15_000 / 1_830_000), ("loss_packets_per_rtt", "f0", 15 / 30),
    ("loss_events_per_s", "f0", 3 / 3), ("loss_event_rate", "f0", 3 / 1830), ("sent_packets_per_rtt", "f0", 1_830 / 3 * 0.1),
    ("queue_max_bdp", None, 40_000 / 100_000), ("queue_mean_share", None, (20_000 + 40_000 + 30_000) / 3 / 50_000),
    ("power", "f0", 0.6 * 0.1 / 0.12), ("open_window_share", "f0", 1 / 3),
    ("jain", None, (1_830 + 600) ** 2 / (2 * (1_830**2 + 600**2))), ("first_share_pct", None, 100 * 1_830 / (1_830 + 600)),
    ("jitter_ms", "f0", (100 + 20 + 20) / 3), ("loss_pct", None, 100 * 15 / 2_400),
    ("occupancy_pct", None, 100 * (20_000 + 40_000 + 30_000) / 3 / 50_000), ("utilisation_pct", None, 100 * 2.4 / 3),
]  # fmt: skip


@pytest.mark.parametrize(("name", "group", "expected"), BY_HAND)
def test_by_hand(name: str, group: str | None, expected: float) -> None:
    result = by_hand([FIRST, SECOND], [0, 20_000, 40_000, 30_000, 0])
    assert measure_run(result.measured(), name, WINDOW, group) == pytest.approx(expected, rel=1e-9)


def test_every_metric_is_tested_by_hand_or_below() -> None:
    below = {
        "fair_power", "even_power", "convergence_time_s", "time_to_90_s", "time_to_40_s", "settling_time_s", "response_time_s",
        "rate_variation", *NAMES,  # of applications
        "fct_slowdown_p50", "fct_slowdown_p99", "fct_small_p99", "fct_large_p50", "fct_done_share",
    }  # fmt: skip
    assert {name for name, _, _ in BY_HAND} | below == set(OF_RUN)


def measured(*flows: dict[str, list[float]], **changes: Any) -> Callable[..., float]:
    """Return a function that measures a run of these flows on a link without a queue."""
    return partial(measure_run, by_hand(list(flows), [0] * 5, **changes).measured())


def test_variation_of_the_rate() -> None:
    of = measured({"goodput_bytes": [0, 100_000, 400_000, 600_000, 600_000]}, SECOND)
    rates = np.array([3.0, 2.0, 0.0])
    assert of("rate_variation", WINDOW, "f0") == pytest.approx(rates.std() / rates.mean())
    assert of("rate_variation", WINDOW) == pytest.approx(rates.std() / rates.mean() / 2)  # the other: 0


@pytest.mark.parametrize("name", NAMES)
def test_values_of_applications(name: str) -> None:
    """The mean over the applications of the flows that have the value; undefined without any."""
    result = by_hand([FIRST, SECOND], [0] * 5)
    assert math.isnan(measure_run(result.measured(), name, WINDOW))
    apps = tuple(AppRun("any", f"f{i}", (i,), {name: value}) for i, value in enumerate((2.0, 5.0)))
    run = replace(result, applications=apps).measured()
    assert measure_run(run, name, WINDOW) == 3.5 and measure_run(run, name, WINDOW, "f1") == 5.0


def test_products_and_spans() -> None:
    """Fair and even power are products; spans of time add up."""
    of = measured(FIRST, SECOND)
    assert of("fair_power", WINDOW) == pytest.approx(of("power", WINDOW) * of("jain_index", WINDOW))
    assert of("even_power", WINDOW) == pytest.approx(of("power", WINDOW) * of("least_share", WINDOW))
    assert of("loss_fraction", [(1.0, 2.0), (3.0, 4.0)], "f0") == pytest.approx(10_000 / 1_220_000)


def test_a_flow_that_got_nothing() -> None:
    """It counts one segment; who starves another has no even power; alone it has no delay, no loss and no power."""
    of = measured(FIRST, {})
    assert of("even_power", WINDOW) == 0 and of("fair_power", WINDOW) > 0.2
    assert of("starvation_ratio", WINDOW) == pytest.approx(1_800_000 / MSS)
    of = measured({})
    for name in ("queueing_delay_mean_s", "rtt_min_s", "loss_fraction", "jain_index", "one_way_delay_s", "loss_event_rate"):
        assert math.isnan(of(name, WINDOW)), name
    assert of("power", WINDOW) == of("fair_power", WINDOW) == 0


def test_response_times() -> None:
    """Finite flows end at 2.5 s, never, and at 3 s; of two batches of 600,000 bytes, offered at 0 and 2 s, at 2 and 3 s."""
    of = measured(FIRST, SECOND, FIRST, workload={"kind": "finite", "size_bytes": 1e5})
    assert of("response_time_s", [(0.0, 4.0)]) == pytest.approx(2.75)
    assert math.isnan(of("response_time_s", [(1.0, 4.0)]))  # offered before the window
    of = measured(FIRST, workload={"kind": "batches", "size_bytes": 600_000, "every_s": 2})
    assert of("response_time_s", [(0.0, 4.0)], "f0") == pytest.approx((2 + 1) / 2)
    assert of("response_time_s", [(2.0, 4.0)], "f0") == pytest.approx(1.0)


def test_times_on_a_link_that_doubles() -> None:
    steps = [{"time_s": 5, "rate_mbps": 20}]
    scenario = {"duration_s": 10, "links": [{"rate_mbps": 10, "buffer_bdp": 1, "rate_steps": steps}]}
    result = simulate({**scenario, "flows": [{"sender": "constant:rate_mbps=17", "rtt_ms": 20}]})
    of = partial(measure_run, result.measured())
    assert of("time_to_90_s", [(0.0, 5.0)]) <= 1.0
    assert math.isnan(of("time_to_90_s", [(5.0, 10.0)]))  # 17 of 20
    assert of("time_to_40_s", [(5.0, 10.0)]) == of("settling_time_s", [(5.0, 10.0)]) == pytest.approx(0.5)
    assert of("convergence_time_s", [(0.0, 10.0)]) == pytest.approx(5.5)  # 17 is within 20 % of 20


@pytest.mark.parametrize(("arguments", "error", "said"), [
    (("utilization", WINDOW), UnknownNameError, "Did you mean 'utilisation'"),
    (("utilisation", WINDOW, "f9"), UnknownNameError, "f9"),
    (("utilisation", [(1.0, 1.2)]), InputError, "shorter than the log's interval"),
])  # fmt: skip
def test_refusals(arguments: tuple[Any, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        measured(FIRST)(*arguments)


def test_slowdowns_by_hand() -> None:
    plain = by_hand([FIRST], [0] * 5).measured()
    mss = plain.mss_bytes
    # Ten transfers of one packet, one of 2 MB and one that is not done; the link takes a packet in a millisecond.
    best_s = plain.flows[0].rtt_s + 1e-3
    packets = math.ceil(2e6 / mss)
    rows = [[100.0, 2.0, 2.0 + (k + 1) * best_s] for k in range(10)]
    rows += [
        [2e6, 2.0, 2.0 + 3 * (plain.flows[0].rtt_s + packets * 1e-3)],
        [50.0, 2.0, math.nan],
        [100.0, 0.5, 0.5 + 99 * best_s],
    ]
    flow = replace(plain.flows[0], transfers=np.array(rows), link_Bps=mss / 1e-3)
    of = partial(measure_run, replace(plain, flows=(flow,)), spans_s=WINDOW)
    assert of("fct_done_share") == 11 / 12
    assert of("fct_slowdown_p50") == pytest.approx(5.0)  # of 1, 2, 3, 3, 4 ... 10 and one without end: the sixth
    assert of("fct_large_p50") == pytest.approx(3.0)
    assert math.isnan(of("fct_small_p99")) and math.isnan(of("fct_slowdown_p99"))  # of the one that is not done
