"""Docstrings in Google form as Markdown."""

from __future__ import annotations

import inspect
import re

_LISTS = ("Args", "Attributes", "Returns", "Yields", "Raises")
_SECTION = re.compile(r"^([A-Z][A-Za-z]+):(?: (.*))?$")
_ENTRY = re.compile(r"^(\S[^:]*?)(?:: | ?:$)(.*)$")
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?\.?([^`]+)`")


def to_markdown(docstring: str) -> str:
    """Return a docstring as Markdown without headings.

    Args:
        docstring: text with the sections of Google's form; other paragraphs, lists and tables are Markdown already.
    """
    lines = inspect.cleandoc(docstring).splitlines()
    out: list[str] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        section = _SECTION.match(line)
        below = _indented(lines, place + 1)
        if section and section[1] in _LISTS and below and not section[2]:
            out += ["", f"**{section[1]}**", "", *_entries(below)]
            place += 1 + len(below)
        elif line.startswith("    ") and (not out or not out[-1].strip()):
            block = _indented(lines, place)
            out += ["```text", *inspect.cleandoc("\n" + "\n".join(block)).splitlines(), "```", ""]
            place += len(block)
        else:
            out.append(re.sub(r"^(#+) (.*)$", r"**\2**\n", line) if line.startswith("#") else line)
            place += 1
    return _prose("\n".join(out)).strip() + "\n"


def _indented(lines: list[str], start: int) -> list[str]:
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith("    ")):
        end += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return lines[start:end]


def _entries(lines: list[str]) -> list[str]:
    """Return ``name: text`` entries, each with its continuation lines, as a list."""
    out: list[str] = []
    for line in inspect.cleandoc("\n" + "\n".join(lines)).splitlines():
        entry = _ENTRY.match(line)
        if line.startswith("    ") and out:
            out[-1] += " " + line.strip()
        elif entry:
            out.append(f"- `{entry[1]}`: {entry[2].strip()}")
        elif line.strip():
            out.append(f"- {line.strip()}")
    return [*out, ""]


def _prose(text: str) -> str:
    """Mark code outside code blocks as Markdown does, and keep what would be read as HTML or as a substitution."""
    pieces = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    for place in range(0, len(pieces), 2):
        piece = _ROLE.sub(r"`\1`", pieces[place])
        piece = re.sub(r"``([^`]+)``", r"`\1`", piece)
        spans = re.split(r"(`[^`]*`)", piece)
        spans[::2] = [re.sub(r"(?<!\\)([*<_])(?=\S)", r"\\\1", part) for part in _without_bold(spans[::2])]
        pieces[place] = "".join(spans).replace("\0", "**")
    return "".join(pieces)


def _without_bold(parts: list[str]) -> list[str]:
    return [re.sub(r"^\*\*([A-Z][A-Za-z ]+)\*\*$", "\0\\1\0", part, flags=re.MULTILINE) for part in parts]
