"""The table of what of each paper is in ccenv, and where; ``missing`` tells whether a reference leads somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from ccenv.attacks.catalog import SEARCHES
from ccenv.base.config import shipped_names
from ccenv.base.errors import CcenvError
from ccenv.base.foreign import read_yaml
from ccenv.base.registry import load_target

DOCS = Path(__file__).parents[1]
FILE = DOCS / "data" / "coverage.yaml"
WHERE = {
    "suite": "ccenv.benchmarks.suites",
    "lemmas": "ccenv.configs.verify",
    "theorem": "ccenv.configs.theorem",
}


@cache
def papers() -> dict[str, dict[str, Any]]:
    """Return part -> references or reason, by paper."""
    parsed: dict[str, dict[str, Any]] = read_yaml(FILE)
    return parsed


def rows(paper: str) -> list[dict[str, str]]:
    """Return the rows of a paper's table."""
    return [
        {
            "part": part,
            "where": ", ".join(map(_shown, found)) if isinstance(found, list) else "",
            "not here, since": _reason(found),
        }
        for part, found in papers()[paper].items()
    ]


def summary() -> list[dict[str, str]]:
    """Return how many parts of each paper are in ccenv."""
    out = []
    for paper, parts in papers().items():
        kept = sum(isinstance(found, list) for found in parts.values())
        empty = str(sum(not found for found in parts.values()))
        row = {
            "paper": f"[{paper}]",
            "parts": str(len(parts)),
            "in ccenv": str(kept),
            "not, with a reason": str(len(parts) - kept),
        }
        out.append(row | {"without a row": empty})
    return out


def missing(reference: str) -> str:
    """Return what a reference names and nothing has; "" if it leads somewhere."""
    kind, _, name = reference.partition(" ")
    try:
        found = _find(kind, name)
    except (CcenvError, ImportError, AttributeError, KeyError):
        found = False
    return "" if found else reference


def _find(kind: str, name: str) -> bool:
    if kind in WHERE:
        return name in shipped_names(WHERE[kind], ".yaml")
    if kind == "config":
        folder, _, file = name.partition("/")
        return file in shipped_names(f"ccenv.configs.{folder}", ".yaml")
    if kind == "page":
        file, _, anchor = name.partition("#")
        heads = re.findall(r"^#+ (.+)$", (DOCS / file).read_text(), re.MULTILINE) if (DOCS / file).exists() else []
        return bool(heads) and (not anchor or anchor in map(_slug, heads))
    if kind == "code":
        return load_target(name) is not None
    if kind == "command":
        return _has_command(name.split())
    if kind == "property":
        return name in load_target("ccenv.proofs.claims.claims:CLAIMS")
    if kind == "agent":
        return name in load_target("ccenv.agents:AGENTS")
    return kind == "adversary" and (name in load_target("ccenv.adversaries:ADVERSARIES") or name in SEARCHES)


def _has_command(words: list[str]) -> bool:
    import typer

    from ccenv.cli.main import build_app

    command: Any = typer.main.get_command(build_app(words[0]))
    for word in words:
        command = getattr(command, "commands", {}).get(word)
    return command is not None


def _slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def _shown(reference: str) -> str:
    kind, _, name = reference.partition(" ")
    if kind == "page":
        file, _, anchor = name.partition("#")
        return f"[{anchor.replace('-', ' ') or file.removesuffix('.md')}]({name})"
    if kind == "suite" and (DOCS / "data" / "bench" / name).is_dir():
        return f"suite [{name}](#{name})"
    return f"{kind} `{name}`"


def _reason(found: Any) -> str:
    return found if isinstance(found, str) else ""
