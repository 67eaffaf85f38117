"""The cores of the loop: which ones, that they do not fall asleep, and how much of them the host of a virtual machine takes.

A virtual machine that has nothing to do gives its core back, and gets it again milliseconds late. So a process of the lowest
priority (SCHED_IDLE) spins on them while a run lasts: whatever else wants to run goes before it. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SHORT_SLICE_NS = 100_000
_BUSY, _STEAL = (0, 1, 2, 5, 6, 7), 7  # of a line of /proc/stat: all but idle and waiting for disks
# It ends with the worker; a parent that has gone before that is seen.
_SPIN = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "os.getppid() == int(sys.argv[1]) or os._exit(1)\n"
    "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
    "os.sched_setaffinity(0, {int(sys.argv[2])})\n"
    "while True: pass\n"
)


def times_of_cores() -> dict[int, tuple[float, float]]:
    """Return by core for how many seconds it was busy, and was taken by the host, since the system began; empty if not known."""
    found = {}
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for line in lines:
        name, *numbers = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(number) for number in numbers]
            found[int(name[3:])] = (tick_s * sum(ticks[place] for place in _BUSY), tick_s * ticks[_STEAL])
    return found


def least_busy(before: dict[int, tuple[float, float]], n: int) -> list[int]:
    """Return the n cores, of those that this process may use, that have been busy for the shortest time since ``before``."""
    now, nothing = times_of_cores(), (0.0, 0.0)
    allowed = sorted(os.sched_getaffinity(0))
    return sorted(allowed, key=lambda core: now.get(core, nothing)[0] - before.get(core, nothing)[0])[:n]


def stay_on(cores: Sequence[int]) -> list[subprocess.Popen[bytes]]:
    """Keep this process on some cores, and them awake; return the processes that do so; none where that is not allowed."""
    try:
        os.sched_setaffinity(0, cores)
        return [
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _SPIN, str(os.getpid()), str(core)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for core in cores
        ]  # fmt: skip
    except OSError:
        return []


def ask_for_short_slices() -> bool:
    """Ask for the shortest time slices that the scheduler gives (Linux 6.12): who takes little goes first. Needs no rights.

    Returns:
        Whether the kernel knows such a thing.
    """
    number = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine)
    if number is None:
        return False
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period.
    asked = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, SHORT_SLICE_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, asked, 0) == 0)


def open_schedule() -> int:
    """Return an open file that says for how long this thread waited for a core; -1 where the kernel does not say."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
