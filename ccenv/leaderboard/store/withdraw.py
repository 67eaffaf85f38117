"""Taking an entry back: by the operator, or by whoever holds the key that signed it.

What was stored stays stored; a withdrawn entry is not evaluated and not shown any more, and its name stays its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Literal

from ccenv.base.config import StrictModel, validate
from ccenv.base.document import Format
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.files import make_folder, write_atomic
from ccenv.base.foreign import STRANGER, read_folder
from ccenv.leaderboard.store.database import BoardStore, Readable, Stored, TakenError
from ccenv.leaderboard.store.records import Sha256, StageContent
from ccenv.leaderboard.submission.document import Line
from ccenv.leaderboard.store.entry import SubmissionRecord
from ccenv.leaderboard.submission.reader import read_submission
from ccenv.leaderboard.submission.signature import fingerprint_of, signature_of, signed_by
from ccenv.leaderboard.store.submit import entrants
from ccenv.base.provenance import now

WITHDRAWAL = "withdrawal"
NAMESPACE = "ccenv-withdrawal"
REQUEST, SIGNATURE = "withdraw.json", "withdraw.json.sig"
_CAPS = {REQUEST: 4_096, SIGNATURE: 4_096}
RULES = replace(STRANGER, max_bytes=_CAPS[REQUEST], max_depth=2)
FORMAT = Format("ccenv-withdrawal", 1, "a request to take an entry back", "format_version", RULES, indent=2, ensure_ascii=False)


class Request(StrictModel):
    """What the holder of a key signs."""

    format: Literal["ccenv-withdrawal"]
    format_version: Literal[1]
    submission: Sha256
    reason: Line = ""


class Withdrawal(StageContent):
    """The record of an entry that was taken back.

    Attributes:
        by: ``operator``, or ``key``: the signed request is among the record's files.
        reason: one line.
    """

    by: Literal["operator", "key"]
    reason: Line = ""


def make_request(folder: FilePath, key: FilePath, out: FilePath, reason: str = "") -> FilePath:
    """Write the signed request to take a submission back.

    Raises:
        InputError: if the submission was not signed with this key, or the folder holds something else.
        CcenvError: if it cannot be signed or written.
    """
    submission = read_submission(folder)
    signer = fingerprint_of(key)
    if submission.signed_by != signer:
        raise InputError(f"{folder}: signed by {submission.signed_by or 'nobody'}, not by {signer}: that key cannot take it back")
    request = validate(Request, {**FORMAT.head, "submission": submission.sha256, "reason": reason}, "request")
    content = FORMAT.content(request.model_dump())
    signature = signature_of(content, key, NAMESPACE)
    make_folder(out)
    if {entry.name for entry in out.iterdir()} - set(_CAPS):
        raise InputError(f"{out} holds something that is not a request: give another --out")
    write_atomic(out / REQUEST, content)
    write_atomic(out / SIGNATURE, signature)
    return out


def withdraw_by_request(store: BoardStore, folder: FilePath) -> Stored:
    """Take an entry back as a signed request asks.

    Raises:
        InputError: if the request breaks a rule, is about no entry of the board, or is signed by another key.
    """
    files = read_folder(folder, _CAPS)
    request = _request(files, str(folder))
    record = next((e.record for e in entrants(store) if e.record.submission == request.submission), None)
    if record is None:
        raise InputError(f"{folder}: there is no submission {request.submission[:12]} on this board")
    _check_signer(files, record, str(folder))
    return _store(store, record, "key", request.reason, files)


def withdraw_by_operator(store: BoardStore, name: str, reason: str = "") -> Stored:
    """Take an entry back. Raises InputError if there is no entry of the name, or it was taken back already."""
    records = {entrant.record.card.name: entrant.record for entrant in entrants(store)}
    if name not in records:
        raise unknown_name("entry", name, sorted(records))
    return _store(store, records[name], "operator", reason, {})


def withdrawn(store: Readable) -> set[str]:
    """Return the submissions that were taken back."""
    return {record.subject for record in store.records(WITHDRAWAL)}


def check_withdrawal(
    withdrawal: Withdrawal,
    files: Mapping[str, str],
    record: SubmissionRecord,
    read: Callable[[str], bytes],
    where: str,
) -> None:
    """Check that a stored withdrawal is one of the operator, or of the key that signed the submission.

    Raises:
        InputError: if a file is missing, says something else, or another key signed it.
    """
    expected = set(_CAPS) if withdrawal.by == "key" else set()
    if set(files) != expected:
        shown = ", ".join(sorted(files)) or "nothing"
        raise InputError(f"{where}: files {shown}; by {withdrawal.by} it has {', '.join(sorted(expected)) or 'none'}")
    if withdrawal.by == "key":
        contents = {name: read(digest) for name, digest in files.items()}
        if _request(contents, where).submission != withdrawal.submission:
            raise InputError(f"{where}: the request is about another submission")
        _check_signer(contents, record, where)


def _request(files: Mapping[str, bytes], where: str) -> Request:
    missing = sorted(set(_CAPS) - set(files))
    if missing:
        raise InputError(f"{where}: there is no {missing[0]}")
    return validate(Request, FORMAT.parse(files[REQUEST], f"{where}/{REQUEST}"), f"{where}/{REQUEST}")


def _check_signer(files: Mapping[str, bytes], record: SubmissionRecord, where: str) -> None:
    signer = signed_by(files[REQUEST], files[SIGNATURE], f"{where}/{SIGNATURE}", NAMESPACE)
    if record.signed_by != signer:
        raise InputError(f"{where}: signed by {signer}; {record.card.name!r} was signed by {record.signed_by or 'nobody'}")


def _store(store: BoardStore, record: SubmissionRecord, by: str, reason: str, files: Mapping[str, bytes]) -> Stored:
    content = {"submission": record.submission, "name": record.card.name, "by": by, "reason": reason, "recorded_at": now()}
    validate(Withdrawal, {**content, "files": {}}, "withdrawal")
    try:
        return store.append(WITHDRAWAL, record.submission, f"{WITHDRAWAL}/{record.submission}", content, files)
    except TakenError:
        raise InputError(f"{record.card.name!r} was taken back already") from None
