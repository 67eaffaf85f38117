"""The board's database: append-only records chained by hashes, each stored with its files in one transaction.

Any database of SQLAlchemy works; the default is a SQLite file. A record that :meth:`BoardStore.append` returned is durable; a
crash leaves no partial record.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Protocol

from ccenv.base.errors import CcenvError, InputError, require_extra
from ccenv.base.files import canonical_json
from ccenv.base.foreign import parse_json

if TYPE_CHECKING:
    from sqlalchemy import Connection

START = hashlib.sha256(b"ccenv board").hexdigest()
_ATTEMPTS = 20
_LOCK = 0x63636576  # an advisory lock number that nothing else uses


class EditedRecordError(CcenvError):
    """A record, a file or the chain is not what was stored."""


@dataclass(frozen=True)
class Stored:
    """A record of the database."""

    number: int
    kind: str
    subject: str  # hash of the submission that it is about, or ""
    slot: str  # unique key
    content: dict[str, Any]
    sha256: str  # hash of kind, subject, slot and content
    chain: str  # hash of the previous chain hash and of sha256

    @property
    def files(self) -> dict[str, str]:
        """Name -> hash of the files that belong to it."""
        return dict(self.content["files"])


class TakenError(InputError):
    """The slot of a new record is taken."""


class MovedError(CcenvError):
    """Another record was stored after the one that a new record was made for."""


class ClaimedError(InputError):
    """Another record holds a claim of a new record."""

    def __init__(self, claim: str, number: int) -> None:
        super().__init__(f"record {number} of the board has {claim} already")
        self.claim = claim
        self.number = number


class Readable(Protocol):
    """Read access to a board's database."""

    def records(self, kind: str | None = None, subject: str | None = None) -> list[Stored]:
        """Return records in order, all or those of a kind or subject."""

    def file(self, sha256: str) -> bytes:
        """Return a file by its hash."""


