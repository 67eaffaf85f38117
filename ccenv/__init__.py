"""ccenv: environment, benchmark and proving ground for Internet congestion control."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from pathlib import Path as _FilePath
from typing import TYPE_CHECKING

from ccenv.version import VERSION as __version__

__all__ = ["PythonSender", "Trace", "__version__", "compare", "make_path", "make_sender", "simulate"]


def _code_fingerprint() -> str:
    """Return a short hash of which source files the package has, how long they are and when they were written."""
    root = _FilePath(__file__).parent
    state = sorted((str(p.relative_to(root)), p.stat().st_size, p.stat().st_mtime_ns) for p in root.rglob("*.py"))
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]


def _set_numba_cache_dir() -> None:
    """Keep compiled kernels in a per-user folder, one per state of the source.

    Files left in site-packages would shadow an editable install; and numba notices a change of the file that defines a kernel,
    but not of a helper that the kernel imports from another file.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(_FilePath.home() / ".cache")
    folder = os.environ.setdefault("NUMBA_CACHE_DIR", os.path.join(base, "ccenv", "numba", _code_fingerprint()))
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = folder


_set_numba_cache_dir()


def _register_environments() -> None:
    """Make the ids known to Gymnasium; the environments themselves are imported when one is made."""
    from ccenv.envs import register

    register()


_register_environments()


# What is brought only when it is used: name -> where it lives.
_LAZY = {
    "PythonSender": "ccenv.network.python_sender",
    "Trace": "ccenv.network.trace",
    "compare": "ccenv.comparison",
    "make_path": "ccenv.network.path",
    "make_sender": "ccenv.agents",
    "simulate": "ccenv.simulation",
}

if TYPE_CHECKING:
    from ccenv.agents import make_sender
    from ccenv.comparison import compare
    from ccenv.network.path import make_path
    from ccenv.network.python_sender import PythonSender
    from ccenv.network.trace import Trace
    from ccenv.simulation import simulate


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'ccenv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
