"""The cache of compiled kernels: folders named by the content of the sources.

A kernel's machine code depends on its file and on everything that file imports: numba inlines helpers and freezes constants from
other files, and does not notice when those change. So each folder is named by a digest of the import closure. A fresh clone, a
copy, a touched file or a change elsewhere in the package finds the same folder. For a function of a user also decides what
it freezes (:mod:`ccenv.base.kernels.frozen`).

Each compiled signature is a file of its own, written atomically.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ccenv.base.kernels.announce import announced, say
from ccenv.base.kernels.frozen import frozen_digest
from ccenv.base.provenance import ROOT, module_file

# Only imports at the top of a file: a kernel uses nothing that a plain function imports for itself.
_IMPORT = re.compile(rb"^(?:from[ \t]+(ccenv[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+(ccenv[\w.]*))", re.MULTILINE)
_COMMENT = re.compile(rb"#[^\n]*")
_NAME = re.compile(r"\w+(?:\s+as\s+\w+)?")
# States of one file that are kept: whoever changes between branches finds them again.
_KEPT_STATES = 8
_KEPT_S = 14 * 86_400
_USED_S = 86_400  # a folder's time is its last use, to a day


def import_closure(file: Path) -> list[Path]:
    """Return a file, the dispatcher's file, and all modules of the package that they import at their tops, sorted."""
    closure: set[Path] = set()
    pending = [file.resolve(), ROOT / "base" / "kernels" / "dispatcher.py"]
    while pending:
        current = pending.pop()
        if current not in closure:
            closure.add(current)
            pending += _imports(current)
    return sorted(closure)


@cache
def closure_digest(file: Path) -> str:
    """Return a digest of the names and contents of a file's import closure."""
    digest = hashlib.sha256()
    for member in import_closure(file):
        name = member.relative_to(ROOT).as_posix() if member.is_relative_to(ROOT) else member.name
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(_content(member)).digest())
    return digest.hexdigest()[:16]


@cache
def _content(file: Path) -> bytes:
    return file.read_bytes()


@cache
def _imports(file: Path) -> tuple[Path, ...]:
    return tuple(module for name in _find_imports(_content(file)) if (module := module_file(name)))


def _find_imports(text: bytes) -> Iterator[str]:
    for package, names, module in _IMPORT.findall(text):
        if module:
            yield module.decode()
            continue
        for name in _NAME.findall(_COMMENT.sub(b"", names).decode()):
            inner = f"{package.decode()}.{name.split()[0]}"
            yield inner if module_file(inner) else package.decode()