class BoardStore:
    """An open database; ``on_append`` is called with every record that was stored, after it is on disk.

    ``url`` is one of SQLAlchemy: ``sqlite:///board.db`` or ``postgresql+psycopg://host/name``.

    Raises:
        MissingExtraError: without SQLAlchemy.
        InputError: for an invalid URL, or a database of a newer ccenv.
        CcenvError: if the database cannot be reached.
    """

    def __init__(self, url: str, on_append: Callable[[Stored], None] = lambda record: None) -> None:
        self._on_append = on_append
        require_extra("sqlalchemy", "board")
        import sqlalchemy
        from sqlalchemy import event, exc

        from ccenv.leaderboard.store.schema import migrate

        try:
            self._engine = sqlalchemy.create_engine(url)
        except (exc.ArgumentError, exc.NoSuchModuleError) as error:
            raise InputError(
                f"database {_hide_credentials(url)}: not a URL of a database that is known here ({_first_line(error)})"
            ) from None
        except ModuleNotFoundError as error:
            raise InputError(f"database {_hide_credentials(url)}: its driver is not installed ({error})") from None
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", _sqlite_connect)
            event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        with self._transaction() as connection:
            _one_writer(connection)
            migrate(connection)

    def __enter__(self) -> BoardStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        from sqlalchemy import exc

        try:
            with self._engine.begin() as connection:
                yield connection
        except exc.IntegrityError:
            raise
        except exc.SQLAlchemyError as error:
            raise CcenvError(f"the board's database: {_first_line(error)}") from None

    def append(
        self,
        kind: str,
        subject: str,
        slot: str,
        content: Mapping[str, Any],
        files: Mapping[str, bytes],
        claims: Sequence[str] = (),
        after: str | None = None,
    ) -> Stored:
        """Store a record and its files atomically and durably.

        ``content`` is plain JSON, to which the hashes of ``files`` are added; ``subject`` is the hash of a submission, or "";
        ``slot`` and each of ``claims`` are unique on the board; ``after`` is the chain hash that the record was made for (None:
        any).

        Raises:
            MovedError: if another record came first.
            TakenError: if the slot is taken.
            ClaimedError: if another record has one of the claims.
            CcenvError: if the database refuses.
        """
        from sqlalchemy import exc, select

        from ccenv.leaderboard.store.schema import CLAIMS, FILES, RECORDS

        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
        text = canonical_json({**content, "files": hashes})
        for _ in range(_ATTEMPTS):
            try:
                with self._transaction() as connection:
                    _one_writer(connection)
                    last = connection.execute(select(RECORDS.c.number, RECORDS.c.chain).order_by(RECORDS.c.number.desc())).first()
                    number, before = (last[0] + 1, last[1]) if last else (1, START)
                    if after not in (None, before):
                        raise MovedError("another record came first")
                    if connection.execute(select(RECORDS.c.number).where(RECORDS.c.slot == slot)).first():
                        raise TakenError(f"the board has this already: {kind} {slot}")
                    for claim in claims:
                        held = connection.execute(select(CLAIMS.c.number).where(CLAIMS.c.claim == claim)).scalar()
                        if held is not None:
                            raise ClaimedError(claim, held)
                    row = _row(number, before, kind, subject, slot, text)
                    present = set(connection.execute(select(FILES.c.sha256).where(FILES.c.sha256.in_(hashes.values()))).scalars())
                    for name, digest in hashes.items():
                        if digest not in present:
                            connection.execute(FILES.insert().values(sha256=digest, content=files[name]))
                            present.add(digest)
                    connection.execute(RECORDS.insert().values(**row))
                    for claim in claims:
                        connection.execute(CLAIMS.insert().values(claim=claim, number=number))
                record = parse_row(row)
                self._on_append(record)
                return record
            except exc.IntegrityError:  # another writer took the number or the slot meanwhile
                continue
        raise CcenvError("the board's database is too busy: another process keeps writing")

    def restore(
        self,
        rows: Sequence[Mapping[str, Any]],
        files: Mapping[str, bytes],
        claims: Mapping[str, int],
        next_record: tuple[str, str, str, Mapping[str, Any]],
    ) -> None:
        """Fill an empty store atomically with checked rows (:func:`check_rows`) and one more record.

        ``files`` are by hash; ``claims`` have the number of the record that holds them; ``next_record`` is kind, subject, slot
        and content.
        """
        from ccenv.leaderboard.store.schema import CLAIMS, FILES, RECORDS

        with self._transaction() as connection:
            for digest, data in files.items():
                connection.execute(FILES.insert().values(sha256=digest, content=data))
            kind, subject, slot, content = next_record
            last = _row(len(rows) + 1, rows[-1]["chain"], kind, subject, slot, canonical_json({**content, "files": {}}))
            for row in (*rows, last):
                connection.execute(RECORDS.insert().values(**row))
            for claim, number in claims.items():
                connection.execute(CLAIMS.insert().values(claim=claim, number=number))
        self._on_append(parse_row(last))

    def records(self, kind: str | None = None, subject: str | None = None) -> list[Stored]:
        """Return records in the order in which they were stored. Raises EditedRecordError if one was edited."""
        return [parse_row(row) for row in self.rows(kind, subject)]

    def chain(self) -> str:
        """Return the hash of the chain at the last record."""
        from sqlalchemy import select

        from ccenv.leaderboard.store.schema import RECORDS

        with self._transaction() as connection:
            return connection.execute(select(RECORDS.c.chain).order_by(RECORDS.c.number.desc()).limit(1)).scalar() or START

    def rows(self, kind: str | None = None, subject: str | None = None) -> list[dict[str, Any]]:
        """Return rows of the database in order, unchecked: all or those of a kind or subject."""
        from sqlalchemy import select

        from ccenv.leaderboard.store.schema import RECORDS

        wanted = {RECORDS.c.kind: kind, RECORDS.c.subject: subject}
        conditions = [column == value for column, value in wanted.items() if value is not None]
        with self._transaction() as connection:
            query = select(RECORDS).where(*conditions).order_by(RECORDS.c.number)
            return [dict(row) for row in connection.execute(query).mappings()]

    def file(self, sha256: str) -> bytes:
        """Return a file by its hash. Raises EditedRecordError if it is missing or was edited."""
        from sqlalchemy import select

        from ccenv.leaderboard.store.schema import FILES

        with self._transaction() as connection:
            content = connection.execute(select(FILES.c.content).where(FILES.c.sha256 == sha256)).scalar()
        if content is None:
            raise EditedRecordError(f"file {sha256[:12]} of the board is missing")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise EditedRecordError(f"file {sha256[:12]} of the board was edited: its hash is another")
        return bytes(content)

    def check(self) -> int:
        """Check every record, the chain and every file; return how many records there are. Raises EditedRecordError."""
        records = self.records()
        _check_chain(records)
        for digest in sorted({digest for record in records for digest in record.files.values()}):
            self.file(digest)
        return len(records)


