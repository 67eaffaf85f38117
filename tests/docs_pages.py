"""Read the examples of README.md and docs/*.md, and run them as a reader would: in order, in one folder and process per page.

    python tests/docs_pages.py PAGE [--slow]     runs the examples of one page in the current folder, which must be empty

What happens to a fenced block is decided by its language and by an HTML comment on the line before it:

- ``python`` blocks run in one namespace per page;
- in ``console`` blocks each line ``$ ccenv ...`` or ``$ python -m pytest ...`` runs and must exit with code 0; other lines are
  output and are not compared;
- ``<!-- file: NAME -->``: the block is the content of a file NAME that the blocks after it import, read or pass to a command;
- ``<!-- output -->``: the block is all that the block before it prints on stdout, and is compared;
- ``<!-- exit: N -->``: the last command of a ``console`` block exits with code N;
- ``<!-- change: FILE -->``: the block (``diff``) is a change of a file of the repository. From the first change
  of a page on, all runs in a copy of the repository in which all of them are made;
- ``<!-- anew: FILE -->``: a change with which another copy begins. What it does not need is not changed there: a kernel whose
  source another section changes is compiled once more;
- ``<!-- slow: REASON -->``: the block is run with ``--slow`` only (``pytest -m slow``);
- ``<!-- not-run: REASON -->``: the block is left out.

A change holds lines that begin with a space (they stay), ``-`` (they go) and ``+`` (they come); a line ``@@`` begins the next
place. The lines that stay and go must stand in the file exactly once.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("ccenv", "tests", "docs", "README.md", "setup.cfg")
RUN_LANGUAGES = ("python", "console")
CHANGES = ("change", "anew")
PYTEST = ["python", "-m", "pytest"]
_FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (?P<kind>file|change|anew|exit|slow|not-run|output)(?:: (?P<value>.+?))? -->\n\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, code, first line in the page, and the comment before it (kind, value)."""

    language: str
    code: str
    line: int
    kind: str = ""
    value: str = ""


def read_blocks(text: str, slow: bool = False) -> list[Block]:
    """Return the blocks of a page that do something; with ``slow`` also those that take long."""
    blocks = []
    skipped = True
    for fence in _FENCE.finditer(text):
        comment = _COMMENT.search(text, 0, fence.start())
        kind, value = (comment["kind"], comment["value"] or "") if comment else ("", "")
        line = text.count("\n", 0, fence.start("code")) + 1
        runs = kind in {"file", *CHANGES} or fence["language"] in RUN_LANGUAGES
        skipped = skipped if kind == "output" else kind in ({"not-run"} if slow else {"not-run", "slow"}) or not runs
        if not skipped:
            blocks.append(Block(fence["language"], fence["code"], line, kind, value))
    return blocks


def commands(block: Block) -> list[tuple[list[str], int]]:
    found: list[tuple[list[str], int]] = []
    for offset, line in enumerate(block.code.splitlines()):
        if not line.startswith("$ "):
            continue
        words = shlex.split(line[2:], comments=True)
        if (words[0] != "ccenv" and words[:3] != PYTEST) or {"|", ">", "&&", ";"} & set(words):
            raise ValueError(f"line {block.line + offset}: only ccenv and pytest can be run; mark the block not-run: {line}")
        found.append((words, 0))
    if block.kind == "exit" and found:
        found[-1] = (found[-1][0], int(block.value))
    return found


def changed(text: str, change: str) -> str:
    """Return a file's text with a change made. Raises ValueError if a place is not there exactly once."""
    for place in re.split(r"^@@.*\n", change, flags=re.MULTILINE):
        lines = [line or " " for line in place.splitlines()]
        if any(line[0] not in " +-" for line in lines):
            raise ValueError(f"a line of a change begins with a space, + or -:\n{place}")
        old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in kept) for kept in (" -", " +"))
        count = f"\n{text}".count(f"\n{old}")
        if count != 1:
            raise ValueError(f"these lines are in the file {count} times, not once:\n{old}")
        text = f"\n{text}".replace(f"\n{old}", f"\n{new}")[1:]
    return text


