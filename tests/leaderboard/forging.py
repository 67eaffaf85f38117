"""Exports of a board as somebody changes them who knows how hashes and chains are made."""

import base64
import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ccenv.base.files import canonical_json
from ccenv.benchmarks.results import summarise
from ccenv.benchmarks.suite.curve import validate_suite
from ccenv.leaderboard.site.exchange import encode_file, export_board
from ccenv.leaderboard.store.database import START, extend_chain, record_hash
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.schema import FILES, RECORDS

Content = dict[str, Any]
MOMENT = "2026-01-01T00:00:00Z"
KEY, OTHER_KEY = "key", "other_key"
PROVED = ("ccac", "arbitrary", "utilisation")


def envelope_rows(**changes: Any) -> list[Content]:
    """The table of an envelope in which one bound is proved and the others are unknown."""
    from ccenv.proofs.claims.envelope import METRICS, list_cells

    rows = []
    for place in list_cells():
        row: Content = dict(zip(("model", "buffer", "metric"), place, strict=True))
        row |= {"unit": METRICS[row["metric"]].unit, "verdict": "unknown", "bound": None, "beyond": None, "seconds": 1.0}
        row |= {"reason": "the budget is used up", "query_sha256": None}
        if place == PROVED:
            row |= {"verdict": "verified", "bound": 0.125, "reason": None, "query_sha256": "a" * 64, **changes}
        rows.append(row)
    return rows


def proved(content: Content) -> Content:
    """The row of an envelope whose bound is proved."""
    return next(row for row in content["rows"] if (row["model"], row["buffer"], row["metric"]) == PROVED)


class Forgery:
    """An export in the hands of a forger.

    Attributes:
        header: the first line.
        records: rows, in order.
        files: hash -> content.
    """

    def __init__(self, export: Path) -> None:
        lines = [json.loads(line) for line in export.read_text(encoding="utf-8").splitlines()]
        self.header = lines[0]
        self.records: list[dict[str, Any]] = [line["record"] for line in lines if "record" in line]
        self.files: dict[str, bytes] = {
            line["file"]: line["text"].encode() if "text" in line else base64.b64decode(line["base64"])
            for line in lines
            if "file" in line
        }

    def record(self, kind: str, name: str = "", stage: str = "") -> dict[str, Any]:
        """Return the first row of a kind, about an entry, of a stage."""
        for row in self.records:
            if row["kind"] != kind:
                continue
            content = json.loads(row["content"])
            own = content["card"]["name"] if kind == "submission" else content.get("name", "")
            if name in ("", own) and stage in ("", content.get("stage")):
                return row
        raise ValueError(f"there is no {kind} of {name!r}")

    def edit(self, row: dict[str, Any], change: Callable[[Content], Any]) -> None:
        content = json.loads(row["content"])
        change(content)
        row["content"] = canonical_json(content)

    def add_file(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.files[digest] = content
        return digest

    def file_of(self, row: dict[str, Any], name: str) -> bytes:
        return self.files[json.loads(row["content"])["files"][name]]

    def add_record(self, kind: str, subject: str, slot: str, content: Content, files: dict[str, bytes] | None = None) -> None:
        listed = {name: self.add_file(data) for name, data in (files or {}).items()}
        row = {"number": 0, "kind": kind, "subject": subject, "slot": slot, "sha256": "", "chain": ""}
        self.records.append({**row, "content": canonical_json({"files": listed, **content})})

    def drop(self, row: dict[str, Any]) -> None:
        self.records.remove(row)

    def cells(self, name: str, change: Callable[[list[Content]], Any], stage: str = "small", again: bool = True) -> None:
        """Change the cells of an evaluation, and the summary that follows from them."""
        row = self.record("evaluation", name, stage)
        cells = [json.loads(line) for line in self.file_of(row, "cells.jsonl").splitlines()]
        change(cells)
        lines = "".join(json.dumps(cell, separators=(",", ":")) + "\n" for cell in cells).encode()

        def follow(content: Content) -> None:
            content["files"]["cells.jsonl"] = self.add_file(lines)
            manifest = content["manifest"]
            if again:
                worst = manifest["summary"][0]["worst_case"]
                kept = {key: worst[key] for key in ("trace", "plot") if key in worst}
                manifest["n_cells"] = len(cells)
                manifest["summary"] = summarise(validate_suite(manifest["suite"], "suite"), cells)
                manifest["summary"][0]["worst_case"].update(kept)

        self.edit(row, follow)

    def chain(self) -> None:
        """Number, hash and chain all rows again."""
        before = START
        for number, row in enumerate(self.records, start=1):
            row["number"] = number
            row["sha256"] = record_hash(row["kind"], row["subject"], row["slot"], row["content"])
            before = row["chain"] = extend_chain(before, row["sha256"])

    def install(self, home: Home) -> None:
        """Put the rows into the database of a board in place of its own, as somebody does who has the operator's folder."""
        self.chain()
        with sqlite3.connect(home.folder / "board.db") as connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute(f"DELETE FROM {RECORDS.name}")
            keys = [column.name for column in RECORDS.columns]
            insert = f"INSERT INTO {RECORDS.name} ({','.join(keys)}) VALUES ({','.join('?' * len(keys))})"
            connection.executemany(insert, [[row[key] for key in keys] for row in self.records])
            connection.executemany(f"INSERT OR IGNORE INTO {FILES.name} VALUES (?, ?)", self.files.items())
        (home.folder / "head.json").unlink()

    def write(self, file: Path) -> Path:
        """Number, hash and chain all rows again, and write the export."""
        self.chain()
        used = {digest for row in self.records for digest in self._listed(row)}
        lines = [{**self.header, "records": len(self.records)}, *({"record": row} for row in self.records)]
        lines += [{"file": digest, **encode_file(self.files[digest])} for digest in sorted(used & set(self.files))]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return file

    def _listed(self, row: dict[str, Any]) -> list[str]:
        content = json.loads(row["content"])
        return list(content["files"].values()) if isinstance(content.get("files"), dict) else []

    @property
    def head(self) -> str:
        """Hash of the chain as it was written last."""
        return str(self.records[-1]["chain"])


def forge(home: Home, change: Callable[[Forgery], Any]) -> None:
    """Change a board in place, hashes and chain made good again."""
    file = home.folder / "forged.jsonl"
    with home.open() as store:
        export_board(store, file)
    forged = Forgery(file)
    change(forged)
    forged.install(home)


def other_seeds(forged: Forgery) -> None:
    """Play with seeds of one's own choice; the secret is revealed later in the same export."""

    def change(content: Content) -> None:
        content["manifest"]["suite"]["seeds"] = [1, 2]
        content["manifest"]["suite_sha256"] = validate_suite(content["manifest"]["suite"], "x").sha256

    forged.edit(forged.record("evaluation", "reno", "small"), change)
    forged.cells("reno", lambda lines: [line.update(seed=1 + place % 2) for place, line in enumerate(lines)])


def view(kind: str, change: Callable[[Content], Any], name: str = "") -> Callable[[Forgery], None]:
    """Change the picture of a worst case."""

    def forge(forged: Forgery) -> None:
        row = forged.record(kind, name, "hard" if kind == "evaluation" else "")
        file = next(file for file in json.loads(row["content"])["files"] if file.endswith("view.json"))
        data = json.loads(forged.file_of(row, file))
        change(data)
        forged.edit(row, lambda content: content["files"].update({file: forged.add_file(json.dumps(data).encode())}))

    return forge
