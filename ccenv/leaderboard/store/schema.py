"""Tables of the board's database and the steps that bring an older database to the newest version."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Column, Connection, Integer, LargeBinary, MetaData, String, Table, Text, inspect, select, text

from ccenv.base.errors import CcenvError, InputError
from ccenv.base.foreign import parse_json

METADATA = MetaData()

VERSIONS = Table(
    "ccenv_board_versions",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("step", Text, nullable=False),
)

RECORDS = Table(
    "ccenv_board_records",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(20), nullable=False, index=True),
    Column("subject", String(64), nullable=False, index=True),
    Column("slot", String(300), nullable=False, unique=True),
    Column("content", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("chain", String(64), nullable=False),
)

FILES = Table(
    "ccenv_board_files", METADATA, Column("sha256", String(64), primary_key=True), Column("content", LargeBinary, nullable=False)
)

CLAIMS = Table(
    "ccenv_board_claims", METADATA, Column("claim", String(300), primary_key=True), Column("number", Integer, nullable=False)
)
"""Claims, such as folded names, that the database keeps unique."""


def _create(connection: Connection) -> None:
    METADATA.create_all(connection, tables=[RECORDS, FILES])
    _make_append_only(connection, RECORDS.name, FILES.name)


def _create_claims(connection: Connection) -> None:
    METADATA.create_all(connection, tables=[CLAIMS])
    _enter_claims(connection)
    _make_append_only(connection, CLAIMS.name)


def _enter_claims(connection: Connection) -> None:
    """Enter the claims of existing submissions; the first of two equal claims counts."""
    taken = set(connection.execute(select(CLAIMS.c.claim)).scalars())
    rows = select(RECORDS.c.number, RECORDS.c.content).where(RECORDS.c.kind == "submission").order_by(RECORDS.c.number)
    for number, content in connection.execute(rows).all():
        for claim in _stored_claims(connection, number, content):
            if claim not in taken:
                taken.add(claim)
                connection.execute(CLAIMS.insert().values(claim=claim, number=number))


def _refuse_replacement(connection: Connection) -> None:
    """Refuse REPLACE and TRUNCATE, which bypass the triggers of UPDATE and DELETE; enter names as compared today."""
    _enter_claims(connection)
    for table, keys in ((RECORDS.name, ("number", "slot")), (FILES.name, ("sha256",)), (CLAIMS.name, ("claim",))):
        if connection.dialect.name == "sqlite":  # REPLACE removes rows without a trigger of DELETE
            conflict = " OR ".join(f"{key} = NEW.{key}" for key in keys)
            when = f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {conflict})"
            connection.execute(text(f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} {when} {_ABORT}"))
        elif connection.dialect.name == "postgresql":
            refuse = f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_no_delete_refuse()"
            connection.execute(text(f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} {refuse}"))


def _stored_claims(connection: Connection, number: int, content: str) -> tuple[str, ...]:
    """Return the claims of a stored submission; one that breaks a rule of today claims only its name, and audits report it."""
    from ccenv.leaderboard.store.entry import submission_claims
    from ccenv.leaderboard.submission.identity import name_claim

    def read(digest: str) -> bytes:
        stored = connection.execute(select(FILES.c.content).where(FILES.c.sha256 == digest)).scalar()
        if stored is None:
            raise InputError(f"record {number}: its file {digest[:12]} is missing")
        return bytes(stored)

    data = parse_json(content, f"record {number}")
    try:
        return submission_claims(data, read, f"record {number}")
    except CcenvError:
        card = data.get("card") if isinstance(data, dict) else None
        name = card.get("name") if isinstance(card, dict) else None
        return (name_claim(name),) if isinstance(name, str) else ()


_ABORT = "BEGIN SELECT RAISE(ABORT, 'records are append-only'); END"


def _make_append_only(connection: Connection, *tables: str) -> None:
    """Forbid UPDATE and DELETE of rows."""
    dialect = connection.dialect.name
    for table in tables:
        for action in ("UPDATE", "DELETE"):
            name = f"{table}_no_{action.lower()}"
            if dialect == "sqlite":
                connection.execute(text(f"CREATE TRIGGER {name} BEFORE {action} ON {table} {_ABORT}"))
            elif dialect == "postgresql":
                function = (
                    f"CREATE FUNCTION {name}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$ BEGIN RAISE EXCEPTION 'records are append-only'; END $$"
                )
                connection.execute(text(function))
                connection.execute(
                    text(f"CREATE TRIGGER {name} BEFORE {action} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}_refuse()")
                )


# Each step is applied once, in this order, in a transaction with its entry in the table of versions.
STEPS: tuple[tuple[int, str, Callable[[Connection], None]], ...] = (
    (1, "records and files", _create),
    (2, "claims", _create_claims),
    (3, "no replacement", _refuse_replacement),
)


def migrate(connection: Connection) -> None:
    """Bring a database to the newest version. Raises InputError if it is newer than this ccenv."""
    if not inspect(connection).has_table(VERSIONS.name):
        VERSIONS.create(connection)
    done = set(connection.execute(select(VERSIONS.c.version)).scalars())
    newest = max(version for version, _, _ in STEPS)
    if done and max(done) > newest:
        raise InputError(f"the board's database has version {max(done)}; this ccenv knows version {newest}: use a newer ccenv")
    for version, what, step in STEPS:
        if version not in done:
            step(connection)
            connection.execute(VERSIONS.insert().values(version=version, step=what))
