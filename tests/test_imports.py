"""Dependencies point one way: core <- agents, adversaries <- benchmarks <- training, leaderboard; ``ccenv.cli`` is above all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHELL = "cli"
# Each room and the rooms above it, which it must not import. Everything else in ccenv is the core.
ABOVE = {
    "core": {"agents", "adversaries", "benchmarks", "training", "leaderboard", SHELL},
    "agents": {"benchmarks", "training", "leaderboard", SHELL},
    "adversaries": {"benchmarks", "training", "leaderboard", SHELL},
    "benchmarks": {"training", "leaderboard", SHELL},
    "simulation": {"benchmarks", "training", "leaderboard", SHELL},
    "training": {"leaderboard", SHELL},
    "leaderboard": {"training", SHELL},
}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in {*ABOVE, SHELL} else "core"


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything in ccenv that a module imports: at any depth, relatively, or through importlib."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            names = [start, *(f"{start}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and called_name(node) in {"import_module", "__import__"} and node.args:
            names = [str(node.args[0].value)] if isinstance(node.args[0], ast.Constant) else []
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "ccenv")


def called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def broken_rules(source: str, module: str, is_package: bool = False) -> list[str]:
    room = room_of(module)
    if room == SHELL:
        return []
    return [
        f"{module}:{line} ({room}) imports {name}"
        for line, name in imported_modules(source, module, is_package)
        if room_of(name) in ABOVE[room]
    ]


def test_dependencies_point_one_way() -> None:
    files = sorted((ROOT / "ccenv").rglob("*.py"))
    assert len(files) > 50
    broken = [
        problem
        for file in files
        for problem in broken_rules(file.read_text(encoding="utf-8"), module_name(file), file.name == "__init__.py")
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("ccenv.engine.curve.engine", "import ccenv.agents"),
        ("ccenv.engine.curve.engine", "from ccenv import agents"),
        ("ccenv.engine.curve.engine", "def f():\n    from ccenv.adversaries.scripted import kind"),
        ("ccenv.engine.curve.engine", "from ..benchmarks import runner"),
        ("ccenv.engine.curve.engine", "from .. import leaderboard"),
        ("ccenv.engine.curve.engine", "importlib.import_module('ccenv.agents.classic.reno')"),
        ("ccenv.network.trace", "from ccenv.cli.output import print_text"),
        ("ccenv.agents.classic.reno", "from ccenv.benchmarks.run.runner import run"),
        ("ccenv.adversaries.scripted.kind", "import ccenv.leaderboard"),
        ("ccenv.benchmarks.run.runner", "from ccenv.leaderboard import records"),
        ("ccenv.agents.learned", "from ccenv.training import run"),
    ],
)
def test_the_rule_finds_what_breaks_it(module: str, line: str) -> None:
    assert broken_rules(line, module)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("ccenv.engine.curve.engine", "from ccenv.network.trace import Trace"),
        ("ccenv.engine.curve.engine", "from . import rng"),
        ("ccenv.agents.classic.reno", "from ccenv.agents.classic.common import classic_sender"),
        ("ccenv.leaderboard.site.board", "from ccenv.benchmarks.run.runner import run"),
        ("ccenv.cli.bench", "from ccenv.leaderboard import records"),
    ],
)
def test_the_rule_lets_the_rest_pass(module: str, line: str) -> None:
    assert not broken_rules(line, module)
