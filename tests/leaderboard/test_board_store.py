"""The board's database: nothing that was reported as stored is lost, nothing half-stored appears, no change goes unnoticed."""

import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from sqlalchemy import event, exc, text

from ccenv.base.errors import CcenvError, InputError, MissingExtraError
from ccenv.leaderboard.store import schema
from ccenv.leaderboard.store.database import BoardStore, EditedRecordError, TakenError, sqlite_url

# Another database to test on, e.g. postgresql+psycopg://user@localhost/empty; its tables are dropped.
OTHER = os.environ.get("CCENV_TEST_DATABASE_URL")


def urls() -> list[Any]:
    reason = "CCENV_TEST_DATABASE_URL names no database server"
    return ["sqlite", pytest.param("other", marks=pytest.mark.skipif(OTHER is None, reason=reason))]


def drop_all(url: str) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        schema.METADATA.drop_all(connection)
        if engine.dialect.name == "postgresql":
            for table in (schema.RECORDS.name, schema.FILES.name, schema.CLAIMS.name):
                for action in ("update", "delete"):
                    connection.execute(text(f"DROP FUNCTION IF EXISTS {table}_no_{action}_refuse() CASCADE"))
    engine.dispose()


@pytest.fixture(params=urls())
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "board.db")
    drop_all(str(OTHER))
    return str(OTHER)


def fill(store: BoardStore, count: int = 3) -> None:
    for i in range(count):
        store.append("submission", f"{i:064x}", f"slot/{i}", {"value": i, "text": "é"}, {"a.txt": b"shared", "b.txt": b"%d" % i})


def test_what_is_stored_is_read_back(url: str) -> None:
    with BoardStore(url) as store:
        fill(store)
    with BoardStore(url) as store:
        records = store.records()
        assert [r.number for r in records] == [1, 2, 3]
        assert [r.content["value"] for r in records] == [0, 1, 2]
        assert records[1].content["text"] == "é"
        assert store.file(records[2].files["b.txt"]) == b"2"
        assert store.records(subject=f"{1:064x}") == [records[1]]
        assert store.records(kind="round") == []
        assert store.check() == 3


def test_a_slot_is_taken_once(url: str) -> None:
    with BoardStore(url) as store:
        fill(store)
        with pytest.raises(TakenError, match="has this already"):
            store.append("submission", "", "slot/1", {"value": 9}, {"new": b"new"})
        assert store.check() == 3
        with pytest.raises(EditedRecordError, match="missing"):
            store.file("0" * 64)


# What changes or removes rows without UPDATE and DELETE: the first row again, with whatever is there.
FORGET = {
    "sqlite": ("INSERT OR REPLACE INTO {0} SELECT * FROM {0}", "REPLACE INTO {0} SELECT * FROM {0} LIMIT 1"),
    "postgresql+psycopg": ("TRUNCATE {0}", "TRUNCATE {0} CASCADE"),
}


def test_records_are_append_only(url: str) -> None:
    with BoardStore(url) as store:
        fill(store)
        for statement in (
            f"UPDATE {schema.RECORDS.name} SET kind = 'x'",
            f"DELETE FROM {schema.RECORDS.name}",
            f"DELETE FROM {schema.FILES.name}",
            *(forget.format(table.name) for table in (schema.RECORDS, schema.FILES) for forget in FORGET[url.partition(":")[0]]),
        ):
            with pytest.raises((CcenvError, exc.IntegrityError), match="append-only"), store._transaction() as connection:
                connection.execute(text(statement))
        assert store.check() == 3


def test_writers_at_the_same_time_do_not_lose_records(url: str) -> None:
    children = []
    for child in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                with BoardStore(url) as store:
                    for i in range(5):
                        store.append("x", "", f"{child}/{i}", {"child": child}, {})
                os._exit(0)
            except BaseException:  # a child must not return into the tests
                os._exit(1)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
    with BoardStore(url) as store:
        assert store.check() == 20
        assert {r.slot for r in store.records()} == {f"{c}/{i}" for c in range(4) for i in range(5)}


def edited(file: Path, *statements: str) -> None:
    """Change a database as somebody with access to the file would: triggers first."""
    with sqlite3.connect(file) as connection:
        for name in (schema.RECORDS.name, schema.FILES.name):
            for action in ("update", "delete"):
                connection.execute(f"DROP TRIGGER {name}_no_{action}")
        for statement in statements:
            connection.execute(statement)


EDITS = [
    (
        f"UPDATE {schema.RECORDS.name} SET content = replace(content, '\"value\":1', '\"value\":7') WHERE number = 2",
        "record 2 .*edited",
    ),
    (f"UPDATE {schema.RECORDS.name} SET subject = 'x' WHERE number = 2", "record 2 .*edited"),
    (f"DELETE FROM {schema.RECORDS.name} WHERE number = 2", "record 2 .*missing"),
    (f"UPDATE {schema.RECORDS.name} SET number = 9 WHERE number = 3", "record 3 .*missing"),
    (f"UPDATE {schema.FILES.name} SET content = x'00' WHERE content = x'32'", "file .*edited"),
    (f"DELETE FROM {schema.FILES.name} WHERE content = x'32'", "file .*missing"),
]


