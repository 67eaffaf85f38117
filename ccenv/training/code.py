"""The code that decides what a training run comes to."""

from __future__ import annotations

from functools import cache
from pathlib import Path as FilePath

from ccenv.provenance import CELL_SOURCES, source_hash

# Modules here that store, show or time what the others decide; a new module counts as one that decides.
_ASIDE = ("checkpoint", "clock", "code", "logs", "scenes")


@cache
def code_hash() -> str:
    """Return a hash of the source files that decide what a run comes to."""
    here = FilePath(__file__).parent.glob("*.py")
    decide = sorted(f"training/{file.name}" for file in here if file.stem not in _ASIDE)
    return source_hash((*CELL_SOURCES, "envs/*.py", *decide))
