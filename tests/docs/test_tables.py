"""Tables of the documentation build from the shipped records, stand on one page each and hold the rows that texts cite."""

import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tables import attacks, contents, papers, suites

from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.sender import takes_one_flow
from ccenv.attacks.catalog import PANEL
from ccenv.base.errors import InputError
from ccenv.base.foreign import read_json
from ccenv.benchmarks.run.runner import as_suite

DOCS = contents.DOCS
SAVED: dict[str, list[dict[str, str]]] = {}
# Table -> cells of one of its rows, which the text beside it relies on.
CITED = {
    "attacks": {"sender": "learned_robust", "scenario": "deep†"},
    "attacks-adversaries": {"adversary": f"`{PANEL[0]}`"},
    "attacks-gap": {"sender": "cc_qdel", "bound": "0.766", "found": "0.781", "ratio": "1.020", "cold ratio": "1.244"},
    "attacks-hidden-gain": {"rows": "27"},
    "coexistence-fairness": {"sender": "`copa`"},
    "shields": {"program": "`learned_nominal_u78`"},
    "distillation": {"sender": "learned_robust_d4"},
    "fluid-statements": {"the paper": "hold"},
    "live": {"sender": "kernel:cubic", "valid": "yes"},
    "reproduction": {"suite": "all"},
    "theorems-constants": {"program": "cc_qdel"},
    "theorems-lassos": {"none": "any at all"},
    "training-scores": {"config": "`quick_sender`", "learns": "sender, PPO"},
    "which-coexistence": {"sender": "`cubic`"},
}


def build(name: str) -> list[dict[str, str]]:
    if name not in SAVED:
        SAVED[name] = contents.TABLES[name].build()
    return SAVED[name]


@pytest.mark.parametrize("name", contents.TABLES)
def test_a_table_has_rows_of_the_same_columns(name: str) -> None:
    rows = build(name)
    assert rows and len({tuple(row) for row in rows}) == 1
    for row in rows:
        for head, cell in row.items():
            assert isinstance(cell, str) and "\n" not in cell, head
            assert not re.search(r"(?<!\\)\|", cell), f"{head}: a bar that is not escaped: {cell}"
    if name in CITED:
        assert any(CITED[name].items() <= row.items() for row in rows)


def test_every_table_stands_on_one_page_with_a_caption_that_names_its_command() -> None:
    named = []
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        names = contents.named(text)
        assert all(f"`python docs/tables {name}`" in text for name in names), page.name
        named += names
    assert sorted(named) == sorted(contents.TABLES)
    with pytest.raises(KeyError):
        contents.fill("```{table} nothing\ncaption\n```\n")
    assert contents.fill("```{table} live\nOn Linux\n```\n").startswith("On Linux\n\n| sender |")


