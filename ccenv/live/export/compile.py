"""Find a compiler for BPF, and use it: only objects need one, C does not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import NamedTuple

from ccenv.live.export.bpf import ExportError

OLDEST_CLANG = 12
ADVICE = f"apt install clang (version {OLDEST_CLANG} or newer), or pip install ziglang"
_VERSION = re.compile(r"clang version (\d+)")
_OPTIONS = ("-O2", "-g", "-Wall", "-Werror")
_CLANG, _ZIG = "clang", "ziglang"
_TARGETS = {_CLANG: "bpf", _ZIG: f"bpf{'el' if sys.byteorder == 'little' else 'eb'}-freestanding-none"}
_TIME_LIMIT_S = 120.0


class Compiler(NamedTuple):
    """A clang with the BPF target.

    Attributes:
        name: ``clang``, or ``ziglang``: the Python package that holds one.
        command: how it is called.
        version: of clang, the major one.
    """

    name: str
    command: tuple[str, ...]
    version: int


def find_compiler() -> Compiler | None:
    """Return the clang on PATH if it is new enough and has the BPF target, else that of the package ziglang, else None."""
    path = shutil.which("clang")
    if path is not None:
        version = _version((path,))
        if version >= OLDEST_CLANG and "bpf " in _said([path, "--print-targets"]):
            return Compiler(_CLANG, (path,), version)
    if find_spec("ziglang") is None:
        return None
    command = (sys.executable, "-m", "ziglang", "cc")
    version = _version(command)
    return Compiler(_ZIG, command, version) if version >= OLDEST_CLANG else None


def _version(command: tuple[str, ...]) -> int:
    found = _VERSION.search(_said([*command, "--version"]))
    return int(found[1]) if found else 0


def _said(command: list[str]) -> str:
    try:
        return _run(command).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def compile_bpf(text: str, record: bool = False) -> bytes:
    """Compile what ``export_bpf`` returned; return the BPF object with its type information. Leaves no file.

    Args:
        text: the C.
        record: let it record what it sees and decides at each ACK, for ``ccenv.live``.

    Raises:
        ExportError: if there is no compiler, or it refuses the text.
    """
    compiler = find_compiler()
    if compiler is None:
        raise ExportError(f"an object needs a compiler for BPF; {ADVICE}, or write C: -o NAME.c")
    # Not all can write to their standard output; what else they keep lies in this folder, too.
    with tempfile.TemporaryDirectory(prefix="ccenv-bpf-") as folder:
        made = FilePath(folder, "program.o")
        command = [*compiler.command, "-target", _TARGETS[compiler.name], *_OPTIONS, *(["-DRECORD"] if record else [])]
        try:
            done = _run([*command, "-x", "c", "-c", "-", "-o", str(made)], text.encode("ascii"), folder)
            content = made.read_bytes() if done.returncode == 0 else b""
        except (OSError, subprocess.SubprocessError) as error:
            raise ExportError(f"{compiler.name} did not compile: {error}") from None
    if done.returncode != 0:
        raise ExportError(f"{compiler.name} refused the text: {done.stderr.decode(errors='replace').strip()}")
    return content


def _run(command: list[str], given: bytes = b"", cache: str = "") -> subprocess.CompletedProcess[bytes]:
    kept = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache} if cache else {}
    return subprocess.run(
        command, input=given, capture_output=True, timeout=_TIME_LIMIT_S, check=False, env={**os.environ, **kept}
    )
