"""User and network namespaces, their devices, and the two ends of the emulated network. Standard library only.

The ends are TUN devices, or else pairs of devices with packet sockets.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
# Attributes and messages of rtnetlink (uapi/linux/if_link.h, rtnetlink.h).
RTM_NEWLINK, RTM_NEWROUTE = 16, 24
NLM_REQUEST, NLM_ACK, NLM_REPLACE, NLM_EXCL, NLM_CREATE = 1, 4, 0x100, 0x200, 0x400
IFLA_ADDRESS, IFLA_IFNAME, IFLA_TXQLEN, IFLA_LINKINFO, IFLA_NET_NS_FD, IFLA_GSO_MAX_SEGS = 1, 3, 13, 18, 28, 40
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
RTA_DST, RTA_OIF, RTA_PREFSRC, RTA_METRICS, RTAX_QUICKACK = 1, 4, 7, 8, 15
RT_TABLE_MAIN, RTPROT_KERNEL, RT_SCOPE_LINK, RTN_UNICAST = 254, 2, 253, 1
NESTED = 0x8000
# ioctl of devices (uapi/linux/sockios.h, if_tun.h, ethtool.h).
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU, SIOCETHTOOL = 0x8913, 0x8914, 0x8916, 0x891C, 0x8922, 0x8946
IFF_UP, IFF_NOARP = 0x1, 0x80
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
ETHTOOL_STXCSUM, ETHTOOL_SGRO, ETHTOOL_STSO, ETHTOOL_SGSO = 0x17, 0x2C, 0x1F, 0x24

_LIBC = ctypes.CDLL(None, use_errno=True)


def unshare(what: int) -> None:
    """Move to new namespaces. Raises OSError."""
    if _LIBC.unshare(what) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter(space: int) -> None:
    """Enter the network namespace of an open file. Raises OSError."""
    if _LIBC.setns(space, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_root_inside() -> None:
    """Become root of a new user namespace; the process must have one thread. Raises OSError if that is not allowed."""
    user, group = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")


def new_network() -> int:
    """Enter a new network namespace; return its open file."""
    unshare(CLONE_NEWNET)
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def open_tun(name: str) -> int:
    """Return a new TUN device of this namespace, non-blocking. Raises OSError."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    except OSError:
        os.close(device)
        raise
    return device


def raise_device(name: str, *, mtu: int = 0, address: str = "", flags: int = 0) -> None:
    """Set MTU and address of a device in this namespace and bring it up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        if mtu:
            fcntl.ioctl(control, SIOCSIFMTU, struct.pack("16si12x", name.encode(), mtu))
        old = struct.unpack("16sH14x", fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0)))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), old | flags | IFF_UP))
        if address:
            for command, text in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.0")):
                packed = struct.pack("16sH2x4s8x", name.encode(), socket.AF_INET, socket.inet_aton(text))
                fcntl.ioctl(control, command, packed)


def disable_offload(name: str) -> None:
    """Disable checksum and segmentation offload of a device."""
    for command in (ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO):
        value = ctypes.create_string_buffer(struct.pack("II", command, 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP16x", name.encode(), ctypes.addressof(value)))


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("I", value))


def _name(name: str) -> bytes:
    return _attribute(IFLA_IFNAME, name.encode() + b"\0")


def _link_header(index: int = 0) -> bytes:
    return struct.pack("BxHiII", socket.AF_UNSPEC, 0, index, 0, 0)


def _request(kind: int, flags: int, body: bytes) -> None:
    """Send a message to rtnetlink and wait for its answer. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.bind((0, 0))
        link.send(struct.pack("IHHII", 16 + len(body), kind, NLM_REQUEST | NLM_ACK | flags, 1, 0) + body)
        answer = link.recv(8192)
    number = -struct.unpack_from("i", answer, 16)[0]
    if number:
        raise OSError(number, os.strerror(number))


def tune_link(name: str, *, queue_packets: int, burst_packets: int) -> None:
    """Set the queue length of a device, and the segments per packet of the stack (0: unchanged)."""
    body = _link_header(socket.if_nametoindex(name)) + _number(IFLA_TXQLEN, queue_packets)
    if burst_packets:
        body += _number(IFLA_GSO_MAX_SEGS, burst_packets)
    _request(RTM_NEWLINK, 0, body)


def make_pair(name: str, peer: str, peer_space: int, address: bytes) -> None:
    """Make a pair of devices, one here with a hardware address, its peer in another namespace."""
    other = _link_header() + _name(peer) + _number(IFLA_NET_NS_FD, peer_space)
    data = _attribute(IFLA_INFO_DATA | NESTED, _attribute(VETH_INFO_PEER | NESTED, other))
    info = _attribute(IFLA_LINKINFO | NESTED, _attribute(IFLA_INFO_KIND, b"veth\0") + data)
    _request(RTM_NEWLINK, NLM_CREATE | NLM_EXCL, _link_header() + _name(name) + _attribute(IFLA_ADDRESS, address) + info)


def acknowledge_at_once(name: str, address: str) -> None:
    """Let the receivers of this namespace acknowledge every packet, by an attribute of the route."""
    network = socket.inet_aton(address)[:3] + b"\0"
    head = struct.pack("BBBBBBBBI", socket.AF_INET, 24, 0, 0, RT_TABLE_MAIN, RTPROT_KERNEL, RT_SCOPE_LINK, RTN_UNICAST, 0)
    body = head + _attribute(RTA_DST, network) + _number(RTA_OIF, socket.if_nametoindex(name))
    body += _attribute(RTA_PREFSRC, socket.inet_aton(address))
    body += _attribute(RTA_METRICS | NESTED, _number(RTAX_QUICKACK, 1))
    _request(RTM_NEWROUTE, NLM_CREATE | NLM_REPLACE, body)


