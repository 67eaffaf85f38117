"""A kernel in virtual time, as a run needs it, and the compilation of its programs."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ccenv.base.files import make_folder, write_atomic
from ccenv.base.kernels.cache import cache_folder
from ccenv.live.export.window import KernelPolicy
from ccenv.live.requirements import Needs
from ccenv.live.scenario import LiveError

INSTALL = "apt install user-mode-linux gcc libc6-dev (Debian 12, x86-64)"
SOURCES = Path(__file__).parent
_COMPILED = {
    "clock.c": ("-shared", "-fPIC"),
    "agent.c": ("-static",),
    "ask.c": ("-shared", "-fPIC"),
    "emulated.c": ("-static",),
}
_LIBRARIES = {"emulated.c": ("-lbpf", "-lelf", "-lz")}


class Guest(NamedTuple):
    """A kernel in virtual time."""

    controls: list[str]  # the congestion control of each flow
    files: dict[str, bytes]  # of its initramfs, besides /run.txt
    outside: dict[str, bytes]  # files of its folder
    library: str  # C of what runs in its process and speaks to the emulator of the network
    cpu_s: tuple[float, float]  # limit of its CPU time: a constant, and per Mbit that the link could carry
    memory_mib: int  # without what is in flight
    release: str  # of the kernel
    console: str  # file of its folder that has its messages
    command: Callable[[int], list[str]]  # by its memory in MiB; the first one is the program
    policies: Mapping[int, KernelPolicy] = MappingProxyType({})  # by flow, what decides outside


def find_compiler() -> Needs:
    compiler = shutil.which("cc")
    return Needs("virtual compiler", compiler is not None, compiler or "no C compiler", "" if compiler else INSTALL)


def compile_guest(name: str, advice: str = INSTALL) -> Path:
    """Compile a file of this folder once; return what the cache of kernels keeps."""
    if not find_compiler().ok:
        raise LiveError(f"virtual: no C compiler; {advice}")
    source = b"".join((SOURCES / one).read_bytes() for one in (name, "agent.c", "shared.h"))  # and what is included
    compiler, flags = find_compiler().found, ("-O2", *_COMPILED[name])
    digest = hashlib.sha256(source + repr((compiler, flags)).encode()).hexdigest()[:16]
    made = cache_folder() / "virtual" / f"{name.removesuffix('.c')}-{digest}"
    if not made.exists():
        make_folder(made.parent)
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            target = Path(folder) / "out"
            done = subprocess.run(
                [compiler, *flags, "-o", str(target), str(SOURCES / name), "-ldl", *_LIBRARIES.get(name, ())],
                capture_output=True, text=True, errors="replace", check=False,
            )  # fmt: skip
            if done.returncode:
                error = (done.stderr.strip().splitlines() or ["no message"])[0]
                raise LiveError(f"virtual: {compiler} cannot compile {name} ({error}); {advice}")
            write_atomic(made, target.read_bytes(), mode=0o777)
    return made
