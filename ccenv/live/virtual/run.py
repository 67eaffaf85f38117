"""Runs of a scenario on user-mode Linux in virtual time: requirements, the guest's programs and files, the run.

Exported programs run in an emulated computer instead (``ccenv.live.virtual.emulated``).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from ccenv.base.errors import CcenvError
from ccenv.base.files import LOCK, locked, write_atomic
from ccenv.base.interrupts import stopping
from ccenv.live.emulator.build import fastest_Bps, lead_s, make_memory, most_in_flight_bytes, socket_buffer_bytes
from ccenv.live.emulator.layout import STAMPED
from ccenv.live.emulator.loop import serve
from ccenv.live.export.window import TALK_DTYPE
from ccenv.live.requirements import Needs
from ccenv.live.result import LiveResult
from ccenv.live.run import as_scenario, run_arrays
from ccenv.live.scenario import LiveError, LiveScenario, kernel_cca
from ccenv.live.system.spaces import ETHERNET_BYTES, SO_SNDBUFFORCE, enlarge
from ccenv.live.virtual.emulated import make_computer
from ccenv.live.virtual.guest import INSTALL, Guest, compile_guest, find_compiler
from ccenv.simulation.result import with_phase_jitter, with_start_phases
from ccenv.simulation.scenario import PHASE_JITTER

KERNEL, RELEASES, MODULES = "linux.uml", ("6.1.",), Path("/usr/lib/uml/modules")
BUILT_IN = ("reno", "cubic")
CLOCK_NS, TRAP_NS = 200, 1000  # what a reading of the clock and a trap cost the guest, on average
CPU_S, CPU_S_PER_MBIT = 30.0, 0.05  # limit of a guest's CPU time: a constant, and per Mbit that the link could carry
WALL, LEAST_WALL_S = 20.0, 600.0  # limit of a run's time: in limits of its CPU time, and at least
MEMORY_MIB = 192
PREFIX, YOUNG_S = "ccenv-", 60.0  # of the folders of runs, which may be in memory
SOCKET_BYTES = 64 << 20
NO_PERSONALITY, NEVER_DUE = 81, 82  # exit codes of clock.c
ASK_PERSONALITY = 0xFFFFFFFF  # sets nothing
FIXED_ADDRESSES = (
    "address randomisation cannot be switched off here; allow the system call personality (a container's seccomp profile)"
)
_OPTIONS = (
    "quiet", "con=null", "con0=null,fd:1", "console=tty0", "norandmaps", "lpj=4000000",
    "initcall_blacklist=raid6_select_algo,calibrate_xor_blocks",
    *(f"vec{end}:transport=fd,fd={200 + end},mac=02:cc:0e:00:00:01,depth=64" for end in range(2)),
)  # fmt: skip


def virtual_needs() -> list[Needs]:
    """Return the requirements of virtual runs."""
    return [_find_kernel(), find_compiler(), _find_folder()]


def controls() -> tuple[str, ...]:
    """Return the congestion controls of the guest's kernel, without those that it does not have here."""
    found = MODULES.glob(f"{_find_kernel().found.removeprefix('user-mode Linux ')}/kernel/net/ipv4/tcp_*.ko")
    return (*BUILT_IN, *sorted(file.stem.removeprefix("tcp_") for file in found if not file.stem.endswith("_diag")))


@cache
def _find_kernel() -> Needs:
    name = "virtual kernel"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return Needs(name, False, f"{platform.system()} on {platform.machine()}", "virtual runs need Linux on x86-64")
    program = shutil.which(KERNEL)
    if program is None:
        return Needs(name, False, "no user-mode Linux", INSTALL)
    try:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return Needs(name, False, f"{program} does not start", INSTALL)
    if not version.startswith(RELEASES):
        return Needs(name, False, f"user-mode Linux {version[:40]!r}", f"virtual runs are held to 6.1: {INSTALL}")
    return Needs(name, True, f"user-mode Linux {version}")


def _find_folder() -> Needs:
    for folder in (os.environ.get("TMPDIR"), "/dev/shm", tempfile.gettempdir()):  # the guest's memory is a file there
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK):
            runs = not os.statvfs(folder).f_flag & os.ST_NOEXEC
            if runs or folder == os.environ.get("TMPDIR"):
                advice = "" if runs else "set TMPDIR to a folder whose file system allows programs (no noexec)"
                return Needs("virtual memory", runs, folder if runs else f"{folder} is mounted noexec", advice)
    return Needs("virtual memory", False, "no folder that may hold programs", "set TMPDIR to one (no noexec)")