def set_sysctl(key: str, value: str) -> bool:
    """Set a sysctl of this network namespace; tell whether it is allowed and known."""
    try:
        Path("/proc/sys/net", *key.split(".")).write_text(value, encoding="ascii")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS):
            raise
        return False
    return True


def count_drops(name: str) -> int:
    """Return the number of packets that a device of this namespace has dropped, in both directions."""
    for line in Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines():
        device, _, counts = line.partition(":")
        if device.strip() == name:
            fields = [int(text) for text in counts.split()]
            return fields[3] + fields[11]
    return 0


SENDER_ADDRESS, RECEIVER_ADDRESS = "10.77.0.1", "10.77.0.2"
QUEUE_PACKETS = 30_000  # of a device, which must never drop packets; kernels from 6.12.117 on refuse 50,000
ETHERNET_BYTES = 14
_SAME_ADDRESS = bytes.fromhex("02cc0e000001")  # of both ends: without ARP a device takes the other's address for its own
_ETH_P_IP = 0x0800
_RECEIVE_BYTES = 256 << 20
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32


@dataclass
class Ends:
    """Both ends of the emulated network.

    Attributes:
        kind: ``tun`` or ``packet``.
        near, far: file descriptors: devices of the senders and of the receivers.
        spaces: open files of the senders' and the receivers' namespaces.
        header_bytes: before the IP header of packets read and written.
        kept: sockets that must stay open.
    """

    kind: str
    near: int
    far: int
    spaces: tuple[int, int]
    header_bytes: int
    kept: list[Any] = field(default_factory=list)

    def dropped(self) -> int:
        total = 0
        for space, name in zip(self.spaces, ("live0", "live1"), strict=True):
            enter(space)
            total += count_drops(name)
        return total


def open_ends(kind: str, *, mtu: int, burst_packets: int, quick_ack: bool, in_space: Callable[[int], None]) -> Ends:
    """Open both ends in new namespaces.

    Raises OSError if the system does not allow it; the message of ``auto`` names both devices.

    Args:
        kind: ``auto``, ``tun`` or ``packet``.
        mtu: bytes of a full packet with its IP header.
        burst_packets: segments per packet of the sending stack; 0: the kernel's choice.
        quick_ack: the receivers acknowledge every packet.
        in_space: called in the senders' (0) and the receivers' (1) namespace when its device is up.
    """
    if kind != "packet":
        try:
            return _open_tun_ends(mtu, burst_packets, quick_ack, in_space)
        except OSError as error:
            if kind == "tun":
                raise
            refused = error
    try:
        return _open_packet_ends(mtu, burst_packets, quick_ack, in_space)
    except OSError as error:
        if kind == "packet":
            raise
        raise OSError(refused.errno, f"{refused.strerror}, and AF_PACKET neither: {error.strerror}") from None


def _set_up(name: str, address: str, mtu: int, burst_packets: int, flags: int = 0) -> None:
    raise_device("lo")
    raise_device(name, mtu=mtu, address=address, flags=flags)
    tune_link(name, queue_packets=QUEUE_PACKETS, burst_packets=burst_packets)
    # No state of one flow or run may reach the next one.
    set_sysctl("ipv4.tcp_no_metrics_save", "1")
    set_sysctl("ipv6.conf.all.disable_ipv6", "1")


def _open_tun_ends(mtu: int, burst_packets: int, quick_ack: bool, in_space: Callable[[int], None]) -> Ends:
    os.close(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC))  # fails before a namespace is entered in vain
    ends, spaces = [], []
    for number, address in enumerate((SENDER_ADDRESS, RECEIVER_ADDRESS)):
        spaces.append(new_network())
        name = f"live{number}"
        ends.append(open_tun(name))
        _set_up(name, address, mtu, burst_packets)
        if number == 1 and quick_ack:
            acknowledge_at_once(name, address)
        in_space(number)
    return Ends("tun", ends[0], ends[1], (spaces[0], spaces[1]), 0)


def _open_packet_ends(mtu: int, burst_packets: int, quick_ack: bool, in_space: Callable[[int], None]) -> Ends:
    middle = new_network()
    spaces = []
    for number, address in enumerate((SENDER_ADDRESS, RECEIVER_ADDRESS)):
        spaces.append(new_network())
        name = f"live{number}"
        make_pair(name, f"ccenv{number}", middle, _SAME_ADDRESS)
        disable_offload(name)
        _set_up(name, address, mtu, burst_packets, IFF_NOARP)
        if number == 1 and quick_ack:
            acknowledge_at_once(name, address)
        in_space(number)
    enter(middle)
    set_sysctl("ipv6.conf.all.disable_ipv6", "1")
    sockets = []
    for number in range(2):
        name = f"ccenv{number}"
        raise_device(name, mtu=mtu, flags=IFF_NOARP)
        disable_offload(name)
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(_ETH_P_IP))
        end.bind((name, _ETH_P_IP))
        enlarge(end, socket.SO_RCVBUF, SO_RCVBUFFORCE, _RECEIVE_BYTES)
        enlarge(end, socket.SO_SNDBUF, SO_SNDBUFFORCE, _RECEIVE_BYTES)
        sockets.append(end)
    return Ends("packet", sockets[0].fileno(), sockets[1].fileno(), (spaces[0], spaces[1]), ETHERNET_BYTES, list(sockets))


def enlarge(end: socket.socket, plain: int, forced: int, n_bytes: int) -> None:
    """Set a buffer of a socket to a size, or to the largest that the system allows."""
    try:
        end.setsockopt(socket.SOL_SOCKET, forced, n_bytes)
    except OSError:
        end.setsockopt(socket.SOL_SOCKET, plain, n_bytes)
