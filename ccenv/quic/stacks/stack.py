"""What a QUIC stack is to ccenv: a table of stacks, and one flow of a stack in virtual time.

A fourth stack is one file with a subclass of :class:`Stack`, and a line in ``STACKS``.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path as FilePath
from typing import Any, ClassVar, Protocol

import numpy as np

from ccenv.agents.sender import PolicySender
from ccenv.base.errors import CcenvError
from ccenv.live.export.twin import ACK_DTYPE, STATE_DTYPE
from ccenv.quic.program import AckLog, CompiledProgram

OVERHEAD_BYTES = 28  # of IPv4 and UDP
TIMER_S = 1e-6  # timers fire so much late: a stack may compare its time with >=
TIE_S = 1e-9
LONG_HEADER = 0x80  # RFC 9000 s.17.2: handshakes


class QuicError(CcenvError):
    """A stack that is missing, of another version, or that cannot do what it is asked for."""

    def __init__(self, message: str) -> None:
        super().__init__(f"quic: {message}")


class Endpoint(Protocol):
    """One end of a connection without sockets and clock."""

    def receive(self, data: bytes, now_s: float) -> None:
        """Take a datagram."""

    def transmit(self, now_s: float) -> Iterable[bytes]:
        """Return the datagrams that leave now."""

    def due_s(self) -> float | None:
        """Return when the next timer is due."""

    def on_timer(self, now_s: float) -> None:
        """Let the timers that are due fire."""

    def qlog(self) -> bytes | None:
        """Return its log, and end; None if none was kept."""


@dataclass(frozen=True)
class FlowSettings:
    """One flow of a run."""

    # name of a congestion control of the stack, a compiled program, or a policy where the stack plays them
    control: str | CompiledProgram | PolicySender
    rtt_s: float  # Rm
    start_s: float = 0.0  # when it starts
    mss_bytes: int = 1500  # largest packet on the wire
    seed: int = 0  # of the stack's random numbers, where it has some
    log: bool = False  # keep a qlog of the sender
    bypass: bool = True  # datagrams of the handshake bypass the network, as in `ccenv.live`


class Flow(ABC):
    """A sender and its receiver between two ends of a network."""

    log: AckLog | None = None  # of the sender's program, None for a control of the stack

    @property
    def packets(self) -> int:
        """Packets of both ends so far."""
        raise NotImplementedError

    @abstractmethod
    def advance(self, until_s: float) -> Sequence[tuple[float, Any]]:
        """Run until just before a time; return what the sender sent into the network: bytes on the wire, packet."""

    @abstractmethod
    def deliver(self, packets: Sequence[Any], now_s: float) -> None:
        """Bring packets to the receiver."""

    def records(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what the exported program saw and decided (ACK_DTYPE, STATE_DTYPE); empty for a stack's own senders."""
        return (np.zeros(0, ACK_DTYPE), np.zeros(0, STATE_DTYPE)) if self.log is None else self.log.arrays()

    def qlog(self) -> bytes:
        """Return the sender's log. Raises QuicError if none was kept."""
        raise QuicError("no log of the sender was kept: aioquic and picoquic write one if asked, quinn-proto 0.9 cannot")


class EventFlow(Flow):
    """A flow of a stack that Python drives: an event heap."""

    packets = 0

    def __init__(self, sender: Endpoint, receiver: Endpoint, settings: FlowSettings) -> None:
        """Begin; the sender's program, if any, reports to ``log``."""
        self._ends, self._rtt_s = (sender, receiver), settings.rtt_s
        self._handshake = LONG_HEADER if settings.bypass else 0
        self._heap: list[tuple[float, int, int, Any]] = []
        self._sent: list[tuple[float, bytes]] = []
        self._timers: list[float | None] = [None, None]
        self._number = 0
        self._push(settings.start_s, 0, None)

    def _push(self, time_s: float, end: int, what: Any) -> None:
        self._number += 1
        heapq.heappush(self._heap, (time_s, self._number, end, what))

    def advance(self, until_s: float) -> Sequence[tuple[float, bytes]]:
        """Run the event heap; packets at the very time belong to the next step."""
        if self.log is not None:
            self.log.open()
        while self._heap and self._heap[0][0] < until_s - TIE_S:
            now_s, _, end, what = heapq.heappop(self._heap)
            if isinstance(what, bytes):
                self._ends[end].receive(what, now_s)
            elif what is not None:
                if what != self._timers[end]:
                    continue
                self._timers[end] = None
                self._ends[end].on_timer(now_s)
            self._pump(end, now_s)
        sent, self._sent = self._sent, []
        return sent

    def _pump(self, end: int, now_s: float) -> None:
        for data in self._ends[end].transmit(now_s):
            self.packets += 1
            if end == 1:
                self._push(now_s + self._rtt_s, 0, data)
            elif data[0] & self._handshake:
                self._push(now_s, 1, data)
            else:
                self._sent.append((len(data) + OVERHEAD_BYTES, data))
        due_s = self._ends[end].due_s()
        if due_s is not None and due_s != self._timers[end]:
            self._timers[end] = due_s
            self._push(max(due_s, now_s) + TIMER_S, end, due_s)

    def deliver(self, packets: Sequence[bytes], now_s: float) -> None:
        """Let the receiver take packets and answer."""
        for data in packets:
            self._ends[1].receive(data, now_s)
            self._pump(1, now_s)

    def qlog(self) -> bytes:
        """Return the sender's log, and end."""
        return self._ends[0].qlog() or super().qlog()


class Stack(ABC):
    """A QUIC stack."""

    name: ClassVar[str]  # on the command line
    package: ClassVar[str] = ""  # that holds it, for `importlib.metadata`; empty for a stack that is built
    needed: ClassVar[str] = ""  # version of the package
    how: ClassVar[str]  # one line that tells how to get it
    controls: ClassVar[tuple[str, ...]]  # its own congestion controls
    plays_policies: ClassVar[bool] = False  # policies that set a window can play in it, from Python (`ccenv.quic.policy`)
    pacer: ClassVar[str]  # who paces an exported program: `stack`, `adapter`, or empty if nobody can
    ack_delay_s: ClassVar[float]  # by how much its receiver may delay an ACK
    timer_s: ClassVar[float] = 2 * TIMER_S  # granularity of its timers
    search_runs: ClassVar[int] = 60  # that take about 60 CPU s

    def missing(self) -> str | None:
        """Return in one line why the stack cannot run here; None if it can."""
        try:
            found = version(self.package)
        except PackageNotFoundError:
            return f"{self.name} is not installed; {self.how}"
        return None if found == self.needed else f"{self.name} is {found}; {self.needed} is needed: {self.how}"

    def widened_s(self, jitter_s: float, step_s: float) -> float:
        """Return the D that a sender must assume: of the network, and what ACK policy, timers and the grid add."""
        return jitter_s + step_s + self.ack_delay_s + self.timer_s

    @abstractmethod
    def flow(self, settings: FlowSettings) -> Flow:
        """Begin a flow."""


def certificate_files() -> tuple[FilePath, FilePath]:
    """Return certificate and key of the receivers, both without any worth."""
    folder = FilePath(str(resources.files(__package__)))
    return folder / "worthless_cert.pem", folder / "worthless_key.pem"
