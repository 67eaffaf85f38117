"""The stack aioquic (Python, PyPI) in virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ccenv.agents.sender import PolicySender
from ccenv.quic.program import AckLog
from ccenv.quic.stacks.stack import OVERHEAD_BYTES, EventFlow, Flow, FlowSettings, QuicError, Stack, certificate_files

CHUNK_BYTES = 300_000  # that the application writes when less than LOW_BYTES wait
LOW_BYTES = 200_000
_ZEROS = bytes(CHUNK_BYTES)
_EVERYTHING = {"max_data": 1 << 50, "max_stream_data": 1 << 50, "idle_timeout": 1e6}
REGISTERED = "ccenv_program"


class _Clock:
    """The clock of its log."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s


_CLOCK = _Clock()


class AioquicEnd:
    """A connection of aioquic; as the client it sends without end."""

    def __init__(self, connection: Any, logger: Any = None) -> None:
        """Take a connection, or a function that makes it at the first datagram, and its qlog."""
        self.connection, self.logger = connection, logger
        self.stream: int | None = None

    def receive(self, data: bytes, now_s: float) -> None:
        """Take a datagram, and read what it brings."""
        from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted

        _CLOCK.now_s = now_s
        if callable(self.connection):
            self.connection = self.connection()
        connection = self.connection
        connection.receive_datagram(data, ("127.0.0.1", 1), now=now_s)
        while (event := connection.next_event()) is not None:
            if isinstance(event, ConnectionTerminated):
                raise QuicError(f"aioquic closed the connection: {event.reason_phrase or event.error_code}")
            if isinstance(event, HandshakeCompleted) and connection._is_client:
                self.stream = connection.get_next_available_stream_id()

    def transmit(self, now_s: float) -> Iterable[bytes]:
        """Write, and return what leaves now."""
        if callable(self.connection):
            return
        _CLOCK.now_s = now_s
        if self.stream is not None:
            stream = self.connection._streams.get(self.stream)
            if stream is None or stream.sender._buffer_stop - stream.sender.highest_offset < LOW_BYTES:
                self.connection.send_stream_data(self.stream, _ZEROS)
        for data, _ in self.connection.datagrams_to_send(now=now_s):
            yield data

    def due_s(self) -> float | None:
        """Return the connection's timer."""
        return None if callable(self.connection) else self.connection.get_timer()

    def on_timer(self, now_s: float) -> None:
        """Let its timers fire."""
        _CLOCK.now_s = now_s
        self.connection.handle_timer(now=now_s)

    def qlog(self) -> bytes | None:
        """Return its log (JSON)."""
        return None if self.logger is None else json.dumps(self.logger.to_dict()).encode()


class Aioquic(Stack):
    """aioquic: reno and cubic, and whatever is registered."""

    name = "aioquic"
    package, needed = "aioquic", "1.7.2"
    how = "pip install 'ccenv[quic]'"
    controls = ("reno", "cubic")
    pacer = "adapter"
    plays_policies = True
    ack_delay_s = 0.001

    def flow(self, settings: FlowSettings) -> Flow:
        from aioquic.quic import logger
        from aioquic.quic.configuration import QuicConfiguration
        from aioquic.quic.congestion.base import register_congestion_control
        from aioquic.quic.connection import QuicConnection

        from ccenv.quic.adapters.aioquic_control import ProgramControl, pace

        vars(logger)["time"] = _CLOCK
        _CLOCK.now_s = settings.start_s
        log, control = None, settings.control
        paced = not isinstance(control, str)
        if isinstance(control, PolicySender):
            from ccenv.quic.policy import register_policy

            register_policy(control, REGISTERED)
            control = REGISTERED
        elif not isinstance(control, str):
            log = AckLog(control.library())
            register_congestion_control(REGISTERED, type("Recorded", (ProgramControl,), {"library": log.library}))
            control = REGISTERED
        common: dict[str, Any] = {
            "alpn_protocols": ["ccenv"], "max_datagram_size": settings.mss_bytes - OVERHEAD_BYTES, **_EVERYTHING,
        }  # fmt: skip
        qlog = logger.QuicLogger() if settings.log else None
        client = QuicConnection(
            configuration=QuicConfiguration(
                is_client=True, congestion_control_algorithm=control, quic_logger=qlog, verify_mode=0, server_name="localhost",
                **common,
            )
        )  # fmt: skip
        receiver = QuicConfiguration(is_client=False, **common)
        receiver.load_cert_chain(*certificate_files())
        client.connect(("127.0.0.1", 1), now=settings.start_s)
        if paced:
            pace(client)
        begin = lambda: QuicConnection(  # noqa: E731
            configuration=receiver, original_destination_connection_id=client.original_destination_connection_id
        )
        flow = EventFlow(AioquicEnd(client, qlog), AioquicEnd(begin), settings)
        flow.log = log
        return flow
