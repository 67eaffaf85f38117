"""The emulator between two pairs of sockets, in a time that the test gives: no devices, no clock, no rights."""

import math
import os
import socket
import struct
from typing import Any

import numpy as np

from ccenv.engine.packet.layout import ordered
from ccenv.live.emulator.build import make_memory
from ccenv.live.emulator.layout import FIRST_PORT, FIRST_SINK_PORT, GIVEN
from ccenv.live.emulator.loop import serve
from ccenv.live.result import token_trace
from ccenv.live.scenario import LiveScenario, read_live_scenario
from ccenv.network.trace import Trace
from ccenv.simulation.packet_trace import packet_trace

PAYLOAD_BYTES = 100
LONGEST_PACKET = 4096


def scenario(jitter: dict[str, Any] | None = None, *, flows: int = 1, **more: Any) -> LiveScenario:
    """Return a scenario of one link of 12 Mbit/s (a packet takes 1 ms) and 40 ms."""
    told = {"sender": "kernel:reno", "rtt_ms": 40, **({"jitter": jitter} if jitter else {}), **more.pop("flow", {})}
    links = [{"rate_mbps": 12, "buffer_packets": 20, **more.pop("link", {})}]
    return read_live_scenario({"duration_s": 1.0, "links": links, "flows": [told] * flows, **more})


def packet(
    flow: int,
    number: int,
    *,
    back: bool = False,
    payload: int = PAYLOAD_BYTES,
    ack: int = 0,
    flags: int = 0x10,
    options: bytes = b"",
) -> bytes:
    """Return an IPv4 packet with a TCP header; number is its sequence number, options are whole words."""
    ports = (FIRST_PORT + flow, FIRST_SINK_PORT + flow)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40 + len(options) + payload, 0, 0, 64, 6, 0, b"\x0a\x4d\0\1", b"\x0a\x4d\0\2")
    tcp = struct.pack("!HHIIBBHHH", *(ports[::-1] if back else ports), number, ack, 0x50 + 4 * len(options), flags, 0, 0, 0)
    return head + tcp + options + bytes(payload)


def number_of(content: bytes) -> int:
    return int(struct.unpack_from("!I", content, 24)[0])


def ack_of(content: bytes) -> int:
    return int(struct.unpack_from("!I", content, 28)[0])


class Wire:
    """Both ends of an emulated network.

    Attributes:
        memory: of the emulator.
        there: what came to the receivers: time and packet.
        here: what came to the senders.
    """

    def __init__(self, wanted: LiveScenario) -> None:
        self.scenario = wanted
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        self._ends = [end for pair in pairs for end in pair]
        for end in self._ends:
            end.setblocking(False)
        self.memory = make_memory(wanted, self._ends[1].fileno(), self._ends[2].fileno(), 0, GIVEN)
        self.there: list[tuple[float, bytes]] = []
        self.here: list[tuple[float, bytes]] = []
        self.now_s = 0.0
        self._questions, self._answers = os.pipe(), os.pipe()
        for end in (self._questions[0], self._answers[0]):  # the emulator returns when there is no question left
            os.set_blocking(end, False)

    def send(self, content: bytes) -> None:
        self._ends[0].send(content)

    def send_back(self, content: bytes) -> None:
        self._ends[3].send(content)

    def run(self, until_s: float) -> None:
        while True:
            os.write(self._questions[1], struct.pack("3q", round(self.now_s * 1e9), 0, 0))
            serve(self.memory, self._questions[0], self._answers[1])
            next_ns = struct.unpack("3q", os.read(self._answers[0], 24))[0]
            next_s = 1e-9 * next_ns if next_ns >= 0 else math.inf  # the nanosecond after it is due
            for end, heard in ((self._ends[3], self.there), (self._ends[0], self.here)):
                while (content := self._read(end)) is not None:
                    heard.append((self.now_s, content))
            if next_s > until_s + 1.5e-9:
                self.now_s = max(self.now_s, until_s)
                return
            self.now_s = max(next_s, math.nextafter(self.now_s, math.inf))

    @staticmethod
    def _read(end: socket.socket) -> bytes | None:
        try:
            return end.recv(LONGEST_PACKET)
        except BlockingIOError:
            return None

    def play(self, arrivals_s: list[float], flow: int = 0) -> None:
        """Send numbered packets at given times, and run to the end of the scenario."""
        for number, at_s in enumerate(arrivals_s):
            self.run(at_s)
            self.send(packet(flow, number))
            self.run(at_s)
        self.run(self.scenario.duration_s)

    def delivered(self) -> list[tuple[float, int]]:
        """Return time and number of what came to the receivers."""
        return [(at_s, number_of(content)) for at_s, content in self.there]

    def trace(self) -> Trace:
        rows = int(self.memory.run["event_rows"][0])
        log = ordered(self.memory.events[:rows], self.scenario.duration_s)
        if self.scenario.model == "ccac":
            return token_trace(self.scenario, log, self.memory.tokens[: int(self.memory.run["steps"][0]) + 1])
        return packet_trace(self.scenario, log)

    def free_slots(self) -> int:
        """Return how many packets the emulator has room for."""
        return int(self.memory.run["n_free"][0])

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for descriptor in (*self._questions, *self._answers):
            os.close(descriptor)


def reference(wanted: LiveScenario, arrivals_s: list[float]) -> list[float]:
    """Return when packets of one flow leave a drop-tail link, in plain Python; infinite for those that it drops."""
    link = wanted.links[0]
    begins: list[float] = []
    out, free_s = [], -math.inf
    for at_s in arrivals_s:
        waiting = sum(begin_s > at_s for begin_s in begins)
        if free_s > at_s and (waiting + 1) * wanted.mss_bytes > link.buffer_bytes + 1e-3:
            out.append(math.inf)
            continue
        begin_s = max(at_s, free_s)
        rate = next((step.rate_Bps for step in reversed(link.rate_steps) if step.time_s <= begin_s), link.rate_Bps)
        free_s = begin_s + wanted.mss_bytes / rate
        begins.append(begin_s)
        out.append(free_s)
    return out


def late_s(times: list[tuple[float, int]], left_s: list[float]) -> np.ndarray:
    """Return by how much each delivered packet came after it left the link."""
    return np.array([at_s - left_s[number] for at_s, number in times])
