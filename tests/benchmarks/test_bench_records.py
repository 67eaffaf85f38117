"""Committed records: what they keep, and that every suite of a paper has one."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_bench_packet import small_packets

from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError
from ccenv.benchmarks.report.records import read_records, write_record
from ccenv.benchmarks.run.runner import run_suite
from ccenv.benchmarks.suite.curve import PACKAGE, load_suite, suite_of
from ccenv.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
REFERENCES: list[dict[str, Any]] = [
    {"name": "full", "metric": "utilisation", "at_least": 0.5, "source": "s"},
    {"name": "too high", "metric": "utilisation", "at_least": 2, "source": "s", "why": "cannot be"},
]
FIGURES: list[dict[str, Any]] = [{"name": "bars", "kind": "bars", "x": "case", "metric": "utilisation"}]


def test_a_record_of_a_run(tmp_path: Path) -> None:
    suite = suite_of(small_packets(references=REFERENCES, figures=FIGURES), "packets")
    run_suite(suite, tmp_path / "run", limit=1, pictures=False)
    with pytest.raises(InputError, match="not complete"):
        write_record(tmp_path / "run", tmp_path / "bench")
    run_suite(suite, tmp_path / "run", pictures=False)
    assert main(["bench", "report", str(tmp_path / "run"), "--record", str(tmp_path / "bench")]) == 0
    folder = tmp_path / "bench" / "packets"
    record = json.loads((folder / "record.json").read_text())
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (record["n_cells"], record["suite_sha256"]) == (6, manifest["suite_sha256"])
    measured = manifest["references"][0]["measured"]
    assert record["references"][0]["measured"] == pytest.approx(measured, rel=1e-5)
    assert (folder / "bars.png").stat().st_size < 60_000
    assert [one["agreement"] for one in read_records(tmp_path / "bench")[0]["references"]] == ["reproduced", "not reproduced"]
    with pytest.raises(InputError, match="holds no records"):
        read_records(tmp_path / "nowhere")


def test_every_suite_of_a_paper_has_a_record_of_its_version() -> None:
    records = {record["suite"]: record for record in read_records(DOCS / "data" / "bench")}
    suites = {name: load_suite(name) for name in shipped_names(PACKAGE, ".yaml")}
    papers = {name: suite for name, suite in suites.items() if "paper" in suite.tags}
    assert set(records) == set(papers)
    for name, suite in papers.items():
        assert (records[name]["version"], records[name]["complete"]) == (suite.version, True)
        assert [r["name"] for r in records[name]["references"]] == [r.name for r in suite.references]
        if suite.sha256 != records[name]["suite_sha256"]:
            pytest.fail(f"suite {name} changed since its record was made: run it again, or bump its version")
