"""The store of a board: one chain of records, and the exchange of whole boards."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from board_records import STAGES
from sqlalchemy import event, exc, text

from ccenv.base.errors import CcenvError, InputError
from ccenv.leaderboard.audit.run import audit
from ccenv.leaderboard.evaluate.queue import evaluate, list_tasks
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.exchange import export_board, import_board, read_export
from ccenv.leaderboard.site.sources import from_store
from ccenv.leaderboard.store import schema
from ccenv.leaderboard.store.database import (
    START,
    BoardStore,
    EditedRecordError,
    TakenError,
    extend_chain,
    record_hash,
    sqlite_url,
)
from ccenv.leaderboard.store.home import Home, close_round, open_round
from ccenv.leaderboard.store.submit import submit_reviewed

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
        assert [r.number for r in records] == [1, 2, 3] and [r.content["value"] for r in records] == [0, 1, 2]
        assert records[1].content["text"] == "é" and store.file(records[2].files["b.txt"]) == b"2"
        assert store.records(subject=f"{1:064x}") == [records[1]] and store.records(kind="round") == []
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


def in_child(work: Callable[[], None]) -> Callable[[], int]:
    """Begin work in a child process; return what waits for it and tells its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # a child must not return into the tests
            os._exit(1)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_writers_at_the_same_time_do_not_lose_records(url: str) -> None:
    def write(child: int) -> None:
        with BoardStore(url) as store:
            for i in range(5):
                store.append("x", "", f"{child}/{i}", {"child": child}, {})

    children = [in_child(partial(write, child)) for child in range(4)]
    assert [ended() for ended in children] == [0] * 4
    with BoardStore(url) as store:
        assert store.check() == 20 and {r.slot for r in store.records()} == {f"{c}/{i}" for c in range(4) for i in range(5)}


def edited(file: Path, *statements: str) -> None:
    """Change a database as somebody with access to the file would: triggers first."""
    with sqlite3.connect(file) as connection:
        for name in (schema.RECORDS.name, schema.FILES.name):
            for action in ("update", "delete"):
                connection.execute(f"DROP TRIGGER {name}_no_{action}")
        for statement in statements:
            connection.execute(statement)


EDIT, REMOVE = f"UPDATE {schema.RECORDS.name} SET", f"DELETE FROM {schema.RECORDS.name}"
EDITS = [
    (f"{EDIT} content = replace(content, '\"value\":1', '\"value\":7') WHERE number = 2", "record 2 .*edited"),
    (f"{EDIT} subject = 'x' WHERE number = 2", "record 2 .*edited"),
    (f"{REMOVE} WHERE number = 2", "record 2 .*missing"),
    (f"{EDIT} number = 9 WHERE number = 3", "record 3 .*missing"),
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

    with BoardStore(sqlite_url(tmp_path / "board.db")) as store:
        fill(store)
        old = store.records()[1]
    content = '{"files":{},"value":7}'
    forged = record_hash(old.kind, old.subject, old.slot, content)
    edited(tmp_path / "board.db", f"{EDIT} content = '{content}', sha256 = '{forged}' WHERE number = 2")
    again = BoardStore(sqlite_url(tmp_path / "board.db"))
    with again as store, pytest.raises(EditedRecordError, match=r"record 2 .*does not follow"):
        store.check()


def killed_at(url: str, step: int, report: int) -> None:
    """Fill a store and die at the step-th statement or commit; report every record that was reported as stored."""
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


def test_killed_at_every_statement(tmp_path: Path) -> None:
    """Whatever the moment: what was reported is there, the rest is there wholly or not at all, and the work can go on."""
    deaths = 0
    for step in range(1, 200):
        file = tmp_path / f"{step}.db"
        reader, writer = os.pipe()
        code = in_child(partial(killed_at, sqlite_url(file), step, writer))()
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
    absent = f"sqlite:///{tmp_path}/absent/board.db"
    for url, message in (("nonsense", "not a URL"), ("oracel://x/y", "not a URL"), (absent, "unable to open")):
        with pytest.raises(CcenvError, match=message):
            BoardStore(url)
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be read as one " * 20)
    with pytest.raises(CcenvError, match="not a database"):
        BoardStore(sqlite_url(tmp_path / "text.db"))


TEXT = st.text(max_size=9)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


NUMBERS = count()


@pytest.fixture(scope="module")
def memory() -> Iterator[BoardStore]:
    with BoardStore("sqlite://") as store:
        yield store


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.dictionaries(st.text(max_size=8).filter(lambda key: key != "files"), PLAIN, max_size=4))
def test_any_record_comes_back(memory: BoardStore, content: dict[str, Any]) -> None:
    number = next(NUMBERS)
    memory.append("x", f"{number:064x}", f"slot/{number}", content, {})
    assert memory.records(subject=f"{number:064x}")[0].content == {**content, "files": {}} and memory.check() == number + 1


def test_an_export_comes_back(store: BoardStore, home: Home, tmp_path: Path) -> None:
    close_round(store, home)
    for name in ("a.jsonl", "b.jsonl.xz"):
        count = export_board(store, tmp_path / name)
        other = Home(tmp_path / f"board of {name}")
        with other.open() as copy:
            assert import_board(copy, other, read_export(tmp_path / name)) == count
            assert copy.records()[:count] == store.records() and copy.check() == count + 1
            assert open_round(copy, other) == 3  # with a secret of its own
            submit_reviewed(copy, other, "cubic")
            assert len(evaluate(copy, other, list_tasks(copy, STAGES[:1], only=["cubic"]))) == 1
            with pytest.raises(InputError, match="not empty"):
                import_board(copy, other, read_export(tmp_path / name))
    assert home.secret(2).hex() not in (tmp_path / "a.jsonl").read_text()


def assert_refused(store: BoardStore, folder: Path, change: Callable[[list[dict[str, Any]]], Any], message: str) -> None:
    """Import an export of which lines were changed into an empty board, which it leaves empty."""
    export_board(store, folder / "good.jsonl")
    lines = [json.loads(line) for line in (folder / "good.jsonl").read_text().splitlines()]
    change(lines)
    (folder / "bad.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = Home(folder / "other")
    with other.open() as copy:
        with pytest.raises(CcenvError, match=message):
            import_board(copy, other, read_export(folder / "bad.jsonl"))
        assert copy.records() == [] and copy.check() == 0


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
    ("edited", lambda rows: rows[2]["record"].update(content=rows[2]["record"]["content"].replace("Ada", "Bob")), "was edited"),
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
    assert_refused(store, tmp_path, change, message)


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
        assert copy.records() == [] and import_board(copy, other, read) == len(store.records())
