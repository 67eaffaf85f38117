"""The stack picoquic (C) in virtual time: the library inside the wheel aiopquic, by ctypes.

The wheel is for Python 3.12 or newer, but any Python can load its library. It has no header: builds are known by their SHA-256,
and the places of the fields of a path are checked when it is loaded.
"""

from __future__ import annotations

import ctypes as c
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path as FilePath
from typing import Any

from ccenv.quic.program import AckLog, CompiledProgram
from ccenv.quic.stacks.stack import OVERHEAD_BYTES, EventFlow, Flow, FlowSettings, QuicError, Stack, certificate_files

FOLDER = "CCENV_PICOQUIC"
# Builds of aiopquic 0.6.1 for x86-64 Linux (picoquic 1.1.53.0): Python 3.12, 3.13, 3.14.
BUILDS = {
    "f40e4873057e8508febe0a2c182241cb8b76b0daaf063fc4f1a4ead32db73301",
    "e0d9120e0fbb7c3d8b697185ac61600b921a4f81b5c413426c31431e2bffcd27",
    "2d3156a580edc25372523f8184f111a0f4dfcadabee8aebe80b8ac3a7cebe458",
}
MTU_AT, CWIN_AT, STATE_AT = 0x358, 0x3F8, 0x420  # in picoquic_path_t
FIRST_CWIN_BYTES, MTUS_BYTES = 15_360, range(1_200, 1_500)
CHUNK_BYTES, LOW_BYTES = 1 << 20, 1 << 19
BUFFER_BYTES = 2048
NEVER_US = 1 << 62
EVERYTHING = 1 << 40
MAX_DATA, STREAM_DATA = 4, (5, 6, 7)  # transport parameters, RFC 9000 s.18.2
_ADDRESS = b"\x02\x00%s\x7f\x00\x00\x01" + bytes(120)
_NAMES = {"reno": b"newreno"}
_CALLBACK = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint64, c.c_void_p, c.c_size_t, c.c_int, c.c_void_p, c.c_void_p)
_INIT = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_uint64)
_ZEROS = bytes(CHUNK_BYTES)


class _ConnectionId(c.Structure):
    _fields_ = [("id", c.c_uint8 * 20), ("length", c.c_uint8)]


def library_file() -> FilePath | None:
    """Return the library of an installed wheel, or of a folder that CCENV_PICOQUIC names; None without one."""
    folder = os.environ.get(FOLDER)
    if folder:
        return next(iter(sorted(FilePath(folder).glob("**/_binding/_transport*.so"))), None)
    try:
        return next(
            (FilePath(str(one.locate())) for one in files("aiopquic") or () if one.match("_binding/_transport*.so")), None
        )
    except PackageNotFoundError:
        return None


@cache
def _load() -> c.CDLL:
    """Load the library, and give its functions types."""
    open_lazily = c.CDLL(None).dlopen  # it is a module of another Python, too, whose functions are not called
    open_lazily.restype, open_lazily.argtypes = c.c_void_p, [c.c_char_p, c.c_int]
    handle = open_lazily(os.fsencode(str(library_file())), os.RTLD_LAZY)
    if not handle:
        raise QuicError(f"the system cannot load {library_file()}")
    library = c.CDLL(str(library_file()), handle=handle)
    pointer, number, size, text = c.c_void_p, c.c_uint64, c.c_size_t, c.c_char_p
    types: dict[str, tuple[Any, list[Any]]] = {
        "picoquic_create": (pointer, [c.c_uint32, text, text, text, text, _CALLBACK, pointer, pointer, pointer, pointer, number,
                                      pointer, text, pointer, size]),
        "picoquic_free": (None, [pointer]),
        "picoquic_create_cnx": (pointer, [pointer, _ConnectionId, _ConnectionId, pointer, number, c.c_uint32, text, text,
                                          c.c_char]),
        "picoquic_set_callback": (None, [pointer, _CALLBACK, pointer]),
        "picoquic_start_client_cnx": (c.c_int, [pointer]),
        "picoquic_incoming_packet": (c.c_int, [pointer, pointer, size, pointer, pointer, c.c_int, c.c_ubyte, number]),
        "picoquic_prepare_next_packet": (c.c_int, [pointer, number, pointer, size, *[pointer] * 6]),
        "picoquic_get_next_wake_time": (number, [pointer, number]),
        "picoquic_add_to_stream": (c.c_int, [pointer, number, pointer, size, c.c_int]),
        "picoquic_get_data_sent": (number, [pointer]),
        "picoquic_set_default_tp_value": (c.c_int, [pointer, number, number]),
        "picoquic_set_default_congestion_algorithm_by_name": (None, [pointer, text]),
        "picoquic_set_default_congestion_algorithm": (None, [pointer, pointer]),
        "picoquic_set_mtu_max": (None, [pointer, c.c_uint32]),
        "picoquic_set_null_verifier": (None, [pointer]),
        "picoquic_set_qlog": (c.c_int, [pointer, text]),
        "picoquic_set_random_initial": (None, [pointer, c.c_int]),
        "picoquic_public_random_seed_64": (None, [number, c.c_int]),
        "picoquic_register_all_congestion_control_algorithms": (None, []),
    }  # fmt: skip
    for name, (result, arguments) in types.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.picoquic_register_all_congestion_control_algorithms()
    return library