def cache_folder() -> Path:
    """Return the folder of all kernels: NUMBA_CACHE_DIR, or ccenv's part of the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("NUMBA_CACHE_DIR") or os.path.join(base, "ccenv", "numba"))


@cache
def _state_folder(file: Path) -> str:
    module = ".".join((file.relative_to(ROOT) if file.is_relative_to(ROOT) else Path("user", file.name)).with_suffix("").parts)
    return f"{module}-{closure_digest(file)}"


class Store:
    """The cache of one function's machine code, with the interface that a numba dispatcher expects; ``bare``: no wrappers."""

    def __init__(self, py_func: Any, options: dict[str, Any]) -> None:
        self._py_func = py_func
        self._options = repr(sorted(options.items()))
        self.bare = False

    @cached_property
    def _file(self) -> Path | None:
        """Where the function is written; None where there is no such file: a notebook's cell, a prompt."""
        file = Path(self._py_func.__code__.co_filename)
        return file.resolve() if file.is_file() else None

    @property
    def cache_path(self) -> str:
        """The folder of this function's state."""
        return "" if self._file is None else str(cache_folder() / _state_folder(self._file))

    def _path(self, signature: Any, codegen: Any, bare: bool) -> Path | None:
        import llvmlite
        import numba

        code = self._py_func.__code__
        key = repr((str(signature), bare, self._options, codegen.magic_tuple(), numba.__version__, llvmlite.__version__))
        if self._file is None or " at 0x" in key:  # a type that holds an object of this process
            return None
        of_user = not self._file.is_relative_to(ROOT)
        if of_user:  # numba imports the module again that it finds in a result
            key += self._py_func.__module__
        if of_user or self._py_func.__closure__:
            try:
                key += frozen_digest(self._py_func, closure_digest)
            except Exception:  # a global without content to compare, or still without a value
                return None
        name = hashlib.sha256(key.encode() + code.co_code).hexdigest()[:20]
        python = f"py{sys.version_info[0]}{sys.version_info[1]}"
        return Path(self.cache_path, f"{code.co_qualname.replace('<locals>.', '')}-{code.co_firstlineno}.{python}.{name}")

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the result for a signature, or None where none is kept that can be read."""
        from numba.core.compiler import CompileResult
        from numba.core.serialize import loads

        target_context.refresh()
        path = self._path(signature, target_context.codegen(), self.bare)
        if path is None:
            return None
        try:
            content = path.read_bytes()
        except OSError:
            return None
        _note_use(path.parent)
        try:
            return CompileResult._rebuild(target_context, *loads(content))
        except Exception:  # damaged, or it names a class that has moved since: compiled anew
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        from numba.core.serialize import dumps

        path = self._path(signature, result.codegen, self.bare)
        if path is None or result.library.has_dynamic_globals or any(not lifted.can_cache for lifted in result.lifted):
            return
        content = dumps(result._reduce())
        try:
            _write(path, content)
        except OSError as error:
            folder = _replace_folder(error)
            if folder is not None:
                _write(folder / path.parent.name / path.name, content)

    @contextlib.contextmanager
    def turn(self, signature: Any, target_context: Any, bare: bool = False) -> Iterator[None]:
        """Announce a compilation, if one is needed. Of several processes that need the same, one compiles; the others wait."""
        path = self._path(signature, target_context.codegen(), bare)
        if path is not None and path.is_file():
            yield
            return
        with announced(self._py_func, cache_folder()), contextlib.ExitStack() as held:
            if path is not None:
                held.enter_context(_locked(path))
            yield

    def flush(self) -> None:
        """Forget what is kept of this function's state."""
        shutil.rmtree(self.cache_path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a kernel, if folder and system support locks."""
    import fcntl

    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(open(f"{path}.lock", "wb")), fcntl.LOCK_EX)
        yield


def _write(path: Path, content: bytes) -> None:
    new = not path.parent.is_dir()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    if new:
        _evict_old_states(path.parent)


def _replace_folder(error: OSError) -> Path | None:
    """Say once that kernels cannot be kept, and return a temporary folder, also for this process's children."""
    refused = cache_folder()
    folder = None
    with contextlib.suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="ccenv-kernels-"))
        os.environ["NUMBA_CACHE_DIR"] = str(folder)
        atexit.register(_remove, folder, os.getpid())
    until = "every process compiles them anew" if folder is None else f"they lie in {folder} until this process ends"
    reason = error.strerror or str(error)
    say(f"compiled kernels cannot be kept in {refused} ({reason}): {until}; NUMBA_CACHE_DIR names a folder")
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _note_use(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - folder.stat().st_mtime > _USED_S:
            os.utime(folder)


def _evict_old_states(folder: Path) -> None:
    """Remove old states of the same file. A process that uses one of them compiles again, at worst."""
    module = folder.name.rpartition("-")[0]
    with contextlib.suppress(OSError):
        states = [(state.stat().st_mtime, state) for state in folder.parent.glob(f"{module}-*") if state != folder]
        oldest = time.time() - _KEPT_S
        for place, (used, state) in enumerate(sorted(states, reverse=True)):
            if place >= _KEPT_STATES - 1 or used < oldest:
                shutil.rmtree(state, ignore_errors=True)
