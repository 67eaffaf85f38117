"""Work on several cores, in worker processes or Ray tasks. The order of results does not depend on the speed of a worker.

Only this module starts Ray: without its usage reports, and with the signal handlers of the command line.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ccenv.base.errors import CcenvError, CcenvWarning, InputError, require_extra, unknown_name
from ccenv.base.interrupts import become_worker, claim_signals

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

# Ray's processes notice only after half a minute that their parent was killed. This program waits at a pipe, which the system
# closes when our process ends. It lists our descendants every second and kills them at the end. Start times distinguish a
# process from a later one with the same number.
_GUARD = """
import os, select, signal, sys
def below(top):
    parents, begun = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry)], begun[int(entry)] = int(fields[1]), fields[19]
    descendants, layer = set(), {top}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer} - descendants
        descendants |= layer
    return {(process, begun[process]) for process in descendants - {os.getpid()}}, begun
descendants = set()
while not select.select([0], [], [], 1.0)[0]:
    descendants = below(int(sys.argv[1]))[0] or descendants
begun = below(0)[1]
for process, start in descendants:
    if begun.get(process) == start:
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass
"""
_guards: list[Any] = []  # of this process: none, or one


def _guard_cluster() -> None:
    """End Ray's processes with this process (Linux; elsewhere Ray decides)."""
    if sys.platform == "linux" and not _guards:
        command = [sys.executable, "-c", _GUARD, str(os.getpid())]
        _guards.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))


def start_ray(cores: int | None = None, address: str | None = None) -> Any:
    """Start Ray on this machine, or join a cluster; return the module.

    Raises MissingExtraError if Ray is not installed; ConnectionError if no cluster answers at the address.

    Args:
        cores: of a cluster that is started here; a cluster that is joined has its own.
        address: of a cluster to join; None: start one here.
    """
    require_extra("ray", "rllib")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray's own processes read it too
    import ray

    if address is None:
        _guard_cluster()
    options: dict[str, Any] = {} if address else {"num_cpus": cores, "include_dashboard": False}
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **options)
    claim_signals()
    return ray


BACKENDS = ("processes", "ray")
MOST_JOBS = 256
DIED = "a worker died (killed, or out of memory); what was stored is kept: run the same command again"

_QUIET = "ignore:resource_tracker:UserWarning"

Result = Callable[..., Any]
"""Waits for a task and returns its result."""


class Watched(NamedTuple):
    """Result of work in another process, and ccenv's warnings meanwhile."""

    result: Any
    warnings: tuple[str, ...]


def watched(work: Callable[..., Any], *arguments: Any) -> Watched:
    """Do work in this worker process and keep ccenv's warnings for :func:`tell`; others are shown here."""
    kept: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("always", CcenvWarning)
        warnings.showwarning = partial(_keep, kept, warnings.showwarning)
        return Watched(work(*arguments), tuple(kept))


def _keep(kept: dict[str, None], show: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any) -> None:
    if issubclass(category, CcenvWarning):
        kept[str(message)] = None
    else:
        show(message, category, *place)


def tell(outcome: Watched) -> Any:
    """Return the result of watched work and repeat its warnings in this process."""
    for message in outcome.warnings:
        warnings.warn(message, CcenvWarning, stacklevel=3)
    return outcome.result


