"""Where a result comes from: machine, versions and the code that decided it."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata, resources
from pathlib import Path as FilePath
from typing import Any

from ccenv.version import VERSION

# What decides the numbers of a cell. A change here makes stored cells stale; a change of reports or documentation does not.
CELL_SOURCES = (
    "engine/compiled/*.py",
    "engine/curve/*.py",
    "engine/packet/**/*.py",
    "applications/**/*.py",
    "programs/*.py",
    "agents/classic/*.py",
    "adversaries/**/*.py",
    "attack/**/*.py",
    "metrics/*.py",
    "network/model.py",
    "network/path.py",
    "simulation/*.py",
    "benchmarks/cells/*.py",
    "benchmarks/suite/*.py",
)

_PACKAGES = ("numpy", "numba", "scipy", "gymnasium", "stable-baselines3", "torch", "z3-solver")


def machine() -> dict[str, Any]:
    """Return what the machine is: processor, usable cores, memory, system. No host or user name."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, ccenv and of the installed packages that matter to results."""
    found = {"python": platform.python_version(), "ccenv": VERSION}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def now() -> str:
    """Return the time in UTC to the second, for records only: nothing is computed from it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def code_hash() -> str:
    """Return a hash of the source files that decide what a cell's numbers are."""
    return source_hash(CELL_SOURCES)


def source_hash(patterns: Sequence[str]) -> str:
    """Return a hash of the source files of this package that match one of several patterns, names included."""
    root = FilePath(str(resources.files("ccenv")))
    files = sorted({file for pattern in patterns for file in root.glob(pattern)})
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root).as_posix()}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


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
