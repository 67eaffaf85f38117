"""Adapter of an exported program to aioquic 1.7: compile the C, then ``control = register("p.so")`` and ``pace(connection)``.

    cc -O2 -shared -fPIC -o p.so p.c

    configuration = QuicConfiguration(congestion_control_algorithm=register("./p.so"))
    connection = QuicConnection(configuration=configuration)
    pace(connection)  # with asyncio: in create_protocol, protocol._quic

Written by ccenv. aioquic's own pacer knows only window / RTT, so the adapter brings one that keeps the program's rate.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aioquic.quic.congestion.base import QuicCongestionControl, register_congestion_control
from aioquic.quic.connection import QuicConnection

_SEEN = [("now_us", ctypes.c_uint64), ("rtt_us", ctypes.c_int32)]
_SEEN += [(n, ctypes.c_uint32) for n in ("delivered", "lost", "sent", "in_flight", "app_limited", "reord_seen", "mss")]
_STATE: list[tuple[str, Any]] = [
    (n, ctypes.c_uint64) for n in ("step", "C_L", "C_U", "C_L_lambda", "q_U", "qdel_L", "qdel_U", "rate", "pacing", "lo", "hi")
]
_STATE += [(n, ctypes.c_uint32) for n in ("utilised", "cwnd", "position", "asked")]


class Seen(ctypes.Structure):
    """``struct ccenv_seen``: an ACK."""

    _fields_ = [*_SEEN, ("answer", ctypes.c_uint64)]


class State(ctypes.Structure):
    """``struct ccenv_state``: what the program decided."""

    _fields_ = _STATE


class ProgramControl(QuicCongestionControl):
    """A program behind aioquic's callbacks: counts bytes in full packets, and asks the program once per ACK."""

    library: Any = None

    def __init__(self, *, max_datagram_size: int) -> None:
        """Begin with aioquic's initial window; the first ACK begins the program."""
        super().__init__(max_datagram_size=max_datagram_size)
        self.size, self.pacing_Bps = max_datagram_size, 0
        self.sent = self.delivered = self.lost = 0
        self._sender: Any = None

    def on_packet_sent(self, *, packet: Any) -> None:
        self.bytes_in_flight += packet.sent_bytes
        self.sent += 1

    def on_packet_acked(self, *, now: float, packet: Any) -> None:
        self.bytes_in_flight -= packet.sent_bytes
        self.delivered += packet.sent_bytes

    def on_packets_expired(self, *, packets: Iterable[Any]) -> None:
        for packet in packets:
            self.bytes_in_flight -= packet.sent_bytes

    def on_packets_lost(self, *, now: float, packets: Iterable[Any]) -> None:
        for packet in packets:
            self.bytes_in_flight -= packet.sent_bytes
            self.lost += 1

    def on_persistent_congestion(self) -> None:
        """Nothing: the program sees what arrives."""

    def on_rtt_measurement(self, *, now: float, rtt: float) -> None:
        """Ask the program: aioquic calls this once per ACK, after the packets that it acknowledges."""
        counts = (self.delivered // self.size, self.lost, self.sent, max(0, -(-self.bytes_in_flight // self.size)))
        seen, state = Seen(int(now * 1e6 + 0.5), int(rtt * 1e6 + 0.5), *counts, 0, 0, self.size, 0), State()
        function = self.library.ccenv_ack if self._sender is not None else self.library.ccenv_begin
        if self._sender is None:
            self._sender = ctypes.create_string_buffer(self.library.ccenv_sender_bytes())
        function(self._sender, ctypes.byref(seen), ctypes.byref(state))
        self.congestion_window, self.pacing_Bps = state.cwnd * self.size, state.pacing


class RatePacer:
    """Sends at the program's rate, in place of ``QuicPacketPacer``."""

    def __init__(self, control: ProgramControl) -> None:
        self.control, self.next_s = control, 0.0
        self.packet_time: float | None = None

    def next_send_time(self, now: float) -> float | None:
        """Return when the next packet may leave; None: now."""
        return self.next_s if self.control.pacing_Bps and now < self.next_s - 1e-9 else None

    def update_after_send(self, now: float) -> None:
        if self.control.pacing_Bps:
            self.next_s = max(now, self.next_s) + self.control.size / self.control.pacing_Bps

    def update_rate(self, congestion_window: int, smoothed_rtt: float) -> None:
        """Nothing: the rate is the program's."""


def register(library: str | Path, name: str = "ccenv") -> str:
    """Register the compiled program as a congestion control; return its name."""
    loaded = ctypes.CDLL(str(library))
    loaded.ccenv_sender_bytes.restype = ctypes.c_uint64
    register_congestion_control(name, type("Exported", (ProgramControl,), {"library": loaded}))
    return name


def pace(connection: QuicConnection) -> None:
    """Give a connection the program's pacer. Without it the program's rate is not kept, and its proofs say nothing."""
    connection._loss._pacer = RatePacer(connection._loss._cc)
