"""What import cannot see, because hashes, chain and contents are in order, an audit names."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from forging import KEY, OTHER_KEY, Content, Forgery, proved

from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.leaderboard.audit.run import audit
from ccenv.leaderboard.store.database import BoardStore
from ccenv.leaderboard.store.head import expected_head, read_head, write_head
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.schema import RECORDS
from ccenv.leaderboard.submission.signature import available, read_fingerprint

FOREIGN = "Imaginary CPU @ 9.99GHz"


def better(cells: list[Content]) -> None:
    for cell in cells:
        cell["metrics"]["power"] = min(1.0, cell["metrics"]["power"] + 0.1)


def of_another_machine(forged: Forgery, name: str, stage: str = "small") -> None:
    row = forged.record("evaluation", name, stage)
    forged.edit(row, lambda content: content["manifest"]["machine"].update(processor=FOREIGN))


def audited(file: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Import a forged export, which looks good, and return what the audit prints."""
    board = ["--board", str(file.parent / "imported")]
    assert main(["board", "import", str(file), *board]) == 0
    capsys.readouterr()
    code = main(["board", "audit", *board, "--json", "--sample", "100", "--proofs", "0", *options])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (1 if result["problems"] else 0)
    return result


def test_an_audit_names_an_invented_score_a_dropped_record_and_a_foreign_machine(
    forgery: Forgery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = str(forgery.records[-1]["chain"])
    forgery.cells("reno", better)
    forgery.drop(forgery.record("envelope"))
    of_another_machine(forgery, "cc_qdel", "hard")
    result = audited(forgery.write(tmp_path / "forged.jsonl"), capsys, "--expect-head", head)
    invented = [problem for problem in result["problems"] if "(reno, small)" in problem]
    assert invented and all("played again it differs" in problem for problem in invented)
    (dropped,) = [problem for problem in result["problems"] if "head" in problem]
    assert "records were dropped or written anew" in dropped
    (foreign,) = result["foreign"]
    assert "(cc_qdel, hard)" in foreign and FOREIGN in foreign
    assert len(result["problems"]) == len(invented) + 1


def test_an_audit_does_not_confirm_invented_scores_of_a_foreign_machine(
    forgery: Forgery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forgery.cells("reno", better)
    of_another_machine(forgery, "reno")
    result = audited(forgery.write(tmp_path / "forged.jsonl"), capsys)
    (problem,) = result["problems"]
    assert "(reno, small)" in problem and "runs differ here" in problem and FOREIGN in problem and "not confirmed" in problem


def test_an_audit_that_could_compare_nothing_fails(forgery: Forgery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("reno", "cc_qdel"):
        for stage in ("small", "hard"):
            forgery.cells(name, better if stage == "small" else lambda cells: cells[0]["metrics"].update(utilisation=0.1), stage)
            of_another_machine(forgery, name, stage)
    for row in [row for row in forgery.records if row["kind"] == "damage"]:
        forgery.drop(row)
    file = forgery.write(tmp_path / "forged.jsonl")
    assert main(["board", "import", str(file), "--board", str(tmp_path / "imported")]) == 0
    home = Home(tmp_path / "imported")
    with home.open() as store:
        runs = sum(len(store.file(r.files["cells.jsonl"]).splitlines()) for r in store.records("evaluation"))
        result = next(
            r
            for seed in range(50)
            if (r := audit(store, home, sample=1, certificates=0, seed=seed, keep=False))["n_incomparable"]
        )
    assert runs > 1
    assert "nothing could be compared: all 1 runs are of other code or another machine" in result["problems"]


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
def test_an_audit_with_a_head_names_what_was_dropped_or_rewritten(
    forgery: Forgery, tmp_path: Path, capsys: pytest.CaptureFixture[str], forge: Callable[[Forgery], Any], what: str
) -> None:
    head = str(forgery.records[-1]["chain"])
    forge(forgery)
    file = forgery.write(tmp_path / "forged.jsonl")
    result = audited(file, capsys, "--expect-head", head)
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
    board = ["--board", str(home.folder), "--sample", "0", "--proofs", "0"]
    assert main(["board", "audit", *board, "--expect-head", str(tmp_path / "head.json")]) == 0
    assert main(["board", "audit", *board, "--expect-head", "0" * 64]) == 1
    assert main(["board", "audit", *board, "--signer", "SHA256:x"]) == 2
    assert main(["board", "audit", *board, "--expect-head", str(tmp_path / "head.json"), "--signer", "SHA256:x"]) == 2


@pytest.mark.skipif(not available(), reason="ssh-keygen is not installed")
def test_signed_heads_bind_the_operator(
    store: BoardStore, home: Home, workshop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = ["--board", str(home.folder)]
    file = tmp_path / "head.json"
    assert main(["board", "head", str(file), "--sign", str(workshop / KEY), *board, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["chain"] == store.records()[-1].chain and said["signed_with"] == read_fingerprint(workshop / KEY)
    assert expected_head(str(file), said["signed_with"]).n_records == len(store.records())
    with pytest.raises(InputError, match="--signer is"):
        expected_head(str(file), read_fingerprint(workshop / OTHER_KEY))
    file.write_text(file.read_text().replace('"n_records": ', '"n_records": 1'))
    with pytest.raises(InputError, match="not a valid"):
        read_head(file)
    assert main(["board", "head", "--sign", str(workshop / KEY), *board]) == 2
    assert "give FILE" in capsys.readouterr().err


@pytest.mark.skipif(not available(), reason="ssh-keygen is not installed")
def test_entries_are_taken_back_by_the_key_that_signed_them_or_by_the_operator(
    workshop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = ["--board", str(tmp_path / "board")]
    assert main(["board", "submit", str(workshop / "signed"), *board]) == 0
    assert main(["board", "submit", str(workshop / "plain"), *board]) == 0
    assert (
        main(["board", "withdraw", str(workshop / "signed"), "--sign", str(workshop / OTHER_KEY), "--out", str(tmp_path / "no")])
        == 2
    )
    assert "that key cannot take it back" in capsys.readouterr().err
    request = str(tmp_path / "request")
    assert main(["board", "withdraw", str(workshop / "signed"), "--sign", str(workshop / KEY), "--out", request]) == 0
    assert main(["board", "withdraw", request, *board]) == 0
    assert "signed is withdrawn, by key" in capsys.readouterr().out
    assert main(["board", "withdraw", request, *board]) == 2
    assert "was taken back already" in capsys.readouterr().err
    assert main(["board", "withdraw", "plian", *board]) == 2
    assert "Did you mean 'plain'" in capsys.readouterr().err
    assert main(["board", "withdraw", "plain", "--reason", "does not end", *board, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by"] == "operator"
    assert main(["board", "evaluate", *board, "--budget", "0"]) == 2
    assert "nothing was handed in yet" in capsys.readouterr().err
    assert main(["board", "export", str(tmp_path / "x.jsonl"), *board]) == 0
    assert main(["board", "import", str(tmp_path / "x.jsonl"), "--board", str(tmp_path / "copy")]) == 0
    assert (
        subprocess.run(["grep", "-c", "withdraw.json.sig", str(tmp_path / "x.jsonl")], capture_output=True, check=True).stdout
        == b"1\n"
    )
