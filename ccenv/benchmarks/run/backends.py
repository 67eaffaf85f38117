"""Backends that play cells: one after the other here, in worker processes or as Ray tasks, with the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ccenv.base.errors import CcenvError
from ccenv.base.workers import BACKENDS as OF_WORKERS
from ccenv.base.workers import Workers
from ccenv.benchmarks.cells.cell import FILE, Cell
from ccenv.benchmarks.suite.base import CellData

LOCAL = "local"
BACKENDS = (LOCAL, *OF_WORKERS)
FAILED = "failed"
"""Key of the error text that replaces the record of a cell whose sender, code of a user, failed."""


def run_cell(cell: Cell, broken: dict[str, str]) -> CellData:
    """Play a cell and return its record; for code of a user that fails a record of the failure.

    ``broken`` maps hashes of code that failed to errors; such code is not played again. Other senders that fail raise CcenvError.
    """
    if cell.agent.kind != FILE:
        return cell.run()
    if cell.agent.sha256 not in broken:
        try:
            return cell.run()
        except CcenvError as error:
            broken[cell.agent.sha256] = str(error)
    return {FAILED: broken[cell.agent.sha256], "agent": cell.agent.label, "cell": cell.name}


def play_cells(cells: Sequence[Cell], backend: str, workers: int) -> Iterator[list[CellData]]:
    """Play cells on a backend, with a number of workers; yield the records of finished cells as they come.

    Raises MissingExtraError if Ray is wanted and not installed; CcenvError if a worker dies: records yielded before stay valid.
    """
    if backend == LOCAL:
        broken: dict[str, str] = {}
        for task in _tasks(cells):
            yield [run_cell(cell, broken) for cell in task]
        return
    with Workers(workers, backend, apart=True) as pool:
        yield from pool.as_finished(_task, _tasks(cells))


def _tasks(cells: Sequence[Cell]) -> list[list[Cell]]:
    size = cells[0].per_task if cells else 1
    return [list(cells[start : start + size]) for start in range(0, len(cells), size)]


def _task(cells: list[Cell]) -> list[CellData]:
    broken: dict[str, str] = {}
    return [run_cell(cell, broken) for cell in cells]
