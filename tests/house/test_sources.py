"""Every source that is cited by a short name is spelled out in docs/sources.md."""

import ast
import io
import json
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACE = r"(?= (?:s\.|eq|Eq|App|app|Table|Listing|Fig|fig|theorem|Theorem|Algorithm|proposition|sections? ))"
NAME = r"\[((?:[A-Z]|\d[A-Z]|ns\d)[A-Za-z0-9+-]*)\]"
PAPER = re.compile(NAME + PLACE)
# In prose also without a place. Not a citation: a link, an index (behind a name or a bracket), a metavariable such as [LINK].
BARE = re.compile(r"(?<![\w\]\"'`|])" + NAME + r"(?![\w\[(:`'\"=])")
METAVARIABLE = re.compile(r"[A-Z_]+")
NUMBERED = re.compile(r"\bRFC \d{4}\b|\bdraft-[a-z]+-[a-z]+(?:-[a-z]+)*(?:-\d\d)?\b")
FENCE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def cited(text: str) -> set[str]:
    """List the short names that a text cites with a place, and the numbered documents."""
    return {f"[{name}]" for name in PAPER.findall(text)} | set(NUMBERED.findall(text))


def cited_in_prose(text: str) -> set[str]:
    """List the short names in prose, with or without a place."""
    names = BARE.findall(FENCE.sub("", text))
    return {f"[{name}]" for name in names if not METAVARIABLE.fullmatch(name)}


def prose(file: Path) -> str:
    """Return a page; of code the docstrings and comments."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    if file.suffix != ".py":
        return text
    if not re.search(NAME, text):
        return ""  # most files cite nothing, and to take code apart takes long
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, nodes)]
    if not any("[" in line.partition("#")[2] for line in text.splitlines()):
        return "\n".join(docstrings)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(docstrings + [token.string for token in tokens if token.type == tokenize.COMMENT])


def linked(file: Path) -> set[str]:
    """List the short names that a page links to the table of papers, as in the README's comparison."""
    return {f"[{name}]" for name in re.findall(NAME[:-2] + r"\]\([^)]*sources\.md#papers\)", file.read_text(encoding="utf-8"))}


def spelled_out() -> set[str]:
    rows = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8").splitlines()
    return {row.split("|")[1].strip() for row in rows if row.startswith("| ")}


@cache
def named(file: Path) -> tuple[set[str], set[str]]:
    """Return what a file cites with a place or a number, and the short names in its prose."""
    return cited(file.read_text(encoding="utf-8")), cited_in_prose(prose(file))


@cache
def texts() -> list[Path]:
    folders = (ROOT / "ccenv", ROOT / "docs", ROOT / "tests")
    inside = (file for folder in folders for file in folder.rglob("*"))
    suffixes = {".py", ".md", ".yaml", ".ipynb"}
    return [ROOT / "README.md", *(file for file in inside if file.suffix in suffixes and file != Path(__file__))]


def test_every_citation_and_every_short_name_in_prose_is_spelled_out() -> None:
    known = spelled_out()
    unknown = {f"{file.relative_to(ROOT)}: {name}" for file in texts() for name in named(file)[0] - known}
    assert not unknown, "\n".join(sorted(unknown))
    names = {file: named(file)[1] for file in texts()}
    assert sum(len(found) for found in names.values()) > 150  # files times names
    unknown = {f"{file.relative_to(ROOT)}: {name}" for file, found in names.items() for name in found - known}
    assert not unknown, "\n".join(sorted(unknown))


def test_every_source_is_spelled_out_once_and_cited() -> None:
    rows = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8").splitlines()
    names = [row.split("|")[1].strip() for row in rows if row.startswith("| ")]
    papers = [name for name in names if name.startswith(("[", "RFC", "draft"))]
    assert len(papers) == len(set(papers)) > 30
    page = ROOT / "docs" / "sources.md"
    found: set[str] = set()
    for file in texts():
        if file != page:
            found |= named(file)[0] | named(file)[1] | linked(file)
    assert not {name for name in spelled_out() if name.startswith(("[", "RFC", "draft"))} - found


@pytest.mark.parametrize(
    ("text", "name"), [("[Nowhere] s.2", "[Nowhere]"), ("see RFC 9999", "RFC 9999"), ("[4CP] eq. 3", "[4CP]")]
)
def test_citations_are_found(text: str, name: str) -> None:
    assert cited(text) == {name}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("as in [Nowhere].", {"[Nowhere]"}),
        ("([Nowhere]) and [4CP], [ns3-gym]", {"[Nowhere]", "[4CP]", "[ns3-gym]"}),
        ("`[Nowhere]` and a[View] and [LINK] and [Beliefs](beliefs.md) and [0] and [x]", set()),
        ("```\n[Nowhere]\n```\n[There]", {"[There]"}),
    ],
)
def test_short_names_in_prose_are_found(text: str, names: set[str]) -> None:
    assert cited_in_prose(text) == names


@pytest.mark.parametrize("text", ["Callable[Any]", "list[Path](x)", "[Beliefs](beliefs.md)"])
def test_what_is_no_citation(text: str) -> None:
    assert not cited(text)
