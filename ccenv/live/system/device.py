"""The two ends of the emulated network: TUN devices, else pairs of devices with packet sockets. Standard library only."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ccenv.live.system import spaces

SENDER_ADDRESS, RECEIVER_ADDRESS = "10.77.0.1", "10.77.0.2"
QUEUE_PACKETS = 50_000  # of a device: it must never be the one that drops
ETHERNET_BYTES = 14
_SAME_ADDRESS = bytes.fromhex("02cc0e000001")  # of both ends: without ARP a device takes the other's address for its own
_ETH_P_IP = 0x0800
_RECEIVE_BYTES = 256 << 20
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32


@dataclass
class Ends:
    """Both ends.

    Attributes:
        kind: ``tun`` or ``packet``.
        near, far: file descriptors: devices of the senders and of the receivers.
        spaces: open files of the senders' and the receivers' namespaces.
        header_bytes: before the IP header of what is read and written.
        kept: sockets that must stay open.
    """

    kind: str
    near: int
    far: int
    spaces: tuple[int, int]
    header_bytes: int
    kept: list[Any] = field(default_factory=list)

    def dropped(self) -> int:
        """Return how many packets the devices have dropped."""
        total = 0
        for space, name in zip(self.spaces, ("live0", "live1"), strict=True):
            spaces.enter(space)
            total += spaces.dropped_here(name)
        return total


def open_ends(kind: str, *, mtu: int, burst_packets: int, quick_ack: bool, in_space: Callable[[int], None]) -> Ends:
    """Open both ends in new namespaces.

    Args:
        kind: ``auto``, ``tun`` or ``packet``.
        mtu: bytes of a full packet with its IP header.
        burst_packets: segments that one packet of the sending stack may hold; 0: as the kernel has it.
        quick_ack: the receivers acknowledge every packet.
        in_space: called in the senders' (0) and the receivers' (1) namespace when its device is up.

    Raises:
        OSError: where the system does not allow it; the message of ``auto`` names both ways.
    """
    if kind != "packet":
        try:
            return _tun(mtu, burst_packets, quick_ack, in_space)
        except OSError as error:
            if kind == "tun":
                raise
            refused = error
    try:
        return _packet(mtu, burst_packets, quick_ack, in_space)
    except OSError as error:
        if kind == "packet":
            raise
        raise OSError(refused.errno, f"{refused.strerror}, and AF_PACKET neither: {error.strerror}") from None


def _set_up(name: str, address: str, mtu: int, burst_packets: int, flags: int = 0) -> None:
    spaces.raise_device("lo")
    spaces.raise_device(name, mtu=mtu, address=address, flags=flags)
    spaces.tune_link(name, queue_packets=QUEUE_PACKETS, burst_packets=burst_packets)
    # Nothing of one flow or run may reach the next one.
    spaces.set_here("ipv4.tcp_no_metrics_save", "1")
    spaces.set_here("ipv6.conf.all.disable_ipv6", "1")


def _tun(mtu: int, burst_packets: int, quick_ack: bool, in_space: Callable[[int], None]) -> Ends:
    os.close(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC))  # before a namespace is left for nothing
    ends, places = [], []
    for number, address in enumerate((SENDER_ADDRESS, RECEIVER_ADDRESS)):
        places.append(spaces.new_network())
        name = f"live{number}"
        ends.append(spaces.open_tun(name))
        _set_up(name, address, mtu, burst_packets)
        if number == 1 and quick_ack:
            spaces.acknowledge_at_once(name, address)
        in_space(number)
    return Ends("tun", ends[0], ends[1], (places[0], places[1]), 0)


def _packet(mtu: int, burst_packets: int, quick_ack: bool, in_space: Callable[[int], None]) -> Ends:
    middle = spaces.new_network()
    places = []
    for number, address in enumerate((SENDER_ADDRESS, RECEIVER_ADDRESS)):
        places.append(spaces.new_network())
        name = f"live{number}"
        spaces.make_pair(name, f"ccenv{number}", middle, _SAME_ADDRESS)
        spaces.no_offload(name)
        _set_up(name, address, mtu, burst_packets, spaces.IFF_NOARP)
        if number == 1 and quick_ack:
            spaces.acknowledge_at_once(name, address)
        in_space(number)
    spaces.enter(middle)
    spaces.set_here("ipv6.conf.all.disable_ipv6", "1")
    sockets = []
    for number in range(2):
        name = f"ccenv{number}"
        spaces.raise_device(name, mtu=mtu, flags=spaces.IFF_NOARP)
        spaces.no_offload(name)
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(_ETH_P_IP))
        end.bind((name, _ETH_P_IP))
        enlarge(end, socket.SO_RCVBUF, SO_RCVBUFFORCE, _RECEIVE_BYTES)
        enlarge(end, socket.SO_SNDBUF, SO_SNDBUFFORCE, _RECEIVE_BYTES)
        sockets.append(end)
    return Ends("packet", sockets[0].fileno(), sockets[1].fileno(), (places[0], places[1]), ETHERNET_BYTES, list(sockets))


def enlarge(end: socket.socket, plain: int, forced: int, n_bytes: int) -> None:
    """Set a buffer of a socket to a size, or to the largest that the system allows."""
    try:
        end.setsockopt(socket.SOL_SOCKET, forced, n_bytes)
    except OSError:
        end.setsockopt(socket.SOL_SOCKET, plain, n_bytes)