def make_changes(blocks: list[Block]) -> None:
    """Copy the repository into the current folder; make the changes and write the files of a page."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, name, ignore=shutil.ignore_patterns("*.pyc.*"))  # bytecode too, but none half-written
        else:
            shutil.copy(ROOT / name, name)
    for block in blocks:
        target = Path(block.value)
        if block.kind == "file":
            target.write_text(block.code, encoding="utf-8")
        elif block.kind in CHANGES:
            try:
                target.write_text(changed(target.read_text(encoding="utf-8"), block.code), encoding="utf-8")
            except ValueError as error:
                raise ValueError(f"line {block.line}, {block.value}: {error}") from None


def run_page(name: str, blocks: list[Block], run_command: Callable[[list[str]], int]) -> None:
    """Run the blocks of a page in the current folder.

    Args:
        name: of the page, for tracebacks.
        blocks: as read.
        run_command: runs the words of a command and returns the exit code.
    """
    namespace: dict[str, object] = {"__name__": f"page_{Path(name).stem}"}
    printed = ""
    for block, following in zip(blocks, [*blocks, None][1:], strict=True):
        if block.kind == "output":
            assert printed == block.code, f"{name}, line {block.line}: printed\n{printed}instead of\n{block.code}"
            continue
        compared = following is not None and following.kind == "output"
        with redirect_stdout(io.StringIO()) if compared else nullcontext() as stdout:
            run_block(name, block, namespace, run_command)
        printed = "" if stdout is None else stdout.getvalue()


def run_block(name: str, block: Block, namespace: dict[str, object], run_command: Callable[[list[str]], int]) -> None:
    if block.kind == "file":
        target = Path(block.value)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.code, encoding="utf-8")
    elif block.kind not in CHANGES and block.language == "python":
        # Blank lines before the code make line numbers in tracebacks those of the page.
        exec(compile("\n" * (block.line - 1) + block.code, name, "exec"), namespace)
    elif block.kind not in CHANGES:
        for words, expected in commands(block):
            code = run_command(words)
            assert code == expected, f"{name}: {' '.join(words)}: exit code {code} instead of {expected}"


def run_words(words: list[str]) -> int:
    """Run a command in this process: ccenv, or pytest, which finds imported what it has imported before."""
    if words[0] == "ccenv":
        from ccenv.cli.main import main

        return main(words[1:])
    import pytest

    return int(pytest.main(words[3:]))


def run_here(page: Path, slow: bool, copy: int = 0) -> int:
    """Run a page in the current folder, which must be empty, and each copy in a folder of its own; or only one of its copies."""
    if any(Path.cwd().iterdir()):
        sys.exit(f"{Path.cwd()} is not empty")
    found = read_blocks(page.read_text(encoding="utf-8"), slow)
    changes = [number for number, block in enumerate(found) if block.kind in CHANGES]
    begins = [0, *changes[:1], *(number for number in changes[1:] if found[number].kind == "anew"), len(found)]
    blocks = found[begins[copy] : begins[copy + 1]]
    sys.path.insert(0, str(Path.cwd()))
    if copy:
        make_changes(blocks)
        os.environ["PYTHONPATH"] = str(Path.cwd())
    run_page(str(page), blocks, run_words)
    code = 0
    for later in range(1, len(begins) - 1) if not copy else ():
        folder = Path(f"changed{later}").absolute()
        folder.mkdir()
        words = [sys.executable, __file__, str(page), *(["--slow"] if slow else []), "--copy", str(later)]
        code = code or subprocess.run(words, cwd=folder, check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(run_here(Path(sys.argv[1]), "--slow" in sys.argv[2:], int(sys.argv[-1]) if "--copy" in sys.argv[2:] else 0))
