"""Start a command as a user would, and find its processes: for tests that end them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CCENV = [sys.executable, "-m", "ccenv.cli.main"]

# A suite that runs for long: name, duration_rtts, seeds and agents are filled in.
SUITE = """# Long enough to be cut off.
format: ccenv-suite
format_version: 1
name: {name}
version: 1
engine: curve
steps_per_rtt: 8
duration_rtts: {duration_rtts}
warm_up_rtts: 20
seeds: [{seeds}]
agents: [{agents}]
adversaries: [kind, slowest]
scenarios:
  - {{name: deep, summary: deep, model: ccac, link_rate_mbps: {{low: 10, high: 100}}, rtt_ms: 40, jitter_rtts: 1, buffer_bdp: 4}}
metrics: [utilisation]
score: {{metric: utilisation, adversary: kind}}
worst_case: {{metric: utilisation}}
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command in a folder."""
    return subprocess.Popen([*CCENV, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


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
    """Return all processes below one."""
    all_parents = parents()
    found: set[int] = set()
    layer = {process}
    while layer:
        layer = {child for child, parent in all_parents.items() if parent in layer} - found
        found |= layer
    return found


def alive(processes: set[int]) -> set[int]:
    """Return those that still run."""
    return processes & set(parents())


def wait_until(true: Callable[[], bool], limit_s: float) -> bool:
    """Wait for something; return whether it came true in time."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return true()