def check_rows(rows: Sequence[Mapping[str, Any]], files: Mapping[str, bytes]) -> list[Stored]:
    """Return rows (:func:`make_row`) as records.

    Raises EditedRecordError if a row or the chain does not match its hash, a slot occurs twice, or a file is missing.
    """
    records = [parse_row(row) for row in rows]
    _check_chain(records)
    for slot, count in Counter(record.slot for record in records).items():
        if count > 1:
            raise EditedRecordError(f"{count} records say {slot!r}, which may exist once")
    for record in records:
        missing = [name for name, digest in record.files.items() if digest not in files]
        if missing:
            raise EditedRecordError(f"record {record.number}: its file {missing[0]} is missing")
    return records


def _check_chain(records: Sequence[Stored]) -> None:
    before = START
    for expected, record in enumerate(records, start=1):
        if record.number != expected:
            raise EditedRecordError(f"record {expected} of the board is missing")
        if record.chain != extend_chain(before, record.sha256):
            raise EditedRecordError(f"record {record.number} of the board does not follow the one before it")
        before = record.chain


def make_row(record: Stored) -> dict[str, Any]:
    """Return the database row of a record, with its content as canonical text."""
    parts = {name: getattr(record, name) for name in ("number", "kind", "subject", "slot", "sha256", "chain")}
    return {**parts, "content": canonical_json(record.content)}


def record_hash(kind: str, subject: str, slot: str, text: str) -> str:
    return hashlib.sha256("\n".join((kind, subject, slot, text)).encode()).hexdigest()


def _row(number: int, before: str, kind: str, subject: str, slot: str, text: str) -> dict[str, Any]:
    """Return the row of a record after another one, whose hash of the chain is ``before``."""
    sha256 = record_hash(kind, subject, slot, text)
    row = {"number": number, "kind": kind, "subject": subject, "slot": slot, "content": text}
    return row | {"sha256": sha256, "chain": extend_chain(before, sha256)}


def extend_chain(before: str, sha256: str) -> str:
    """Return the chain's next hash."""
    return hashlib.sha256(f"{before}\n{sha256}".encode()).hexdigest()


def parse_row(row: Mapping[str, Any]) -> Stored:
    """Return the record of a database row. Raises EditedRecordError if its hash does not match."""
    if record_hash(row["kind"], row["subject"], row["slot"], row["content"]) != row["sha256"]:
        raise EditedRecordError(f"record {row['number']} of the board was edited: its hash is another")
    content = parse_json(row["content"], f"record {row['number']}")
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        raise EditedRecordError(f"record {row['number']} of the board is no object with the hashes of its files")
    parts = {name: row[name] for name in ("number", "kind", "subject", "slot", "sha256", "chain")}
    return Stored(**parts, content=content)


def sqlite_url(file: FilePath) -> str:
    return f"sqlite:///{file}"


def _sqlite_connect(connection: Any, _: Any) -> None:
    """Control transactions explicitly, wait for other writers and make commits durable."""
    connection.isolation_level = None
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA synchronous = FULL")


def _one_writer(connection: Connection) -> None:
    """Lock out other writers until the transaction ends; SQLite did so at its begin."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    lines = str(cause).strip().splitlines()
    return lines[0][:200] if lines else type(cause).__name__


def _hide_credentials(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://...@{tail}" if at else url[:80]
