"""Tables of the code itself: rooms, deviations of CCAs, and what hostile submissions are refused with."""

from __future__ import annotations

import importlib
import inspect
import re
import tempfile
from pathlib import Path

import hostile
from rooms import ROOMS

from ccenv.agents import AGENTS
from ccenv.cli.settings import OLD_COMMANDS, OLD_OPTIONS

Rows = list[dict[str, str]]
LONGEST = 150  # characters of a message


def rooms() -> Rows:
    """Return the rooms of the package in their order: a room imports only rooms above it."""
    return [{"room": f"`{path}`", "holds": holds} for path, holds in ROOMS.items()]


def deviations() -> Rows:
    """Return what each classic CCA does otherwise than its source, from the docstring of its file."""
    texts: dict[str, list[str]] = {}
    for entry in AGENTS:
        if "classic" in entry.tags:
            document = inspect.getdoc(importlib.import_module(entry.target.partition(":")[0])) or ""
            if found := re.search(r"^Deviations?: (.*?)(?:\n\n|\Z)", document, re.MULTILINE | re.DOTALL):
                texts.setdefault(" ".join(found[1].replace("``", "`").split()), []).append(f"`{entry.name}`")
    return [{"agent": ", ".join(names), "deviations": text.replace("|", "\\|")} for text, names in texts.items()]


def former_commands() -> Rows:
    """Return former commands and options, with what to give now."""
    former = {f"ccenv {command}": now for command, now in OLD_COMMANDS.items()}
    former |= {f"ccenv {command} {option}": now for (command, option), now in OLD_OPTIONS.items()}
    return [{"before": f"`{command}`", "now": now} for command, now in sorted(former.items())]


def refusals() -> Rows:
    """Return what each hostile folder tries, and the message that refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        return [_row(one.name, one.attack, hostile.refusal_of(one, Path(folder) / one.name)) for one in hostile.FIXTURES]


def board_refusals() -> Rows:
    """Return what a board refuses that a folder alone cannot show."""
    with tempfile.TemporaryDirectory() as folder:
        return [_row(*refused) for refused in hostile.board_refusals(Path(folder))]


def _row(name: str, attack: str, message: str) -> dict[str, str]:
    message = message.replace("|", "\\|")
    short = message if len(message) <= LONGEST else f"{message[:75]} ... {message[-70:]}"
    return {"fixture": f"`{name}`", "what it tries": attack, "refused with": f"`` {short} ``"}
