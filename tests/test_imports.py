"""The rooms of ccenv in layers: a module imports only from its own room and from rooms above it, and never in a circle."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[1]
# All rooms, in order: a room may import only what stands above it. "ccenv" is the face of the package, ccenv/__init__.py.
LAYERS = (
    *("errors", "version", "sketch"),
    *("foreign", "units", "registry", "interrupts", "files", "document", "provenance", "config", "configs"),
    *("parameters", "page_tables", "cluster", "kernels", "workers", "plugins"),
    *("interface", "programs", "network", "paths", "metrics"),
    *("engine", "engine.compiled", "engine.curve", "engine.packet", "engine.fluid"),
    *("agents", "adversaries", "applications", "simulation", "export", "live"),
    *("certificates", "smt", "synth", "attack"),
    *("envs", "training", "league", "distill", "contract"),
    *("benchmarks", "comparison", "report", "ccenv", "leaderboard", "cli"),
)
# Modules with a table of what is loaded by name. Only there may a string name a module of the same room without being an import.
TABLES = ("ccenv.adversaries", "ccenv.agents", "ccenv.attack", "ccenv.attacks.catalog", "ccenv.cli.main", "ccenv.envs")
# Modules that import by a name that is computed: from the tables.
LOADERS = ("ccenv", "ccenv.attack", "ccenv.cli.catalog", "ccenv.cli.main", "ccenv.base.registry")
MAX_FILES = 25
# Folders that may hold more files, each with the reason.
FULL = {
    "ccenv/agents/classic": "like things: one file for each CCA",
    "ccenv/cli": "like things: one file for each command",
}
_MODULE_TEXT = re.compile(r"ccenv(\.\w+)+\.?(:\w*)?")


@cache
def package() -> dict[str, str]:
    """Return the text of every Python file of ccenv by its path."""
    files = sorted((ROOT / "ccenv").rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def room_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[1 : 3 if parts[1] == "engine" else 2]) if len(parts) > 1 else "ccenv"


def called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def docstrings(tree: ast.Module) -> set[int]:
    """Return the ids of the strings that stand alone: they are documentation."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


