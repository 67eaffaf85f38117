"""Export and import of boards as JSON lines of records and files, compressed for ``.xz``; secrets are never exported."""

from __future__ import annotations

import base64
import binascii
import hashlib
import lzma
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import Format, json_bytes, write_atomic
from ccenv.base.foreign import JsonRules, parse_json, read_lines, shown_path
from ccenv.leaderboard.audit.contents import check_contents
from ccenv.leaderboard.store.database import BoardStore, check_rows, make_row
from ccenv.leaderboard.store.home import ROUND, Home, new_round

MAX_BYTES = 1 << 30  # of all lines, unpacked
LINE = JsonRules(max_bytes=48 << 20, max_depth=3, max_values=64)  # a record as one text, or a file of a record
FORMAT = Format("ccenv-board-export", 1, "an export of a board", "format_version", LINE)


def export_board(store: BoardStore, file: FilePath) -> int:
    """Write all records and files of a board and return the number of records; equal boards give equal bytes.

    Raises EditedRecordError if something was edited; CcenvError if the file cannot be written.
    """
    count = store.check()
    records = store.records()
    lines: list[dict[str, Any]] = [{**FORMAT.head, "records": count}]
    lines += [{"record": make_row(record)} for record in records]
    for digest in sorted({digest for record in records for digest in record.files.values()}):
        lines.append({"file": digest, **encode_file(store.file(digest))})
    content = b"".join(json_bytes(line, indent=None, sort_keys=True) for line in lines)
    write_atomic(file, lzma.compress(content, preset=9) if file.suffix == ".xz" else content)
    return count


@dataclass(frozen=True)
class Export:
    """An export whose hashes, chain and contents were checked."""

    rows: list[dict[str, Any]]
    files: dict[str, bytes]
    claims: dict[str, int]


def read_export(file: FilePath) -> Export:
    """Read an export, check all hashes and contents, and render every page once; nothing is written.

    Raises InputError if the file is damaged, or a record is invalid; EditedRecordError if a hash does not match.
    """
    require_extra("jinja2", "board")
    from ccenv.leaderboard.site.board import make_board
    from ccenv.leaderboard.site.build import site_files
    from ccenv.leaderboard.site.sections import Certified
    from ccenv.leaderboard.site.sources import from_contents

    rows, files = read_rows(file)
    contents = check_contents(check_rows(rows, files), files.__getitem__)
    try:
        site_files(make_board(from_contents(contents, files.__getitem__), Certified([])))
    except InputError as error:
        raise InputError(f"{shown_path(file)}: no page can be made of it: {error}") from None
    return Export(rows, files, contents.claims)


def import_board(store: BoardStore, home: Home, export: Export) -> int:
    """Fill an empty board and begin a round with a new secret, in one transaction; return the number of imported records.

    Raises InputError if the board is not empty.
    """
    if store.records():
        raise InputError("the board is not empty: import into a new one, see --board")
    number = sum(row["kind"] == ROUND for row in export.rows) + 1
    store.restore(export.rows, export.files, export.claims, (ROUND, "", f"{ROUND}/{number}", new_round(home, number)))
    return len(export.rows)


def encode_file(content: bytes) -> dict[str, str]:
    """Return the export form of a file: text if it is UTF-8, else base64."""
    try:
        return {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


def read_rows(file: FilePath) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Read the rows and files of an export; nothing is checked but its form. Raises InputError if it is damaged."""
    rows: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    n_records: Any = None
    for number, line in read_lines(file, max_bytes=MAX_BYTES, max_line_bytes=LINE.max_bytes):
        where = f"{shown_path(file)}, line {number}"
        data = parse_json(line, where, LINE)
        if not isinstance(data, dict):
            raise InputError(f"{where}: expected a JSON object")
        if number == 1:
            n_records = FORMAT.check(data, where).get("records")
        elif set(data) == {"record"} and isinstance(data["record"], dict):
            rows.append(_check_row(data["record"], where))
        elif set(data) in ({"file", "text"}, {"file", "base64"}):
            files[str(data["file"])] = _decode(data, where)
        else:
            raise InputError(f"{where}: neither a record nor a file")
    if not rows or type(n_records) is not int or len(rows) != n_records:
        raise InputError(f"{shown_path(file)}: truncated: {len(rows)} records are there")
    return rows, files


def _check_row(data: dict[str, Any], where: str) -> dict[str, Any]:
    types = {"number": int, "kind": str, "subject": str, "slot": str, "content": str, "sha256": str, "chain": str}
    if set(data) != set(types) or any(type(data[key]) is not expected_type for key, expected_type in types.items()):
        raise InputError(f"{where}: a record needs {', '.join(types)}, and nothing else")
    return data


def _decode(data: dict[str, Any], where: str) -> bytes:
    try:
        content = data["text"].encode("utf-8") if "text" in data else base64.b64decode(data["base64"], validate=True)
    except (AttributeError, TypeError, ValueError, binascii.Error):
        raise InputError(f"{where}: the file's content is damaged") from None
    if hashlib.sha256(content).hexdigest() != data["file"]:
        raise InputError(f"{where}: the file is not what its hash says")
    return bytes(content)
