"""ccenv: environment, benchmark and proving ground for Internet congestion control."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path as _FilePath

from ccenv.version import VERSION as __version__

__all__ = ["__version__"]


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


def __getattr__(name: str) -> object:
    """Bring what is imported only when it is used: ``ccenv.simulate``."""
    if name == "simulate":
        from ccenv.simulation import simulate

        return simulate
    raise AttributeError(f"module 'ccenv' has no attribute {name!r}")
