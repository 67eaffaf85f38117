"""Work on several cores, in worker processes or Ray tasks. The order of results does not depend on the speed of a worker.

Only this module starts Ray: without its usage reports, and with the signal handlers of the command line.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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

    Args:
        cores: of a cluster that is started here; a cluster that is joined has its own.
        address: of a cluster to join; None: start one here.

    Raises:
        MissingExtraError: if Ray is not installed.
        ConnectionError: if no cluster answers at the address.
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
        """Return the result of work in a process of its own. Raises TimeoutError after ``limit_s``, CcenvError if it dies."""
        with Workers(apart=True) as workers:
            return workers.submit(work, *arguments)(limit_s)

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

    def result(self, task: Any, limit_s: float | None = None) -> Any:
        from concurrent.futures.process import BrokenProcessPool

        try:
            return tell(task.result(limit_s))
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
