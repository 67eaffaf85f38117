"""ccenv: environment, benchmark and proving ground for Internet congestion control."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path as _FilePath

try:
    __version__ = metadata.version("ccenv")
except metadata.PackageNotFoundError:
    __version__ = "0+unknown"


def _set_numba_cache_dir() -> None:
    """Keep compiled kernels in a per-user folder: files left in site-packages would shadow an editable install."""
    base = os.environ.get("XDG_CACHE_HOME") or str(_FilePath.home() / ".cache")
    os.environ.setdefault("NUMBA_CACHE_DIR", os.path.join(base, "ccenv", "numba"))


_set_numba_cache_dir()


def _register_environments() -> None:
    """Make the ids known to Gymnasium; the environments themselves are imported when one is made."""
    from ccenv.envs import register

    register()


_register_environments()
