"""The sockets of the flows in their namespaces, and the cores of the loop. Standard library only.

An idle virtual machine gives its core back and gets it again milliseconds late. Therefore a process of the lowest priority
(SCHED_IDLE), which yields to every other process, spins on the loop's cores during a run.
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
NOT_SENT_BYTES = 128 << 10  # lead of an application over its congestion control
SINK_LOW_BYTES = 128 << 10  # read by the receiving application at a time


@dataclass
class Sockets:
    """The sockets of all flows."""

    senders: list[socket.socket] = field(default_factory=list)
    listeners: list[socket.socket] = field(default_factory=list)  # by flow, in the receivers' namespace
    sinks: list[socket.socket] = field(default_factory=list)  # by flow, once connected

    def make_senders(self, n: int, n_bytes: int, first_port: int) -> None:
        """Make the unconnected senders of n flows in this namespace."""
        for index in range(n):
            end = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            enlarge(end, socket.SO_SNDBUF, SO_SNDBUFFORCE, n_bytes)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
            # A stopped flow sends nothing more: neither the rest of its data nor a FIN.
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
        """Accept the connections. Raises OSError if one was not made."""
        for end in self.senders:
            number = end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number))
        for end in self.listeners:
            sink, _ = end.accept()
            sink.setblocking(False)
            sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, SINK_LOW_BYTES)
            self.sinks.append(sink)


def available_controls() -> list[str]:
    """Return the congestion controls that are loaded in the kernel."""
    try:
        with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def has_congestion_control(name: str) -> bool:
    """Tell whether the kernel has a congestion control; this may load its module."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as end:
        try:
            end.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.EINVAL)
    return True


SHORT_SLICE_NS = 100_000
_BUSY, _STEAL = (0, 1, 2, 5, 6, 7), 7  # of a line of /proc/stat: all but idle and waiting for disks
# The process ends with the worker, also if the worker has ended before prctl.
_SPIN = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "os.getppid() == int(sys.argv[1]) or os._exit(1)\n"
    "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
    "os.sched_setaffinity(0, {int(sys.argv[2])})\n"
    "while True: pass\n"
)


def read_core_times() -> dict[int, tuple[float, float]]:
    """Return the busy and the stolen seconds of each core since the system began; empty if not known."""
    times = {}
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for line in lines:
        name, *numbers = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(number) for number in numbers]
            times[int(name[3:])] = (tick_s * sum(ticks[column] for column in _BUSY), tick_s * ticks[_STEAL])
    return times


def find_least_busy(before: dict[int, tuple[float, float]], n: int) -> list[int]:
    """Return the n cores allowed to this process that have been least busy since ``before``."""
    now, nothing = read_core_times(), (0.0, 0.0)
    allowed = sorted(os.sched_getaffinity(0))
    return sorted(allowed, key=lambda core: now.get(core, nothing)[0] - before.get(core, nothing)[0])[:n]


def pin_to_cores(cores: Sequence[int]) -> list[subprocess.Popen[bytes]]:
    """Pin this process to some cores and keep these awake; return the spinning processes, none if that is not allowed."""
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


def request_short_slices() -> bool:
    """Ask for the shortest time slices of the scheduler (Linux 6.12), which needs no rights; tell whether the kernel has them."""
    number = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine)
    if number is None:
        return False
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period.
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, SHORT_SLICE_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)


def open_schedule() -> int:
    """Return an open file with the time that this thread waited for a core; -1 if the kernel has none."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
