"""The rooms of ccenv in order: a module imports only from its own room and from rooms above it, and never in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, TypeGuard

import pytest
from rooms import ORDER, ROOMS, ROOT

import ccenv

FACE = "__init__"
# Modules with a table of what is loaded by name. Only there may a string name a module of the same room without being an import.
TABLES = ("ccenv.adversaries", "ccenv.agents", "ccenv.attacks.catalog", "ccenv.cli.main")
# Modules that import by a name that is computed: from the tables.
LOADERS = ("ccenv", "ccenv.base.registry", "ccenv.cli.catalog", "ccenv.cli.main")
MAX_FILES = 25
# The room whose worth is that it shares nothing with the room around it.
INDEPENDENT = ("ccenv.proofs.certificates", "ccenv.proofs")
_MODULE_TEXT = re.compile(r"ccenv(\.\w+)+\.?(:\w*)?")


class Edge(NamedTuple):
    """An import: the module, its line, what it imports, and whether only a string names it."""

    module: str
    line: int
    name: str
    by_string: bool


@cache
def package() -> dict[str, str]:
    """Return the text of every Python file of ccenv by its path."""
    files = sorted((ROOT / "ccenv").rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else FACE


def called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@cache
def is_data_folder(name: str) -> bool:
    """Return whether a dotted name is a folder of ccenv without Python files: it is read, not imported."""
    folder = ROOT.joinpath(*name.split("."))
    return folder.is_dir() and not any(folder.glob("*.py"))


@cache
def named_modules(path: str, source: str) -> tuple[tuple[int, str, bool], ...]:
    """Return line, name and whether it is a string, of all of ccenv that a file names to import it.

    Counted are import statements at any depth, relative ones, importlib with a literal, and strings that name a module.
    """
    tree = ast.parse(source)
    package_parts = path.split("/")[:-1]
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    names: list[tuple[int, str, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += ((node.lineno, alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package_parts[: len(package_parts) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            names += ((node.lineno, f"{start}.{alias.name}", False) for alias in node.names)
        elif isinstance(node, ast.Call) and called_name(node) in {"import_module", "__import__"} and node.args:
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            names.append((node.lineno, str(name) if name else "?", False))
        elif (
            is_text(node)
            and id(node) not in documentation
            and _MODULE_TEXT.fullmatch(node.value)
            and not is_data_folder(node.value)
        ):
            names.append((node.lineno, node.value.partition(":")[0].rstrip("."), True))
    return tuple(names)


def edges(files: dict[str, str]) -> list[Edge]:
    modules = {module_of(path) for path in files}
    imports = []
    for path, source in files.items():
        for line, name, by_string in named_modules(path, source):
            parts = name.split(".")
            starts = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
            module = next((start for start in starts if start in modules), None)
            if module not in {None, module_of(path)}:
                imports.append(Edge(module_of(path), line, str(module), by_string))
    return imports


def upward(files: dict[str, str]) -> list[str]:
    order = {room: place for place, room in enumerate(ORDER)}
    return [
        f"{edge.module}:{edge.line} imports {edge.name}, whose room stands below it"
        for edge in edges(files)
        if order.get(room_of(edge.name), -1) > order.get(room_of(edge.module), len(order))
    ]


def unlisted(files: dict[str, str]) -> list[str]:
    """Rooms, and folders down to the third level with code, that the table lacks."""
    folders = {path.removeprefix("ccenv/").rpartition("/")[0] for path in files} - {""}
    return [
        f"{folder} is not in ROOMS"
        for folder in sorted(folders)
        if f"{folder}/" not in ROOMS and folder.split("/")[0] != "configs"
    ]


def hidden(files: dict[str, str]) -> list[str]:
    """Calls of importlib that this test cannot follow: with a computed or a relative name."""
    return [
        f"{module_of(path)}:{line} imports a module by a name that is not a literal from 'ccenv.' on"
        for path, source in files.items()
        for line, name, _ in named_modules(path, source)
        if (name == "?" or name.startswith(".")) and module_of(path) not in LOADERS
    ]


def circles_of(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return ["circle: " + ", ".join(sorted(set(error.args[1])))]
    return []


def circles(files: dict[str, str]) -> list[str]:
    graph: dict[str, set[str]] = {module_of(path): set() for path in files}
    for edge in edges(files):
        if not (edge.by_string and edge.module in TABLES and room_of(edge.name) == room_of(edge.module)):
            graph[edge.module].add(edge.name)
    return circles_of(graph)


def folder_circles(files: dict[str, str]) -> list[str]:
    """Circles between the folders of a room; files that lie directly in the room may use its folders and be used by them."""
    packages = {module_of(path) for path in files if path.endswith("/__init__.py")}

    def folder(module: str) -> str:
        first = ".".join(module.split(".")[:3])
        return first if first in packages and first.count(".") == 2 else ""

    graph: dict[str, set[str]] = {}
    for edge in edges(files):
        user, used = folder(edge.module), folder(edge.name)
        if user and used and user != used and room_of(user) == room_of(used) and not edge.by_string:
            graph.setdefault(user, set()).add(used)
    return circles_of(graph)


def dependent(files: dict[str, str]) -> list[str]:
    inside, around = INDEPENDENT
    return [
        f"{edge.module}:{edge.line} imports {edge.name}: {inside} shares nothing with {around}"
        for edge in edges(files)
        if f"{edge.module}.".startswith(f"{inside}.")
        and f"{edge.name}.".startswith(f"{around}.")
        and not f"{edge.name}.".startswith(f"{inside}.")
    ]


def crowded(files: dict[str, str]) -> list[str]:
    folders = [path.rpartition("/")[0] for path in files if not path.endswith("/__init__.py")]
    counts = {folder: folders.count(folder) for folder in sorted(set(folders))}
    return [f"{folder} has {count} files; at most {MAX_FILES}" for folder, count in counts.items() if count > MAX_FILES]


RULES = [unlisted, upward, hidden, circles, folder_circles, dependent, crowded]


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(rule: Callable[[dict[str, str]], list[str]]) -> None:
    files = package()
    assert len(files) > 300
    broken = rule(files)
    assert not broken, "\n".join(broken)


def test_the_table_is_the_tree_and_the_lists_name_only_what_exists() -> None:
    inside = ROOT / "ccenv"
    missing = [path for path in ROOMS if not (inside / path).exists()]
    assert not missing
    rooms = {path.name for path in inside.iterdir() if any(path.rglob("*.py")) or any(path.rglob("*.yaml"))}
    assert rooms | {FACE} == set(ORDER)
    assert not set(ORDER) & set(ccenv.__all__)
    files = package()
    own_room = {edge.module for edge in edges(files) if edge.by_string and room_of(edge.name) == room_of(edge.module)}
    assert set(TABLES) <= own_room
    computed = {module_of(path) for path, source in files.items() for _, name, _ in named_modules(path, source) if name == "?"}
    assert set(LOADERS) == computed


def small_package(**sources: str) -> dict[str, str]:
    """Make a package with a file or two in a few rooms; a key is a path with __ for /."""
    names = [
        "base/errors", "network/trace", "agents/__init__", "agents/classic/reno", "engine/curve/engine",
        "engine/compiled/calls",
    ]  # fmt: skip
    names += ["engine/curve/__init__", "engine/compiled/__init__", "benchmarks/__init__", "benchmarks/run", "cli/main"]
    names += ["proofs/certificates/check", "proofs/solver/terms"]
    files = {f"ccenv/{name}.py": "" for name in names}
    for name, source in sources.items():
        files[f"ccenv/{name.replace('__', '/')}.py".replace("//", "/__init__")] = source
    return files


@pytest.mark.parametrize(
    ("rule", "module", "source", "broken"),
    [
        (upward, "engine__curve__engine", "import ccenv.benchmarks", True),
        (upward, "engine__curve__engine", "from ccenv import benchmarks", True),
        (upward, "engine__curve__engine", "def f():\n    from ccenv.benchmarks import run", True),
        (upward, "engine__curve__engine", "if TYPE_CHECKING:\n    import ccenv.benchmarks.run", True),
        (upward, "engine__curve__engine", "from ...benchmarks import run", True),
        (upward, "engine__curve__engine", "importlib.import_module('ccenv.benchmarks.run')", True),
        (upward, "engine__curve__engine", "load_target('ccenv.benchmarks.run:run')", True),
        (upward, "network__trace", "PREFIX = 'ccenv.agents.classic.'", True),
        (upward, "network__trace", "TARGET = f'ccenv.agents.classic.{name}:sender'", True),
        (upward, "base__errors", "from ccenv.network.trace import Trace", True),
        (upward, "benchmarks__run", "from ccenv.cli.main import main", True),
        (upward, "engine__curve__engine", "from ccenv.network.trace import Trace", False),
        (upward, "engine__curve__engine", "from ..compiled import calls", False),
        (upward, "engine__curve__engine", "def f():\n    'ccenv.benchmarks'", False),
        (upward, "engine__curve__engine", "raise ValueError('ccenv.benchmarks is not meant')", False),
        (upward, "cli__main", "from ccenv.benchmarks import run", False),
        (unlisted, "lawyers__case", "", True),
        (unlisted, "engine__quick__kernel", "", True),
        (unlisted, "engine__curve__kernel", "", False),
        (hidden, "benchmarks__run", "import_module(name)", True),
        (hidden, "benchmarks__run", "importlib.import_module('.classic', 'ccenv.agents')", True),
        (hidden, "benchmarks__run", "importlib.import_module('numpy')", False),
        (circles, "base__errors", "import ccenv.base.units", False),
        (dependent, "proofs__certificates__check", "from ccenv.proofs.solver import terms", True),
        (dependent, "proofs__certificates__check", "from ccenv.network import trace", False),
    ],
)
def test_a_rule_finds_what_breaks_it_and_nothing_else(rule, module, source, broken):
    assert bool(rule(small_package(**{module: source}))) == broken


@pytest.mark.parametrize(
    "back",
    [
        "from ccenv.benchmarks.run import run",
        "from .run import run",
        "def f():\n    import ccenv.benchmarks.run",
        "if TYPE_CHECKING:\n    from ccenv.benchmarks import run",
        "load_target('ccenv.benchmarks.run:run')",
    ],
)
def test_circles_are_found(back: str) -> None:
    forth = "from ccenv.benchmarks.cells import Cell"
    assert not circles(small_package(benchmarks__run=forth, benchmarks__cells=""))
    assert circles(small_package(benchmarks__run=forth, benchmarks__cells=back)) == [
        "circle: ccenv.benchmarks.cells, ccenv.benchmarks.run"
    ]


def test_circles_of_files_and_folders_are_found_but_a_table_may_name_its_members() -> None:
    around = {f"benchmarks__m{k}": f"import ccenv.benchmarks.m{(k + 1) % 5}" for k in range(5)}
    (circle,) = circles(small_package(**around))
    assert circle.count("ccenv.benchmarks.m") == 5
    files = small_package(
        engine__curve__engine="from ccenv.engine.compiled.calls import call",
        engine__compiled__rows="from ccenv.engine.curve.layout import ROW",
        engine__curve__layout="",
    )
    assert not circles(files) and folder_circles(files) == ["circle: ccenv.engine.compiled, ccenv.engine.curve"]
    files = small_package(agents__classic__reno="from ccenv.agents import AGENTS")
    files["ccenv/agents/__init__.py"] = "AGENTS.add('reno', 'ccenv.agents.classic.reno:sender')"
    assert not circles(files)
    files["ccenv/agents/__init__.py"] = "from ccenv.agents.classic.reno import sender"
    assert circles(files)


def test_crowded_folders_are_found() -> None:
    files = small_package() | {f"ccenv/network/m{k}.py": "" for k in range(MAX_FILES - 1)}
    assert not crowded(files) and crowded({**files, "ccenv/network/one_more.py": ""})
