"""Publication of a board in a folder for static hosts: pages, records and a list of checksums."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import make_folder, remove_unfinished, write_atomic
from ccenv.base.foreign import read_text, resolve_inside
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.exchange import export_board
from ccenv.leaderboard.site.serve import POLICY
from ccenv.leaderboard.site.sources import from_store
from ccenv.leaderboard.store.database import BoardStore
from ccenv.leaderboard.store.head import read_head, write_head
from ccenv.leaderboard.store.home import Home

SUMS = "SHA256SUMS"
RECORDS, HEAD = "records/board.jsonl.xz", "records/head.json"
INDEX = "index.html"
MAX_SUMS_BYTES = 64 << 20
_LINE = re.compile(r"([0-9a-f]{64})  ([^\\\n\r]+)", re.ASCII)

# Read by hosts that take headers from a file. The pages carry the same policy themselves.
_HEADERS = f"""/*
  Content-Security-Policy: {POLICY}; frame-ancestors 'none'
  X-Content-Type-Options: nosniff
  Referrer-Policy: no-referrer
"""
_ABSENT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Not here</title></head><body><h1>Not here</h1><p>This board has no such page. Names of pages hold the hash of what they
show: a sender that changed has a page of its own.</p></body></html>
"""


def publish(
    store: BoardStore,
    home: Home,
    folder: FilePath,
    *,
    records: bool = True,
    certificates: Sequence[FilePath] = (),
    leagues: Sequence[FilePath] = (),
    quic: Sequence[FilePath] = (),
) -> dict[str, Any]:
    """Bring a folder up to date with a board; return ``folder``, and the numbers of ``files``, ``written`` and ``removed``.

    Only files that differ are written, each atomically, the front page last. Outdated files of earlier publications are removed;
    other files in the folder (``.git``, a domain's file) stay. The call can be repeated after an interruption.

    Raises:
        MissingExtraError: without Jinja2.
        InputError: if a file that no publication wrote would be overwritten, or the list of checksums is damaged.
        CcenvError: if a file cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is not a folder")
    published = _read_sums(folder / SUMS)
    with tempfile.TemporaryDirectory() as scratch:
        site = FilePath(scratch) / "site"
        build_site(from_store(store, home), site, certificates, leagues, quic)
        if records:
            (site / "records").mkdir()
            export_board(store, site / RECORDS)
            _write_head(store, site / HEAD, folder / HEAD)
        (site / "404.html").write_text(_ABSENT, encoding="utf-8")
        (site / "_headers").write_text(_HEADERS, encoding="utf-8")
        files = {file.relative_to(site).as_posix(): file for file in sorted(site.rglob("*")) if file.is_file()}
        sums = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
        for name in sums:
            if name not in published and (folder / name).exists():
                raise InputError(f"{folder / name}: is there already and no board was published here; choose another folder")
        return {"folder": folder, "files": len(files), **_update_folder(folder, files, sums, published)}


def _write_head(store: BoardStore, file: FilePath, published: FilePath) -> None:
    """Write the head; a published head with the same chain is kept with its time."""
    write_head(store, file)
    if published.is_file():
        with suppress(InputError):
            if read_head(published).chain == read_head(file).chain:
                file.write_bytes(published.read_bytes())


def _update_folder(folder: FilePath, files: dict[str, FilePath], sums: dict[str, str], before: dict[str, str]) -> dict[str, int]:
    """Write changed files, then remove outdated ones. Until then the list of checksums names old and new files."""
    make_folder(folder)
    written = 0
    if before != sums:
        _write_sums(folder, before | sums)
    for name in sorted(sums, key=lambda name: (name == INDEX, name)):
        target = resolve_inside(folder, name, "file of the site")
        if not target.is_file() or hashlib.sha256(target.read_bytes()).hexdigest() != sums[name]:
            make_folder(target.parent)
            write_atomic(target, files[name].read_bytes())
            written += 1
    outdated = [name for name in before if name not in sums]
    for name in outdated:
        target = resolve_inside(folder, name, "file of the site")
        target.unlink(missing_ok=True)
        if target.parent != folder and target.parent.is_dir() and not any(target.parent.iterdir()):
            target.parent.rmdir()
    _remove_halves(folder, before | sums)
    _write_sums(folder, sums)
    return {"written": written, "removed": len(outdated)}


def _remove_halves(folder: FilePath, names: dict[str, str]) -> None:
    """Remove unfinished copies that a killed publication left beside files of the board."""
    for parent in {(folder / name).parent for name in [*names, SUMS]}:
        subfolder = parent.relative_to(folder)
        remove_unfinished(parent, lambda name, subfolder=subfolder: (subfolder / name).as_posix() in {*names, SUMS})  # type: ignore[misc]


def _write_sums(folder: FilePath, sums: dict[str, str]) -> None:
    write_atomic(folder / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode())


def _read_sums(file: FilePath) -> dict[str, str]:
    """Return name -> SHA-256 of an earlier publication; empty without one."""
    if not file.exists():
        return {}
    out = {}
    for number, text in enumerate(read_text(file, MAX_SUMS_BYTES).splitlines(), start=1):
        line = _LINE.fullmatch(text)
        if line is None:
            raise InputError(f"{file}:{number}: not a checksum and a name; is this the folder of a published board?")
        try:
            resolve_inside(file.parent, line[2], "file of the site")
        except CcenvError as error:
            raise InputError(f"{file}:{number}: {error}") from None
        out[line[2]] = line[1]
    return out
