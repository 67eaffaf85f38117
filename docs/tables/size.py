"""Print the size of the project: ``python docs/tables/size.py [--json] [ROOT]``.

Lines of the package and of the tests; words of the pages by hand and in tables built from records; pages; commands, options;
pairs of duplicated code: stretches of statements with a call, of at least six lines, that stand twice in the package but for
names of variables, numbers and texts. ROOT is another checkout to compare with; its generated tables and commands do not count.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
LEAST_LINES = 6


def count_lines(folder: Path) -> int:
    """Return the lines of all Python files below a folder."""
    return sum(file.read_bytes().count(b"\n") for file in folder.rglob("*.py"))


def count_words(text: str) -> dict[str, int]:
    """Return the words of a page in prose, in tables written by hand, and in blocks of code."""
    blocks = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    code = sum(len(block.split()) for block in blocks.findall(text) if not block.startswith("```{table}"))
    lines = blocks.sub("", text).splitlines()
    in_tables = sum(len(line.split()) for line in lines if line.startswith("|"))
    return {"prose": sum(len(line.split()) for line in lines) - in_tables, "tables": in_tables, "code": code}


def structure(node: ast.AST) -> str:
    """Return a statement without names of variables, numbers and texts; what is called and attributes stay."""
    parts = [type(node).__name__]
    if isinstance(node, ast.Attribute | ast.keyword):
        parts.append(str(node.attr if isinstance(node, ast.Attribute) else node.arg))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        parts.append(node.func.id)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr_context | ast.type_ignore):
            parts.append(structure(child))
    return f"({' '.join(parts)})"


def bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Return all lists of statements, without docstrings and imports."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
                yield [one for one in statements if not isinstance(one, ast.Import | ast.ImportFrom) and not _is_text(one)]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def duplicates(folder: Path) -> list[tuple[str, str]]:
    """Return pairs of places with the same stretch of statements, the longest from each place."""
    seen: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for file in sorted(folder.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for body in bodies(tree):
            shapes = [structure(statement) for statement in body]
            for first in range(len(body)):
                for last in range(first, len(body)):
                    begin, end = body[first].lineno, body[last].end_lineno or 0
                    stretch = "".join(shapes[first : last + 1])
                    if end - begin + 1 >= LEAST_LINES and "(Call" in stretch:  # the shortest from here that is long enough
                        seen[stretch].append((file.relative_to(folder.parent).as_posix(), begin, end))
                        break
    pairs, covered = [], set()
    for places in seen.values():
        for one, other in pairwise(places):
            lines = {(place[0], line) for place in (one, other) for line in range(place[1], place[2] + 1)}
            overlap = one[0] == other[0] and other[1] <= one[2]
            if not overlap and not lines <= covered:
                pairs.append((f"{one[0]}:{one[1]}", f"{other[0]}:{other[1]}"))
            covered |= lines
    return pairs


def commands() -> tuple[int, int]:
    """Return the number of commands, hidden ones left out, and of their options."""
    from ccenv.cli.main import list_commands

    leaves = list_commands().values()
    return len(leaves), sum(parameter.param_type_name == "option" for leaf in leaves for parameter in leaf.params)


def measure(root: Path) -> dict[str, int]:
    """Return all sizes of a checkout."""
    pages = sorted((root / "docs").glob("*.md"))
    words = [count_words(file.read_text(encoding="utf-8")) for file in [*pages, root / "README.md"]]
    sizes = {"lines of the package": count_lines(root / "ccenv"), "lines of the tests": count_lines(root / "tests")}
    sizes["files of the package"] = len(list((root / "ccenv").rglob("*.py")))
    sizes["pages"] = len(pages)
    sizes["words by hand: prose"] = sum(count["prose"] for count in words)
    sizes["words by hand: tables"] = sum(count["tables"] for count in words)
    sizes["words by hand: code"] = sum(count["code"] for count in words)
    sizes["words of the changelog"] = len((root / "CHANGELOG.md").read_text(encoding="utf-8").split())
    if root == HERE:
        sys.path[0] = str(HERE / "docs")
        from tables.contents import TABLES

        sizes["words in generated tables"] = sum(
            len(cell.split()) for table in TABLES.values() for row in table.build() for cell in row.values()
        )
        sizes["commands"], sizes["options"] = commands()
    sizes["duplicated pairs"] = len(duplicates(root / "ccenv"))
    return sizes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=HERE, help="another checkout")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--duplicates", action="store_true", help="list the pairs instead")
    options = parser.parse_args()
    root = options.root.resolve()
    if options.duplicates:
        print("\n".join("  ".join(pair) for pair in duplicates(root / "ccenv")))
        return
    sizes = measure(root)
    width = max(map(len, sizes))
    print(json.dumps(sizes) if options.json else "\n".join(f"{name:{width}} {count:8,}" for name, count in sizes.items()))


if __name__ == "__main__":
    main()
