"""Tables of the board's database and the steps that bring an older database to the newest version."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Column, Connection, Integer, LargeBinary, MetaData, String, Table, Text, inspect, select, text

from ccenv.errors import InputError

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
    "ccenv_board_files",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)


def _create(connection: Connection) -> None:
    """Create the tables; records and files may be added and read, not changed or removed."""
    METADATA.create_all(connection, tables=[RECORDS, FILES])
    dialect = connection.dialect.name
    for table in (RECORDS.name, FILES.name):
        for action in ("UPDATE", "DELETE"):
            name = f"{table}_no_{action.lower()}"
            if dialect == "sqlite":
                body = "BEGIN SELECT RAISE(ABORT, 'records are append-only'); END"
                connection.execute(text(f"CREATE TRIGGER {name} BEFORE {action} ON {table} {body}"))
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
STEPS: tuple[tuple[int, str, Callable[[Connection], None]], ...] = ((1, "records and files", _create),)


def migrate(connection: Connection) -> None:
    """Bring a database to the newest version.

    Raises:
        InputError: if it is newer than this ccenv.
    """
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
