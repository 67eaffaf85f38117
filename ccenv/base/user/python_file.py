"""Python files of users: loaded as modules, identified by content hash; errors name file and line."""

from __future__ import annotations

import ast
import hashlib
import importlib.abc
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any

from ccenv.base.errors import CcenvError, InputError, did_you_mean, shown
from ccenv.base.foreign import read_bounded
from ccenv.base.provenance import is_of_user
from ccenv.base.registry import parse_parameters
from ccenv.base.user import limits

MAX_BYTES = 4 << 20
_HALF = 32  # digits of a hash
_held: dict[FilePath, str] = {}


@dataclass(frozen=True)
class Spec:
    """``FILE.py``, ``FILE.py:ATTRIBUTE`` or ``FILE.py:ATTRIBUTE:key=value,...``; ``attribute`` may be empty."""

    file: str
    attribute: str
    parameters: dict[str, int | float | str]

    @property
    def where(self) -> str:
        return f"{self.file}:{self.attribute}" if self.attribute else self.file


@dataclass(frozen=True)
class UserFile:
    """A file that has been run: absolute path, module, SHA-256 of its content.

    If it imports other modules of the user, the second half of ``sha256`` is of these too.
    """

    path: FilePath
    module: ModuleType
    sha256: str


def is_python_file(spec: object) -> bool:
    """Tell whether a spec names a Python file: ``FILE.py``, ``FILE.py:ATTRIBUTE``, ``FILE.py:ATTRIBUTE:key=value,...``."""
    return isinstance(spec, str) and spec.partition(":")[0].endswith(".py")


def read_spec(spec: str) -> Spec:
    """Return the parts of a spec that names a Python file. Raises InputError for malformed parameters."""
    file, _, remainder = spec.partition(":")
    attribute, _, parameters = remainder.partition(":")
    return Spec(file, attribute, parse_parameters(parameters))


def load_file(name: str, kind: str, taken: Iterable[str]) -> UserFile:
    """Run a Python file that defines an object of a kind such as ``agent``; the same content is run once.

    ``taken`` are the registered names of this kind, which no file may have.

    Raises:
        InputError: one line with file and line, if it cannot be read or run, or has changed since the run began.
    """
    file = FilePath(name)
    content = read_bounded(file, MAX_BYTES)
    if file.stem in taken:
        location = f"{file.name}:{_first_definition(content)}"
        raise InputError(f"{location}: {file.stem!r} is the name of a registered {kind}; give the file another name")
    path, sha256 = file.resolve(), hashlib.sha256(content).hexdigest()
    if _held.get(path, sha256)[:_HALF] != sha256[:_HALF]:
        raise InputError(f"{name} changed while the run went on: run it again")
    module = _run(path, content, sha256)
    imported = _find_imported(content)
    if imported:
        sha256 = sha256[:_HALF] + hashlib.sha256("".join([sha256, *sorted(imported.values())]).encode()).hexdigest()[_HALF:]
    return UserFile(path, module, sha256)


def _find_imported(content: bytes) -> dict[FilePath, str]:
    """Return the modules of the user's own that are loaded and that a source imports, directly or not, with their hashes."""
    found: dict[FilePath, str] = {}
    pending = [(content, "")]
    while pending:
        source, package = pending.pop()
        for name in _imports(source, package):
            module = sys.modules.get(name)
            file = FilePath(getattr(module, "__file__", None) or "/")
            if file.suffix == ".py" and file not in found and is_of_user(file.resolve()):
                source = _loaded_content(file)
                found[file] = hashlib.sha256(source).hexdigest()
                pending.append((source, getattr(module, "__package__", "")))
    return found


@cache
def _loaded_content(file: FilePath) -> bytes:
    """Return the content that an imported module had when it was first seen: a process imports it once."""
    return read_bounded(file, MAX_BYTES)


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Yield the absolute names of what a source imports: modules, and names of modules that may be modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for one in node.names:
                parts = one.name.split(".")
                yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # a relative import that the file itself has caught
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package or None)
                yield from (base, *(f"{base}.{one.name}" for one in node.names))


def _first_definition(content: bytes) -> int:
    """Return the line of the first function or class of a file, which is not run; 1 if there is none."""
    try:
        body = ast.parse(content).body
    except (SyntaxError, ValueError):
        return 1
    return next((node.lineno for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)), 1)


