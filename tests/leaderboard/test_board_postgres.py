"""A board in PostgreSQL, if CCENV_POSTGRES is the URL of an empty database: the operator's commands, and the trigger."""

import os
from pathlib import Path

import pytest

from ccenv.cli.main import main

URL = os.environ.get("CCENV_POSTGRES", "")
pytestmark = pytest.mark.skipif(not URL, reason="CCENV_POSTGRES is not set: postgresql+psycopg:///NAME of an empty database")


def test_the_operators_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlalchemy
    from sqlalchemy import exc

    monkeypatch.chdir(tmp_path)
    board = ["--board", "operator"]
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "board.yaml").write_text(f"database: {URL}\n")
    assert main(["board", "pack", "cc_qdel", "--author", "Ada Lovelace", "--out", "mine"]) == 0
    assert main(["board", "submit", "mine", *board]) == 0 and main(["board", "submit", "reno", *board]) == 0
    assert main(["board", "evaluate", "--suite", "quick", "--budget", "0", *board]) == 0
    assert main(["board", "round", "close", *board]) == 0 and main(["board", "export", "board.jsonl.xz", *board]) == 0
    assert main(["board", "publish", "public", *board]) == 0 and main(["board", "publish", "public", *board, "--json"]) == 0
    assert main(["board", "import", "public/records/board.jsonl.xz", "--board", "copy"]) == 0
    audit = ["board", "audit", "-s", "sample=2", "-s", "proofs=0", "--expect-head", "public/records/head.json"]
    assert main([*audit, "--board", "copy"]) == 0 and main([*audit, *board]) == 0
    engine = sqlalchemy.create_engine(URL)
    tables = [name for name in sqlalchemy.inspect(engine).get_table_names() if "version" not in name]
    assert len(tables) == 3
    for statement in ("DELETE FROM", "TRUNCATE"):
        for name in tables:
            with pytest.raises(exc.DBAPIError, match="append-only"), engine.begin() as connection:
                connection.execute(sqlalchemy.text(f"{statement} {name}"))
    engine.dispose()
