"""The board: a pure function of the records, safe in a browser, and honest about what it shows."""

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from board_records import build_folders, edit, report
from small_suite import small_suite
from synthetic import synthetic

from ccenv.base.errors import InputError, MissingExtraError
from ccenv.base.files import hash_of
from ccenv.benchmarks.run.runner import run_suite
from ccenv.benchmarks.store import CELLS, MANIFEST
from ccenv.cli.main import main
from ccenv.leaderboard.evaluate.score import make_record, store_report
from ccenv.leaderboard.site.board import make_board
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.sections import Certified
from ccenv.leaderboard.site.sources import from_folders
from ccenv.leaderboard.site.views import quantity
from ccenv.leaderboard.store.records import VERIFICATION, played_hash
from ccenv.network.laws import check_trace
from ccenv.network.metrics.table import METRICS
from ccenv.network.trace import load_trace


@pytest.fixture(scope="module")
def site(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "board"
    build_folders([made], out)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


class Page(HTMLParser):
    """Links, inline code and balance of a page."""

    VOID = ("meta", "link", "img", "br", "input", "path", "circle")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.inline: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        linked = [str(given[name]).partition("#")[0] for name in ("href", "src") if name in given]
        self.links += [link for link in linked if link]
        self.inline += [f"<{tag} {name}>" for name in given if name.startswith("on") or name == "style"]
        if (tag == "script" and "src" not in given) or tag in ("style", "iframe", "object", "form", "base"):
            self.inline.append(f"<{tag}>")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_two_builds_are_equal_to_the_last_byte(made: Path, site: Path, tmp_path: Path) -> None:
    build_folders([made], tmp_path / "again")
    assert contents(tmp_path / "again") == contents(site)
    build_folders([made], tmp_path / "again")  # over an older board, nothing of which may stay
    assert contents(tmp_path / "again") == contents(site)


def test_the_place_of_the_records_does_not_show(records: Path, site: Path, tmp_path: Path) -> None:
    build_folders([records], tmp_path / "elsewhere")
    assert contents(tmp_path / "elsewhere") == contents(site)
    for name, content in contents(site).items():
        if not name.startswith("traces/"):
            assert str(records.parent).encode() not in content


def test_every_link_leads_somewhere_and_nothing_is_inline(site: Path) -> None:
    assert {page.name for page in pages(site)} >= {"index.html", "method.html"}
    assert len(pages(site)) == 7
    for page in pages(site):
        parsed = Page(page.read_text(encoding="utf-8"))
        assert parsed.inline == [], page
        assert parsed.open == [], page
        for link in parsed.links:
            assert (page.parent / link).resolve().is_file(), f"{page}: {link}"
            assert site.resolve() in (page.parent / link).resolve().parents


def test_the_policy_of_the_pages(site: Path) -> None:
    for page in pages(site):
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page.read_text())
        assert policy is not None
        rules = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == "'self' file:"
        assert "unsafe" not in policy[1]


def test_numbers_on_the_page_are_those_of_the_manifest(made: Path, site: Path) -> None:
    manifest = json.loads((made / "bench" / "small" / MANIFEST).read_text())
    index = next((site / "suites").glob("small*")).read_text()
    for entry in manifest["summary"]:
        row = re.search(rf'<tr>\s*<td[^>]*>[^<]*</td>\s*<th scope="row" data-value="{entry["agent"]}">.*?</tr>', index, re.DOTALL)
        assert row is not None
        assert f"{entry['score']['iqm']:.3f}" in row[0]
        assert f"{entry['score']['low']:.3f} to {entry['score']['high']:.3f}" in row[0]
        assert f">{entry['against']['kind']['loss_fraction'] * 100:.2f}</td>" in row[0]


def test_the_worst_case_is_over_all_suites_and_its_trace_is_there(made: Path, site: Path) -> None:
    data = json.loads((site / "board.json").read_text())
    for sender in data["senders"]:
        values = []
        for suite in ("small", "hard"):
            for line in (made / "bench" / suite / CELLS).read_text().splitlines():
                cell = json.loads(line)
                if cell["agent"] == sender["sender"]:
                    values.append(cell["metrics"]["utilisation"])
        assert sender["worst_case"]["value"] == min(values)
        assert sender["worst_case"]["suite"] == "hard"
        trace = load_trace(site / "traces" / f"{sender['worst_case']['key']}.npz")
        assert check_trace(trace) == []
        assert trace.header.adversary == "slowest"