@_CALLBACK
def _ignore(*_: Any) -> int:
    return 0


class PicoquicEnd:
    """A context of picoquic with one connection; as the client it sends without end."""

    def __init__(self, settings: FlowSettings, sends: bool) -> None:
        """Make the context; the client's connection starts at once."""
        self.library, self.sends = _load(), sends
        self.folder = tempfile.mkdtemp(prefix="ccenv-qlog-") if sends and settings.log else None
        start_us = round(1e6 * settings.start_s)
        self.time_us = c.c_uint64(start_us)
        cert, key = certificate_files()
        files_ = (None, None) if sends else (os.fsencode(cert), os.fsencode(key))
        self.context = self.library.picoquic_create(
            8, *files_, None, b"ccenv", _ignore, None, None, None, None, start_us, c.byref(self.time_us), None, None, 0
        )
        if not self.context:
            raise QuicError("picoquic makes no context")
        for parameter in (MAX_DATA, *STREAM_DATA):
            self.library.picoquic_set_default_tp_value(self.context, parameter, EVERYTHING)
        self.library.picoquic_set_mtu_max(self.context, settings.mss_bytes - OVERHEAD_BYTES)
        self.library.picoquic_set_random_initial(self.context, 0)
        self.library.picoquic_set_null_verifier(self.context)
        self.connection: int | None = None
        self.addresses = [c.create_string_buffer(_ADDRESS % port, 128) for port in (b"\x15\xb3", b"\x11\x51")]
        self.buffer, self.length = c.create_string_buffer(BUFFER_BYTES), c.c_size_t()
        self.incoming = c.create_string_buffer(BUFFER_BYTES)
        self.spare = [c.create_string_buffer(128) for _ in range(2)]
        self.index, self.id, self.last = c.c_int(), _ConnectionId(), c.c_void_p()
        self.fed, self.draws = 0, settings.seed << 32

    def connect(self) -> None:
        nothing = _ConnectionId()
        self.connection = self.library.picoquic_create_cnx(
            self.context, nothing, nothing, self.addresses[1], self.time_us.value, 0, b"localhost", b"ccenv", b"\x01"
        )
        if not self.connection or self.library.picoquic_start_client_cnx(self.connection):
            raise QuicError("picoquic starts no connection")

    def receive(self, data: bytes, now_s: float) -> None:
        now_us = self.time_us.value = round(1e6 * now_s)
        c.memmove(self.incoming, data, len(data))
        to, sender = self.addresses if self.sends else self.addresses[::-1]
        self.library.picoquic_incoming_packet(self.context, self.incoming, len(data), sender, to, 0, 0, now_us)

    def transmit(self, now_s: float) -> Iterable[bytes]:
        """Write, and return what leaves now."""
        now_us = self.time_us.value = round(1e6 * now_s)
        library = self.library
        self.draws += 1  # picoquic seeds its generator anew when a handshake ends
        library.picoquic_public_random_seed_64(self.draws, 1)
        if self.connection and self.fed - library.picoquic_get_data_sent(self.connection) < LOW_BYTES:
            library.picoquic_add_to_stream(self.connection, 0, _ZEROS, CHUNK_BYTES, 0)
            self.fed += CHUNK_BYTES
        while True:
            library.picoquic_prepare_next_packet(
                self.context, now_us, self.buffer, BUFFER_BYTES, c.byref(self.length), *self.spare, c.byref(self.index),
                c.byref(self.id), c.byref(self.last),
            )  # fmt: skip
            if not self.length.value:
                return
            yield c.string_at(self.buffer, self.length.value)

    def due_s(self) -> float | None:
        """Return when picoquic wants to be woken."""
        due_us = self.library.picoquic_get_next_wake_time(self.context, self.time_us.value)
        return None if due_us >= NEVER_US else 1e-6 * due_us

    def on_timer(self, now_s: float) -> None:
        """Nothing: picoquic looks at its timers when it prepares packets."""

    def close(self) -> None:
        """Free the context."""
        if self.context:
            self.library.picoquic_free(self.context)
        self.context = None

    def qlog(self) -> bytes | None:
        """Return its log; ends the connection, which writes it."""
        self.close()
        return None if self.folder is None else next(FilePath(self.folder).glob("*.qlog")).read_bytes()

    def __del__(self) -> None:
        """Free the context and what it logged."""
        self.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class Picoquic(Stack):
    """picoquic: its own controls, by its names; reno is its newreno."""

    name = "picoquic"
    package, needed = "aiopquic", "0.6.1"
    how = (
        "pip install --no-deps --only-binary=:all: --python-version 3.12 --target DIR aiopquic==0.6.1, then "
        f"{FOLDER}=DIR (Python 3.12 or newer: pip install 'ccenv[quic]')"
    )
    controls = ("reno", "cubic", "bbr", "bbr1", "dcubic", "fast", "prague", "c4")
    pacer = "stack"
    ack_delay_s = 0.010
    search_runs = 240

    def missing(self) -> str | None:
        """Return in one line why the library cannot be used."""
        file = library_file()
        if file is None:
            return f"picoquic is not installed; {self.how}"
        if hashlib.sha256(file.read_bytes()).hexdigest() not in BUILDS:
            return f"{file.name} is another build of picoquic than those of aiopquic {self.needed} for x86-64 Linux; {self.how}"
        return None

    def flow(self, settings: FlowSettings) -> Flow:
        library = _load()
        _check_places()
        sender, receiver = (PicoquicEnd(settings, sends) for sends in (True, False))
        control, flow = settings.control, EventFlow(sender, receiver, settings)
        if isinstance(control, str):
            library.picoquic_set_default_congestion_algorithm_by_name(sender.context, _NAMES.get(control, control.encode()))
        elif isinstance(control, CompiledProgram):
            program = control.library("picoquic.c.in")
            flow.log = AckLog(program)
            functions = (library.picoquic_update_pacing_rate, library.picoquic_cc_get_sequence_number)
            places = [c.c_size_t(place) for place in (MTU_AT, CWIN_AT, STATE_AT)]
            program.ccenv_places(*places, *(c.cast(function, c.c_void_p) for function in functions))
            library.picoquic_set_default_congestion_algorithm(
                sender.context, c.addressof(c.c_char.in_dll(program, "ccenv_algorithm"))
            )
        if sender.folder is not None:
            library.picoquic_set_qlog(sender.context, os.fsencode(sender.folder))
        sender.connect()
        return flow


