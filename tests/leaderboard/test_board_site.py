"""The pages of a board: what they say, their pictures, and the server that shows them."""

import itertools
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board_records import build_folders, contents, edit, report
from small_suite import small_suite
from synthetic import synthetic

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.base.errors import InputError, MissingExtraError
from ccenv.base.files import hash_value
from ccenv.benchmarks.run.runner import run_suite
from ccenv.benchmarks.store import CELLS, MANIFEST
from ccenv.cli.main import main
from ccenv.engine.curve.engine import CurveEngine
from ccenv.leaderboard.evaluate.score import make_record, store_report
from ccenv.leaderboard.evaluate.trace_view import POINTS, make_view
from ccenv.leaderboard.site import serve, views
from ccenv.leaderboard.site.board import make_board
from ccenv.leaderboard.site.build import DATA, build_site
from ccenv.leaderboard.site.drawing import place_names
from ccenv.leaderboard.site.sections import Certified
from ccenv.leaderboard.site.sources import from_folders
from ccenv.leaderboard.site.views import explain, quantity, trace_view
from ccenv.leaderboard.store.records import VERIFICATION, played_hash
from ccenv.network.laws import check_trace
from ccenv.network.metrics.table import METRICS
from ccenv.network.metrics.trace import Window
from ccenv.network.path import make_path
from ccenv.network.trace import Trace, load_trace