def test_the_command_prints_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run([sys.executable, str(DOCS / "tables"), "live"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("| sender | path |")
    monkeypatch.setattr(sys, "argv", ["tables", "liev"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit, match=r"^no table 'liev'"):
        runpy.run_path(str(DOCS / "tables"), run_name="__main__")


def test_a_row_is_marked_where_the_sender_was_trained_and_what_is_no_attack_is_refused() -> None:
    panel = {key: {"worst_utilisation": 0.5, "flow_steps": 1} for key in PANEL}
    row = {"sender": "a", "scene": "deep", "scene_set": "training", "worst_utilisation": 0.5, "by_adversary": panel}
    made = attacks.panel([row | {"trained_on_scenes": ["deep"]}, row | {"trained_on_scenes": None}])
    assert [one["scenario"] for one in made] == ["deep†", "deep"]
    for content in ({}, [3], [{"by_adversary": 1}, 3]):
        with pytest.raises(InputError, match="a list of results"):
            attacks.panel(content)  # type: ignore[arg-type]


def test_longer_searches_and_unseen_paths_stand_beside_the_panel() -> None:
    panel, hidden = (read_json(contents.DATA / name) for name in ("attacks.json", "hidden-attacks.json"))
    assert all(row["legal"] and row["seed"] != 0 and row["budget_flow_steps"] == 200_000_000 for row in hidden)
    (share,) = attacks.hidden_gain(panel, [hidden[0] | {"worst_utilisation": hidden[0]["worst_utilisation"] - 0.5}])
    assert list(share.values())[:2] == ["1", "0 (0%)"]
    with pytest.raises(InputError, match="the panel has not attacked it"):
        attacks.hidden(panel, [hidden[0] | {"sender": "nobody"}])
    for row in read_json(contents.DATA / "unseen-paths.json"):
        flow = row["path"]["flows"][0]
        assert row["legal"] and set(row["by_adversary"]) == set(PANEL)
        assert row["worst_utilisation"] <= 1 - flow["jitter_s"] / (row["window_rtts"] * flow["rtt_s"]) + 1e-3, row["sender"]


@pytest.mark.parametrize("suite", ["company", "worst-case-v2"])
def test_a_recorded_suite_is_of_todays_suite_and_senders(suite: str) -> None:
    record = read_json(contents.DATA / f"{suite}.json")
    assert record["suite_sha256"] == as_suite(suite).sha256
    assert set(record["senders"]) >= set(as_suite(suite).agents)
    for name, sender in record["senders"].items():
        assert sender["sha256"] == sender_hash(make_sender(name)), f"{name} has changed: record it again"


def test_recorded_senders_by_beliefs_are_todays() -> None:
    record = read_json(contents.DATA / "company-beliefs.json")
    assert record["suite_sha256"] == as_suite("company").sha256
    for name, sender in record["senders"].items():
        assert sender["sha256"] == sender_hash(make_sender(name)), f"{name} has changed: record it again"
        assert takes_one_flow(make_sender(name)) and sender["numbers"]["jain_4"] < 0.6


def test_unfinished_runs_and_records_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[dict[str, Any]] = [{}, {"suite": {"name": "quick"}, "complete": True}]
    runs += [{"suite": {"name": name}, "complete": False} for name in ("company", "worst-case-v2")]
    for run in runs:
        with pytest.raises(InputError, match="not a finished run"):
            suites.select(run | {"n_cells": 59, "agents": {"reno": {}}})
    name = "delta-one-way"
    record = suites.papers()[name]
    for changed in ({"suite_sha256": "0" * 64, "version": 7}, {"references": record["references"][1:]}):
        monkeypatch.setattr(suites, "papers", lambda changed=changed: {name: record | changed})
        with pytest.raises(InputError, match="record it again"):
            suites.statements(name)


def test_every_difference_from_a_paper_has_a_cause_that_an_experiment_shows() -> None:
    for suite in suites.papers():
        for one, cause in suites.explained(suite):
            differs = one["agreement"] in ("same direction", "not reproduced")
            assert bool(cause["why"] and cause["shown_by"]) == differs, f"{suite}: {one['name']}"
    text = json.dumps([reference.why for suite in suites.papers() for reference in as_suite(suite).references])
    assert not re.search(r"perhaps|not investigated|not known", text)


def test_every_part_of_the_papers_leads_somewhere_or_says_why_not() -> None:
    found = [one for parts in papers.papers().values() for one in parts.values()]
    assert all(found)
    references = {reference for one in found if isinstance(one, list) for reference in one}
    assert [reference for reference in sorted(references) if papers.missing(reference)] == []
    for wrong in (
        "suite nothing",
        "page fluid.md#nothing",
        "code ccenv.base.files:nothing",
        "command verify nothing",
        "agent cubicc",
    ):
        assert papers.missing(wrong) == wrong


def test_limits_tells_the_totals_of_reproduction() -> None:
    total = {
        name: int(cell) for name, cell in build("reproduction")[-1].items() if cell.isdigit() and name not in {"cells", "CPU (s)"}
    }
    text = f"{total['reproduced']} of {sum(total.values())} statements reproduced"
    text += f", {total['same direction']} in direction only, {total['not reproduced']} not"
    of_kind = Counter[tuple[str, bool]]()
    for record in suites.papers().values():
        for row in record["references"]:
            kind = "number" if " within a factor " in row["claim"] else "rank" if "our own" in row["claim"] else "bound"
            of_kind.update({(kind, row["agreement"] == "reproduced"): 1})
    number, rank, bound = (f"{of_kind[kind, True]}" for kind in ("number", "rank", "bound"))
    all_of = {kind: of_kind[kind, True] + of_kind[kind, False] for kind in ("number", "rank", "bound")}
    text += (
        f"; {all_of['number']} compare with a number ({number} reproduced), {all_of['rank']} rank two of our own values ({rank})"
    )
    text += f", {all_of['bound']} are bounds ({bound})"
    assert text in (DOCS / "limits.md").read_text("utf-8")


def test_pages_of_papers_have_their_tables_and_figures() -> None:
    text = (Path(DOCS) / "reproduction.md").read_text(encoding="utf-8")
    for suite, record in suites.papers().items():
        section = text.partition(f"\n## {suite}\n")[2].partition("\n## ")[0]
        assert f"{{table}} paper-{suite}" in section
        assert all(f"(data/bench/{suite}/{name})" in section for name in record["pictures"][:2])


def test_sizes_count_words_and_duplicates(tmp_path: Path) -> None:
    from tables import size

    page = "# A\n\nfive words of prose here\n\n| a | b |\n| --- | --- |\n\n```{table} x\ncaption\n```\n\n```python\nx = 1\n```\n"
    assert size.count_words(page) == {"prose": 7, "tables": 10, "code": 5}
    body = "    a = f(x)\n    b = g(\n        a,\n        {}\n    )\n    return (a,\n        b)\n"
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_text(f"def one(x):\n{body.format(1)}\ndef two(x):\n{body.replace('a', 'c').format(22)}")
    assert size.duplicates(tmp_path / "p") == [("p/a.py:1", "p/a.py:10")]
    (tmp_path / "p" / "a.py").write_text(f"def one(x):\n{body.format(1)}\ndef two(x):\n{body.replace('g(', 'h(').format(1)}")
    assert size.duplicates(tmp_path / "p") == []
