"""Find the processes that a test started, and wait for what they do."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def parents() -> dict[int, int]:
    """Return process -> parent of all that run; what has ended and waits to be collected does not count."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split() if entry.isdigit() else []
        except OSError:  # it ended meanwhile
            continue
        if fields and fields[0] not in "ZX":
            found[int(entry)] = int(fields[1])
    return found


def descendants(process: int) -> set[int]:
    all_parents = parents()
    found: set[int] = set()
    layer = {process}
    while layer:
        layer = {child for child, parent in all_parents.items() if parent in layer} - found
        found |= layer
    return found


def alive(processes: set[int]) -> set[int]:
    return processes & set(parents())


def wait_until(true: Callable[[], bool], limit_s: float) -> bool:
    """Wait for something; return whether it came true in time."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return true()
