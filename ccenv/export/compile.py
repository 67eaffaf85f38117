"""Find a compiler for BPF, and use it: only objects need one, C does not."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import NamedTuple

from ccenv.export.bpf import ExportError

OLDEST_CLANG = 12
ADVICE = f"apt install clang (version {OLDEST_CLANG} or newer)"
_VERSION = re.compile(r"clang version (\d+)")
_OPTIONS = ("-O2", "-g", "-Wall", "-Werror", "-target", "bpf")
_TIME_LIMIT_S = 120.0


class Compiler(NamedTuple):
    """A clang with the BPF target: its path and major version."""

    path: str
    version: int


def find_compiler() -> Compiler | None:
    """Return the clang on PATH if it is new enough and has the BPF target, else None."""
    path = shutil.which("clang")
    if path is None:
        return None
    try:
        version = _VERSION.search(_run([path, "--version"]).stdout.decode(errors="replace"))
        targets = _run([path, "--print-targets"]).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return None
    if version is None or int(version[1]) < OLDEST_CLANG or "bpf " not in targets:
        return None
    return Compiler(path, int(version[1]))


def compile_bpf(text: str, record: bool = False) -> bytes:
    """Compile what ``export_bpf`` returned; return the BPF object with its type information. Writes no file.

    Args:
        text: the C.
        record: let it record what it sees and decides at each ACK, for ``ccenv.live``.

    Raises:
        ExportError: if there is no compiler, or it refuses the text.
    """
    compiler = find_compiler()
    if compiler is None:
        raise ExportError(f"an object needs a compiler for BPF; {ADVICE}, or write C: -o NAME.c")
    command = [compiler.path, *_OPTIONS, *(["-DRECORD"] if record else []), "-x", "c", "-c", "-", "-o", "-"]
    try:
        done = _run(command, text.encode("ascii"))
    except (OSError, subprocess.SubprocessError) as error:
        raise ExportError(f"{compiler.path} did not compile: {error}") from None
    if done.returncode != 0:
        raise ExportError(f"{compiler.path} refused the text: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _run(command: list[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=given, capture_output=True, timeout=_TIME_LIMIT_S, check=False)