def test_the_verdict_stands_in_its_own_column_and_changes_no_score(made: Path, site: Path, records: Path, tmp_path: Path) -> None:
    index = (site / "index.html").read_text()
    assert index.count('<span class="verdict verified">verified</span>') == 1  # for cc_qdel only
    shutil.rmtree(records / "verify")
    build_folders([records], tmp_path / "without")
    tables = [json.loads((folder / "board.json").read_text())["tables"] for folder in (site, tmp_path / "without")]
    assert tables[0] == tables[1]
    assert "verdict verified" not in (tmp_path / "without" / "index.html").read_text()


@pytest.mark.parametrize(("lasso", "verdict"), [("the trace returns to its state", "refuted"), (None, "unknown")])
def test_a_verdict_links_its_trace_and_is_refuted_only_where_it_repeats(
    lasso: str | None, verdict: str, made: Path, records: Path, tmp_path: Path
) -> None:
    """What older code called refuted, a step that fails, is told as unknown."""
    trace = next((made / "bench" / "small" / "traces").glob("cc_qdel*.npz"))
    query = {"claim": "x", "verdict": "refuted", "evidence": {"sha256": "b" * 64}}
    more = {} if lasso is None else {"lasso": lasso}
    store_report(report(T=8, verdict="refuted", queries=[query], trace=str(trace), **more), "report", records)
    build_folders([records], tmp_path / "site")
    page = next((tmp_path / "site" / "entries").glob("cc_qdel*")).read_text()
    assert f"../traces/proof-{'b' * 16}.npz" in page
    assert (tmp_path / "site" / "traces" / f"proof-{'b' * 16}.npz").read_bytes() == trace.read_bytes()
    assert page.index('"verdict verified"') < page.index(f'"verdict {verdict}"')  # T = 7 before T = 8
    assert ("step fails" in page) == (verdict == "unknown") and ("refuted" in page) == (verdict == "refuted")


def test_text_of_records_is_escaped(site: Path) -> None:
    page = next((site / "entries").glob("cc_qdel*")).read_text()
    assert "objectives &lt;or&gt; progress" in page
    assert "<or>" not in page


def test_a_run_without_traces_shows_no_dead_link(records: Path, tmp_path: Path) -> None:
    shutil.rmtree(records / "bench" / "hard" / "traces")
    build_folders([records], tmp_path / "site")
    for page in pages(tmp_path / "site"):
        assert all((page.parent / link).resolve().is_file() for link in Page(page.read_text()).links)


def test_ranks_of_what_the_data_cannot_separate() -> None:
    from ccenv.leaderboard.site.board import rank_standings
    from ccenv.leaderboard.store.records import Score

    class Fake:
        def __init__(self, name: str, low: float, iqm: float, high: float) -> None:
            self.player = type("P", (), {"label": name, "sha256": name})
            score = Score(metric="power", adversary="kind", iqm=iqm, low=low, high=high, n_runs=4)
            self.summary = type("S", (), {"score": score})

    entries = [Fake("c", 0.40, 0.45, 0.55), Fake("a", 0.8, 0.9, 0.95), Fake("b", 0.50, 0.6, 0.7), Fake("d", 0.1, 0.2, 0.3)]
    ranks = [(first, last, result.player.label) for first, last, result in rank_standings(entries, METRICS["power"])]  # type: ignore[arg-type]
    assert ranks == [(1, 1, "a"), (2, 3, "b"), (2, 3, "c"), (4, 4, "d")]
    lower = [(first, last, r.player.label) for first, last, r in rank_standings(entries, METRICS["loss_fraction"])]  # type: ignore[arg-type]
    assert lower == [(1, 1, "d"), (2, 3, "c"), (2, 3, "b"), (4, 4, "a")]


def test_the_newest_run_of_a_sender_counts_and_older_code_is_marked(records: Path, tmp_path: Path) -> None:
    shutil.copytree(records / "bench" / "small", records / "bench" / "newer")

    def newer(manifest: Any) -> None:
        manifest["finished_at"] = "2999-01-01T00:00:00Z"
        manifest["code_sha256"] = "c" * 64
        manifest["agents"] = manifest["agents"][:1]

    edit(records / "bench" / "newer" / MANIFEST, newer)
    board = make_board(from_folders([records]), Certified(()))
    table = next(t for t in board.tables if t.suite.name == "small")
    origin = {result.player.label: (Path(result.record.order).name, result.stale) for _, _, result in table.rows}
    assert origin == {"cc_qdel": ("newer", False), "reno": ("small", True)}