def require_virtual() -> None:
    """Raise LiveError with the first missing requirement."""
    for need in virtual_needs():
        if not need.ok:
            raise LiveError(f"virtual: {need.found}; {need.advice}")


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Return an initramfs (cpio, newc) of programs and files by name, with /dev/console; equal for equal files."""
    entries = [("dev", 0o40755, b"", (0, 0)), ("dev/console", 0o20600, b"", (5, 1))]
    entries += [(name, 0o100755, content, (0, 0)) for name, content in sorted(files.items())]
    out = bytearray()
    for number, (name, mode, content, device) in enumerate([*entries, ("TRAILER!!!", 0, b"", (0, 0))], 1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return bytes(out)


def describe_run(scenario: LiveScenario, names: Sequence[str]) -> str:
    """Return the text of /run.txt (agent.c): times in nanoseconds; a size of -1 and a stop of 2^62 have no end.

    ``names`` are the flows' congestion controls.
    """
    head = (
        round(scenario.duration_s * 1e9), round(scenario.log_s * 1e9), round(lead_s(scenario) * 1e9), len(scenario.flows),
        socket_buffer_bytes(scenario), int(scenario.quick_ack), scenario.packets_per_burst,
        int(scenario.mss_bytes),
    )  # fmt: skip
    lines = [" ".join(map(str, head))]
    flows = make_memory(scenario, -1, -1, 0, STAMPED).flows
    for name, spec, flow in zip(names, scenario.flows, flows, strict=True):
        stop = round(spec.stop_s * 1e9) if np.isfinite(spec.stop_s) else 1 << 62
        size = int(flow["size_bytes"]) if np.isfinite(flow["size_bytes"]) else -1
        lines.append(f"{name} {round(spec.start_s * 1e9)} {stop} {size}")
    return "\n".join(lines) + "\n"


def _control(index: int, sender: str) -> str:
    name = kernel_cca(sender)
    if name is None:
        raise LiveError(f"virtual: flow {index}: {sender} is no sender of the kernel, kernel:NAME")
    require_controls([name], f"flow {index}: ")
    return name


def require_controls(names: Iterable[str], where: str = "") -> None:
    """Raise LiveError with the first requirement or congestion control that is missing."""
    require_virtual()
    for name in names:
        if name not in controls():
            raise LiveError(f"virtual: {where}the kernel has no congestion control {name!r}; it has {', '.join(controls())}")


def run_virtual(
    scenario: LiveScenario | Mapping[str, Any] | str | os.PathLike[str],
    *,
    duration_s: float | None = None,
    seed: int | None = None,
    cpu_s: float | None = None,
    wall_s: float | None = None,
    phases: bool = True,
    kernel: str | None = None,
) -> LiveResult:
    """Run an experiment on user-mode Linux in virtual time: equal arguments give equal packets.

    Args:
        scenario: as of ``run_live``; with senders that are not the kernel's it runs in an emulated computer.
        duration_s: instead of the scenario's.
        seed: of the emulator, of the guest's random numbers and of what its traps cost, instead of the scenario's.
        cpu_s: limit of the guest's CPU time.
        wall_s: limit of the run's time, for a guest that is stopped or waits; by default WALL times ``cpu_s``, at least
            LEAST_WALL_S.
        phases: flows start at a random phase, and packets of several flows have the ``phase_jitter`` of the packet engine; else
            a run of several flows depends on the lattice of service times, and seeds hardly differ.
        kernel: folder with ``boot`` and ``lib/modules`` of the emulated computer's kernel; by default ``/``.

    Raises:
        InputError: if the scenario is not valid.
        LiveError: for a missing requirement, or a guest that ended early.
    """
    scenario = as_scenario(scenario, duration_s, seed)
    if phases:
        scenario = with_phase_jitter(with_start_phases(scenario), PHASE_JITTER)
    if any(kernel_cca(flow.sender) is None for flow in scenario.flows):
        guest_kind = make_computer(scenario, kernel)
    else:
        guest_kind = _user_mode(scenario)
    files = guest_kind.files | {"run.txt": describe_run(scenario, guest_kind.controls).encode()}
    if cpu_s is None:
        megabits = scenario.duration_s * max(link.rate_Bps for link in scenario.links) / 125_000
        cpu_s = guest_kind.cpu_s[0] + guest_kind.cpu_s[1] * megabits
    wall_s = max(LEAST_WALL_S, WALL * cpu_s) if wall_s is None else wall_s
    begin, own = time.perf_counter(), time.process_time()
    with contextlib.ExitStack() as stack:
        parent = _find_folder().found
        _remove_abandoned(Path(parent))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent, prefix=PREFIX)))
        stack.enter_context(locked(folder, "virtual run"))
        (near, near_guest), (far, far_guest) = stack.enter_context(_pair()), stack.enter_context(_pair())
        (question, question_guest), (answer_guest, answer) = stack.enter_context(_pipe()), stack.enter_context(_pipe())
        near.setblocking(False)
        far.setblocking(False)
        memory = make_memory(scenario, near.fileno(), far.fileno(), ETHERNET_BYTES, STAMPED)
        memory.run["base_ns"] = 1 << 62  # until the agent's hello
        placed = {"initrd": pack_files(files)} | guest_kind.outside
        for name, content in placed.items():
            write_atomic(folder / name, content)
        talk = np.memmap(folder / "shared", TALK_DTYPE, "r+", shape=1) if guest_kind.policies else np.zeros(1, TALK_DTYPE)
        guest_ends = (near_guest, far_guest, question_guest, answer_guest)
        guest = _start_guest(folder, guest_ends, scenario, cpu_s, guest_kind)
        threading.Thread(target=_end_all, args=(guest.pid,), daemon=True).start()
        watch = threading.Timer(wall_s, _kill, (guest.pid,))
        watch.daemon = True
        watch.start()
        try:
            for end in guest_ends:
                end.close()
            with stopping(partial(_abandon, guest.pid, folder)):  # Ctrl-C: the emulator's kernel would outlast what is left of us
                while flow := serve(memory, question.fileno(), answer.fileno()):
                    guest_kind.policies[flow - 1].answer(talk)
                    with contextlib.suppress(BrokenPipeError):  # the guest was ended meanwhile
                        answer.write(bytes(24))
            ended = memory.run["log_rows"][0] >= len(memory.flow_log)
            if not ended:
                answer.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    guest.wait(5)
        finally:
            watch.cancel()
            _kill(guest.pid)
            _, status, usage = _reap(guest)
        if not ended:
            late = time.perf_counter() - begin >= wall_s
            told = f"the guest reached its limit of {wall_s:g} s and was ended; -s wall_s=N allows more"
            raise LiveError(f"virtual: {told if late else _why(status, folder / guest_kind.console, cpu_s, _cpu_s(usage))}")
    used_s = _cpu_s(usage) + time.process_time() - own
    header = {
        "device": "virtual", "privileges": "none", "realtime": False, "kernel": guest_kind.release,
        "device_drops": 0, "busy_share": used_s / scenario.duration_s, "steal_s": None,
        "wall_s": time.perf_counter() - begin, "cpu_s": used_s, "guest_sha256": _hash_guest(guest_kind, placed),
    }  # fmt: skip
    return LiveResult.of(scenario, header, run_arrays(memory), [None] * len(scenario.flows))


def _user_mode(scenario: LiveScenario) -> Guest:
    require_virtual()
    release = _find_kernel().found.split()[-1]
    controls = [_control(index, flow.sender) for index, flow in enumerate(scenario.flows)]
    modules = MODULES / release / "kernel/net/ipv4"
    names = sorted({f"tcp_{name}.ko" for name in controls})
    names += ["tcp_vegas.ko"] if "tcp_yeah.ko" in names else []
    files = {name: (modules / name).read_bytes() for name in names if (modules / name).exists()}
    files |= {"init": compile_guest("agent.c").read_bytes()}
    return Guest(
        controls, files, {}, "clock.c", (CPU_S, CPU_S_PER_MBIT), MEMORY_MIB, release, "console",
        lambda memory_mib: [KERNEL, f"mem={memory_mib}M", "initrd=initrd", "uml_dir=./", "umid=guest", *_OPTIONS],
    )  # fmt: skip


@contextlib.contextmanager
def _pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        for end in ends:
            enlarge(end, socket.SO_SNDBUF, SO_SNDBUFFORCE, SOCKET_BYTES)
        yield ends
    finally:
        for end in ends:
            end.close()


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    ends = os.pipe()
    with open(ends[0], "rb", buffering=0) as out, open(ends[1], "wb", buffering=0) as into:
        yield out, into


def _times_ahead(scenario: LiveScenario) -> tuple[int, int]:
    """Return the least nanoseconds from when a data packet, and an ACK, is sent until it can be due at the other end."""
    service_s = scenario.mss_bytes / fastest_Bps(scenario)
    back_s = min(scenario.return_s(flow) if spec.receiver.ack_every == 1 else 0 for flow, spec in enumerate(scenario.flows))
    return int(service_s * 1e9), int(back_s * 1e9)


def _start_guest(
    folder: Path, ends: tuple[Any, ...], scenario: LiveScenario, cpu_s: float, kind: Guest
) -> subprocess.Popen[bytes]:
    """Start the kernel in a session of its own, its console a file, its environment the same for all users."""
    if ctypes.CDLL(None).personality(ctypes.c_ulong(ASK_PERSONALITY)) < 0:  # clock.c would take -1 for an answer
        raise LiveError(f"virtual: {FIXED_ADDRESSES}")
    numbers = tuple(end.fileno() for end in ends)
    told = ",".join(
        [*(f"{number:4d}" for number in numbers), *map(str, (CLOCK_NS, TRAP_NS, *_times_ahead(scenario), scenario.seed))]
    )
    memory_mib = kind.memory_mib + int(12 * most_in_flight_bytes(scenario)) // (1 << 20)
    # The command line is one source of the guest's random numbers: no name of a folder in it.
    command = kind.command(memory_mib)
    environment = {"LD_PRELOAD": str(compile_guest(kind.library)), "CCENV_VIRTUAL": told, "TMPDIR": ".", "HOME": "/"}
    with open(folder / "console", "wb") as console:
        guest = subprocess.Popen(
            command, executable=shutil.which(command[0]), stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            cwd=folder, env=environment, pass_fds=numbers, start_new_session=True,
        )  # fmt: skip
    limit = max(1, round(cpu_s))
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(guest.pid, resource.RLIMIT_CPU, (limit, limit))
    return guest


def _hash_guest(kind: Guest, placed: Mapping[str, bytes]) -> str:
    """Return a hash of a guest's programs and files: its kernel or emulator, what it loads, what runs in its process."""
    program = shutil.which(kind.command(kind.memory_mib)[0])
    programs = [Path(program or "").read_bytes(), compile_guest(kind.library).read_bytes()]
    parts = [*programs, *(placed[name] for name in sorted(placed))]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _kill(pid: int) -> None:
    """End all processes of a guest."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of runs that were killed: nobody holds their lock, and they are older than YOUNG_S."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, CcenvError):
            if time.time() - (folder / LOCK).stat().st_mtime > YOUNG_S:
                with locked(folder, "virtual run"):
                    shutil.rmtree(folder)


def _abandon(pid: int, folder: Path) -> None:
    _kill(pid)
    shutil.rmtree(folder, ignore_errors=True)


def _end_all(pid: int) -> None:
    """Wait until the kernel's process has ended, and end the guest's others: they hold the pipes that the emulator reads."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        _kill(pid)