@pytest.mark.parametrize(("statement", "message"), EDITS)
def test_an_edited_record_is_noticed(tmp_path: Path, statement: str, message: str) -> None:
    with BoardStore(sqlite_url(tmp_path / "board.db")) as store:
        fill(store)
    edited(tmp_path / "board.db", statement)
    with BoardStore(sqlite_url(tmp_path / "board.db")) as store, pytest.raises(EditedRecordError, match=message):
        store.check()


def test_a_record_with_a_new_hash_breaks_the_chain(tmp_path: Path) -> None:
    from ccenv.leaderboard.store.database import record_hash

    with BoardStore(sqlite_url(tmp_path / "board.db")) as store:
        fill(store)
        old = store.records()[1]
    content = '{"files":{},"value":7}'
    forged = record_hash(old.kind, old.subject, old.slot, content)
    edited(tmp_path / "board.db", f"UPDATE {schema.RECORDS.name} SET content = '{content}', sha256 = '{forged}' WHERE number = 2")
    with (
        BoardStore(sqlite_url(tmp_path / "board.db")) as store,
        pytest.raises(EditedRecordError, match=r"record 2 .*does not follow"),
    ):
        store.check()


def in_child(work: Callable[[int], None], report: int) -> int:
    """Run work in a child process; return its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            work(report)
            os._exit(0)
        except BaseException:  # a child must not return into the tests
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(url: str, step: int) -> Callable[[int], None]:
    """Fill a store and die at the step-th statement or commit; report every record that was reported as stored."""

    def work(report: int) -> None:
        seen = [0]

        def count(*_: object) -> None:
            seen[0] += 1
            if seen[0] == step:
                os._exit(9)

        import sqlalchemy

        event.listen(sqlalchemy.Engine, "before_cursor_execute", count)
        event.listen(sqlalchemy.Engine, "commit", count)
        with BoardStore(url) as store:
            for i in range(2):
                store.append("x", "", f"slot/{i}", {"value": i}, {"a": b"%d" % i, "b": b"shared"})
                os.write(report, b"%d" % i)

    return work


def test_killed_at_every_statement(tmp_path: Path) -> None:
    """Whatever the moment: what was reported is there, the rest is there wholly or not at all, and the work can go on."""
    deaths = 0
    for step in range(1, 200):
        file = tmp_path / f"{step}.db"
        reader, writer = os.pipe()
        code = in_child(killed_at(sqlite_url(file), step), writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            reported = {int(digit) for digit in pipe.read().decode()}
        with BoardStore(sqlite_url(file)) as store:
            number = store.check()
            there = {r.content["value"] for r in store.records()}
            assert reported <= there == set(range(number))
            for i in range(2):
                if i not in there:
                    store.append("x", "", f"slot/{i}", {"value": i}, {"a": b"%d" % i, "b": b"shared"})
            assert store.check() == 2
        if code == 0:
            break
        assert code == 9
        deaths += 1
    else:
        pytest.fail("the work never ended")
    assert deaths > 15


def test_each_migration_runs_once_and_wholly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = sqlite_url(tmp_path / "board.db")
    with BoardStore(url) as store:
        fill(store)
    ran = []
    newest = len(schema.STEPS)

    def breaks(connection: Any) -> None:
        connection.execute(text("CREATE TABLE half (x INTEGER)"))
        raise CcenvError("interrupted")

    def works(connection: Any) -> None:
        ran.append(newest + 1)
        connection.execute(text("CREATE TABLE half (x INTEGER)"))

    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, (newest + 1, "breaks", breaks)))
    with pytest.raises(CcenvError, match="interrupted"):
        BoardStore(url)
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS[:newest], (newest + 1, "works", works)))
    for _ in range(2):
        with BoardStore(url) as store:  # the table of the interrupted step is not in the way: it was never there
            assert store.check() == 3
    assert ran == [newest + 1]
    monkeypatch.undo()
    with pytest.raises(InputError, match=f"has version {newest + 1}; this ccenv knows version {newest}"):
        BoardStore(url)


def test_databases_that_cannot_be(tmp_path: Path) -> None:
    for url, message in (
        ("nonsense", "not a URL"),
        ("oracel://x/y", "not a URL"),
        (f"sqlite:///{tmp_path}/absent/board.db", "unable to open"),
    ):
        with pytest.raises(CcenvError, match=message):
            BoardStore(url)
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be read as one " * 20)
    with pytest.raises(CcenvError, match="not a database"):
        BoardStore(sqlite_url(tmp_path / "text.db"))


def test_without_sqlalchemy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ccenv\[board\]'"):
        BoardStore(sqlite_url(tmp_path / "board.db"))


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=25)
@given(st.dictionaries(st.text(max_size=8).filter(lambda key: key != "files"), PLAIN, max_size=4))
def test_any_record_comes_back(content: dict[str, Any]) -> None:
    with BoardStore("sqlite://") as store:
        store.append("x", "", "slot", content, {})
        assert store.records()[0].content == {**content, "files": {}}
        assert store.check() == 1