@cache
def named_modules(path: str, source: str) -> tuple[tuple[int, str, bool], ...]:
    """Return line, name and whether it is a string, of all of ccenv that a file names to import it.

    Counted are import statements at any depth, relative ones, importlib with a literal, and strings that name a module.
    """
    tree = ast.parse(source)
    here = path.split("/")[:-1]
    documentation = docstrings(tree)
    found: list[tuple[int, str, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            found += ((node.lineno, f"{start}.{alias.name}", False) for alias in node.names)
        elif isinstance(node, ast.Call) and called_name(node) in {"import_module", "__import__"} and node.args:
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            found.append((node.lineno, str(name) if name else "?", False))
        elif is_text(node) and id(node) not in documentation and _MODULE_TEXT.fullmatch(node.value):
            found.append((node.lineno, node.value.partition(":")[0].rstrip("."), True))
    return tuple(found)


def edges(files: dict[str, str]) -> list[tuple[str, int, str, bool]]:
    """Return importing module, line, imported module and whether by a string, for all modules of ccenv."""
    modules = {module_of(path) for path in files}
    found = []
    for path, source in files.items():
        for line, name, by_string in named_modules(path, source):
            parts = name.split(".")
            starts = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
            module = next((start for start in starts if start in modules), None)
            if module not in {None, module_of(path)}:
                found.append((module_of(path), line, module, by_string))
    return found


def unlisted(files: dict[str, str]) -> list[str]:
    rooms = {room_of(module_of(path)) for path in files}
    return [f"{room} is not in LAYERS" for room in sorted(rooms - set(LAYERS))]


def upward(files: dict[str, str]) -> list[str]:
    order = {room: place for place, room in enumerate(LAYERS)}
    return [
        f"{module}:{line} ({room_of(module)}) imports {name}, which stands below it in LAYERS"
        for module, line, name, _ in edges(files)
        if {room_of(name), room_of(module)} <= set(order) and order[room_of(name)] > order[room_of(module)]
    ]


def hidden(files: dict[str, str]) -> list[str]:
    """Calls of importlib that this test cannot follow: with a computed or a relative name."""
    return [
        f"{module_of(path)}:{line} imports a module by a name that is not a literal from 'ccenv.' on"
        for path, source in files.items()
        for line, name, _ in named_modules(path, source)
        if (name == "?" or name.startswith(".")) and module_of(path) not in LOADERS
    ]


def circles(files: dict[str, str]) -> list[str]:
    """Groups of modules each of which reaches the others by imports (strongly connected components, R. Tarjan 1972)."""
    graph: dict[str, set[str]] = {module_of(path): set() for path in files}
    for module, _, name, by_string in edges(files):
        if not (by_string and module in TABLES and room_of(name) == room_of(module)):
            graph[module].add(name)
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for name in sorted(graph[module]):
            if name not in number:
                visit(name)
                lowest[module] = min(lowest[module], lowest[name])
            elif name in stack:
                lowest[module] = min(lowest[module], number[name])
        if lowest[module] == number[module]:
            group = stack[stack.index(module) :]
            del stack[-len(group) :]
            if len(group) > 1:
                found.append("circle: " + ", ".join(sorted(group)))

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


def crowded(files: dict[str, str]) -> list[str]:
    folders = [path.rpartition("/")[0] for path in files if not path.endswith("/__init__.py")]
    counts = {folder: folders.count(folder) for folder in sorted(set(folders) - set(FULL))}
    return [
        f"{folder} has {count} files; at most {MAX_FILES} are allowed" for folder, count in counts.items() if count > MAX_FILES
    ]


@pytest.mark.parametrize("rule", [unlisted, upward, hidden, circles, crowded])
def test_the_package_keeps_the_rule(rule) -> None:
    files = package()
    assert len(files) > 300
    broken = rule(files)
    assert not broken, "\n".join(broken)


def test_the_lists_name_only_what_exists() -> None:
    files = package()
    modules = {module_of(path) for path in files}
    assert {room_of(module) for module in modules} == set(LAYERS)
    assert len(set(LAYERS)) == len(LAYERS)
    own = {module for module, _, name, by_string in edges(files) if by_string and room_of(name) == room_of(module)}
    assert set(TABLES) <= own
    assert set(LOADERS) == {
        module_of(path) for path, source in files.items() for _, name, _ in named_modules(path, source) if name == "?"
    }
    assert not [folder for folder in FULL if sum(path.rpartition("/")[0] == folder for path in files) <= MAX_FILES + 1]


def small_package(**sources: str) -> dict[str, str]:
    """Make a package with a file or two in a few rooms; a key is a path with __ for /."""
    names = ["errors", "network/trace", "agents/__init__", "agents/classic/reno", "engine/curve/engine", "engine/compiled/calls"]
    files = {f"ccenv/{name}.py": "" for name in [*names, "benchmarks/__init__", "benchmarks/run", "cli/main"]}
    for name, source in sources.items():
        path = f"ccenv/{name.replace('__', '/')}.py".replace("//", "/__init__")
        files[path] = source
    return files


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("engine__curve__engine", "import ccenv.agents"),
        ("engine__curve__engine", "from ccenv import agents"),
        ("engine__curve__engine", "def f():\n    from ccenv.agents.classic import reno"),
        ("engine__curve__engine", "if TYPE_CHECKING:\n    import ccenv.benchmarks.run"),
        ("engine__curve__engine", "from ...benchmarks import run"),
        ("engine__curve__engine", "from ... import benchmarks"),
        ("engine__curve__engine", "importlib.import_module('ccenv.agents.classic.reno')"),
        ("engine__curve__engine", "__import__('ccenv.benchmarks')"),
        ("engine__curve__engine", "load_target('ccenv.agents:make_sender')"),
        ("engine__compiled__calls", "from ccenv.engine.curve.engine import CurveEngine"),
        ("engine__compiled__calls", "from ..curve import engine"),
        ("network__trace", "PREFIX = 'ccenv.agents.classic.'"),
        ("network__trace", "TARGET = f'ccenv.agents.classic.{name}:sender'"),
        ("errors", "from ccenv.network.trace import Trace"),
        ("agents__classic__reno", "from ccenv.benchmarks.run import run"),
        ("benchmarks__run", "from ccenv.cli.main import main"),
    ],
)
def test_upward_finds(module: str, source: str) -> None:
    assert upward(small_package(**{module: source}))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("engine__curve__engine", "from ccenv.network.trace import Trace"),
        ("engine__curve__engine", "from ..compiled import calls"),
        ("engine__curve__engine", "def f():\n    'ccenv.agents'"),
        ("engine__curve__engine", "raise ValueError('ccenv.agents is not meant')"),
        ("agents__classic__reno", "from ccenv.engine.compiled.calls import call"),
        ("benchmarks__run", "load_target('ccenv.agents:make_sender')"),
        ("cli__main", "from ccenv.benchmarks import run"),
    ],
)
def test_upward_lets_the_rest_pass(module: str, source: str) -> None:
    assert not upward(small_package(**{module: source}))


@pytest.mark.parametrize("path", ["ccenv/lawyers.py", "ccenv/lawyers/__init__.py", "ccenv/engine/quick/kernel.py"])
def test_unlisted_finds(path: str) -> None:
    assert not unlisted(small_package())
    assert unlisted({**small_package(), path: ""})


@pytest.mark.parametrize(
    "call", ["import_module(name)", "importlib.import_module('.classic', 'ccenv.agents')", "__import__(name)"]
)
def test_hidden_finds(call: str) -> None:
    assert hidden(small_package(benchmarks__run=call))
    assert not hidden(small_package(benchmarks__run="importlib.import_module('numpy')"))


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
def test_circles_finds(back: str) -> None:
    forth = "from ccenv.benchmarks.cells import Cell"
    assert not circles(small_package(benchmarks__run=forth, benchmarks__cells=""))
    found = circles(small_package(benchmarks__run=forth, benchmarks__cells=back))
    assert found == ["circle: ccenv.benchmarks.cells, ccenv.benchmarks.run"]


def test_circles_finds_a_long_one() -> None:
    around = {f"benchmarks__m{k}": f"import ccenv.benchmarks.m{(k + 1) % 5}" for k in range(5)}
    (found,) = circles(small_package(**around))
    assert found.count("ccenv.benchmarks.m") == 5


def test_a_table_may_name_its_members() -> None:
    files = small_package(agents__classic__reno="from ccenv.agents import AGENTS")
    files["ccenv/agents/__init__.py"] = "AGENTS.add('reno', 'ccenv.agents.classic.reno:sender')"
    assert not circles(files)
    files["ccenv/agents/__init__.py"] = "from ccenv.agents.classic.reno import sender"
    assert circles(files)


def test_crowded_finds() -> None:
    files = small_package() | {f"ccenv/network/m{k}.py": "" for k in range(MAX_FILES - 1)}
    assert not crowded(files)
    assert crowded({**files, "ccenv/network/one_more.py": ""})
    assert not crowded({f"ccenv/cli/m{k}.py": "" for k in range(2 * MAX_FILES)})
