"""Senders side by side: figures, table, picture, failures, units."""

import math
from pathlib import Path
from typing import Any

import pytest

from ccenv.base.errors import InputError
from ccenv.base.units import MBPS, SECONDS, SECONDS_OF_MS, STEPS, buffer_units, positive, quantity
from ccenv.benchmarks.compare import Comparison, compare
from ccenv.benchmarks.compare.added_delay import SMALL_DELTA, advise_lambda
from ccenv.simulation import simulate

SMALL = {"rate": "12mbps", "rtt": "20ms", "duration": "4s"}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    bad = tmp_path_factory.mktemp("files") / "bad.py"
    bad.write_text("import ccenv\nclass Bad(ccenv.PythonSender):\n    def on_ack(self, ack):\n        1 / 0\n")
    return compare(["reno", str(bad), "copa"], flows=2, against="cubic", seeds=1, **SMALL)  # type: ignore[arg-type]


def test_a_row_says_what_the_run_gives_beside_that_of_the_whole_run(comparison: Comparison) -> None:
    row, result = comparison.rows[0], comparison.results[0]
    assert result is not None
    summary = result.summary()
    rates = [flow["throughput_mbps"] for flow in summary["flows"]]
    assert row.throughput_mbps == pytest.approx(sum(rates[:2]))
    assert row.utilisation == summary["links"][0]["utilisation"] and row.share == pytest.approx(sum(rates[:2]) / 2 / 4)
    assert row.jain == pytest.approx(sum(rates[:2]) ** 2 / (2 * sum(rate**2 for rate in rates[:2])))
    again = simulate(comparison.setting.scenario("reno")).summary()
    assert again["flows"] == summary["flows"]
    setting = comparison.to_dict()["setting"]
    assert (setting["warmup_s"], setting["duration_s"]) == (1.0, 4.0)
    ends = result.flow_log[-1, :2]
    assert row.total_mb == pytest.approx(ends["goodput_bytes"].sum() / 1e6)
    assert row.total_loss == pytest.approx(ends["dropped_bytes"].sum() / ends["sent_bytes"].sum()) and row.loss is not None
    assert row.total_loss > 1.2 * row.loss  # slow start is in the one, not in the other


def test_several_seeds_make_means_with_intervals() -> None:
    settings = {**SMALL, "loss_rate": "1%"}
    several = compare(["reno", "copa"], seed=3, seeds=3, **settings)  # type: ignore[arg-type]
    alone = [compare(["reno"], seed=seed, seeds=1, **settings).rows[0] for seed in (3, 4, 5)]  # type: ignore[arg-type]
    row, values = several.rows[0], [row.throughput_mbps or 0.0 for row in alone]
    assert row.throughput_mbps == pytest.approx(sum(values) / 3)
    low, high = row.intervals["throughput_mbps"]
    assert min(values) <= low < row.throughput_mbps < high <= max(values) and "[" in row.text("throughput_mbps")
    assert not alone[0].intervals
    first = several.results[0]
    assert first is not None and first.scenario.seed == 3


def test_senders_of_one_name_are_told_apart_by_their_parameters() -> None:
    rows = compare(["reno", "reno:initial_window_mss=4"], duration="0.5s", seeds=1).rows
    assert [row.sender for row in rows] == ["reno", "reno:initial_window_mss=4"]


def test_seeds_differ_and_equal_ones_are_told() -> None:
    options: dict[str, Any] = {"rate": "10mbps", "rtt": "20ms", "duration": "6s"}
    held = compare(["cubic"], network="square", seeds=2, **options)
    assert held.warnings == ["cubic: 2 seeds give one result: nothing is random, so intervals have no width"]
    assert (held.setting.phase_jitter, held.to_dict()["setting"]["phase_jitter"]) == (0.0, 0.0)
    for flows, name in ((1, "rtt_ms"), (2, "jain")):
        free = compare(["cubic"], flows=flows, **options)
        assert free.warnings == free.to_dict()["warnings"] == []
        assert (free.setting.phase_jitter, free.setting.seeds) == (0.5, 3)
        low, high = free.rows[0].intervals[name]
        assert low < high


def test_a_sender_that_fails_says_why_and_the_others_run(comparison: Comparison) -> None:
    assert "bad.py:4: ZeroDivisionError" in comparison.rows[1].error
    assert comparison.rows[1].utilisation is None and [row.error for row in comparison.rows[::2]] == ["", ""]