class _Algorithm(c.Structure):
    _fields_ = [("id", c.c_char_p), ("number", c.c_uint8), ("ecn", c.c_uint8), ("init", _INIT), *(
        (name, c.c_void_p) for name in ("notify", "delete", "observe")
    )]  # fmt: skip


@cache
def _check_places() -> None:
    """Let picoquic begin a path, and raise QuicError unless window, MTU and state are where they are expected."""
    library, seen = _load(), []

    @_INIT
    def look(path: int, _option: bytes, _now_us: int) -> None:
        seen.append([c.c_uint64.from_address(path + place).value for place in (MTU_AT, CWIN_AT, STATE_AT)])

    library.picoquic_get_congestion_algorithm.restype = c.POINTER(_Algorithm)
    algorithm = _Algorithm.from_buffer_copy(library.picoquic_get_congestion_algorithm(b"newreno").contents)
    algorithm.init = look
    end = PicoquicEnd(FlowSettings("reno", 0.1), sends=True)
    library.picoquic_set_default_congestion_algorithm(end.context, c.addressof(algorithm))
    end.connect()
    end.close()
    if not seen or seen[0][0] not in MTUS_BYTES or seen[0][1:] != [FIRST_CWIN_BYTES, 0]:
        raise QuicError(f"picoquic's path has other fields than expected: {seen[:1]}")
