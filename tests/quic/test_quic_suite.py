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
    for name, value in (("STEPS", 80), ("PAIR_S", 0.4), ("LATE_S", 0.1), ("RUNS", 3)):
        monkeypatch.setattr(suite, name, value)


def test_the_suite_writes_record_and_figure(tmp_path: Path, capsys: Capture) -> None:
    only = [word for name in ("reno", "cc_qdel", "ever_delay") for word in ("--only", f"aioquic/{name}")]
    assert main(["bench", "run", "quic-v1", *only, "--out", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["sender"] for row in told["rows"]] == ["reno", "cc_qdel"]
    assert "is no belief program" in told["refused"]["aioquic:ever_delay"]
    for row in told["rows"]:
        assert set(suite.COLUMNS) <= set(row)
        assert row["legal"]
        assert 0 < row["searched"] <= row["attacked"]
    assert told["rows"][1]["twin"] is True
    assert suite.FORMAT.read(tmp_path / "out" / "record.json")["rows"] == told["rows"]
    assert (tmp_path / "out" / "summary.png").stat().st_size > 5_000


def test_nothing_to_run_is_an_error(capsys: Capture, tmp_path: Path) -> None:
    assert main(["bench", "run", "quic-v1", "--only", "nginx/*", "--out", str(tmp_path)]) == 2
    assert "quic-v1: nothing to run" in capsys.readouterr().err


def test_a_search_finds_at_least_what_was_stored(capsys: Capture) -> None:
    first, again = (attack.attack_quic("aioquic", "cubic", search=True, budget_s=1e-9) for _ in range(2))
    assert first == again
    assert first["legal"]
    assert first["worst"] <= min(first["calm"], first["shipped_moves"][0]["utilisation"])
    assert main(["quic", "attack", "cc_qdel", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["twin"] is True
