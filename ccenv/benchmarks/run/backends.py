"""Backends that play cells; each yields the records of finished cells in any order, with the same numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ccenv.base.errors import CcenvError, require_extra
from ccenv.base.workers import ProcessPool, start_ray, tell, watched
from ccenv.benchmarks.cells.cell import FILE, Cell
from ccenv.benchmarks.suite.base import CellData

DIED = "a worker process died; finished cells are kept: run the same command again"


Backend = Callable[[Sequence[Cell], int], Iterator[list[CellData]]]
"""Plays cells with a number of workers."""


FAILED = "failed"
"""Key of the error text that replaces the record of a cell whose sender, code of a user, failed."""


def run_cell(cell: Cell, broken: dict[str, str]) -> CellData:
    """Play a cell and return its record; for code of a user that fails a record of the failure.

    ``broken`` maps the hash of user code that failed to its error; such code is not played again.

    Raises:
        CcenvError: if a sender that comes with ccenv, a program or a policy fails.
    """
    if cell.agent.kind != FILE:
        return cell.run()
    if cell.agent.sha256 not in broken:
        try:
            return cell.run()
        except CcenvError as error:
            broken[cell.agent.sha256] = str(error)
    return {FAILED: broken[cell.agent.sha256], "agent": cell.agent.label, "cell": cell.name}


def local(cells: Sequence[Cell], workers: int) -> Iterator[list[CellData]]:
    """Play the cells here, one after the other."""
    del workers
    broken: dict[str, str] = {}
    for task in _tasks(cells):
        yield [run_cell(cell, broken) for cell in task]


def processes(cells: Sequence[Cell], workers: int) -> Iterator[list[CellData]]:
    """Play the cells in worker processes. Raises CcenvError if a worker dies; records yielded before stay valid."""
    yield from in_processes(_task, _tasks(cells), workers)


def ray(cells: Sequence[Cell], workers: int) -> Iterator[list[CellData]]:
    """Play the cells as Ray tasks, on the cluster of RAY_ADDRESS or on a local one of ``workers`` cores.

    Raises:
        MissingExtraError: if Ray is not installed.
        CcenvError: if a worker dies; records yielded before stay valid.
    """
    require_extra("ray", "rllib")
    import ray as cluster

    started = not cluster.is_initialized()
    if started:
        start_ray(workers, os.environ.get("RAY_ADDRESS"))
    try:
        remote = cluster.remote(num_cpus=1, max_retries=2)(watched)
        pending = [remote.remote(_task, task) for task in _tasks(cells)]
        while pending:
            done, pending = cluster.wait(pending)
            for task in done:
                try:
                    yield tell(cluster.get(task))
                except cluster.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, CcenvError) else error from None
                except cluster.exceptions.RayError:
                    raise CcenvError(DIED) from None
    finally:
        if started:
            cluster.shutdown()


def in_processes(work: Callable[[Any], Any], items: list[Any], workers: int) -> Iterator[Any]:
    """Yield the results of work on items as worker processes finish them.

    Raises:
        CcenvError: if a worker dies.
    """
    from concurrent.futures import as_completed
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPool(workers, work.__module__)
    try:
        for task in as_completed([pool.executor.submit(watched, work, item) for item in items]):
            yield tell(task.result())
        pool.close()
    except BrokenProcessPool:
        raise CcenvError(DIED) from None
    finally:
        pool.end()  # all tasks are done, or the rest is abandoned


def _tasks(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Split the cells into tasks of ``per_task`` cells."""
    size = cells[0].per_task if cells else 1
    return [list(cells[start : start + size]) for start in range(0, len(cells), size)]


def _task(cells: list[Cell]) -> list[CellData]:
    broken: dict[str, str] = {}
    return [run_cell(cell, broken) for cell in cells]


BACKENDS: dict[str, Backend] = {"local": local, "processes": processes, "ray": ray}
