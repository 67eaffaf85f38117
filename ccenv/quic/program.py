"""Exported programs compiled for this machine, behind the two functions of ``host.h``; what they saw and did, and their twin."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.programs import Program
from ccenv.agents.sender import PolicySender
from ccenv.live.export.bpf import COMPILED, USER, ExportError, load_exported
from ccenv.live.export.portable import export_portable
from ccenv.live.export.twin import ACK_DTYPE, STATE_DTYPE, UNBOUNDED, Twin

STEPS_PER_RTT = 8
RECORDED = ("-Dccenv_begin=ccenv_begin_plain", "-Dccenv_ack=ccenv_ack_plain")
OPTIONS = (*RECORDED, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


@dataclass(frozen=True)
class CompiledProgram:
    """A program with its assumptions."""

    program: Program
    jitter_s: float  # D that it assumes
    rtt_s: float | None = None  # Rm if known; None: the smallest RTT measured
    chooser: str | PolicySender | None = None  # of a shield, see `export_portable`

    @property
    def name(self) -> str:
        return self.program.name

    def text(self, *adapters: str) -> str:
        """Return its C, and behind it files of ``ccenv.quic.adapters``."""
        core = export_portable(self.program, rtt_s=self.rtt_s, jitter_s=self.jitter_s, chooser=self.chooser)
        return core + "".join(resources.files("ccenv.quic.adapters").joinpath(name).read_text("ascii") for name in adapters)

    def library(self, *adapters: str) -> ctypes.CDLL:
        """Return its C as a library of this process, which keeps each ACK in an :class:`AckLog`."""
        return compile_library(self.text("record.c.in", *adapters))

    def twin(self) -> Twin:
        """Return its integer reference."""
        return Twin(self.program, rtt_s=self.rtt_s, jitter_s=self.jitter_s, chooser=self.chooser)

    def difference(self, acks: np.ndarray, states: np.ndarray) -> str | None:
        """Compute everything again with the integer reference; return the first difference."""
        expected = self.twin().run(acks)
        for name in STATE_DTYPE.names or ():
            rows = np.flatnonzero(expected[name] != states[name])
            if len(rows):
                row = int(rows[0])
                return f"{name} differs first at ACK {row}: {states[name][row]} in C, {expected[name][row]} in the twin"
        return None

    def bounds(self, states: np.ndarray, rtt_us: np.ndarray, link_rate_Bps: float, mss_bytes: float) -> dict[str, np.ndarray]:
        """Return C_L and C_U after each ACK as shares of the link's rate; ``rtt_us`` is the smallest RTT by then."""
        unit = (1 << self.twin().constants.fraction_bits) * link_rate_Bps / mss_bytes * rtt_us * 1e-6 / STEPS_PER_RTT
        upper = np.where(states["C_U"] == UNBOUNDED, np.inf, states["C_U"] / unit)
        return {"C_L": states["C_L"] / unit, "C_U": upper}


def load_program(spec: str, chooser: str | None = None) -> tuple[Program, str | PolicySender | None]:
    """Return a registered program or a ``.json`` file, and the chooser of a shield: by default a policy is compiled in.

    Raises:
        ExportError, UnknownNameError: as :func:`ccenv.live.export.bpf.load_exported`.
    """
    exported = load_exported(spec, chooser)
    if exported.chooser == USER and chooser is None:
        exported = load_exported(spec, COMPILED)
    return exported.program, exported.chooser


@cache
def compile_library(text: str) -> ctypes.CDLL:
    """Compile exported C; leaves no file. Raises ExportError without a C compiler, or if it refuses the text."""
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler is None:
        raise ExportError("no C compiler on this machine; apt install gcc")
    with tempfile.TemporaryDirectory(prefix="ccenv-quic-") as folder:
        source, library = FilePath(folder, "program.c"), FilePath(folder, f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.so")
        source.write_text(text, encoding="ascii")
        done = subprocess.run(
            [compiler, *OPTIONS, "-o", str(library), str(source)], capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            raise ExportError(f"{compiler} refused the text: {done.stderr.strip()}")
        loaded = ctypes.CDLL(str(library))
    loaded.ccenv_sender_bytes.restype = ctypes.c_uint64
    return loaded


class AckLog(ctypes.Structure):
    """What the programs of a library saw and decided while this log was open."""

    _fields_ = [("count", ctypes.c_uint64), ("room", ctypes.c_uint64), ("acks", ctypes.c_void_p), ("states", ctypes.c_void_p)]

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__()
        self.library = library

    def open(self) -> None:
        """Let what follows be kept here."""
        self.library.ccenv_record(ctypes.byref(self))

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ACKs (ACK_DTYPE) and the states after them (STATE_DTYPE)."""
        return self._rows(self.acks, ACK_DTYPE), self._rows(self.states, STATE_DTYPE)

    def _rows(self, place: int | None, dtype: np.dtype[Any]) -> np.ndarray:
        return np.ndarray(self.count, dtype, ctypes.string_at(place, self.count * dtype.itemsize) if place else b"")

    def __del__(self) -> None:
        self.library.ccenv_forget(ctypes.byref(self))
