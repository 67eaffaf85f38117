"""Audits: what import cannot see, because hashes, chain and contents are in order, an audit names."""

import json
import math
import re
import sqlite3
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from board_records import PANEL, SUITE, contents
from forging import KEY, OTHER_KEY, Forgery, forge, other_seeds, proved, view

from ccenv.adversaries import make_adversary
from ccenv.base.errors import CcenvError, InputError
from ccenv.benchmarks.suite.curve import validate_suite
from ccenv.cli.main import main
from ccenv.leaderboard.audit.run import audit
from ccenv.leaderboard.evaluate.damage import WORST_VIEW, measure_damage, undisturbed_cells
from ccenv.leaderboard.evaluate.queue import evaluate, list_tasks
from ccenv.leaderboard.evaluate.score import parse_seeds, score_sender
from ccenv.leaderboard.evaluate.stages import EnvelopeStage
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.serve import make_server
from ccenv.leaderboard.site.sources import from_store
from ccenv.leaderboard.store.database import BoardStore, EditedRecordError
from ccenv.leaderboard.store.head import expected_head, read_head, write_head
from ccenv.leaderboard.store.home import Home, close_round
from ccenv.leaderboard.store.schema import FILES, RECORDS
from ccenv.leaderboard.store.submit import entrants, submit_reviewed
from ccenv.leaderboard.submission.signature import available, read_fingerprint


def test_a_good_board_has_no_problems(store: BoardStore, home: Home) -> None:
    result = audit(store, home, sample=12, certificates=2)
    assert result["problems"] == [] and result["n_rerun"] == result["n_equal"] == 12
    assert result["n_incomparable"] == result["n_proofs"] == 0 and store.records("audit")[0].content["n_equal"] == 12
    again = audit(store, home, sample=12, certificates=2, seed=result["sample_seed"], keep=False)
    assert again["n_equal"] == 12 and len(store.records("audit")) == 1
    close_round(store, home)
    assert audit(store, home, sample=0, certificates=0)["problems"] == []


def better_score(forgery: Forgery) -> None:
    change = lambda content: content["manifest"]["summary"][0]["score"].update(iqm=0.99)  # noqa: E731
    forgery.edit(forgery.record("evaluation", "reno", "small"), change)


def better_cells(cells: list[dict[str, Any]]) -> None:
    for cell in cells:
        cell["metrics"]["power"] = min(1.0, cell["metrics"]["power"] + 0.1)


def one_bit(cells: list[dict[str, Any]]) -> None:
    cells[0]["metrics"]["utilisation"] = math.nextafter(cells[0]["metrics"]["utilisation"], 2)


other_view = view("evaluation", lambda seen: seen.update(queue_ms=[0.0] * len(seen["queue_ms"])), "reno")


@pytest.mark.parametrize(
    ("change", "message"),
    [(better_score, "its summary does not follow from its cells"),
     (lambda forgery: forgery.cells("reno", better_cells), "played again it differs"),
     (lambda forgery: forgery.cells("reno", one_bit), "played again it differs"), (other_view, "played again it differs"),
     (other_seeds, "its seeds do not follow from the submission and the secret")],
    ids=["score", "cells", "one_bit", "view", "seeds"],
)  # fmt: skip
def test_what_does_not_follow_is_found(home: Home, change: Callable[[Forgery], Any], message: str) -> None:
    forge(home, change)
    with home.open() as store:
        result = audit(store, home, sample=100, certificates=0)
        assert any(message in problem for problem in result["problems"]), result["problems"]
        assert store.check() == result["n_records"] + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["score"].update(iqm=1.0), "its score does not follow from its cells"),
        (lambda content: content["played"].update(seeds=[1]), "runs; suite 'panel' with its seeds has"),
        (
            lambda content: (content["played"].update(seeds=[1]), [cell.update(seed=1) for cell in content["cells"]]),
            "its seeds do not follow from the submission and the secret",
        ),
        (lambda content: content["played"].update(agents=[]), "what was played is not the suite 'panel'"),
    ],
    ids=["score", "seeds", "seeds_of_all", "senders"],
)
def test_invented_damage_is_found(home: Home, change: Any, message: str) -> None:
    forge(home, lambda forgery: forgery.edit(forgery.record("damage"), change))
    with home.open() as store:
        number = store.records("damage")[0].number
        (problem,) = audit(store, home, sample=0, certificates=0)["problems"]
    assert problem.startswith(f"record {number}") and message in problem


