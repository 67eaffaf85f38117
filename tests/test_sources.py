"""Every source that is cited by a short name is spelled out in docs/sources.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACE = r"(?= (?:s\.|eq|Eq|App|Table|Listing|Fig|fig|theorem|Theorem|Algorithm|proposition|sections? ))"
PAPER = re.compile(r"\[((?:[A-Z]|\d[A-Z])[A-Za-z0-9+-]*)\]" + PLACE)
NUMBERED = re.compile(r"\bRFC \d{4}\b|\bdraft-[a-z]+-[a-z]+(?:-[a-z]+)*(?:-\d\d)?\b")


def cited(text: str) -> set[str]:
    """List the short names that a text cites."""
    return {f"[{name}]" for name in PAPER.findall(text)} | set(NUMBERED.findall(text))


def spelled_out() -> set[str]:
    rows = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8").splitlines()
    return {row.split("|")[1].strip() for row in rows if row.startswith("| ")}


def texts() -> list[Path]:
    folders = (ROOT / "ccenv", ROOT / "docs", ROOT / "tests")
    return [
        file
        for folder in folders
        for file in folder.rglob("*")
        if file.suffix in {".py", ".md", ".yaml"} and file != Path(__file__)
    ]


def test_every_citation_is_spelled_out() -> None:
    known = spelled_out()
    unknown = {
        f"{file.relative_to(ROOT)}: {name}" for file in texts() for name in cited(file.read_text(encoding="utf-8")) - known
    }
    assert not unknown, "\n".join(sorted(unknown))


def test_every_source_is_cited() -> None:
    page = ROOT / "docs" / "sources.md"
    found = set().union(*(cited(file.read_text(encoding="utf-8")) for file in texts() if file != page))
    named = {name for name in spelled_out() if name.startswith(("[", "RFC", "draft"))}
    assert not named - found


@pytest.mark.parametrize(
    ("text", "name"), [("[Nowhere] s.2", "[Nowhere]"), ("see RFC 9999", "RFC 9999"), ("[4CP] eq. 3", "[4CP]")]
)
def test_citations_are_found(text: str, name: str) -> None:
    assert cited(text) == {name}


@pytest.mark.parametrize("text", ["Callable[Any]", "list[Path](x)", "[Beliefs](beliefs.md)"])
def test_what_is_no_citation(text: str) -> None:
    assert not cited(text)
