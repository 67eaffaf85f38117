"""The code that decides what a training run comes to."""

from __future__ import annotations

from functools import cache
from pathlib import Path as FilePath

from ccenv.provenance import CELL_SOURCES, source_hash

# Modules and rooms here that store, show or time what the others decide; a new one counts as one that decides.
_ASIDE = ("checkpoint.py", "clock.py", "code.py", "logs.py", "records", "scenes.py", "view")


def deciding_sources() -> tuple[str, ...]:
    """Return patterns of the source files that decide what a run comes to, from the folder of the package."""
    here = FilePath(__file__).parent
    files = [file.relative_to(here) for file in here.rglob("*.py")]
    decide = sorted(f"training/{file.as_posix()}" for file in files if file.parts[0] not in _ASIDE)
    return (*CELL_SOURCES, "envs/**/*.py", "interface/*.py", *decide)


@cache
def code_hash() -> str:
    """Return a hash of the source files that decide what a run comes to.

    Hashes that records hold are compared for being equal only: those of other code stay readable.
    """
    return source_hash(deciding_sources())
