"""Exports come back to the byte; what is damaged, or cannot be read, leaves nothing behind."""

import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from evaluated_board import STAGES
from sqlalchemy import exc

from ccenv.base.errors import CcenvError, InputError
from ccenv.leaderboard.audit.run import audit
from ccenv.leaderboard.evaluate.queue import evaluate, list_tasks
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.exchange import export_board, import_board, read_export
from ccenv.leaderboard.site.sources import from_store
from ccenv.leaderboard.store.database import START, BoardStore, extend_chain, record_hash
from ccenv.leaderboard.store.home import Home, close_round, open_round
from ccenv.leaderboard.store.submit import submit_reviewed


def test_an_export_comes_back(store: BoardStore, home: Home, tmp_path: Path) -> None:
    close_round(store, home)
    for name in ("a.jsonl", "b.jsonl.xz"):
        count = export_board(store, tmp_path / name)
        other = Home(tmp_path / f"board of {name}")
        with other.open() as copy:
            assert import_board(copy, other, read_export(tmp_path / name)) == count
            assert copy.records()[:count] == store.records()
            assert copy.check() == count + 1
            assert open_round(copy, other) == 3  # with a secret of its own
            submit_reviewed(copy, other, "cubic")
            assert len(evaluate(copy, other, list_tasks(copy, STAGES[:1], only=["cubic"]))) == 1
            with pytest.raises(InputError, match="not empty"):
                import_board(copy, other, read_export(tmp_path / name))
    assert home.secret(2).hex() not in (tmp_path / "a.jsonl").read_text()


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def rehash(record: dict[str, Any], **change: Any) -> None:
    """Edit the first record as somebody would who knows how hashes are made."""
    record.update(change)
    record["sha256"] = record_hash(record["kind"], record["subject"], record["slot"], record["content"])
    record["chain"] = extend_chain(START, record["sha256"])


def repeat_slot(lines: list[dict[str, Any]]) -> None:
    first, last = lines[1]["record"], [line["record"] for line in lines if "record" in line][-1]
    again = {**first, "number": last["number"] + 1, "chain": extend_chain(last["chain"], first["sha256"])}
    lines.insert(last["number"] + 1, {"record": again})
    lines[0].update(records=again["number"])


DAMAGES: list[tuple[str, Callable[[list[dict[str, Any]]], Any], str]] = [
    (
        "edited",
        lambda lines: lines[2]["record"].update(content=lines[2]["record"]["content"].replace("Ada", "Bob")),
        "was edited",
    ),
    ("dropped", lambda lines: (lines.pop(2), lines[0].update(records=lines[0]["records"] - 1)), "record 2 .* is missing"),
    ("swapped", lambda lines: lines.insert(1, lines.pop(2)), "record 1 .* is missing"),
    ("no_file", lambda lines: lines.pop(), "its file .* is missing"),
    ("changed_file", lambda lines: [line for line in lines if "text" in line][-1].update(text="x"), "not what its hash says"),
    ("truncated", lambda lines: lines.__delitem__(slice(5, None)), "truncated"),
    ("foreign", lambda lines: lines[0].update(format="x"), "not an export"),
    ("more", lambda lines: lines.append({"code": "x"}), "neither a record nor a file"),
    ("twice", repeat_slot, "may exist once"),
    ("list", lambda lines: rehash(lines[1]["record"], content="[]"), "no object"),
    ("wide", lambda lines: lines[1]["record"].update(extra=1), "and nothing else"),
]


@pytest.mark.parametrize(("name", "change", "message"), DAMAGES, ids=[name for name, _, _ in DAMAGES])
def test_damaged_exports_leave_nothing(store: BoardStore, tmp_path: Path, name: str, change: Any, message: str) -> None:
    export_board(store, tmp_path / "good.jsonl")
    lines = lines_of(tmp_path / "good.jsonl")
    change(lines)
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = Home(tmp_path / "other")
    with other.open() as copy:
        with pytest.raises(CcenvError, match=message):
            import_board(copy, other, read_export(tmp_path / "bad.jsonl"))
        assert copy.records() == []
        assert copy.check() == 0