@pytest.mark.parametrize("whole", [False, True])
def test_records_of_an_older_suite_format_stay_readable(records: Path, whole: bool) -> None:
    """A suite that was recorded before a key existed has the hash that it had then, and stands beside newer records of it."""

    def older(manifest: Any) -> None:
        assert played_hash(manifest["suite"]) == manifest["suite_sha256"]  # as the suite itself computes it
        del manifest["suite"]["budget_flow_steps"]
        manifest["suite_sha256"] = hash_of(manifest["suite"]) if whole else played_hash(manifest["suite"])

    now = make_board(from_folders([records]), Certified(()))
    edit(records / "bench" / "small" / MANIFEST, older)
    assert [t.sha256 for t in make_board(from_folders([records]), Certified(())).tables] == [t.sha256 for t in now.tables]


def test_versions_of_a_suite_are_never_mixed(records: Path, tmp_path: Path) -> None:
    run_suite(small_suite(version=2), records / "bench" / "small2", pictures=False)
    board = make_board(from_folders([records]), Certified(()))
    found = [(table.suite.name, table.suite.version, table.superseded) for table in board.tables]
    assert found == [("small", 2, False), ("hard", 1, False), ("small", 1, True)]


def test_units_that_people_read() -> None:
    assert quantity(0.0219, METRICS["queueing_delay_mean_s"]) == "21.9"
    assert quantity(0.131, METRICS["loss_fraction"]) == "13.10"
    assert quantity(None, METRICS["power"]) == "\N{EN DASH}"


def test_where_a_site_may_go(made: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "precious").write_text("x")
    with pytest.raises(InputError, match="holds something that is not a board"):
        build_folders([made], tmp_path / "home")
    assert (tmp_path / "home" / "precious").read_text() == "x"
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]


def test_no_records(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run one first"):
        build_folders([tmp_path], tmp_path / "site")
    with pytest.raises(InputError, match="no such folder"):
        build_folders([tmp_path / "nowhere"], tmp_path / "site")


def test_without_jinja2(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ccenv\[board\]'"):
        build_folders([made], tmp_path / "site")


def test_what_any_progress_excuses_is_shown_as_no_bound(tmp_path: Path) -> None:
    """The invariant has no bound; a utilisation has one from the version on in which it speaks about endless runs."""
    excused = make_record(report(bound=0.9), "report")
    promised = make_record(report(property="utilisation", bound=0.9), "report")
    assert (excused.excused, excused.bound) == (True, None)
    assert (promised.excused, promised.bound) == (False, 0.9)
    older = promised.model_copy(update={"format_version": 1})
    assert older.excused
    assert "any progress" in older.question


def test_envelopes_of_the_first_version_bound_nothing() -> None:
    records = synthetic(1)
    (record,) = records.envelopes
    assert len(record.bounds) == len(record.rows)
    assert record.model_copy(update={"promises": 1}).bounds == ()


def test_command_line(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report()))
    assert main(["board", "add", str(tmp_path / "report.json"), "--records", str(tmp_path), "--json"]) == 0
    assert (Path(json.loads(capsys.readouterr().out)["record"]) / VERIFICATION).is_file()
    assert main(["board", "build", "--records", str(made), "--out", str(tmp_path / "site"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == {
        "index": str(tmp_path / "site" / "index.html"),
        "suites": 2,
        "senders": 2,
        "adversaries": 0,
        "verifications": 1,
        "theorems": 1,
        "leagues": 0,
    }
    assert main(["board", "add", str(tmp_path / "absent.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_large_board_has_a_small_index(tmp_path: Path, count: int) -> None:
    build_site(synthetic(count), tmp_path / "site")
    size = (tmp_path / "site" / "index.html").stat().st_size
    fixed = 40_000  # head, filters, profile
    assert size < fixed + count * (1_000_000 - fixed) / 1000  # a thousand entries stay below a megabyte
    assert len(list((tmp_path / "site" / "entries").iterdir())) == count