@pytest.fixture(scope="module")
def site(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "board"
    build_folders([made], out)
    return out


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


def test_two_builds_are_equal_to_the_last_byte_wherever_the_records_lie(records: Path, site: Path, tmp_path: Path) -> None:
    for _ in range(2):  # also over an older board, nothing of which may stay
        build_folders([records], tmp_path / "again")
        assert contents(tmp_path / "again") == contents(site)
    for name, content in contents(site).items():
        assert name.startswith("traces/") or str(records.parent).encode() not in content


def test_every_link_leads_somewhere_nothing_is_inline_and_text_is_escaped(site: Path) -> None:
    assert {page.name for page in pages(site)} >= {"index.html", "method.html"} and len(pages(site)) == 7
    for page in pages(site):
        text = page.read_text(encoding="utf-8")
        parsed, policy = Page(text), re.search(r'Content-Security-Policy" content="([^"]*)"', text)
        assert parsed.inline == [] and parsed.open == [], page
        for link in parsed.links:
            assert (page.parent / link).resolve().is_file(), f"{page}: {link}"
            assert site.resolve() in (page.parent / link).resolve().parents
        assert policy is not None
        rules = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
        assert (rules["default-src"], rules["script-src"]) == ("'none'", "'self' file:") and "unsafe" not in policy[1]
    page = next((site / "entries").glob("cc_qdel*")).read_text()
    assert "objectives &lt;or&gt; progress" in page and "<or>" not in page


def test_numbers_on_the_page_are_those_of_the_manifest_and_the_worst_case_is_over_all_suites(made: Path, site: Path) -> None:
    manifest = json.loads((made / "bench" / "small" / MANIFEST).read_text())
    index = next((site / "suites").glob("small*")).read_text()
    for entry in manifest["summary"]:
        row = re.search(rf'<tr>\s*<td[^>]*>[^<]*</td>\s*<th scope="row" data-value="{entry["agent"]}">.*?</tr>', index, re.DOTALL)
        assert row is not None and f"{entry['score']['iqm']:.3f}" in row[0]
        assert f"{entry['score']['low']:.3f} to {entry['score']['high']:.3f}" in row[0]
        assert f">{entry['against']['kind']['loss_fraction'] * 100:.2f}</td>" in row[0]
    data = json.loads((site / "board.json").read_text())
    for sender in data["senders"]:
        values = []
        for suite in ("small", "hard"):
            for line in (made / "bench" / suite / CELLS).read_text().splitlines():
                cell = json.loads(line)
                if cell["agent"] == sender["sender"]:
                    values.append(cell["metrics"]["utilisation"])
        assert sender["worst_case"]["value"] == min(values) and sender["worst_case"]["suite"] == "hard"
        trace = load_trace(site / "traces" / f"{sender['worst_case']['key']}.npz")
        assert check_trace(trace) == [] and trace.header.adversary == "slowest"


def test_the_verdict_stands_in_its_own_column_and_changes_no_score(made: Path, site: Path, records: Path, tmp_path: Path) -> None:
    index = (site / "index.html").read_text()
    assert index.count('<span class="verdict verified">verified</span>') == 1  # for cc_qdel only
    shutil.rmtree(records / "verify")
    build_folders([records], tmp_path / "without")
    tables = [json.loads((folder / "board.json").read_text())["tables"] for folder in (site, tmp_path / "without")]
    assert tables[0] == tables[1] and "verdict verified" not in (tmp_path / "without" / "index.html").read_text()


@pytest.mark.parametrize(("lasso", "verdict"), [("the trace returns to its state", "refuted"), (None, "unknown")])
def test_a_verdict_links_its_trace_and_is_refuted_only_where_it_repeats(lasso, verdict, made, records, tmp_path):
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
        manifest["suite_sha256"] = hash_value(manifest["suite"]) if whole else played_hash(manifest["suite"])

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
    assert quantity(0.131, METRICS["loss_fraction"]) == "13.10" and quantity(None, METRICS["power"]) == "\N{EN DASH}"


def test_where_a_site_may_go_and_what_it_needs(made: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "precious").write_text("x")
    with pytest.raises(InputError, match="holds something that is not a board"):
        build_folders([made], tmp_path / "home")
    assert (tmp_path / "home" / "precious").read_text() == "x" and list(tmp_path.iterdir()) == [tmp_path / "home"]
    with pytest.raises(InputError, match="run one first"):
        build_folders([tmp_path], tmp_path / "site")
    with pytest.raises(InputError, match="no such folder"):
        build_folders([tmp_path / "nowhere"], tmp_path / "site")


def test_without_jinja2(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ccenv\[board\]'"):
        build_folders([made], tmp_path / "site")


def test_excused_claims_and_envelopes_of_the_first_version_bound_nothing(tmp_path: Path) -> None:
    """The invariant has no bound; a utilisation has one from the version on in which it speaks about endless runs."""
    excused = make_record(report(bound=0.9), "report")
    promised = make_record(report(property="utilisation", bound=0.9), "report")
    assert (excused.excused, excused.bound) == (True, None) and (promised.excused, promised.bound) == (False, 0.9)
    older = promised.model_copy(update={"format_version": 1})
    assert older.excused and "any progress" in older.question
    records = synthetic(1)
    (record,) = records.envelopes
    assert len(record.bounds) == len(record.rows) and record.model_copy(update={"promises": 1}).bounds == ()


def test_command_line(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused, answer) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report()))
    assert main(["board", "add", str(tmp_path / "report.json"), "--records", str(tmp_path), "--json"]) == 0
    assert (Path(json.loads(capsys.readouterr().out)["record"]) / VERIFICATION).is_file()
    result = answer(["board", "build", "--records", str(made), "--out", str(tmp_path / "site"), "--json"])
    assert result == {
        "index": str(tmp_path / "site" / "index.html"), "suites": 2, "senders": 2, "adversaries": 0, "verifications": 1,
        "theorems": 1, "leagues": 0, "settings": {"certificates": [], "league": [], "quic": []},
    }  # fmt: skip
    refused(["board", "add", str(tmp_path / "absent.json")], "cannot be read")


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_large_board_has_a_small_index(tmp_path: Path, count: int) -> None:
    build_site(synthetic(count), tmp_path / "site")
    size = (tmp_path / "site" / "index.html").stat().st_size
    fixed = 40_000  # head, filters, profile
    assert size < fixed + count * (1_000_000 - fixed) / 1000  # a thousand entries stay below a megabyte
    assert len(list((tmp_path / "site" / "entries").iterdir())) == count


@pytest.fixture
def served_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, int]]:
    monkeypatch.setattr(serve, "WHOLE_S", 0.5)
    monkeypatch.setattr(serve, "MOST_CONNECTIONS", 8)
    folder = tmp_path / "site"
    (folder / "entries").mkdir(parents=True)
    for name in (DATA, "index.html", "entries/a.html"):
        (folder / name).write_text("a page")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "round-1.hex").write_text("secret")
    with serve.make_server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield folder, int(server.server_address[1])
        server.shutdown()
        thread.join()


