"""Where compiled kernels are kept: in folders named by the content of what they are compiled from.

A kernel's machine code depends on the file that defines it and on all that this file imports: numba inlines helpers and freezes constants
from other files, and does not notice when those change. The folder's name therefore holds a digest of the import closure. A fresh clone, a
copy, a touched file or a change elsewhere in the package finds the same folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import UserProvidedCacheLocator

ROOT = Path(__file__).resolve().parent
# Only imports at the top of a file: a kernel uses nothing that a plain function imports for itself.
_IMPORT = re.compile(rb"^(?:from[ \t]+(ccenv[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+(ccenv[\w.]*))", re.MULTILINE)
_COMMENT = re.compile(rb"#[^\n]*")
_NAME = re.compile(r"\w+(?:\s+as\s+\w+)?")
# States of one file that are kept: whoever changes between branches finds them again.
_KEPT_STATES = 8
_KEPT_S = 14 * 86_400


def import_closure(file: Path) -> list[Path]:
    """Return a file of the package and all files of the package that it imports at its top, directly or not, sorted."""
    closure: set[Path] = set()
    pending = [file.resolve()]
    while pending:
        current = pending.pop()
        if current not in closure:
            closure.add(current)
            pending += _imports(current)
    return sorted(closure)


def closure_digest(file: Path) -> str:
    """Return a digest of the names and contents of a file's import closure."""
    digest = hashlib.sha256()
    for member in import_closure(file):
        digest.update(f"{member.relative_to(ROOT).as_posix()}\n".encode())
        digest.update(hashlib.sha256(_content(member)).digest())
    return digest.hexdigest()[:16]


@cache
def _content(file: Path) -> bytes:
    return file.read_bytes()


@cache
def _imports(file: Path) -> tuple[Path, ...]:
    return tuple(found for name in _imported_names(_content(file)) if (found := _module_file(name)))


def _imported_names(text: bytes) -> Iterator[str]:
    for package, names, module in _IMPORT.findall(text):
        if module:
            yield module.decode()
            continue
        for name in _NAME.findall(_COMMENT.sub(b"", names).decode()):
            inner = f"{package.decode()}.{name.split()[0]}"
            yield inner if _module_file(inner) else package.decode()


@cache
def _module_file(name: str) -> Path | None:
    base = ROOT.joinpath(*name.split(".")[1:])
    for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
        if file.is_file() and base != ROOT:
            return file
    return None


class ContentLocator(UserProvidedCacheLocator):
    """Locates the compiled kernels of this package's files; files of others are left to numba's own locators."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._digest = closure_digest(Path(py_file))
        module = ".".join(Path(py_file).resolve().relative_to(ROOT).with_suffix("").parts)
        self._cache_path = os.path.join(config.CACHE_DIR, f"{module}-{self._digest}")

    def get_source_stamp(self) -> str:
        """Return the digest: numba compares it with that of a stored index."""
        return self._digest

    def ensure_cache_path(self) -> None:
        """Make the folder if it can be written; old states of the same file make room for a new one."""
        new = not os.path.isdir(self._cache_path)
        super().ensure_cache_path()
        os.utime(self._cache_path)
        if new:
            _evict_old_states(Path(self._cache_path))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Return a locator, or None for a file outside the package or a folder that cannot be written."""
        if not Path(py_file).resolve().is_relative_to(ROOT):
            return None
        return super().from_function(py_func, py_file)


def _evict_old_states(folder: Path) -> None:
    module = folder.name.rpartition("-")[0]
    with contextlib.suppress(OSError):
        states = sorted(folder.parent.glob(f"{module}-*"), key=lambda state: state.stat().st_mtime, reverse=True)
        oldest = time.time() - _KEPT_S
        for place, state in enumerate(states):
            if state != folder and (place >= _KEPT_STATES or state.stat().st_mtime < oldest):
                shutil.rmtree(state, ignore_errors=True)
