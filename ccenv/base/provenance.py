"""Provenance of results: machine, versions, and a hash of the code that computed them. setup.cfg reads VERSION from here.

The hash covers the statements that an entry (function or class) reaches: those that its names refer to, in its own file or
through imports at any depth, what their strings name as ``"module:attribute"``, and the targets of registries. Statements of a
reached file that define nothing (calls, loops) count too. Docstrings, imports and names of modules are left out, so that the
hash survives moves of code.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import platform
import re
import sysconfig
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError
from ccenv.base.files import make_folder, write_atomic
from ccenv.base.registry import load_target

VERSION = "0.1.0"


ROOT = FilePath(__file__).resolve().parents[1]
_PACKAGES = ("numpy", "numba", "scipy", "gymnasium", "stable-baselines3", "torch", "z3-solver")
_KEPT_FILES = 4000
_MODULE = re.compile(r"\bccenv(?:\.\w+)+\.?")
_REFERENCE = re.compile(r"\bccenv(?:\.\w+)+(?::\w+)?")
# Decorators that register nothing; a function with any other decorator counts whenever its file does.
_PURE = {"cache", "contextmanager", "dataclass", "intrinsic", "kernel", "lru_cache", "njit", "wraps"}
# Each state of these rules has its own index file; hashed at import, since this file may change on disk later.
_RULES = hashlib.sha256(FilePath(__file__).read_bytes()).hexdigest()[:8]
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def machine() -> dict[str, Any]:
    """Describe the machine: processor, usable cores, memory, system; no host or user name."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, ccenv and of the installed packages that matter to results."""
    installed = {"python": platform.python_version(), "ccenv": VERSION}
    for name in _PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def now() -> str:
    """Return the UTC time to the second, for records only."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def code_hash(*entries: Callable[..., Any] | type) -> str:
    """Return a hash of the code that decides the results of functions or classes of this package."""
    classes = [base for entry in entries for base in getattr(entry, "__mro__", (entry,))]
    return _hash_entries(tuple(f"{one.__module__}:{one.__qualname__}" for one in classes if one.__module__.startswith("ccenv.")))


@cache
def _hash_entries(entries: tuple[str, ...]) -> str:
    return hashlib.sha256("".join(sorted(_Code().collect_hashes(entries))).encode()).hexdigest()


def _processor() -> str:
    try:
        for line in FilePath("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


@cache
def module_file(name: str) -> FilePath | None:
    """Return the file of a module of this package; None for the package itself and for what is no module."""
    base = ROOT.joinpath(*name.split(".")[1:])
    for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
        if base != ROOT and file.is_file():
            return file
    return None


def is_of_user(file: FilePath) -> bool:
    """Tell whether a file is neither of this package nor of an installed library."""
    return not any(file.is_relative_to(folder) for folder in (ROOT, *_libraries()))


@cache
def _libraries() -> list[FilePath]:
    return [FilePath(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]


def module_source(name: str) -> bytes | None:
    """Return the source of a module of this package; None for what is no module, and for this module, which decides no result."""
    file = module_file(name)
    return None if file is None or name == __name__ else file.read_bytes()


class _Code:
    """Index of the statements of modules. Each state of a file is parsed once on a machine."""

    def __init__(self) -> None:
        base = os.environ.get("XDG_CACHE_HOME") or str(FilePath.home() / ".cache")
        self._file = FilePath(base, "ccenv", f"statements-{_RULES}.json")
        self._modules: dict[str, dict[str, Any] | None] = {}
        self._stored: dict[str, dict[str, Any]] = {}
        self._used: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(OSError):
            digest, _, content = self._file.read_bytes().partition(b"\n")
            self._stored = json.loads(content) if hashlib.sha256(content).hexdigest().encode() == digest else {}

    def collect_hashes(self, entries: tuple[str, ...]) -> set[str]:
        """Return the hashes of all statements that entries (``"module:attribute"``) reach."""
        pending = [place for entry in entries for place in self._find_statements(entry)]
        if not entries or not all(map(self._find_statements, entries)):
            raise LookupError(f"entries {entries} name no code of this package")
        seen = set(pending)
        hashes = set()
        while pending:
            module, i = pending.pop()
            index = self._module(module) or {}
            own_hash, uses, references = index["statements"][i]
            hashes.add(own_hash)
            statements = [(module, j) for j in index["always"]]
            statements += [place for name in uses for place in self._find_statements(f"{module}:{name}")]
            statements += [place for reference in references for place in self._find_statements(reference)]
            pending += set(statements) - seen
            seen.update(statements)
        self._save()
        return hashes

    def _module(self, name: str) -> dict[str, Any] | None:
        if name not in self._modules:
            text = module_source(name)
            if text is not None:
                key = hashlib.sha256(text).hexdigest()
                self._used[key] = self._stored.get(key) or _index(text, name)
            self._modules[name] = None if text is None else self._used[key]
        return self._modules[name]

    def _find_statements(self, reference: str) -> list[tuple[str, int]]:
        """Return the statements that ``"module:attribute"`` or ``"module"`` stands for."""
        module, _, name = reference.partition(":")
        index = self._module(module)
        if index is None:
            return []
        if name in index["names"]:
            # Targets of a registry as they are at run time, since some are composed.
            targets = [entry.target for entry in load_target(reference)] if name in index["registries"] else []
            return [(module, i) for i in index["names"][name]] + [
                place for target in targets for place in self._find_statements(target)
            ]
        if name in index["imports"]:
            return self._find_statements(index["imports"][name])
        if name and self._module(f"{module}.{name}"):
            return self._find_statements(f"{module}.{name}")
        return [(module, i) for i in range(len(index["statements"]))]

    def _save(self) -> None:
        if self._used.keys() - self._stored.keys():
            every = self._stored | self._used
            with contextlib.suppress(CcenvError):  # a folder that cannot be written: parsed again next time
                content = json.dumps(every if len(every) <= _KEPT_FILES else self._used).encode()
                make_folder(self._file.parent)
                write_atomic(self._file, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


def _index(text: bytes, module: str) -> dict[str, Any]:
    """Return the statements of a file: hash, names and references of each, and what is defined and imported at its top."""
    body = [node for node in ast.parse(text, module).body if not _is_aside(node)]
    imports: dict[str, str] = {}
    for node in body:
        imports.update(_imports(node))
    statements = [node for node in body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    names: dict[str, list[int]] = {}
    for i, node in enumerate(statements):
        for name in _find_definitions(node):
            names.setdefault(name, []).append(i)
    visible = names.keys() | imports.keys()
    return {
        "names": names,
        "imports": imports,
        "registries": [name for node in statements if _makes_registry(node) for name in _find_definitions(node)],
        "always": [i for i, node in enumerate(statements) if _acts(node)],
        "statements": [_statement(node, visible) for node in statements],
    }


def _statement(node: ast.AST, visible: set[str]) -> list[Any]:
    parts: list[str] = []
    uses: set[str] = set()
    references: set[str] = set()
    _write(node, parts, uses, references)
    if "__name__" in uses:  # hands its module on as an object: whoever gets it may use all that stands there
        uses |= visible
    return [hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16], sorted(uses & visible), sorted(references)]


def _write(node: Any, parts: list[str], uses: set[str], references: set[str]) -> None:
    """Add a node to its text, its names and what it refers to elsewhere."""
    if isinstance(node, list):
        parts.append("[")
        for one in node:
            _write(one, parts, uses, references)
        parts.append("]")
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        references.update(_REFERENCE.findall(node.value))
        parts.append(repr(_MODULE.sub("", node.value)))
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        references.update(_imports(node).values())
    elif isinstance(node, ast.AST):
        if isinstance(node, ast.stmt) and _is_aside(node):
            return
        if isinstance(node, ast.Name):
            uses.add(node.id)
        parts.append(type(node).__name__)
        for name in node._fields:
            value = getattr(node, name, None)
            if value is not None and value != [] and name not in {"ctx", "kind", "type_comment"}:
                parts.append(name)
                _write(value, parts, uses, references)
    else:
        parts.append(f"{type(node).__name__} {node!r}")


def _imports(node: ast.AST) -> dict[str, str]:
    """Return what an import statement brings from this package: local name -> ``module:name``, or ``module``."""
    if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ccenv":
        return {alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names}
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name: alias.name for alias in node.names if alias.name.startswith("ccenv.")}
    return {}


def _is_aside(node: ast.stmt) -> bool:
    """Tell whether a statement is documentation or for type checkers only."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _find_definitions(node: ast.AST) -> set[str]:
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else [node]
    parts = [part for target in targets for part in ast.walk(target)]
    names = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return names | {part.name for part in parts if isinstance(part, _DEFINITIONS)}


def _makes_registry(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "Registry"


def _acts(node: ast.AST) -> bool:
    """Tell whether a statement does more than define names of its own."""
    if isinstance(node, _DEFINITIONS):
        return any(ast.unparse(one).partition("(")[0].rpartition(".")[2] not in _PURE for one in node.decorator_list)
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(part, (ast.Attribute, ast.Subscript)) for target in targets for part in ast.walk(target))
    return True
