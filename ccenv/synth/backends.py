"""Where independent solver tasks run: here, in processes or on Ray: same answers, in the order of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ccenv.errors import CcenvError, InputError, require_extra, unknown_name

BACKENDS = ("processes", "ray")
Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


@contextmanager
def mapper(backend: str, jobs: int) -> Iterator[Mapper]:
    """Yield a function that applies work to items and returns the results in order.

    Args:
        backend: processes or ray.
        jobs: workers; with 1 and ``processes`` everything runs here.

    Raises:
        CcenvError: if a worker dies; what was stored before stays valid.
    """
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if not 1 <= jobs <= 256:
        raise InputError(f"jobs is {jobs}; it must be 1 to 256")
    if backend == "ray":
        with _ray(jobs) as run:
            yield run
    elif jobs == 1:
        yield lambda work, items: [work(item) for item in items]
    else:
        with _processes(jobs) as run:
            yield run


@contextmanager
def _processes(jobs: int) -> Iterator[Mapper]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))

    def run(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        try:
            return list(pool.map(work, items))
        except BrokenProcessPool:
            raise CcenvError("a solver process died; what was found is kept: run the same command again") from None

    try:
        yield run
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _ray(jobs: int) -> Iterator[Mapper]:
    require_extra("ray", "rllib")
    import ray

    started = not ray.is_initialized()
    if started:
        ray.init(num_cpus=jobs, include_dashboard=False, configure_logging=False, log_to_driver=False)

    def run(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        remote = ray.remote(max_retries=0)(work)
        try:
            return list(ray.get([remote.remote(item) for item in items]))
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
            raise CcenvError("a solver process died; what was found is kept: run the same command again") from None

    try:
        yield run
    finally:
        if started:
            ray.shutdown()
