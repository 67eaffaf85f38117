"""Every hostile file and argument ends the command that a user would meet it by with exit code 2 and one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_files import HOSTILE

from ccenv.base.errors import MAX_MESSAGE_CHARS
from ccenv.cli.main import main


def test_there_are_more_than_100_hostile_fixtures() -> None:
    assert len(HOSTILE) > 100


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_file_ends_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fixture = HOSTILE[name]
    monkeypatch.chdir(tmp_path)
    assert main(fixture.arguments(tmp_path)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("ccenv: error: ") and printed.err.count("\n") == 1
    assert len(printed.err) < MAX_MESSAGE_CHARS + 50
    assert fixture.said in printed.err
