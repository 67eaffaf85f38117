"""Metrics from a user's own file: in comparisons and suites, in workers, and what is wrong with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ccenv.base.errors import CcenvWarning, InputError, UnknownNameError
from ccenv.benchmarks.compare import compare
from ccenv.benchmarks.report.page import build_report
from ccenv.benchmarks.run.runner import run_suite
from ccenv.network.metrics import table
from ccenv.network.metrics.user import OwnMetric, load_metric, require_metric

GOT = '''"""Share of the sent bytes that arrived."""
DIRECTION = "higher"
UNIT = "B/B"

def of_run(window):
    return window.total("goodput_bytes") / window.total("sent_bytes")

def of_trace(window):
    return float(window.change(window.trace.S).sum() / window.change(window.trace.A).sum())
'''


@pytest.fixture(autouse=True)
def no_metrics_left() -> Iterator[None]:
    yield
    table._user_metrics.clear()


def write(folder: Path, text: str = GOT, name: str = "got.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_column_of_a_comparison(tmp_path: Path) -> None:
    found = compare(["cubic", "copa"], rate="12mbps", duration="3s", metrics=[write(tmp_path), "power"], jobs=2)
    assert [0.5 < row.metrics["got"] < 1.5 for row in found.rows] == [True, True]  # type: ignore[operator]
    assert {"got", "power"} <= set(found.to_frame().columns) and ("got", "got [B/B]") in found.columns


def test_a_suite_with_it_is_another_suite_and_its_report_needs_no_code(tmp_path: Path) -> None:
    file = write(tmp_path)
    only = ["deep/reno/kind/1"]
    found = run_suite("quick", tmp_path / "out", extra_metrics=[file], only=only, pictures=False, backend="processes", workers=1)
    value = found["summary"][0]["against"]["kind"]["got"]
    assert 0.9 < value <= 1 and found["own_metrics"][0]["meaning"] == "Share of the sent bytes that arrived."
    with pytest.raises(InputError, match=r"of other settings \(suite_sha256 is"):
        run_suite("quick", tmp_path / "out", only=only, pictures=False)
    (tmp_path / "got.py").unlink()
    table._user_metrics.clear()
    page = build_report(tmp_path / "out")["page"].read_text()
    assert f"--metric {file}" in page and f"--out {tmp_path / 'out'}" in page


def test_a_failing_metric_is_left_out_with_a_warning(tmp_path: Path) -> None:
    file = write(tmp_path, GOT.replace('window.total("goodput_bytes") /', "1 / 0 *"))
    with pytest.warns(CcenvWarning, match=r"got\.py:6: ZeroDivisionError"):
        found = compare(["cubic", "copa"], rate="12mbps", duration="1s", metrics=[file])
    assert [row.metrics["got"] for row in found.rows] == [None, None] and [row.error for row in found.rows] == ["", ""]
    assert found.rows[0].utilisation is not None


def test_a_worker_refuses_another_content(tmp_path: Path) -> None:
    own = load_metric(write(tmp_path))
    require_metric(own)
    with pytest.raises(InputError, match="changed while the run went on"):
        require_metric(OwnMetric(own.name, own.spec, "0" * 64))


@pytest.mark.parametrize(("text", "message"), [
    ("x = 1\n", "defines no metric"), (GOT.replace("DIRECTION", "DIREKTION"), "DIRECTION missing"),
    (GOT.replace('"higher"', '"up"'), "DIRECTION is 'up'"),
    (GOT.replace("of_run(window)", "of_run()"), r"got\.py:5: of_run\(\) must take \(window\)"),
    ("1 / 0\n", r"got\.py:1: ZeroDivisionError"), ("of_run = 3\nDIRECTION = 'lower'\n", "not a function"),
])  # fmt: skip
def test_what_is_wrong_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_metric(write(tmp_path, text))


def test_names_of_ccenv_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"power\.py:5: 'power' is the name of a registered metric"):
        load_metric(write(tmp_path, GOT, "power.py"))
    own = (
        GOT
        + "\nfrom ccenv.network.metrics.table import Metric\npower = Metric('power', 'power', '', 'higher', '', of_run=of_run)\n"
    )
    with pytest.raises(InputError, match=r"own\.py:5: 'power' is the name of a registered metric"):
        load_metric(write(tmp_path, own, "own.py") + ":power")
    with pytest.raises(UnknownNameError, match="Did you mean 'power'"):
        load_metric("powr")


def test_a_metric_for_one_engine_is_refused_by_the_other(tmp_path: Path) -> None:
    file = write(tmp_path, GOT[: GOT.index("def of_trace")])
    with pytest.raises(InputError, match="has no of_trace"):
        run_suite("quick", tmp_path / "out", extra_metrics=[file], only=["deep/reno/kind/1"], pictures=False)


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "'0.5'", "None", "[1.0, 2.0]", "1j"])
def test_what_is_no_finite_number_is_named_and_the_others_are_measured(value: str, tmp_path: Path) -> None:
    text = f"DIRECTION = 'higher'\n\n\ndef of_run(window):\n    return {value}\n"
    with pytest.warns(CcenvWarning, match=r"'odd' is left out: odd\.py:4: of_run returned .*; a finite number is needed"):
        found = compare(["reno"], rate="12mbps", rtt="20ms", duration="1s", metrics=[write(tmp_path, text, "odd.py"), "power"])
    assert found.rows[0].metrics["odd"] is None and found.rows[0].metrics["power"] is not None


def test_workers_name_it_too(tmp_path: Path) -> None:
    text = "import numpy as np\n\nDIRECTION = 'higher'\n\n\ndef of_trace(window):\n    return np.float32('nan')\n"
    with pytest.warns(CcenvWarning, match=r"'odd' is left out: odd\.py:6: of_trace returned") as told:
        manifest = run_suite(
            "quick", tmp_path / "out", extra_metrics=[write(tmp_path, text, "odd.py")],
            only=["deep/reno/kind/1", "deep/reno/kind/2"], backend="processes", workers=2, pictures=False,
        )  # fmt: skip
    assert manifest["n_cells"] == 2
    assert len({str(warning.message) for warning in told if issubclass(warning.category, CcenvWarning)}) == 1
