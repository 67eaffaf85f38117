"""Suites of varying links and of transfers: their record, the page, a run of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import ClassicSender
from ccenv.base.foreign import read_json
from ccenv.base.pages import END
from ccenv.benchmarks.report.senders import PLACE, select_columns, summarise_runs, tables, write_tables
from ccenv.benchmarks.run.runner import as_suite, run_suite
from ccenv.benchmarks.store import load_cells

DOCS = Path(__file__).parents[2] / "docs"
RECORD = DOCS / "data" / "links.json"
PAGES = {"links.md": RECORD, "flows.md": DOCS / "data" / "flows.json"}
LINKS = ("cellular-v1", "leo-v1", "wifi-v1")
LEFT_OUT = {"constant", "lambda_proxy", "fixed_delay_proxy", "contract"}  # no senders of their own
PROGRAMS = "cc_"


@pytest.mark.parametrize("page", PAGES)
def test_page_shows_the_record(page: str) -> None:
    record = read_json(PAGES[page])
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text.partition(PLACE.start)[2].partition(END)[0].strip() == tables(record)


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
    (found,) = read_json(PAGES["flows.md"])["suites"].values()
    names = {entry.name for entry in AGENTS} - LEFT_OUT - {"gcc"}  # which sends calls
    classic = {name for name in names if isinstance(make_sender(name), ClassicSender)}
    suite = as_suite("fct-v1")
    assert set(found["senders"]) == classic
    assert found["suite_sha256"] == suite.sha256 and found["cells"] == len(suite.cases) * 2 * len(classic)
    assert all((means["p50"] or 1) >= 1 and means["done (%)"] > 0 for means in found["senders"].values())


def test_tables_go_into_their_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{PLACE.start}\nold\n{END}\nbehind\n")
    write_tables(RECORD, page)
    assert "`cubic`" in page.read_text() and page.read_text().startswith("before\n") and "old" not in page.read_text()


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
