"""Plugins of installed packages: entry points of the groups in GROUPS, with unique names."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError
from ccenv.base.user import limits
from ccenv.base.user.python_file import describe_error

PLURALS = {"sender": "senders", "adversary": "adversaries", "metric": "metrics", "suite": "suites", "signals": "signals"}
GROUPS = {kind: f"ccenv.{plural}" for kind, plural in PLURALS.items()}
"""Kind of thing -> group of entry points."""
_FILE = "entry_points.txt"
_LOADERS = {__file__, limits.__file__, importlib.__file__, metadata.__file__}


@dataclass(frozen=True)
class Plugin:
    """An entry point."""

    kind: str  # a key of GROUPS
    name: str  # what commands take
    target: str  # `module:attribute`
    package: str  # name and version of the package that brings it
    place: str = ""  # file and line at which the package names it: `entry_points.txt:3`
    problem: str = ""  # why it cannot be used; empty: it can


@cache
def entry_points(kind: str) -> tuple[Plugin, ...]:
    """Return the plugins of a kind as the installed packages name them, in order of name and package; nothing is imported."""
    declared = []
    for point in metadata.entry_points(group=GROUPS[kind]):
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"
        declared.append(Plugin(kind, point.name, point.value, package, _find_place(point, kind)))
    return tuple(sorted(declared, key=lambda plugin: (plugin.name, plugin.package)))


def _find_place(point: metadata.EntryPoint, kind: str) -> str:
    lines = ((point.dist.read_text(_FILE) if point.dist is not None else "") or "").splitlines()
    group = ""
    for number, line in enumerate(lines, 1):
        if line.strip().startswith("["):
            group = line.strip().strip("[]").strip()
        elif group == GROUPS[kind] and line.partition("=")[0].strip() == point.name:
            return f"{_FILE}:{number}"
    return _FILE


def plugins(kind: str, taken: Iterable[str]) -> list[Plugin]:
    """Return the plugins of a kind; one whose name is taken has a problem."""
    taken_names, declared = set(taken), entry_points(kind)
    names = [plugin.name for plugin in declared]
    return [replace(plugin, problem=_find_problem(plugin, taken_names, names)) for plugin in declared]


def _find_problem(plugin: Plugin, taken: set[str], names: list[str]) -> str:
    if plugin.name in taken:
        return f"{plugin.place}: {plugin.name!r} is the name of a {plugin.kind} that comes with ccenv"
    if names.count(plugin.name) > 1:
        return f"{plugin.place}: two packages bring a {plugin.kind} {plugin.name!r}"
    if not plugin.name.replace("-", "_").replace(".", "_").isidentifier():
        return f"{plugin.place}: {plugin.name!r} is no name: letters, digits, '_', '-' and '.' are allowed"
    return ""


def find(kind: str, name: str, taken: Iterable[str]) -> Plugin | None:
    """Return the plugin of a name; None if there is none or the name is ccenv's own. Raises InputError if it is unusable."""
    taken_names = set(taken)
    if name in taken_names:
        return None
    for plugin in plugins(kind, taken_names):
        if plugin.name == name:
            if plugin.problem:
                raise InputError(f"{kind} {name!r} of {plugin.package}: {plugin.problem}")
            return plugin
    return None


def load(plugin: Plugin) -> tuple[Any, FilePath, str]:
    """Import a plugin; return the object, its module's file and the hash of that file.

    Raises InputError naming the package, if it cannot be imported.
    """
    label = f"{plugin.kind} {plugin.name!r} of {plugin.package}"
    module = plugin.target.partition(":")[0].strip()
    try:
        with limits.limited("the import", limits.LOAD_LIMIT_S):
            loaded = metadata.EntryPoint(plugin.name, plugin.target, GROUPS[plugin.kind]).load()
            source = inspect.getsourcefile(sys.modules[module])
    except Exception as error:
        raise InputError(f"{label}: {_find_line(error) or plugin.target}: {describe_error(error)}") from error
    file = FilePath(source or plugin.target)
    return loaded, file, hashlib.sha256(file.read_bytes() if file.is_file() else plugin.package.encode()).hexdigest()


def _find_line(error: Exception) -> str:
    """Return file and line in a plugin's module at which an error was raised; empty if its own code did not run."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in _LOADERS]
    frames = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    return f"{FilePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def check(plugin: Plugin, build: Callable[[str], Any]) -> Plugin:
    """Return a plugin with the problem, if any, of building it as a user would."""
    if plugin.problem:
        return plugin
    try:
        build(plugin.name)
    except Exception as error:
        return replace(plugin, problem=describe_error(error))
    return plugin