class Workers:
    """Up to ``jobs`` tasks at a time; nothing is started before the first task.

    With ``processes`` and one job, tasks run in this process when their result is requested, unless they must run ``apart``.
    ``ray`` joins the cluster of RAY_ADDRESS, whose cores are then the limit, or starts one here with ``jobs`` cores.

    Raises:
        InputError: for a number of jobs out of range.
        UnknownNameError: for an unknown backend.
        MissingExtraError: if Ray is wanted and not installed.
    """

    def __init__(self, jobs: int = 1, backend: str = "processes", *, apart: bool = False) -> None:
        if not 1 <= jobs <= MOST_JOBS:
            raise InputError(f"{jobs} jobs; it must be 1 to {MOST_JOBS}")
        if backend not in BACKENDS:
            raise unknown_name("backend", backend, BACKENDS)
        if backend == "ray":
            require_extra("ray", "rllib")
        self.jobs = jobs
        self.backend = backend
        self.parallel = jobs > 1 or backend == "ray" or apart
        """Whether tasks run elsewhere than in this process."""
        self._pool: Any = None
        self._open: list[Any] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """End all workers, also those that are busy."""
        self.drop()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Result:
        """Start a task: a function of a module with arguments that can go to another process."""
        if not self.parallel:
            return partial(work, *arguments)
        if self._pool is None:
            self._pool = _Processes(self.jobs, work.__module__) if self.backend == "processes" else _Ray(self.jobs)
        task = self._pool.start(work, arguments)
        self._open.append(task)
        return partial(self._pool.result, task)

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of work on each item, in the order of the items."""
        results = [self.submit(work, item) for item in items]
        for result in results:
            yield result()

    def as_finished(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of work on each item as they come. Raises CcenvError if a worker dies."""
        begun = len(self._open)
        results = [self.submit(work, item) for item in items]
        if not self.parallel or not results:
            yield from (result() for result in results)
            return
        for task in self._pool.finished(self._open[begun:]):
            yield self._pool.result(task)

    @staticmethod
    def one(work: Callable[..., Any], *arguments: Any, limit_s: float) -> Any:
        """Return the result of work in a process of its own (:class:`Apart`)."""
        with Apart() as worker:
            return worker.run(work, *arguments, limit_s=limit_s)

    def drop(self) -> None:
        """End all tasks that still wait or run."""
        if self._pool is not None and self._pool.drop(self._open):
            self._pool = None
        self._open = []


def worker_context(module: str) -> ForkServerContext:
    """Return the context of workers: forks of a process without threads that has imported this module of ccenv."""
    import multiprocessing

    context = multiprocessing.get_context("forkserver")
    if module.startswith("ccenv."):
        context.set_forkserver_preload([module])  # nothing where the server runs already: then workers import it
    return context


_POLL_S = 0.2


