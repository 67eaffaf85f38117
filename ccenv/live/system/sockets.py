"""The real ends of the flows: a sender and a receiver socket each, in their namespaces. Standard library only.

The cores of the loop: which ones, that they do not fall asleep, and how much of them the host of a virtual machine takes.

A virtual machine that has nothing to do gives its core back, and gets it again milliseconds late. So a process of the lowest
priority (SCHED_IDLE) spins on them while a run lasts: whatever else wants to run goes before it. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ccenv.live.system.spaces import RECEIVER_ADDRESS, SENDER_ADDRESS, SO_RCVBUFFORCE, SO_SNDBUFFORCE, enlarge

TCP_CONGESTION, TCP_NOTSENT_LOWAT = 13, 25
NOT_SENT_BYTES = 128 << 10  # that an application is ahead of its congestion control
SINK_LOW_BYTES = 128 << 10  # read by the receiving application at a time


@dataclass
class Sockets:
    """The sockets of all flows.

    Attributes:
        senders: by flow.
        listeners: by flow, in the receivers' namespace.
        sinks: by flow, once connected.
    """

    senders: list[socket.socket] = field(default_factory=list)
    listeners: list[socket.socket] = field(default_factory=list)
    sinks: list[socket.socket] = field(default_factory=list)

    def make_senders(self, n: int, n_bytes: int, first_port: int) -> None:
        """Make the senders of n flows in this namespace, not connected."""
        for index in range(n):
            end = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            enlarge(end, socket.SO_SNDBUF, SO_SNDBUFFORCE, n_bytes)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
            # A stopped flow sends nothing more: no rest, no farewell.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.bind((SENDER_ADDRESS, first_port + index))
            self.senders.append(end)

    def make_listeners(self, n: int, n_bytes: int, first_port: int) -> None:
        """Make the receivers of n flows in this namespace."""
        for index in range(n):
            end = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            enlarge(end, socket.SO_RCVBUF, SO_RCVBUFFORCE, n_bytes)
            end.bind((RECEIVER_ADDRESS, first_port + index))
            end.listen(1)
            self.listeners.append(end)

    def choose(self, flow: int, name: str) -> None:
        """Give a flow its congestion control. Raises OSError if the kernel does not have it, or does not allow it."""
        self.senders[flow].setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())

    def connect(self, first_port: int) -> None:
        """Begin to connect; the packets wait in the device until the emulator runs."""
        for index, end in enumerate(self.senders):
            number = end.connect_ex((RECEIVER_ADDRESS, first_port + index))
            if number not in (0, errno.EINPROGRESS):
                raise OSError(number, os.strerror(number))

    def accept(self) -> None:
        """Take the connections. Raises OSError if one is not made."""
        for end in self.senders:
            number = end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number))
        for end in self.listeners:
            sink, _ = end.accept()
            sink.setblocking(False)
            sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, SINK_LOW_BYTES)
            self.sinks.append(sink)


def available() -> list[str]:
    """Return the congestion controls that the kernel has now."""
    try:
        with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def has_congestion_control(name: str) -> bool:
    """Tell whether a kernel has a congestion control; its module may be loaded for that."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as end:
        try:
            end.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.EINVAL)
    return True


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
