"""Suites of varying links and of transfers: their records, a run of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables.suites import select_columns, summarise_runs

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import ClassicSender
from ccenv.base.foreign import read_json
from ccenv.benchmarks.run.runner import as_suite, run_suite
from ccenv.benchmarks.store import load_cells

DOCS = Path(__file__).parents[2] / "docs"
RECORD, TRANSFERS = DOCS / "data" / "links.json", DOCS / "data" / "flows.json"
LINKS = ("cellular-v1", "leo-v1", "wifi-v1")
LEFT_OUT = {"constant", "lambda_proxy", "fixed_delay_proxy", "contract"}  # no senders of their own
PROGRAMS = "cc_"


def test_record_has_all_classic_and_learned_senders() -> None:
    record = read_json(RECORD)
    wanted = {entry.name for entry in AGENTS if entry.name not in LEFT_OUT and not entry.name.startswith(PROGRAMS)}
    assert list(record["suites"]) == list(LINKS)
    for name, found in record["suites"].items():
        assert set(found["senders"]) == wanted, name
        assert found["suite_sha256"] == as_suite(name).sha256, name
        assert found["cells"] == len(as_suite(name).cases) * 3 * len(wanted)
        for means in found["senders"].values():
            assert set(means) == set(select_columns(name)) and 0 < means["utilisation"] <= 1


def test_record_has_all_classic_senders() -> None:
    (found,) = read_json(TRANSFERS)["suites"].values()
    names = {entry.name for entry in AGENTS} - LEFT_OUT - {"gcc"}  # which sends calls
    classic = {name for name in names if isinstance(make_sender(name), ClassicSender)}
    suite = as_suite("fct-v1")
    assert set(found["senders"]) == classic
    assert found["suite_sha256"] == suite.sha256 and found["cells"] == len(suite.cases) * 2 * len(classic)
    assert all((means["p50"] or 1) >= 1 and means["done (%)"] > 0 for means in found["senders"].values())


@pytest.mark.parametrize(("name", "metric"), [("wifi-v1", "utilisation"), ("fct-v1", "fct_done_share")])
def test_a_short_form_of_a_suite_runs(tmp_path: Path, name: str, metric: str) -> None:
    suite = as_suite(name)
    data: dict[str, Any] = suite.model_dump(exclude_unset=True)
    scenario = {**data["scenarios"][0], "duration_s": 4, "warm_up_s": 1}
    short = type(suite).model_validate({**data, "scenarios": [scenario], "agents": ["cubic"], "seeds": [1], "references": []})
    run_suite(short, tmp_path / "run")
    (found,) = summarise_runs([tmp_path / "run"])["suites"].values()
    assert found["cells"] >= 1 and list(found["senders"]) == ["cubic"]
    cells = load_cells(tmp_path / "run")
    assert all(0 < round(cell["metrics"][metric], 2) <= 1 for cell in cells)
    if name == "wifi-v1":
        assert found["senders"]["cubic"]["beside CUBIC (Mbit/s)"] is None
    else:
        assert all(len(cell["slowdowns"]) == 101 and cell["slowdowns"][0] >= 1 for cell in cells)
