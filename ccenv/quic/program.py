"""Exported programs compiled for this machine, behind the two functions of ``host.h``; what they saw and did, and their twin."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.programs import Program
from ccenv.agents.sender import PolicySender
from ccenv.live.export.bpf import COMPILED, USER, ExportError, load_exported
from ccenv.live.export.portable import export_portable
from ccenv.live.export.twin import ACK_DTYPE, STATE_DTYPE, UNBOUNDED, Twin

STEPS_PER_RTT = 8
OPTIONS = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


@dataclass(frozen=True)
class CompiledProgram:
    """A program with its assumptions.

    Attributes:
        program: the program, or a contract.
        jitter_s: D that it assumes.
        rtt_s: Rm if known; None: the smallest RTT measured.
        chooser: of a contract, see ``export_portable``.
    """

    program: Program
    jitter_s: float
    rtt_s: float | None = None
    chooser: str | PolicySender | None = None

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    def library(self) -> ctypes.CDLL:
        """Return its C as a library of this process."""
        return compile_library(export_portable(self.program, rtt_s=self.rtt_s, jitter_s=self.jitter_s, chooser=self.chooser))

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


def load_program(spec: str) -> tuple[Program, str | PolicySender | None]:
    """Return a registered program or a ``.json`` file, and the chooser of a contract: a policy is compiled in.

    Raises:
        ExportError, UnknownNameError: as :func:`ccenv.live.export.bpf.load_exported`.
    """
    exported = load_exported(spec)
    if exported.chooser == USER:
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


class ProgramLog:
    """A program at work: takes ACKs, returns its state, and keeps both."""

    def __init__(self, compiled: CompiledProgram) -> None:
        """Begin before the first ACK, which starts the flow."""
        self.library = compiled.library()
        self._sender = ctypes.create_string_buffer(self.library.ccenv_sender_bytes())
        self._acks, self._states = np.zeros(1024, ACK_DTYPE), np.zeros(1024, STATE_DTYPE)
        self.count = 0

    def take(self, now_us: int, rtt_us: int, delivered: int, lost: int, sent: int, in_flight: int, mss: int) -> tuple[int, int]:
        """Take an ACK; return the window in packets and the pacing rate in bytes/s."""
        row = self.count
        if row == len(self._acks):
            self._acks, self._states = (np.concatenate([a, np.zeros_like(a)]) for a in (self._acks, self._states))
        self._acks[row] = (now_us, rtt_us, delivered, lost, sent, max(0, in_flight), 0, 0, mss, 0)
        function: Any = self.library.ccenv_ack if row else self.library.ccenv_begin
        function(self._sender, *(ctypes.c_void_p(a.ctypes.data + row * a.itemsize) for a in (self._acks, self._states)))
        self.count += 1
        state = self._states[row]
        return int(state["cwnd"]), int(state["pacing_rate_Bps"])

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ACKs and the states after them."""
        return self._acks[: self.count], self._states[: self.count]