def test_table_frame_and_page(comparison: Comparison) -> None:
    frame = comparison.to_frame()
    assert list(frame.index) == ["reno", "bad", "copa"] and "worst_utilisation" not in frame.columns
    assert frame.loc["reno", "share"] == comparison.rows[0].share
    page = comparison._repr_html_()
    assert page.count("<tr>") == 4 and "<svg" in page
    assert repr(comparison) == (
        "Comparison(reno, bad, copa on 12 Mbit/s, 20 ms, buffer 1 BDP, 2 flows each, against cubic, "
        "packets up to 0.5 service times late, "
        "4 s (averages without the first 1 s))"
    )


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_equal_runs_make_equal_pictures(comparison: Comparison, suffix: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}{suffix}" for n in "ab"]
    for file in files:
        comparison.plot(file)
    first, second = (file.read_bytes() for file in files)
    assert first == second and len(first) > 5_000


def test_a_run_shorter_than_its_log_has_no_queue() -> None:
    row = compare(["reno"], rate="12mbps", rtt="4s", duration="1ms").rows[0]
    assert (row.error, row.queue_p95_ms, row.throughput_mbps) == ("", None, 0.0)


def test_processes_give_the_same(comparison: Comparison) -> None:
    again = compare(["reno", "copa"], flows=2, against="cubic", seeds=1, jobs=2, **SMALL)  # type: ignore[arg-type]
    assert again.rows == comparison.rows[::2]


def test_the_worst_case_is_legal_and_below_the_nominal_one() -> None:
    row = compare(["copa"], adversary="legal", attack_flow_steps=2_000_000, **SMALL).rows[0]  # type: ignore[arg-type]
    assert row.worst_utilisation is not None and row.utilisation is not None
    assert row.worst_utilisation < 0.3 < row.utilisation


def test_units() -> None:
    assert quantity("rate", "50mbps", MBPS) == quantity("rate", "50 Mbit/s", MBPS) == quantity("rate", 50, MBPS) == 50
    assert quantity("rate", "1gbps", MBPS) == 1000
    assert quantity("rtt", "40ms", SECONDS) == quantity("rtt", 40, SECONDS_OF_MS) == quantity("rtt", "0.04", SECONDS) == 0.04
    assert quantity("budget", "20Msteps", STEPS) == quantity("budget", "20000000", STEPS) == 20_000_000
    buffers = buffer_units(1000, 1500)
    assert quantity("buffer", "1.5bdp", buffers) == quantity("buffer", 1.5, buffers) == 1500
    assert quantity("buffer", "100packets", buffers) == 150_000 and quantity("buffer", "250kB", buffers) == 250_000
    assert quantity("buffer", "inf", buffers) == float("inf")


NO_RATES = ["", "fast", "50mph", "-3mbps", "0", "nan", "inf", "1e400mbps", "5 5mbps", True, None, "9" * 5000]


@pytest.mark.parametrize("value", NO_RATES)
def test_what_is_no_rate_is_one_line(value: object) -> None:
    with pytest.raises(InputError) as caught:
        positive("rate", value, MBPS)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


# Advice on added delay: [Delta] s.5.2's two cases.


def test_bulk_flows_of_bbr_are_equalised_and_a_short_flow_is_left_alone() -> None:
    bulk = advise_lambda([0.074, 0.01, 0.01], "bbr1")
    assert bulk.lambda_s == pytest.approx(0.08)  # a whole number of 10 ms
    assert bulk.alone <= SMALL_DELTA < bulk.held < bulk.contested
    short = advise_lambda([0.01, 0.08], "cubic", size_bytes=300_000, duration_s=10)
    assert short.lambda_s == 0.0 and short.alone > SMALL_DELTA and math.isnan(short.held)


def test_a_sender_that_shares_alike_at_any_delay_needs_none() -> None:
    """Constant rates below a half of the link do not meet: their delta is 0 without the proxy, and no less with it."""
    advice = advise_lambda([0.01, 0.08], "constant:rate_mbps=10", duration_s=10)
    assert advice.lambda_s == 0.0 and advice.contested == advice.held == pytest.approx(0.0, abs=0.01)
    assert "in company" in advice.reason