def test_proofs_are_decided_again(home: Home) -> None:
    pytest.importorskip("z3", reason="the extra verify is not installed")
    from ccenv.proofs.claims.envelope import METRICS

    with home.open() as store:
        evaluate(store, home, list_tasks(store, [EnvelopeStage(2.0, samples=3)], only=["cc_qdel"]))
        result = audit(store, home, sample=0, certificates=2, time_limit_s=30)
        assert result["problems"] == [] and result["n_proofs"] == result["n_confirmed"] == result["n_same_query"] == 2

    def too_good(content: dict[str, Any]) -> None:
        row = next(row for row in content["rows"] if row["verdict"] == "verified")
        metric = METRICS[row["metric"]]
        row["bound"] = float(metric.high if metric.best == "largest" else metric.low)

    forge(home, lambda forgery: forgery.edit(forgery.record("envelope"), too_good))
    with home.open() as store:
        problems = audit(store, home, sample=0, certificates=100, time_limit_s=30)["problems"]
    assert any("its query has a counterexample" in problem for problem in problems)


def test_damage(store: BoardStore) -> None:
    records = store.records("damage")
    assert {record.content["name"] for record in records} == {"square_period_rtts_4", "good_moves", "good_network"}
    for record in records:
        assert {cell["sender"] for cell in record.content["cells"]} == {"reno", "cc_qdel"}
        assert len(record.content["cells"]) == 2 and WORST_VIEW in record.files
        damages = [1 - cell["utilisation"] / cell["undisturbed"] for cell in record.content["cells"]]
        assert min(damages) - 1e-12 <= record.content["score"]["iqm"] <= max(damages) + 1e-12
    content = records[0].content  # the panel as published, whose hash is stored, and as it was played, with the entry's seeds
    assert validate_suite(content["suite"], "x").sha256 == content["suite_sha256"] == PANEL.sha256
    assert {cell["seed"] for cell in content["cells"]} == set(content["played"]["seeds"]) != set(content["suite"]["seeds"])
    assert {**content["played"], "seeds": content["suite"]["seeds"]} == content["suite"]
    cell = undisturbed_cells(PANEL)[0]
    same, trace = measure_damage(cell, make_adversary("kind"))
    assert same.damage == 0.0  # against itself, to the last bit
    slowed, _ = measure_damage(cell, make_adversary("slowest"))
    assert slowed.damage > 0.05 and trace.header.adversary == "benign"


