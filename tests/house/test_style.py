"""House rules that no linter knows: file sizes, asserts, prints, paths and addresses of one machine."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 700
# Files that are allowed to be longer, each with the reason.
LONGER: dict[str, str] = {}
TEXT_SUFFIXES = {".py", ".md", ".cfg", ".toml", ".yaml", ".yml", ".json", ".txt", ".html", ".css", ".js", ".sh", ""}

# What only one machine has. The patterns are built so that this file does not match itself.
FORBIDDEN = {
    "path of one machine": re.compile(r"(?<![\w.<{$])/(?:wor[k]|roo[t]|hom[e]/\w+|Use[r]s/\w+|op[t])/"),
    "package-registry option": re.compile(r"--(?:extra-)?index-ur[l]|--find-link[s]|--trusted-hos[t]|PIP_(?:EXTRA_)?INDEX_UR[L]"),
    "package-registry address": re.compile(
        r"https?://[\w.-]*(?:pyp[i]|pythonhoste[d]|artifactor[y]|nexu[s])[\w.-]*", re.IGNORECASE
    ),
    "address by number": re.compile(r"https?://\d+\.\d+\.\d+\.\d+(?<!127\.0\.0\.1)"),
}


@cache
def tracked_files() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode:  # an unpacked archive
        return tuple(p for p in sorted(ROOT.rglob("*")) if p.is_file() and "/." not in f"/{p.relative_to(ROOT)}")
    names = sorted(name for name in listed.stdout.decode().split("\0") if name)
    return tuple(ROOT / name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink())


def python_files(folder: str) -> list[Path]:
    return [file for file in tracked_files() if file.suffix == ".py" and file.relative_to(ROOT).parts[0] == folder]


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def parsed(source: str, *words: str) -> list[ast.AST]:
    """Return all nodes of a source in which one of the words stands, else none: to take a source apart takes long."""
    return list(ast.walk(ast.parse(source))) if any(word in source for word in words) else []


def bare_asserts(source: str) -> list[int]:
    return [node.lineno for node in parsed(source, "assert") if isinstance(node, ast.Assert)]


def prints(source: str) -> list[int]:
    calls = (node for node in parsed(source, "print") if isinstance(node, ast.Call))
    return [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]


def evaluations(source: str) -> list[int]:
    """Lines that would run text or foreign bytes as code."""
    functions, modules = ("eval", "exec"), ("pickle", "dill", "shelve", "marshal")
    nodes = parsed(source, *functions, *modules)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    found = [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id in functions]
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            found += [node.lineno for name in names if name.split(".")[0] in modules]
    return found


@pytest.mark.parametrize("rule", [bare_asserts, evaluations])
def test_library_source(rule) -> None:
    files = python_files("ccenv")
    assert len(files) > 50
    found = [f"{relative(file)}:{line}" for file in files for line in rule(file.read_text(encoding="utf-8"))]
    assert not found, f"{rule.__name__}: " + ", ".join(found)


def test_only_the_command_line_prints() -> None:
    files = [file for file in python_files("ccenv") if relative(file).split("/")[1] != "cli"]
    found = [f"{relative(file)}:{line}" for file in files for line in prints(file.read_text(encoding="utf-8"))]
    assert not found, "print outside ccenv/cli: " + ", ".join(found)


def test_files_are_small() -> None:
    lines = {relative(f): f.read_text(encoding="utf-8").count("\n") for f in [*python_files("ccenv"), *python_files("tests")]}
    too_long = [f"{name}: {count} lines" for name, count in lines.items() if count > MAX_LINES and name not in LONGER]
    assert not too_long, f"longer than {MAX_LINES} lines: " + ", ".join(too_long)
    needless = [name for name in LONGER if lines.get(name, 0) <= MAX_LINES]
    assert not needless, f"no longer too long, take it off the list: {needless}"


def test_nothing_of_one_machine() -> None:
    found = []
    for file in tracked_files():
        if file.suffix not in TEXT_SUFFIXES:
            continue
        text = file.read_text(encoding="utf-8")
        for what, pattern in FORBIDDEN.items():
            found += [
                f"{relative(file)}:{text.count(chr(10), 0, m.start()) + 1}: {what} {m.group()!r}" for m in pattern.finditer(text)
            ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("rule", "source", "line"),
    [
        (bare_asserts, "x = 1\nassert x", 2), (prints, "def f():\n    print(1)", 2),
        (evaluations, "x = 1\neval('x')", 2), (evaluations, "import pickle", 1), (evaluations, "from pickle import loads", 1),
    ],
)  # fmt: skip
def test_each_rule_finds_what_breaks_it(rule, source: str, line: int) -> None:
    assert rule(source) == [line]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("path of one machine", "open('/ho" + "me/alice/x')"),
        ("path of one machine", "see /wo" + "rk/main"),
        ("package-registry option", "pip install --index-" + "url X"),
        ("package-registry address", "https://py" + "pi.org/simple"),
        ("address by number", "http://" + "10.0.0.1/simple"),
    ],
)
def test_each_pattern_finds_what_it_forbids(what: str, text: str) -> None:
    assert FORBIDDEN[what].search(text)