def _reap(guest: subprocess.Popen[bytes]) -> tuple[int, int, resource.struct_rusage]:
    if guest.returncode is not None:
        return guest.pid, guest.returncode, resource.getrusage(resource.RUSAGE_CHILDREN)
    pid, status, usage = os.wait4(guest.pid, 0)
    guest.returncode = os.waitstatus_to_exitcode(status)
    return pid, guest.returncode, usage


def _cpu_s(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _why(code: int, console: Path, cpu_s: float, used_s: float) -> str:
    """Return why a guest ended early, from its exit code, the last line of its console and the CPU time it used."""
    if code == -signal.SIGKILL and used_s < cpu_s - 1.0:  # the limit ends no guest before
        return f"the guest was killed after {used_s:.1f} s of CPU time, by another process or for want of memory"
    if code in (-signal.SIGKILL, -signal.SIGXCPU):
        return f"the guest reached its limit of {cpu_s:g} s of CPU time and was ended; -s cpu_s=N allows more"
    if code == NO_PERSONALITY:
        return FIXED_ADDRESSES
    if code == NEVER_DUE:
        return "the guest waits for nothing: no timer and no packet is due"
    lines = [line for line in console.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("ccenv: ", "Kernel panic"))] or lines or ["no message"]
    return f"the guest ended early (code {code}): {told[-1].removeprefix('ccenv: ')[:200]}"
