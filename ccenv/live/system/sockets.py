"""The real ends of the flows: a sender and a receiver socket each, in their namespaces. Standard library only."""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass, field

from ccenv.live.system.device import RECEIVER_ADDRESS, SENDER_ADDRESS, SO_RCVBUFFORCE, SO_SNDBUFFORCE, enlarge

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
