"""Heads: the number of records of a board and its chain hash, kept outside the board.

A chain alone does not reveal that its end was removed or rewritten. The operator's folder stores the last head, and a signed and
published head is binding for everybody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Annotated, Literal

from pydantic import Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import Format, make_folder, write_atomic
from ccenv.base.foreign import STRANGER, is_file, read_bounded
from ccenv.base.provenance import now
from ccenv.leaderboard.store.database import START, Readable, Stored
from ccenv.leaderboard.store.records import Moment, Sha256
from ccenv.leaderboard.submission.document import Fingerprint
from ccenv.leaderboard.submission.signature import read_fingerprint, sign, signed_by

HEAD = "head.json"
MAX_BYTES = 4_096
NAMESPACE = "ccenv-board-head"
RULES = replace(STRANGER, max_bytes=MAX_BYTES, max_depth=2)
FORMAT = Format("ccenv-board-head", 1, "the head of a board", "format_version", RULES, indent=2)


class Head(StrictModel):
    """A statement about a board."""

    format: Literal["ccenv-board-head"]
    format_version: Literal[1]
    n_records: Annotated[int, Field(strict=True, ge=0, le=10**9)]
    chain: Sha256
    recorded_at: Moment
    signed_with: Fingerprint | None = None


@dataclass(frozen=True)
class Expected:
    """A chain hash that an audit expects, at a record or anywhere; ``source`` is its origin for messages."""

    chain: str
    n_records: int | None
    source: str
    signed_by: str | None = None

    def problem(self, records: list[Stored]) -> str | None:
        """Return the problem of a board that lacks this head, or None."""
        chains = {record.chain: record.number for record in records} | {START: 0}
        number = chains.get(self.chain)
        if number is not None and self.n_records in (None, number):
            return None
        position = "" if self.n_records is None else f" at record {self.n_records}"
        length = f"(the board has {len(records)} records): records were dropped or written anew"
        return f"{self.source}: head {self.chain[:12]}{position} is not in the chain {length}"


def current_head(store: Readable, signed_with: str | None = None) -> Head:
    records = store.records()
    return _head(len(records), records[-1].chain if records else START, signed_with)


def write_head(store: Readable, file: FilePath, key: FilePath | None = None) -> Head:
    """Write the head of a board, signed where a key is given; the signature lies beside it as ``FILE.sig``.

    Raises CcenvError if it cannot be signed or written.
    """
    head = current_head(store, read_fingerprint(key) if key is not None else None)
    content = _text(head)
    signature = sign(content, key, NAMESPACE) if key is not None else None
    make_folder(file.parent)
    write_atomic(file, content)
    if signature is not None:
        write_atomic(_signature_path(file), signature)
    else:
        _signature_path(file).unlink(missing_ok=True)
    return head


def read_head(file: FilePath) -> Expected:
    """Read a head and check its signature, where it names a key.

    Raises InputError if it is damaged, or not signed by the key that it names.
    """
    content = read_bounded(file, MAX_BYTES)
    head = validate(Head, FORMAT.parse(content, str(file)), str(file))
    signature = _signature_path(file)
    if head.signed_with is None and signature.exists():
        raise InputError(f"{signature}: a signature, but {file} names no key")
    if head.signed_with is not None:
        signer = signed_by(content, read_bounded(signature, MAX_BYTES), str(signature), NAMESPACE)
        if signer != head.signed_with:
            raise InputError(f"{signature}: made with {signer}, but {file} names {head.signed_with}")
    return Expected(head.chain, head.n_records, str(file), head.signed_with)


def expected_head(text: str, signer: str | None = None) -> Expected:
    """Return the head of a command line option: 64 hexadecimal digits, or a file of ``ccenv board head``, signed by ``signer``.

    Raises InputError for anything else.
    """
    if re.fullmatch(r"[0-9a-f]{64}", text):
        if signer is not None:
            raise InputError(f"-s signer={signer}: a hash is not signed; give the file of a head")
        return Expected(text, None, "--expect-head")
    if not is_file(text):
        raise InputError(f"--expect-head is {text!r}; 64 hexadecimal digits or the file of a head are needed")
    head = read_head(FilePath(text))
    if signer is not None and head.signed_by != signer:
        raise InputError(f"{text}: signed by {head.signed_by or 'nobody'}; the signer must be {signer}")
    return head


@dataclass(frozen=True)
class Memory:
    """The file of the last head in the operator's folder."""

    file: FilePath

    def remember(self, record: Stored) -> None:
        """Store the head after a record; an older one never replaces a newer one."""
        last = self.recall()
        if last is None or last.n_records is None or last.n_records < record.number:
            write_atomic(self.file, _text(_head(record.number, record.chain, None)))

    def recall(self) -> Expected | None:
        """Return the head, None where there is none. Raises CcenvError if the file is damaged."""
        if not self.file.exists():
            return None
        try:
            return read_head(self.file)
        except InputError as error:
            raise CcenvError(f"the head that the board's folder remembers: {error}") from None


def _head(n_records: int, chain: str, signed_with: str | None) -> Head:
    data = {"n_records": n_records, "chain": chain, "recorded_at": now(), "signed_with": signed_with}
    return validate(Head, FORMAT.head | data, "head")


def _text(head: Head) -> bytes:
    return FORMAT.content(head.model_dump(exclude_none=True))


def _signature_path(file: FilePath) -> FilePath:
    return file.with_name(f"{file.name}.sig")