class Apart:
    """A process of its own for one work after the other; it and all that it starts end with this process.

    ``memory_bytes`` caps the address space of each of these processes, beyond what the first has at its start (Linux).
    """

    def __init__(self, memory_bytes: int | None = None) -> None:
        self._memory_bytes = memory_bytes
        self._process: Any = None
        self._pipe: Any = None
        self._alive: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def run(
        self,
        work: Callable[..., Any],
        *arguments: Any,
        limit_s: float = math.inf,
        cpu_s: float = math.inf,
        report: Callable[..., None] | None = None,
    ) -> Any:
        """Return the result of work; with ``report`` work has it as its last argument, and calls it here.

        Raises TimeoutError after ``limit_s``, or ``cpu_s`` of CPU time between two reports; CcenvError if the process dies.
        """
        if self._process is None:
            self._start(work.__module__)
        used_cpu_s: Callable[[], float] = self._used_cpu_s if cpu_s < math.inf else float  # no look at /proc without a limit
        end_s, begun_s = time.monotonic() + limit_s, used_cpu_s()
        self._exchange(self._pipe.send, (work, arguments, report is not None))
        kind: str = ""
        value: Any = None
        while kind not in ("result", "error"):
            if self._exchange(self._pipe.poll, min(_POLL_S, limit_s)):
                kind, value = self._exchange(self._pipe.recv)
                begun_s = used_cpu_s()
                if kind == "report" and report is not None:
                    report(*value)
            elif time.monotonic() > end_s:
                self.end()
                raise TimeoutError(f"more than {limit_s:g} s: ended")
            elif used_cpu_s() - begun_s > cpu_s:
                self.end()
                raise TimeoutError(f"more than {cpu_s:g} s of CPU time for one part: ended")
        if kind == "error":
            raise value
        return tell(value)

    def _exchange(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Use the pipe. Raises CcenvError if the process at its other end has died."""
        try:
            return operation(*arguments)
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            self.end()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise CcenvError(f"the worker ended with {how} (a crash, or more memory than this machine has)") from None

    def _used_cpu_s(self) -> float:
        """Return the CPU seconds used by the session of the process and its ended children; 0 without /proc."""
        ticks = 0
        for entry in FilePath("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            if int(fields[3]) == self._process.pid:
                ticks += sum(int(field) for field in fields[11:15])
        return float(ticks) / float(os.sysconf("SC_CLK_TCK"))

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

    def _start(self, module: str) -> None:
        context = worker_context(module)
        self._pipe, theirs = context.Pipe()
        reading, self._alive = context.Pipe(duplex=False)
        self._process = context.Process(target=_serve, args=(theirs, reading, dict(os.environ), self._memory_bytes))
        self._process.start()
        theirs.close()
        reading.close()


def _serve(pipe: Any, parent: Any, environment: dict[str, str], memory_bytes: int | None) -> None:
    """Do work until the other end closes."""
    os.setsid()
    become_worker(parent, environment, group=True)
    if memory_bytes is not None:
        _cap_memory(memory_bytes)
    while True:
        try:
            work, arguments, reports = pipe.recv()
        except EOFError:
            return
        more = [lambda *values: pipe.send(("report", values))] if reports else []
        try:
            outcome: tuple[str, Any] = "result", watched(work, *arguments, *more)
        except Exception as error:
            outcome = "error", error
        pipe.send(outcome)


def _cap_memory(memory_bytes: int) -> None:
    if sys.platform != "linux":
        return
    import resource

    pages = int(FilePath("/proc/self/statm").read_text(encoding="ascii").split()[0])
    cap = pages * resource.getpagesize() + memory_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (cap if hard == resource.RLIM_INFINITY else min(cap, hard), hard))


class _Processes:
    """Worker processes that end with this process, even when it is killed.

    Each holds the reading end of a pipe whose writing end only this process has: the system closes it when we end.
    """

    def __init__(self, jobs: int, module: str) -> None:
        from concurrent.futures import ProcessPoolExecutor

        # The helper of multiprocessing that outlives a killed process, for a moment, tidies up after it: nothing to warn of.
        if _QUIET not in sys.warnoptions:
            sys.warnoptions.append(_QUIET)  # what it is started with
        context = worker_context(module)
        reading, self._writing = context.Pipe(duplex=False)
        begin = (reading, dict(os.environ))
        self._executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=become_worker, initargs=begin)

    def start(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        from concurrent.futures.process import BrokenProcessPool

        try:
            return self._executor.submit(watched, work, *arguments)
        except BrokenProcessPool:
            raise CcenvError(DIED) from None

    def result(self, task: Any) -> Any:
        from concurrent.futures.process import BrokenProcessPool

        try:
            return tell(task.result())
        except BrokenProcessPool:
            raise CcenvError(DIED) from None

    def finished(self, tasks: list[Any]) -> Iterator[Any]:
        from concurrent.futures import as_completed

        return as_completed(tasks)

    def drop(self, tasks: list[Any]) -> bool:
        """Cancel waiting tasks; if a task runs, end the whole pool. Returns whether the pool is gone."""
        busy = [task for task in tasks if not task.done() and not task.cancel()]
        if busy:
            # The executor has no public way to end a busy worker before Python 3.14.
            for process in list((getattr(self._executor, "_processes", None) or {}).values()):
                process.kill()
            self.shutdown()
        return bool(busy)

    def shutdown(self) -> None:
        """Wait for running tasks, drop waiting tasks, and end the workers."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._writing.close()


class _Ray:
    """Ray tasks."""

    def __init__(self, jobs: int) -> None:
        import ray

        self.started = not ray.is_initialized()
        self.ray = start_ray(jobs, os.environ.get("RAY_ADDRESS")) if self.started else ray

    def start(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return self.ray.remote(num_cpus=1, max_retries=0)(watched).remote(work, *arguments)

    def result(self, task: Any) -> Any:
        try:
            return tell(self.ray.get(task))
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, CcenvError) else error from None
        except self.ray.exceptions.RayError:
            raise CcenvError(DIED) from None

    def finished(self, tasks: list[Any]) -> Iterator[Any]:
        while tasks:
            done, tasks = self.ray.wait(tasks)
            yield from done

    def drop(self, tasks: list[Any]) -> bool:
        for task in self.ray.wait(tasks, num_returns=len(tasks), timeout=0)[1] if tasks else []:
            self.ray.cancel(task, force=True)
        return False

    def shutdown(self) -> None:
        if self.started:
            self.ray.shutdown()
