"""The board that comes with ccenv: its export is whole, its numbers follow from its records, and it makes a site."""

from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from ccenv.adversaries import ADVERSARIES
from ccenv.agents import AGENTS
from ccenv.leaderboard.audit.run import audit
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.exchange import import_board, read_export
from ccenv.leaderboard.site.sources import from_store
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.submit import entrants

EXPORT = Path(__file__).parents[2] / "docs" / "data" / "leaderboard.jsonl.xz"


def test_the_shipped_board(tmp_path: Path) -> None:
    home = Home(tmp_path / "board")
    with home.open() as store:
        count = import_board(store, home, read_export(EXPORT))
        assert store.check() == count + 1
        names = {entrant.record.card.name for entrant in entrants(store)}
        assert {*AGENTS.names("synthesized"), *AGENTS.names("learned"), *AGENTS.names("distilled")} <= names
        assert len(names & set(AGENTS.names("classic"))) >= 17
        assert all(names & {entry.name, *entry.aliases} for entry in ADVERSARIES)
        outcome = audit(store, home, sample=0, certificates=0, keep=False)
        assert outcome["problems"] == []  # hashes, seeds from the revealed secret, summaries from the cells
        result = build_site(from_store(store, home), tmp_path / "site")
    assert result["suites"] >= 2
    assert result["senders"] >= 29
    assert result["adversaries"] >= 13
    assert EXPORT.stat().st_size < 4_000_000