MALFORMED: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("round", lambda content: content.pop("commitment"), "record .*commitment: missing"),
    ("round", lambda content: content.update(number="1"), "record .*number"),
    ("submission", lambda content: content.update(card=3), "record .*card"),
    ("evaluation", lambda content: content.pop("manifest"), "record .*manifest: missing"),
    ("evaluation", lambda content: content.update(files={}), "record .*cells.jsonl: missing"),
    ("evaluation", lambda content: content["manifest"].update(summary=[{}]), "record .*summary.0"),
    ("evaluation", lambda content: content["manifest"].update(n_cells=7), "cells; the manifest says 7"),
    ("evaluation", lambda content: content.update(submission="0" * 64), "no submission 000000000000 before it"),
    ("damage", lambda content: content.update(cells=[]), "record .*cells"),
    ("damage", lambda content: content["suite"].update(duration_s=1.0), "the suite was edited"),
    ("damage", lambda content: content.update(name=7), "record .*name"),
]


@pytest.mark.parametrize(("kind", "change", "message"), MALFORMED)
def test_contents_of_a_foreign_export_are_checked(
    store: BoardStore, tmp_path: Path, kind: str, change: Any, message: str
) -> None:
    """Hashes and chain are good, as of a board of somebody who knows how they are made."""
    export_board(store, tmp_path / "good.jsonl")
    lines = lines_of(tmp_path / "good.jsonl")
    before, edited = START, False
    for record in (line["record"] for line in lines if "record" in line):
        if record["kind"] == kind and not edited:
            content = json.loads(record["content"])
            change(content)
            edited, record["content"] = True, json.dumps(content)
            record["sha256"] = record_hash(record["kind"], record["subject"], record["slot"], record["content"])
        before = record["chain"] = extend_chain(before, record["sha256"])
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = Home(tmp_path / "other")
    with other.open() as copy:
        with pytest.raises(InputError, match=message):
            import_board(copy, other, read_export(tmp_path / "bad.jsonl"))
        assert copy.records() == []


def test_files_that_are_no_exports(home: Home, tmp_path: Path) -> None:
    whole = lzma.compress(b"x\n" * 1000)
    for name, content in (("a.jsonl.xz", b"no xz"), ("b.jsonl.xz", whole[:-20]), ("c.jsonl", b"\xff\n"), ("d.jsonl", b"")):
        (tmp_path / name).write_bytes(content)
        other = Home(tmp_path / "other")
        with other.open() as copy, pytest.raises(InputError):
            import_board(copy, other, read_export(tmp_path / name))


def test_forged_audits_of_elsewhere_are_not_shown_as_ours(store: BoardStore, home: Home, tmp_path: Path) -> None:
    """Whoever has the database or makes an export can invent an audit; a board's folder remembers those that it made itself."""
    outcome = audit(store, home, sample=1, certificates=0)
    invented = {**outcome, "n_records": outcome["n_records"] + 1, "n_rerun": 9, "n_equal": 9}
    store.append("audit", "", f"audit/{invented['n_records']}", invented, {})
    assert [own for _, own in from_store(store, home).audits] == [True, False]
    export_board(store, tmp_path / "x.jsonl")
    other = Home(tmp_path / "other")
    with other.open() as copy:
        import_board(copy, other, read_export(tmp_path / "x.jsonl"))
        audit(copy, other, sample=0, certificates=0)
        records = from_store(copy, other)
        assert [own for _, own in records.audits] == [False, False, True]
        build_site(records, tmp_path / "site")
    page = (tmp_path / "site" / "method.html").read_text()
    assert page.count("not an audit of this board") == 2 and page.count("<p>Audit of ") == 1


def test_an_import_that_fails_in_the_database_leaves_no_board(store: BoardStore, home: Home, tmp_path: Path) -> None:
    """Records and the own round behind them are one transaction."""
    export_board(store, tmp_path / "x.jsonl")
    read, other = read_export(tmp_path / "x.jsonl"), Home(tmp_path / "other")
    with other.open() as copy:
        with pytest.raises(exc.IntegrityError):
            import_board(copy, other, replace(read, claims={**read.claims, None: 1}))  # type: ignore[dict-item]
        assert copy.records() == []
        assert import_board(copy, other, read) == len(store.records())
