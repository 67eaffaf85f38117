"""The stack quinn-proto (Rust) in virtual time: built once by cargo from Debian's crates, then loaded by ctypes."""

from __future__ import annotations

import base64
import ctypes as c
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.files import write_atomic
from ccenv.quic.program import AckLog, CompiledProgram
from ccenv.quic.stacks.stack import OVERHEAD_BYTES, Flow, FlowSettings, QuicError, Stack, certificate_files

CRATES = "/usr/share/cargo/registry"
LIBRARY = "libccenv_quinn.so"
TIME_LIMIT_S = 1800
ROOM = 65_536  # packets of a step
_NS = 1e9


def library_file() -> FilePath:
    """Return where the library lies once it is built; the folder's name follows from its sources."""
    base = FilePath(os.environ.get("XDG_CACHE_HOME") or FilePath.home() / ".cache")
    digest = hashlib.sha256()
    for file in sorted(_sources().rglob("*")):
        if file.suffix in (".rs", ".toml"):
            digest.update(file.read_bytes())
    return base / "ccenv" / "quic" / digest.hexdigest()[:16] / LIBRARY


def _sources() -> FilePath:
    return FilePath(str(resources.files("ccenv.quic.adapters"))) / "quinn"


def build() -> FilePath:
    """Build the library with cargo, without a network; return its file.

    Raises QuicError without cargo or Debian's crates, or if they do not build.
    """
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(FilePath.home() / ".cargo" / "bin"))
    if cargo is None:
        raise QuicError("cargo is not installed; apt install cargo librust-quinn-proto-dev")
    if not FilePath(CRATES).is_dir() or not any(FilePath(CRATES).glob("quinn-proto-0.9*")):
        raise QuicError(f"{CRATES} holds no quinn-proto 0.9; apt install librust-quinn-proto-dev")
    out = library_file()
    with tempfile.TemporaryDirectory(prefix="ccenv-quinn-") as folder:
        crate = shutil.copytree(_sources(), FilePath(folder, "crate"))
        settings = FilePath(folder, "debian.toml")
        settings.write_text(
            f'[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "{CRATES}"\n', encoding="ascii"
        )
        command = [cargo, "build", "--quiet", "--release", "--offline", "--config", str(settings), "--target-dir", folder]
        done = subprocess.run(command, cwd=crate, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S)
        if done.returncode:
            raise QuicError(f"cargo did not build quinn: {done.stderr.strip()}")
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, FilePath(folder, "release", LIBRARY).read_bytes())
    return out


@cache
def _load() -> c.CDLL:
    library = c.CDLL(str(library_file()))
    pointer, number = c.c_void_p, c.c_uint64
    types: dict[str, tuple[Any, list[Any]]] = {
        "new": (
            pointer,
            [c.c_uint32, pointer, number, number, c.c_uint16, c.c_bool, c.c_char_p, c.c_size_t, c.c_char_p, c.c_size_t],
        ),
        "advance": (c.c_int64, [pointer, number, pointer, pointer, c.c_size_t]),
        "deliver": (None, [pointer, pointer, c.c_size_t, number]),
        "packets": (number, [pointer]),
        "free": (None, [pointer]),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, f"ccenv_quinn_{name}")
        function.restype, function.argtypes = result, arguments
    return library


_FUNCTIONS = ("ccenv_sender_bytes", "ccenv_begin", "ccenv_ack")


class _Program(c.Structure):
    _fields_ = [(name, c.c_void_p) for name in _FUNCTIONS]


class QuinnFlow(Flow):
    """A flow of quinn; its event heap runs in Rust."""

    def __init__(self, control: int, settings: FlowSettings) -> None:
        self._library, at = _load(), None
        cert, key = (base64.b64decode(re.sub(rb"-----.*?-----", b"", file.read_bytes())) for file in certificate_files())
        if isinstance(settings.control, CompiledProgram):
            self.log = AckLog(settings.control.library())
            at = c.byref(_Program(*(c.cast(getattr(self.log.library, name), c.c_void_p) for name in _FUNCTIONS)))
        times_ns = (round(_NS * settings.rtt_s), round(_NS * settings.start_s))
        path = (*times_ns, settings.mss_bytes - OVERHEAD_BYTES, settings.bypass)
        self._flow = self._library.ccenv_quinn_new(control, at, *path, cert, len(cert), key, len(key))
        if not self._flow:
            raise QuicError("quinn refuses its settings")
        self._slots, self._sizes = np.zeros(ROOM, np.uint64), np.zeros(ROOM)
        self._places = (self._slots.ctypes.data, self._sizes.ctypes.data)

    @property
    def packets(self) -> int:
        return int(self._library.ccenv_quinn_packets(self._flow))

    def advance(self, until_s: float) -> Sequence[tuple[float, int]]:
        """Run the event heap."""
        if self.log is not None:
            self.log.open()
        n = self._library.ccenv_quinn_advance(self._flow, round(_NS * until_s), *self._places, ROOM)
        if n < 0:
            raise QuicError("quinn closed the connection, or sent too much in one step")
        return list(zip(self._sizes[:n].tolist(), self._slots[:n].tolist(), strict=True))

    def deliver(self, packets: Sequence[int], now_s: float) -> None:
        """Let the receiver take packets."""
        slots = (c.c_uint64 * len(packets))(*packets)
        self._library.ccenv_quinn_deliver(self._flow, slots, len(packets), round(_NS * now_s))

    def __del__(self) -> None:
        if getattr(self, "_flow", None):
            self._library.ccenv_quinn_free(self._flow)


class Quinn(Stack):
    """quinn-proto 0.9: new reno, cubic and BBR; it acknowledges each packet at once."""

    name = "quinn"
    how = "apt install cargo librust-quinn-proto-dev, then ccenv quic build"
    controls = ("reno", "cubic", "bbr")
    pacer = "adapter"
    ack_delay_s = 0.0
    search_runs = 700

    def missing(self) -> str | None:
        """Return in one line why quinn cannot run here."""
        return None if library_file().is_file() else f"quinn is not built; {self.how}"

    def flow(self, settings: FlowSettings) -> QuinnFlow:
        control = settings.control
        return QuinnFlow(self.controls.index(control) if isinstance(control, str) else 0, settings)