class _Content(importlib.abc.SourceLoader):
    """Runs exactly the content that was hashed: no bytecode is read or stored."""

    def __init__(self, path: FilePath, content: bytes) -> None:
        self._path, self._content = str(path), content

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str | bytes) -> bytes:
        return self._content


def _run(path: FilePath, content: bytes, sha256: str) -> ModuleType:
    name = f"ccenv_user_{path.stem}_{hashlib.sha256(f'{path}:{sha256}'.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _Content(path, content)
    spec = importlib.util.spec_from_loader(name, loader)
    if spec is None:
        raise InputError(f"{path.name}: cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with limits.limited("loading the file", limits.LOAD_LIMIT_S):
            loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, (Exception, SystemExit)):
            raise
        raise InputError(f"{place(path, error)}: {describe_error(error)}") from error
    return module


def hash_files(specs: Iterable[object]) -> dict[FilePath, str]:
    """Return the hash of each Python file among specs, for :func:`held`. Raises InputError for one that cannot be read."""
    files = {FilePath(str(spec).partition(":")[0]) for spec in specs if is_python_file(spec)}
    return {file.resolve(): hashlib.sha256(read_bounded(file, MAX_BYTES)).hexdigest() for file in files}


def with_files(data: Any) -> tuple[Any, dict[str, str]]:
    """Prepare nested data for other processes: Python files become absolute paths; their hashes are for :func:`held`.

    Raises InputError for a file that cannot be read.
    """
    hashes: dict[str, str] = {}

    def make_absolute(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: make_absolute(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [make_absolute(one) for one in value]
        if not is_python_file(value):
            return value
        hashes.update({str(file): sha256 for file, sha256 in hash_files([value]).items()})
        file, colon, remainder = value.partition(":")
        return f"{FilePath(file).resolve()}{colon}{remainder}"

    return make_absolute(data), hashes


@contextmanager
def held(hashes: Mapping[FilePath, str]) -> Iterator[None]:
    """Refuse, within this block, to run one of these files if its content has another hash."""
    before = dict(_held)
    _held.update(hashes)
    try:
        yield
    finally:
        _held.clear()
        _held.update(before)


def place(path: FilePath | str, error: BaseException) -> str:
    """Return a file's name with the line in it at which an error came up."""
    file = FilePath(path)
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file.name}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file.name}:{lines[-1]}" if lines else file.name


def describe_error(error: BaseException) -> str:
    """Return the message of an error, with its type unless it is one of ccenv's."""
    return str(error) if isinstance(error, (CcenvError, TimeoutError)) else f"{type(error).__name__}: {error}"


def get_attribute(module: ModuleType, attribute: str, name: str) -> Any:
    """Return an attribute of a user's module. Raises InputError with suggestions."""
    if not hasattr(module, attribute):
        names = [n for n in vars(module) if not n.startswith("_")]
        raise InputError(f"{name} has no {shown(attribute)}.{did_you_mean(attribute, names)}")
    return getattr(module, attribute)


def find_line(function: Any, name: str) -> str:
    """Return a file's name with the line at which a function of it begins."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return f"{FilePath(name).name}:{code.co_firstlineno}" if code is not None else FilePath(name).name


def find_source(function: Callable[..., Any]) -> str:
    """Return the source file of a function, or its text if it has none."""
    try:
        return inspect.getsourcefile(inspect.unwrap(function)) or shown(function)
    except TypeError:
        return shown(function)


def require_arguments(function: Any, names: tuple[str, ...], where: str, label: str) -> None:
    """Refuse a function that does not take so many positional arguments. Raises InputError with file and line."""
    if not callable(function):
        raise InputError(f"{FilePath(where).name}: {label} is {shown(function)}, not a function")
    try:
        inspect.signature(function).bind(*names)
    except TypeError:
        wrong = inspect.signature(function)
        raise InputError(f"{find_line(function, where)}: {label}{wrong} must take ({', '.join(names)})") from None


def require_parameters(factory: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> None:
    """Refuse a parameter that a function or class does not take. Raises InputError with suggestions."""
    parameters = inspect.signature(factory).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    accepted = list(parameters)
    for key in arguments:
        if key not in accepted:
            raise InputError(f"{where}: unknown parameter {shown(key)}.{did_you_mean(key, accepted) if accepted else ''}")
