"""The suite quic-v1 on shortened runs, and attacks with a search."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ccenv.cli.main import main
from ccenv.network.adversary import StoredMoves, load_moves
from ccenv.quic import attack, suite
from ccenv.quic.stacks import STACKS

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.skipif(STACKS["aioquic"].missing() is not None, reason=str(STACKS["aioquic"].missing()))


def short_moves(file: Path) -> StoredMoves:
    stored = load_moves(file)
    return replace(stored, header=stored.header.model_copy(update={"first_row": 40}), moves=stored.moves[:80])


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (attack, suite):
        monkeypatch.setattr(module, "load_moves", short_moves)
    for name, value in (("DURATION_S", 0.4), ("LATE_S", 0.1)):
        monkeypatch.setattr(suite, name, value)
    for stack in STACKS.values():
        monkeypatch.setattr(type(stack), "search_runs", 3)


def test_the_suite_writes_record_and_figure(tmp_path: Path, answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stack, engines and Linux in one table; a second call takes its rows from the record, --fresh does not."""
    only = [f"aioquic/{name}" for name in ("reno", "cc_qdel", "ever_delay")] + ["*e*/reno", "Linux/[cl]*"]
    command = ["bench", "run", "quic-v1", *(word for one in only for word in ("--only", one)), "--out", str(tmp_path), "--json"]
    told = answer(command)
    rows = {(row["stack"], row["sender"]): row for row in told["rows"]}
    assert {("aioquic", "reno"), ("aioquic", "cc_qdel"), ("curve engine", "reno"), ("packet engine", "reno")} <= set(rows)
    assert "is no belief program" in told["refused"]["aioquic/ever_delay"]
    assert "Linux has no stored run of learned_shield_u80" in told["refused"]["Linux/learned_shield_u80"]
    for row in told["rows"]:
        assert set(suite.COLUMNS) <= set(row)
        assert all(row[case] is None or 0 <= row[case] <= 1.001 for case in suite.CASES)
        if row["stack"] in STACKS:
            assert row["legal"]
            assert 0 < row["searched"] <= row["attacked"]
    assert rows["aioquic", "cc_qdel"]["twin"] is True
    assert rows["Linux", "cubic"]["attacked"] == pytest.approx(0.474, abs=0.001)
    assert suite.FORMAT.read(tmp_path / "record.json")["rows"] == told["rows"]
    assert (tmp_path / "summary.png").stat().st_size > 5_000
    monkeypatch.setattr(suite, "_engine_row", lambda where, name: {"stack": where, "sender": name, "again": True})
    again = suite.run_suite(tmp_path / "record.json", [*only[:2], "*e*/reno"])["rows"]
    assert again == told["rows"]
    fresh = suite.run_suite(tmp_path / "record.json", ["packet engine/reno"], fresh=True)["rows"]
    assert fresh == [{"stack": "packet engine", "sender": "reno", "again": True}]


def test_the_figure_of_the_page_is_that_of_the_record(tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs"
    record = suite.FORMAT.read(docs / "data" / "quic-v1.json")
    suite.plot(record, tmp_path / "quic-v1.svg")
    assert (tmp_path / "quic-v1.svg").read_bytes() == (docs / "images" / "quic-v1.svg").read_bytes()
    assert all(row["legal"] is not False and row["twin"] is not False for row in record["rows"])
    assert all(row["searched"] <= row["attacked"] for row in record["rows"] if row["stack"] in STACKS)


def test_nothing_to_run_is_an_error(refused, tmp_path: Path) -> None:
    refused(["bench", "run", "quic-v1", "--only", "nginx/*", "--out", str(tmp_path)], "quic-v1: nothing to run")
    refused(
        ["bench", "run", "quic-v1", "--limit", "3", "--out", str(tmp_path)],
        "quic-v1 plays the senders of QUIC stacks: leave out --limit",
    )


def test_a_search_finds_at_least_what_was_stored(capsys: Capture) -> None:
    first, again = (attack.attack_quic("aioquic", "cubic", search=True, budget_s=1e-9) for _ in range(2))
    assert first == again
    assert first["legal"]
    assert first["worst"] <= min(first["calm"], first["shipped_moves"][0]["utilisation"])
    assert main(["quic", "attack", "cc_qdel", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["twin"] is True
