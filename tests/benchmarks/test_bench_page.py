"""Reports: every kind of figure, the table beside the source, no network, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_bench_packet import small_packets

from ccenv.base.errors import InputError
from ccenv.base.figure import picture
from ccenv.benchmarks.report.figures import draw, table
from ccenv.benchmarks.report.page import build_report
from ccenv.benchmarks.run.runner import run_suite
from ccenv.benchmarks.suite.curve import suite_of
from ccenv.cli.main import main

FIGURES: list[dict[str, Any]] = [
    {"name": "lines", "kind": "lines", "metric": "utilisation", "x": "buffer", "by": "agent", "scenario": "grid"},
    {"name": "bars", "kind": "bars", "x": "case", "metrics": ["utilisation", "jain_index"]},
    {"name": "heat", "kind": "heatmap", "metric": "utilisation", "x": "buffer", "y": "rtt", "scenario": "grid"},
    {"name": "delta", "kind": "delta_map", "metric": "utilisation", "x": "buffer", "y": "rtt", "scenario": "grid"},
    {"name": "series", "kind": "series", "title": "<b>rates</b>"},
    {"name": "nothing", "kind": "bars", "x": "case", "metric": "utilisation", "scenario": "elsewhere"},
]
REFERENCES: list[dict[str, Any]] = [
    {"name": "a & b", "metric": "utilisation", "value": 0.9, "source": "somewhere"},
    {"name": "too high", "metric": "utilisation", "at_least": 2, "source": "somewhere", "why": "<it cannot be>"},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with all kinds of figures, and its report."""
    folder = tmp_path_factory.mktemp("report") / "run"
    suite = suite_of(small_packets(figures=FIGURES, references=REFERENCES, series_s=0.5, agents=["reno", "cubic"]), "packets")
    run_suite(suite, folder, pictures=False)
    build_report(folder)
    return folder


def test_the_page_stands_alone_and_escapes(run: Path) -> None:
    text = (run / "report.html").read_text(encoding="utf-8")
    for outside in ("http://", "https://", "<script", 'src="report'):
        assert outside not in text
    assert text.count("data:image/png;base64,") == 6  # five figures and the profiles
    assert "a &amp; b" in text
    assert "&lt;it cannot be&gt;" in text
    assert "&lt;b&gt;rates" in text
    assert "<b>rates" not in text
    assert "ccenv bench run packets" in text
    for name in ("lines", "bars", "heat", "delta", "series"):
        for suffix in ("png", "svg", "csv"):
            assert (run / "report" / f"{name}.{suffix}").stat().st_size > 50
    assert not (run / "report" / "nothing.png").exists()


def test_numbers_behind_a_figure(run: Path) -> None:
    lines = (run / "report" / "lines.csv").read_text().splitlines()
    records = [json.loads(line) for line in (run / "cells.jsonl").read_text().splitlines()]
    grid = [record for record in records if record["scenario"].startswith("grid")]
    assert lines[0] == "scenario,agent,seed,buffer,utilisation"
    assert len(lines) == 1 + len(grid) == 9
    assert float(lines[1].split(",")[-1]) == grid[0]["metrics"]["utilisation"]


def test_equal_runs_make_equal_pictures(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    records = [json.loads(line) for line in (run / "cells.jsonl").read_text().splitlines()]
    suite = suite_of(manifest["suite"], "manifest")
    for figure in suite.figures[:2]:
        first, second = draw(suite, records, figure), draw(suite, records, figure)
        assert first is not None
        assert second is not None
        assert picture(first, ".svg") == picture(second, ".svg")
        assert len(table(suite, records, figure)) > 1


def test_a_run_that_has_not_ended(tmp_path: Path, run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["summary"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="has not ended yet"):
        build_report(tmp_path)


def test_command_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "report", str(run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["page"] == str(run / "report.html")
    assert result["agreement"] == {"not reproduced": 1, "reproduced": 1}
    assert main(["bench", "report", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
