"""Where cells are played. Each backend yields the records of finished cells in any order; the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ccenv.benchmarks.cells import Cell, run_cell
from ccenv.errors import CcenvError

CHUNK = 8  # cells per task of the processes backend: few enough to lose little, enough to hide the exchange

Backend = Callable[[list[Cell], int], Iterator[list[dict[str, Any]]]]


def local(cells: list[Cell], workers: int) -> Iterator[list[dict[str, Any]]]:
    """Play the cells here, one after the other."""
    del workers
    for start in range(0, len(cells), CHUNK):
        yield _chunk(cells[start : start + CHUNK])


def processes(cells: list[Cell], workers: int) -> Iterator[list[dict[str, Any]]]:
    """Play the cells in worker processes. Raises CcenvError if a worker dies; what was yielded before stays valid."""
    chunks = [cells[start : start + CHUNK] for start in range(0, len(cells), CHUNK)]
    yield from in_processes(_chunk, chunks, workers)


def in_processes(work: Callable[[Any], Any], items: list[Any], workers: int) -> Iterator[Any]:
    """Yield the results of work on items as worker processes finish them.

    Args:
        work: a function of a module.
        items: its arguments.
        workers: how many processes.

    Raises:
        CcenvError: if a worker dies.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        for task in as_completed([pool.submit(work, item) for item in items]):
            yield task.result()
    except BrokenProcessPool:
        raise CcenvError("a worker process died; finished cells are kept: run the same command again") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _chunk(cells: list[Cell]) -> list[dict[str, Any]]:
    return [run_cell(cell) for cell in cells]


BACKENDS: dict[str, Backend] = {"local": local, "processes": processes}
