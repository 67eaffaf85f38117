"""A separate process for foreign submissions, with caps on memory and CPU time, and records of stages that fail.

The cap on events is the packet engine's own. CPU time counts between finished parts, over the worker and its children; memory is
limited by the system per process, so that allocations fail in the worker. A failed stage is stored with its reason, and the queue
continues.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, InputError
from ccenv.base.provenance import machine
from ccenv.base.workers import worker_context
from ccenv.benchmarks.cells.packet import cells_code
from ccenv.leaderboard.evaluate.stages import Content, Job, Progress, Stage, Work
from ccenv.leaderboard.store.database import BoardStore, Stored

_POLL_S = 0.2
_MOST_GIB = 1_048_576


@dataclass(frozen=True)
class Limits:
    """Resource limits of a part of a stage.

    Attributes:
        cpu_s: CPU seconds per finished part (a task of the runner) and worker, > 0.
        memory_bytes: address space of each process beyond what it has when it starts, >= 256 MiB.
    """

    cpu_s: float = 900.0
    memory_bytes: int = 8 << 30

    def __post_init__(self) -> None:
        """Refuse invalid limits."""
        if not 0 < self.cpu_s <= 1e7:
            raise InputError(f"cell_cpu_s is {self.cpu_s:g}; it must be above 0 and at most 10000000 seconds")
        if not 256 << 20 <= self.memory_bytes <= _MOST_GIB << 30:
            raise InputError(f"cell_memory is {self.memory_bytes / 2**30:g} GiB; it must be 0.25 to {_MOST_GIB}")


def make_limits(cell_cpu_s: float, cell_memory_gib: float) -> Limits:
    """Return the limits of command line options. Raises InputError for invalid ones."""
    if not cell_memory_gib <= _MOST_GIB:  # NaN, too
        raise InputError(f"cell_memory is {cell_memory_gib:g} GiB; it must be 0.25 to {_MOST_GIB}")
    return Limits(cell_cpu_s, int(cell_memory_gib * 2**30))


@dataclass(frozen=True)
class Failed:
    """The reason why a stage failed."""

    reason: str


class Worker:
    """A process that does the work of stages one after the other; it is restarted after it was killed.

    The runner may use several ``processes``, each with the CPU time of a part.
    """

    def __init__(self, limits: Limits, processes: int = 1) -> None:
        self._limits = limits
        self._processes = processes
        self._process: Any = None
        self._pipe: Any = None
        self._alive: Any = None

    def __enter__(self) -> Worker:
        """Return itself; the process starts with the first work."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process and all that it started."""
        self.end()

    def run(self, work: Work, progress: Progress) -> Content | Failed:
        """Do the work of a stage; return its record, or why it failed."""
        if self._process is None:
            self._start()
        cap_s = self._limits.cpu_s * self._processes + work.cpu_s
        try:
            self._pipe.send(work)
            begun_s = used_cpu_s(self._process.pid)
            while True:
                if self._pipe.poll(_POLL_S):
                    message, *values = self._pipe.recv()
                    if message == "done":
                        content: Content = values[0]
                        return content
                    if message == "failed":
                        return Failed(values[0])
                    begun_s = used_cpu_s(self._process.pid)
                    progress(*values)
                elif used_cpu_s(self._process.pid) - begun_s > cap_s:
                    self.end()
                    return Failed(f"more than {cap_s:g} s of CPU time for one part: ended")
        except (EOFError, ConnectionError):
            return Failed(self._describe_death())

    def end(self) -> None:
        """End the process and all that it started."""
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        for end in (self._pipe, self._alive):
            end.close()
        self._process = None

    def _start(self) -> None:
        context = worker_context(__name__)
        self._pipe, theirs = context.Pipe()
        reading, self._alive = context.Pipe(duplex=False)
        self._process = context.Process(target=_serve, args=(theirs, reading, self._limits.memory_bytes))
        self._process.start()
        theirs.close()
        reading.close()

    def _describe_death(self) -> str:
        self._process.join()
        code = self._process.exitcode
        self.end()
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return f"the worker ended with {how} (a crash, or more memory than this machine has)"


def used_cpu_s(session: int) -> float:
    """Return the CPU seconds used by the processes of a session and their ended children; 0 without /proc."""
    ticks = 0
    for entry in FilePath("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[3]) == session:
            ticks += sum(int(field) for field in fields[11:15])
    return float(ticks) / float(os.sysconf("SC_CLK_TCK"))


def _serve(pipe: Any, parent: Any, memory_bytes: int) -> None:
    """Do work until the other end closes."""
    os.setsid()
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    _cap_memory(memory_bytes)
    while True:
        try:
            work = pipe.recv()
        except EOFError:
            return
        pipe.send(_outcome(work, lambda done, total: pipe.send(("progress", done, total))))


def _outcome(work: Work, progress: Progress) -> tuple[str, Any]:
    try:
        return "done", work.run(progress)
    except MemoryError:
        return "failed", "more memory than the cap of a process"
    except CcenvError as error:
        return "failed", str(error)
    except Exception as error:  # no submission may stop the queue
        return "failed", f"{type(error).__name__}: {error}"


def _end_with_parent(parent: Any) -> None:
    """Kill this process and its children when the operator's process ends."""
    with suppress(EOFError, OSError):
        parent.recv_bytes()
    os.killpg(0, signal.SIGKILL)


def _cap_memory(memory_bytes: int) -> None:
    """Cap the address space of this process and its children (Linux)."""
    if sys.platform != "linux":
        return
    import resource

    pages = int(FilePath("/proc/self/statm").read_text(encoding="ascii").split()[0])
    cap = pages * resource.getpagesize() + memory_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (cap if hard == resource.RLIM_INFINITY else min(cap, hard), hard))


FAILURE = "failure"
LONGEST_REASON = 500


def failure_slot(slot: str, attempt: int = 1) -> str:
    """Return the slot of a failure to fill another slot."""
    return f"{FAILURE}/{slot}" if attempt == 1 else f"{FAILURE}/{slot}/{attempt}"


def store_failure(store: BoardStore, job: Job, stage: Stage, reason: str) -> Stored:
    """Store that a stage failed; each attempt has its own record."""
    submission = job.entrant.record.submission
    _, slot = stage.slots(submission)
    tried = sum(record.content.get("slot") == slot for record in store.records(FAILURE, submission))
    content = {**job.head, "stage": stage.name, "slot": slot, "reason": _redact(reason, job)}
    content |= {"code_sha256": cells_code(), "machine": machine()}
    return store.append(FAILURE, submission, failure_slot(slot, tried + 1), content, {})


def _redact(reason: str, job: Job) -> str:
    for folder in (job.folder, job.home.folder):
        for shown in (str(folder.resolve()), str(folder)):
            reason = reason.replace(shown, job.entrant.record.card.name)
    line = " ".join("".join(c if c.isprintable() else " " for c in reason).split())
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 3] + "..."
