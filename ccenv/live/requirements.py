"""Requirements of live runs and whether this machine meets them, for ``ccenv doctor``, messages and tests. Changes nothing."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ccenv.live.export.bpf import ADVICE, find_compiler
from ccenv.live.scenario import LiveError

BTF = Path("/sys/kernel/btf/vmlinux")
OLDEST_KERNEL = (6, 4)  # links of struct_ops end with the process that holds them
CAP_PERFMON, CAP_BPF = 38, 39
LIBRARY = "libbpf.so.1"
_RELEASE = re.compile(r"(\d+)\.(\d+)")
# The first steps of a worker, tried in a separate process.
_TRY_DEVICES = (
    "import os, sys\n"
    "from ccenv.live.system import spaces\n"
    "from ccenv.live.system.spaces import open_ends\n"
    "try:\n"
    "    os.geteuid() and spaces.become_root_inside()\n"
    "except OSError as error:\n"
    "    sys.exit('user namespaces are off here (%s); run as root' % error.strerror)\n"
    "try:\n"
    "    print(open_ends(sys.argv[1], mtu=1500, burst_packets=1, quick_ack=True, in_space=lambda n: None).kind)\n"
    "except OSError as error:\n"
    "    sys.exit('/dev/net/tun cannot be opened (%s); run as root, or: sudo chmod 0666 /dev/net/tun' % error.strerror)\n"
)
# One thread until a process is in its namespaces: a multi-threaded one cannot make a user namespace.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_TRY_S = 60.0


class Needs(NamedTuple):
    """A requirement: its name, whether it is met, what was found, and advice if it is not met."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def live_needs(bpf: bool = False) -> list[Needs]:
    """Return the requirements of a live run, and with ``bpf`` those of exported programs."""
    needs = [_system()]
    if needs[0].ok:
        needs += [_try_device("auto")]
    return needs + (bpf_needs() if bpf else [])


def bpf_needs() -> list[Needs]:
    """Return the requirements to compile and load an exported program."""
    return [_kernel(), _capabilities(), _library(), _compiler()]


def require_live() -> None:
    """Raise LiveError if this system cannot make live runs at all; devices are tried by the run itself."""
    need = _system()
    if not need.ok:
        raise LiveError(f"{need.found}; {need.advice}")


def require_bpf() -> None:
    """Raise LiveError with the first missing requirement to compile and load an exported program."""
    for need in bpf_needs():
        if not need.ok:
            raise LiveError(f"{need.found}; {need.advice}" if need.advice else need.found)


def _system() -> Needs:
    is_linux = sys.platform == "linux"
    return Needs("live system", is_linux, platform.system(), "" if is_linux else "live runs need Linux")


@cache
def _try_device(device: str) -> Needs:
    """Try to open both ends, in a process that ends with them."""
    done = subprocess.run(
        [sys.executable, "-c", _TRY_DEVICES, device],
        capture_output=True, text=True, errors="replace", timeout=_TRY_S, check=False, env={**os.environ, **ONE_THREAD},
    )  # fmt: skip
    inside = "root" if os.geteuid() == 0 else "a user namespace"
    if done.returncode == 0:
        names = {"tun": "TUN", "packet": "packet sockets (no access to /dev/net/tun)"}
        return Needs("live device", True, f"{names.get(done.stdout.strip(), 'devices')}, as {inside}")
    message = (done.stderr.strip().splitlines() or ["no devices"])[-1]
    reason, _, advice = message.partition("; ")
    return Needs("live device", False, reason, advice)


def release() -> tuple[int, int]:
    match = _RELEASE.match(platform.release())
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _kernel() -> Needs:
    oldest = ".".join(map(str, OLDEST_KERNEL))
    supported = sys.platform == "linux" and release() >= OLDEST_KERNEL and BTF.exists()
    if supported:
        return Needs("BPF kernel", True, f"{platform.release()}, with BTF")
    kernel = f"this kernel is {platform.release()}" + ("" if BTF.exists() else " without BTF")
    return Needs("BPF kernel", False, kernel, f"loading programs needs Linux {oldest} and BTF ({BTF})")


def capabilities() -> int:
    """Return the effective capabilities of this process as bits; 0 if the system has none."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(match[1], 16) if match else 0


def in_first_namespace() -> bool:
    """Tell whether this process is in the initial user namespace, the only one whose capabilities count for BPF."""
    try:
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]
    except OSError:
        return False


def _capabilities() -> Needs:
    capability_bits = capabilities()
    missing = [name for name, bit in (("CAP_BPF", CAP_BPF), ("CAP_PERFMON", CAP_PERFMON)) if not capability_bits >> bit & 1]
    if not missing and in_first_namespace():
        return Needs("BPF privileges", True, "CAP_BPF and CAP_PERFMON")
    reason = f"{' and '.join(missing)} not held" if missing else "in a user namespace, where capabilities do not count for BPF"
    return Needs("BPF privileges", False, reason, "run as root, or let root load: sudo ccenv live load PROGRAM")


def _library() -> Needs:
    import ctypes

    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return Needs("BPF loader", False, f"no {LIBRARY}", "apt install libbpf1")
    return Needs("BPF loader", True, LIBRARY)


def _compiler() -> Needs:
    compiler = find_compiler()
    if compiler is None:
        return Needs("BPF compiler", False, "no compiler for BPF", ADVICE)
    description = f"clang {compiler.version}"
    return Needs(
        "BPF compiler", True, description if compiler.name == "clang" else f"{description} of the package {compiler.name}"
    )


class Refused(Exception):
    """Raised by a worker for what this machine does not allow, with a message for the user and more fields of the answer."""

    def __init__(self, message: str, **fields: str | bool) -> None:
        super().__init__(message)
        self.fields = fields