def answer(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as response:
        return bytes(response.read())


def test_hostile_links_of_a_site_are_not_followed(served_site: tuple[Path, int]) -> None:
    folder, port = served_site
    secret = folder.parent / "secret"
    (folder / "link.html").symlink_to(secret / "round-1.hex")
    (folder / "inside.html").symlink_to(folder / "index.html")
    (folder / "folder").symlink_to(secret)
    (folder / "entries" / "index.html").symlink_to(secret / "round-1.hex")
    os.mkfifo(folder / "pipe.html")
    assert answer(port, "index.html") == answer(port, "entries/a.html") == b"a page"
    outside = ["link.html", "inside.html", "folder/round-1.hex", "folder/", "pipe.html"]
    for path in (*outside, "entries/", "entries/../link.html", "a%00b"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            answer(port, path)


def test_hostile_connections_are_few_and_end(served_site: tuple[Path, int]) -> None:
    _, port = served_site
    before = threading.active_count()
    slow = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(3 * serve.MOST_CONNECTIONS)]
    for connection in slow:
        connection.sendall(b"GET /index.html HTTP/1.0\r\nX: ")
    time.sleep(0.3)
    assert threading.active_count() - before <= 2 * serve.MOST_CONNECTIONS  # each with the thread of its time limit
    end_s = time.monotonic() + 60
    while slow and time.monotonic() < end_s:
        for connection in slow:
            with suppress(OSError):
                connection.sendall(b"x")  # never silent, never done
        slow = [connection for connection in slow if not _is_over(connection)]
        time.sleep(0.1)
    assert not slow and answer(port, "index.html") == b"a page"


def _is_over(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        over = connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        over = True
    if over:
        connection.close()
    return over


def played(sender: str, adversary: str, rtts: int = 60, **path: float) -> Trace:
    given = {"link_rate_mbps": 12, "rtt_ms": 40, "jitter_ms": 40, "buffer_bdp": 4, **path}
    players: Any = {"senders": [make_sender(sender)], "adversary": make_adversary(adversary)}
    engine = CurveEngine([make_path(**given)], model="ccac", record=True, **players)
    engine.advance(rtts * engine.steps_per_rtt)
    return engine.trace(0)


def boxes(points: list[dict]) -> list[tuple[float, float, float, float]]:
    """Where the names are, without what surrounds a letter."""
    out = []
    for point in points:
        if point["name"] is not None:
            x, y, anchor = point["name"]
            width = 6.6 * len(point["label"])
            left = {"start": x, "end": x - width, "middle": x - width / 2}[anchor]
            out.append((left + 0.2, y - 9.8, left + width - 0.2, y + 1.8))
    return out


@pytest.mark.parametrize("seed", range(5))
def test_names_cover_neither_each_other_nor_points(seed: int) -> None:
    draw = np.random.Generator(np.random.Philox(seed))
    points = [{"label": f"sender_{i}", "x": float(draw.uniform(60, 610)), "y": float(draw.uniform(20, 270))} for i in range(40)]
    found = boxes(place_names(points, radius=5))
    assert len(found) > 10
    for a, b in itertools.combinations(found, 2):
        assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]
    for left, top, right, bottom in found:
        assert left >= 50 and right <= 640
        assert not any(left < p["x"] + 4 and p["x"] - 4 < right and top < p["y"] + 4 and p["y"] - 4 < bottom for p in points)


def test_a_name_alone_stands_beside_its_point() -> None:
    (point,) = place_names([{"label": "reno", "x": 100.0, "y": 100.0}])
    assert point["name"] == (113.0, 104.0, "start")


def test_overview_places_score_worst_case_and_bound(tmp_path: Path) -> None:
    board = make_board(synthetic(8), Certified(()))
    picture = views.overview(board)
    assert picture is not None
    by_name = {point["label"]: point for point in picture["points"]}
    assert len(by_name) == 8
    for (label, _), entry in board.entries.items():
        point = by_name[label]
        assert entry.worst is not None
        assert point["worst"] == entry.worst.case.value and (point["bound"] == 0.125) == (entry.envelope is not None)
    by_score = sorted(by_name.values(), key=lambda p: p["score"])
    assert [p["x"] for p in by_score] == sorted(p["x"] for p in by_score)
    by_worst = sorted(by_name.values(), key=lambda p: -p["worst"])
    assert [p["y"] for p in by_worst] == sorted(p["y"] for p in by_worst)
    assert all(56 <= p["x"] <= 616 and 16 <= p["y"] <= 272 for p in by_name.values())
    build_site(synthetic(8), tmp_path / "site")
    index = (tmp_path / "site" / "index.html").read_text()
    assert index.count('class="proved"') == 4
    assert "mean queueing delay" in index  # raw columns beside the score
    assert re.search(r'data-label="loss[^"]*" data-value="0.0"', index)
    assert views.overview(make_board(synthetic(1), Certified(()))) is None


@pytest.mark.parametrize(("sender", "adversary"), [("cubic", "kind"), ("bbr1", "square"), ("reno", "slowest"), ("copa", "hoard")])
def test_rtts_of_the_view_are_those_of_the_trace(sender: str, adversary: str) -> None:
    """The metrics compute delays from the curves in another way: the largest of them bounds every RTT, and is nearly reached."""
    trace = played(sender, adversary)
    view = make_view(trace)
    first, last, _ = Window(trace, 0, trace.n_steps).delays
    most_ms = 40 + 1e3 * float(np.maximum(first, last).max())
    rtts_ms = np.array(view["flows"][0]["rtt_ms"])
    assert len(rtts_ms) <= POINTS and rtts_ms.min() >= 40 * (1 - 1e-3) and rtts_ms.max() <= most_ms * (1 + 1e-3)
    assert rtts_ms.max() >= 40 + 0.7 * (most_ms - 40)  # the newest byte of an interval is not the oldest of its burst


def test_moves_of_the_view_are_those_of_the_network() -> None:
    kind, slow = (make_view(played("constant:rate_mbps=6", name)) for name in ("kind", "slowest"))
    assert max(kind["held_ms"]) == 0
    assert max(slow["held_ms"]) > 10  # D = 40 ms of a half-used link
    assert kind["rm_ms"] == 40
    assert np.mean(kind["wasted_mbps"][20:]) == pytest.approx(6, rel=0.1)  # half of the link finds no bytes
    full = make_view(played("constant:rate_mbps=24", "kind"))
    assert np.mean(full["wasted_mbps"][20:]) == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(
    ("sender", "adversary", "said"),
    [
        ("constant:rate_mbps=3", "kind", r"25 % of the link is used: the sender sends only 25 % of the link rate, although th"),
        ("constant:rate_mbps=36", "kind",
         r"100 % of the link is used: the sender sends 2\d\d % of the link rate, and 5\d % of it is lost\.$"),
        ("constant:rate_mbps=6", "slowest",
         r"the network holds up to \d+ ms of bytes back \(RTTs are .* ms on a path of 40 ms\)"),
        ("cubic", "kind", r"the sender offers \d+ % of the link rate"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_is_measured(sender: str, adversary: str, said: str) -> None:
    assert re.search(said, explain(make_view(played(sender, adversary)))), explain(make_view(played(sender, adversary)))


@pytest.mark.parametrize("n_flows", [1, 2])
@pytest.mark.parametrize(("sent", "lost"), [(0.0, 0.0), (0.0, 3.0), (1e-12, 5.0), (12.0, 0.0), (1e6, 1e6)])
def test_the_sentence_survives_silence_and_floods(sent: float, lost: float, n_flows: int) -> None:
    flow = {"sender": "x", "sent_mbps": [sent], "delivered_mbps": [0.0], "rtt_ms": [40.0]}
    view = {"time_s": [1.0], "link_mbps": [12.0], "queue_ms": [0.0], "lost_mbps": [lost], "flows": [flow] * n_flows}
    said = explain({**view, "held_ms": [0.0], "wasted_mbps": [12.0], "rm_ms": 40.0})
    assert ("the sender" in said) == (n_flows == 1) and not re.search(r"nan|inf|-\d", said)
    assert trace_view({**view, "held_ms": [0.0], "wasted_mbps": [12.0], "rm_ms": 40.0})["panels"]


def test_a_view_of_an_older_version_is_drawn_without_rtt_and_moves() -> None:
    view = json.loads(json.dumps(make_view(played("reno", "square"))))
    complete = trace_view(view)
    for name in ("held_ms", "wasted_mbps", "rm_ms"):
        del view[name]
    del view["flows"][0]["rtt_ms"]
    older = trace_view(view)
    assert (complete["complete"], older["complete"]) == (True, False)
    assert (len(complete["panels"]), len(older["panels"])) == (3, 2) and "rtt_ms" not in older["series"]
    assert older["why"].startswith("In the second half of the run") and "the network" not in older["why"]


def test_the_page_of_a_sender_has_the_sentence_and_the_moves(tmp_path: Path) -> None:
    run_suite(small_suite(agents=["reno"]), tmp_path / "records", pictures=True)
    build_site(from_folders([tmp_path / "records"]), tmp_path / "site")
    page = next((tmp_path / "site" / "entries").glob("reno*.html")).read_text()
    assert 'class="why">In the second half of the run' in page and "held back by the network" in page
    assert "RTT, reno" in page