def test_an_audit_names_a_record_that_cannot_be_read(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    def change(forgery: Forgery) -> None:
        first, second, *_ = [row for row in forgery.records if row["kind"] == "damage"]
        forgery.edit(first, lambda content: content.pop("submission"))
        forgery.edit(second, lambda content: content.update(score={}))

    forge(home, change)
    assert main(["board", "audit", "--board", str(home.folder), "-s", "sample=0", "-s", "proofs=0", "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    with home.open() as store:
        numbers = [record.number for record in store.records("damage")]
    assert [problem.split(":")[0] for problem in problems] == [f"record {number}" for number in numbers[:2]]
    assert "submission: missing" in problems[0] and "score" in problems[1]


def test_the_site_of_a_database(store: BoardStore, home: Home, tmp_path: Path) -> None:
    result = build_site(from_store(store, home), tmp_path / "one")
    build_site(from_store(store, home), tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert {k: v for k, v in result.items() if k != "index"} == {
        "suites": 2, "senders": 2, "adversaries": 3, "verifications": 0, "theorems": 1, "leagues": 0,
    }  # fmt: skip
    site = contents(tmp_path / "one")
    page = next(text.decode() for name, text in site.items() if name.startswith("entries/cc_qdel"))
    assert "Ada Lovelace" in page and 'href="https://example.org/x?a=1&amp;b=2" rel="nofollow noopener noreferrer"' in page
    assert "A &amp; B" in page and "ccenv board score DIR --suite small --seeds " in page
    assert any(name.startswith("submissions/") and name.endswith("/program.json") for name in site)
    assert not any(name.endswith(".npz") for name in site)  # the adversarial suite was evaluated without traces
    assert page.count('class="viewer"') == 1  # its view is there
    rows = re.findall(r'<th scope="row" data-value="(\w+)"', site["adversaries.html"].decode())
    assert {"square_period_rtts_4", "good_moves"} <= set(rows) and store.records()[-1].chain in site["method.html"].decode()
    data = json.loads(site["board.json"])
    assert data["chain"] == store.records()[-1].chain
    assert {a["adversary"] for a in data["adversaries"]} == {"square_period_rtts_4", "good_moves", "good_network"}


def test_nothing_evaluated_yet(tmp_path: Path) -> None:
    home = Home(tmp_path / "new")
    with home.open() as store, pytest.raises(InputError, match="nothing on this board is evaluated"):
        submit_reviewed(store, home, "reno")
        from_store(store, home)


def test_an_entrys_numbers_can_be_made_again(store: BoardStore, evaluated: Path, tmp_path: Path) -> None:
    import yaml

    (tmp_path / "small.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(SUITE.model_dump(mode="json", exclude_none=True)))))
    record = store.records("evaluation", subject=store.records("submission")[0].subject)[0]
    seeds = ",".join(str(seed) for seed in record.content["manifest"]["suite"]["seeds"])
    arguments = str(tmp_path / "small.yaml"), parse_seeds(seeds), "local", None, lambda done, total: None
    summary = score_sender(str(evaluated / "program"), *arguments)
    assert summary["score"] == record.content["manifest"]["summary"][0]["score"]
    with pytest.raises(InputError, match="whole numbers"):
        parse_seeds("1;2")
    with pytest.raises(InputError, match="is not a sender"):
        score_sender(str(evaluated / "square"), None, None, "local", None, lambda done, total: None)


@pytest.mark.parametrize("change", [{"url": "javascript:alert(1)"}, {"training": {"code": "javascript:alert(1)"}}])
def test_addresses_of_a_foreign_board_are_checked_too(tmp_path: Path, change: dict[str, Any]) -> None:
    home = Home(tmp_path / "board")
    with home.open() as store:
        record = submit_reviewed(store, home, "reno")
        content = json.loads(json.dumps(record.content))
        content["card"].update(change)
        store.append("submission", "0" * 64, "submission/foreign", content, {})
        with pytest.raises(InputError, match="https://host/path"):
            entrants(store)


def test_serving(store: BoardStore, home: Home, tmp_path: Path) -> None:
    build_site(from_store(store, home), tmp_path / "site")
    with make_server(tmp_path / "site", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        with urllib.request.urlopen(f"{address}/index.html", timeout=60) as answer:
            assert b"Which sender holds up?" in answer.read()
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        for path in ("/../board/board.db", "/%2e%2e/board/board.db", "/entries/"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(address + path, timeout=60)
        with pytest.raises(CcenvError, match="cannot be used"):
            make_server(tmp_path / "site", server.server_address[1])
        server.shutdown()
        thread.join()
    with pytest.raises(InputError, match="there is no site"):
        make_server(tmp_path, 0)


def test_command_line(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused) -> None:
    board = ["--board", str(home.folder)]
    assert main(["board", "audit", *board, "-s", "sample=2", "-s", "proofs=0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_equal"] == 2
    forge(home, better_score)
    assert main(["board", "audit", *board, "-s", "sample=0", "-s", "proofs=0"]) == 1
    assert "problem: record" in capsys.readouterr().out
    assert main(["board", "export", *board, str(tmp_path / "x.jsonl.xz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == (tmp_path / "x.jsonl.xz").stat().st_size
    assert main(["board", "import", "--board", str(tmp_path / "new"), str(tmp_path / "x.jsonl.xz")]) == 0
    assert main(["board", "build", *board, "--out", str(tmp_path / "site"), "--json"]) == 0
    assert main(["board", "audit", "--board", str(tmp_path / "absent")]) == 2
    capsys.readouterr()
    refused(["board", "submit", "copaa", "--board", str(tmp_path / "absent")], "Did you mean 'copa'")
    assert not (tmp_path / "absent").exists() and main(["board", "audit", *board, "-s", "sample=-1"]) == 2


def test_edited_files_stop_the_site(store: BoardStore, home: Home, tmp_path: Path) -> None:
    store.close()
    with sqlite3.connect(home.folder / "board.db") as connection:
        connection.execute(f"DROP TRIGGER {FILES.name}_no_update")
        connection.execute(f"UPDATE {FILES.name} SET content = x'00'")
    with home.open() as reopened, pytest.raises(EditedRecordError, match="was edited"):
        build_site(from_store(reopened, home), tmp_path / "site")


FOREIGN = "Imaginary CPU @ 9.99GHz"


def of_another_machine(forged: Forgery, name: str, stage: str = "small") -> None:
    row = forged.record("evaluation", name, stage)
    forged.edit(row, lambda content: content["manifest"]["machine"].update(processor=FOREIGN))


def audited(file: Path, capsys: pytest.CaptureFixture[str], *options: str, sample: int = 100) -> dict[str, Any]:
    """Import a forged export, which looks good, and return what the audit prints."""
    board = ["--board", str(file.parent / "imported")]
    assert main(["board", "import", str(file), *board]) == 0
    capsys.readouterr()
    code = main(["board", "audit", *board, "--json", "-s", f"sample={sample}", "-s", "proofs=0", *options])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (1 if result["problems"] else 0)
    return result


def test_an_audit_names_an_invented_score_a_dropped_record_and_a_foreign_machine(forgery, tmp_path, capsys):
    head = str(forgery.records[-1]["chain"])
    forgery.cells("reno", better_cells)
    forgery.drop(forgery.record("envelope"))
    of_another_machine(forgery, "cc_qdel", "hard")
    result = audited(forgery.write(tmp_path / "forged.jsonl"), capsys, "--expect-head", head)
    invented = [problem for problem in result["problems"] if "(reno, small)" in problem]
    assert invented and all("played again it differs" in problem for problem in invented)
    (dropped,) = [problem for problem in result["problems"] if "head" in problem]
    assert "records were dropped or written anew" in dropped
    (foreign,) = result["foreign"]
    assert "(cc_qdel, hard)" in foreign and FOREIGN in foreign and len(result["problems"]) == len(invented) + 1


def test_an_audit_does_not_confirm_invented_scores_of_a_foreign_machine(forgery, tmp_path, capsys):
    forgery.cells("reno", better_cells)
    of_another_machine(forgery, "reno")
    result = audited(forgery.write(tmp_path / "forged.jsonl"), capsys)
    (problem,) = result["problems"]
    assert "(reno, small)" in problem and "runs differ here" in problem and FOREIGN in problem and "not confirmed" in problem


def test_an_audit_that_could_compare_nothing_fails(forgery: Forgery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("reno", "cc_qdel"):
        for stage in ("small", "hard"):
            worse = better_cells if stage == "small" else lambda cells: cells[0]["metrics"].update(utilisation=0.1)
            forgery.cells(name, worse, stage)
            of_another_machine(forgery, name, stage)
    for row in [row for row in forgery.records if row["kind"] == "damage"]:
        forgery.drop(row)
    file = forgery.write(tmp_path / "forged.jsonl")
    assert main(["board", "import", str(file), "--board", str(tmp_path / "imported")]) == 0
    home = Home(tmp_path / "imported")
    with home.open() as store:
        runs = sum(len(store.file(r.files["cells.jsonl"]).splitlines()) for r in store.records("evaluation"))
        audits = (audit(store, home, sample=1, certificates=0, seed=seed, keep=False) for seed in range(50))
        result = next(found for found in audits if found["n_incomparable"])
    assert runs > 1 and "nothing could be compared: all 1 runs are of other code or another machine" in result["problems"]


@pytest.mark.parametrize(
    ("forge", "what"),
    [
        (lambda forged: forged.records.pop(), "dropped"),
        (lambda forged: forged.drop(forged.record("envelope")), "dropped"),
        (
            lambda forged: forged.edit(forged.records[-1], lambda content: content.update(recorded_at="2026-01-02T00:00:00Z")),
            "anew",
        ),
        (lambda forged: forged.edit(forged.record("envelope"), lambda content: proved(content).update(bound=0.875)), "anew"),
    ],
    ids=["last_record_dropped", "envelope_dropped", "last_record_rewritten", "envelope_rewritten"],
)
def test_an_audit_with_a_head_names_what_was_dropped_or_rewritten(forgery, tmp_path, capsys, forge, what):
    head = str(forgery.records[-1]["chain"])
    forge(forgery)
    result = audited(forgery.write(tmp_path / "forged.jsonl"), capsys, "--expect-head", head, sample=0)
    (problem,) = result["problems"]
    assert problem.startswith(f"--expect-head: head {head[:12]} is not in the chain") and what in problem


def test_an_audit_remembers_the_head_of_its_own_board(store: BoardStore, home: Home) -> None:
    """Somebody with the database, not with the operator's folder, drops the last record or one in the middle."""
    last = store.records()[-1].number
    store.close()
    for number, message in ((last, "records were dropped or written anew"), (3, "record 3 of the board: missing")):
        with sqlite3.connect(home.folder / "board.db") as connection:
            connection.execute(f"DROP TRIGGER IF EXISTS {RECORDS.name}_no_delete")
            connection.execute(f"DELETE FROM {RECORDS.name} WHERE number = {number}")
        with home.open() as reopened:
            problems = audit(reopened, home, sample=0, certificates=0, keep=False)["problems"]
        assert any(message in problem for problem in problems), problems


def test_heads_that_are_none_are_refused(store: BoardStore, home: Home, tmp_path: Path) -> None:
    write_head(store, tmp_path / "head.json")
    good = json.loads((tmp_path / "head.json").read_text())
    assert expected_head(str(tmp_path / "head.json")).problem(store.records()) is None
    for change in ({"format_version": True}, {"n_records": True}, {"chain": "x"}, {"n_records": -1}, {"more": 1}):
        (tmp_path / "bad.json").write_text(json.dumps({**good, **change}))
        with pytest.raises(InputError):
            read_head(tmp_path / "bad.json")
    (tmp_path / "moved.json").write_text(json.dumps({**good, "n_records": 1}))
    assert "at record 1 is not in the chain" in str(read_head(tmp_path / "moved.json").problem(store.records()))
    for text in ("0" * 63, "nowhere.json", "../x\n"):
        with pytest.raises(InputError, match="64 hexadecimal digits or the file of a head"):
            expected_head(text)
    board = ["--board", str(home.folder), "-s", "sample=0", "-s", "proofs=0"]
    assert main(["board", "audit", *board, "--expect-head", str(tmp_path / "head.json")]) == 0
    assert main(["board", "audit", *board, "--expect-head", "0" * 64]) == 1
    assert main(["board", "audit", *board, "-s", "signer=SHA256:x"]) == 2
    assert main(["board", "audit", *board, "--expect-head", str(tmp_path / "head.json"), "-s", "signer=SHA256:x"]) == 2


@pytest.mark.skipif(not available(), reason="ssh-keygen is not installed")
def test_signed_heads_bind_the_operator(store: BoardStore, home: Home, workshop: Path, tmp_path: Path, refused, answer) -> None:
    board = ["--board", str(home.folder)]
    file = tmp_path / "head.json"
    said = answer(["board", "head", str(file), "--sign", str(workshop / KEY), *board, "--json"])
    assert said["chain"] == store.records()[-1].chain and said["signed_with"] == read_fingerprint(workshop / KEY)
    assert expected_head(str(file), said["signed_with"]).n_records == len(store.records())
    with pytest.raises(InputError, match="the signer must be"):
        expected_head(str(file), read_fingerprint(workshop / OTHER_KEY))
    file.write_text(file.read_text().replace('"n_records": ', '"n_records": 1'))
    with pytest.raises(InputError, match="not a valid"):
        read_head(file)
    refused(["board", "head", "--sign", str(workshop / KEY), *board], "give FILE")


@pytest.mark.skipif(not available(), reason="ssh-keygen is not installed")
def test_entries_are_taken_back_by_the_key_that_signed_them_or_by_the_operator(workshop, tmp_path, capsys, refused):
    board = ["--board", str(tmp_path / "board")]
    assert main(["board", "submit", str(workshop / "signed"), *board]) == 0
    assert main(["board", "submit", str(workshop / "plain"), *board]) == 0
    back = ["board", "withdraw", str(workshop / "signed"), "--sign"]
    refused([*back, str(workshop / OTHER_KEY), "--out", str(tmp_path / "no")], "that key cannot take it back")
    request = str(tmp_path / "request")
    assert main([*back, str(workshop / KEY), "--out", request]) == 0 and main(["board", "withdraw", request, *board]) == 0
    assert "signed is withdrawn, by key" in capsys.readouterr().out
    refused(["board", "withdraw", request, *board], "was taken back already")
    refused(["board", "withdraw", "plian", *board], "Did you mean 'plain'")
    assert main(["board", "withdraw", "plain", "--reason", "does not end", *board, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by"] == "operator"
    refused(["board", "evaluate", *board, "--budget", "0"], "nothing was handed in yet")
    assert main(["board", "export", str(tmp_path / "x.jsonl"), *board]) == 0
    assert main(["board", "import", str(tmp_path / "x.jsonl"), "--board", str(tmp_path / "copy")]) == 0
    assert sum("withdraw.json.sig" in line for line in (tmp_path / "x.jsonl").read_text().splitlines()) == 1
