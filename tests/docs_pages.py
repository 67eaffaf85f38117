"""Read the examples of README.md and docs/*.md, and run them as a reader would: in order, in one folder and process per page.

    python tests/docs_pages.py PAGE     runs the examples of one page in the current folder, which must be empty

What happens to a fenced block is decided by its language and by an HTML comment on the line before it:

- ``python`` blocks run in one namespace per page;
- in ``console`` blocks each line ``$ ccenv ...`` runs and must exit with code 0; other lines are output and are not compared;
- ``<!-- file: NAME -->``: the block is the content of a file NAME that the blocks after it import, read or pass to a command;
- ``<!-- exit: N -->``: the last command of a ``console`` block exits with code N;
- ``<!-- not-run: REASON -->``: the block is left out.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

RUN_LANGUAGES = ("python", "console")
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (?P<kind>file|exit|not-run): (?P<value>.+?) -->\n\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, code, first line in the page, and the comment before it (kind, value)."""

    language: str
    code: str
    line: int
    kind: str = ""
    value: str = ""


def read_blocks(text: str) -> list[Block]:
    """Return the blocks of a page that do something."""
    blocks = []
    for fence in _FENCE.finditer(text):
        comment = _COMMENT.search(text, 0, fence.start())
        kind, value = (comment["kind"], comment["value"]) if comment else ("", "")
        line = text.count("\n", 0, fence.start("code")) + 1
        if kind != "not-run" and (kind == "file" or fence["language"] in RUN_LANGUAGES):
            blocks.append(Block(fence["language"], fence["code"], line, kind, value))
    return blocks


def commands(block: Block) -> list[tuple[list[str], int]]:
    """Return the arguments and the expected exit code of each command of a console block."""
    found: list[tuple[list[str], int]] = []
    for offset, line in enumerate(block.code.splitlines()):
        if not line.startswith("$ "):
            continue
        words = shlex.split(line[2:], comments=True)
        if words[0] != "ccenv" or {"|", ">", "&&", ";"} & set(words):
            raise ValueError(f"line {block.line + offset}: only plain ccenv commands can be run; mark the block not-run: {line}")
        found.append((words[1:], 0))
    if block.kind == "exit" and found:
        found[-1] = (found[-1][0], int(block.value))
    return found


def run_page(name: str, blocks: list[Block], run_command: Callable[[list[str]], int]) -> None:
    """Run the blocks of a page in the current folder.

    Args:
        name: of the page, for tracebacks.
        blocks: as read.
        run_command: runs ccenv with arguments and returns the exit code.
    """
    namespace: dict[str, object] = {"__name__": f"page_{Path(name).stem}"}
    for block in blocks:
        if block.kind == "file":
            target = Path(block.value)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            # Blank lines before the code make line numbers in tracebacks those of the page.
            exec(compile("\n" * (block.line - 1) + block.code, name, "exec"), namespace)
        else:
            for arguments, expected in commands(block):
                code = run_command(arguments)
                assert code == expected, f"{name}: ccenv {' '.join(arguments)}: exit code {code} instead of {expected}"


if __name__ == "__main__":
    from ccenv.cli.main import main

    page = Path(sys.argv[1])
    if any(Path.cwd().iterdir()):
        sys.exit(f"{Path.cwd()} is not empty")
    sys.path.insert(0, str(Path.cwd()))
    run_page(str(page), read_blocks(page.read_text(encoding="utf-8")), main)
