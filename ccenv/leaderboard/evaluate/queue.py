"""The operator's queue: all pending stages of all submissions, each stored when it is complete, or with the reason why it failed.

The work of submissions runs in a process apart, with caps on memory and CPU time; that on events is the packet engine's own.
Unfinished work lies in the board's folder, where a suite's run resumes cell by cell; the database holds finished stages only. A
crash thus loses at most the running cells and leaves no partial records.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, InputError, cut, unknown_name
from ccenv.base.files import locked, make_folder, write_atomic
from ccenv.base.provenance import machine
from ccenv.base.workers import Apart
from ccenv.benchmarks.cells.packet import cells_code
from ccenv.benchmarks.run.runner import check_parallel
from ccenv.leaderboard.evaluate.stages import Content, Job, Progress, Stage, Work
from ccenv.leaderboard.store.database import BoardStore, Stored, TakenError
from ccenv.leaderboard.store.home import WORK, Home
from ccenv.leaderboard.store.submit import Entrant, entrants, withdrawn_submissions

_ROOM_BYTES = 1 << 20
_MOST_GIB = 1_048_576
FAILURE = "failure"
LONGEST_REASON = 500

Show = Callable[[int, "QueuedStage"], AbstractContextManager[Progress]]
"""Called with index and task before it starts; the returned context surrounds the task."""

Done = Callable[[int, "QueuedStage", "Stored | None"], None]
"""Called with index, task and stored record; the record is None if another process stored it first."""


@dataclass(frozen=True)
class Limits:
    """Resource limits of a part of a stage."""

    cpu_s: float = 900.0  # CPU seconds per finished part (a task of the runner) and worker, > 0
    memory_bytes: int = 8 << 30  # address space of each process beyond what it has when it starts, >= 256 MiB

    def __post_init__(self) -> None:
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


class Worker(Apart):
    """A process that does the work of stages; each of its ``processes`` has the CPU time of a part."""

    def __init__(self, limits: Limits, processes: int = 1) -> None:
        super().__init__(limits.memory_bytes)
        self._cpu_s = limits.cpu_s * processes

    def do(self, work: Work, progress: Progress) -> Content | Failed:
        """Do the work of a stage; return its record, or why it failed."""
        try:
            outcome: Content | Failed = self.run(attempt, work, cpu_s=self._cpu_s + work.cpu_s, report=progress)
        except (TimeoutError, CcenvError) as error:
            return Failed(str(error))
        return outcome


def attempt(work: Work, progress: Progress) -> Content | Failed:
    """Do work that may fail in any way: no submission may stop the queue."""
    try:
        return work.run(progress)
    except MemoryError:
        return Failed("more memory than the cap of a process")
    except CcenvError as error:
        return Failed(str(error))
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")


def failure_slot(slot: str, attempt: int = 1) -> str:
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
    return cut(" ".join("".join(c if c.isprintable() else " " for c in reason).split()), LONGEST_REASON)


@dataclass(frozen=True)
class QueuedStage:
    """A pending stage of a submission."""

    entrant: Entrant
    stage: Stage

    @property
    def title(self) -> str:
        """Name for messages."""
        return f"{self.entrant.record.card.name}: {self.stage.name}"


def list_tasks(
    store: BoardStore, stages: Sequence[Stage], *, pending: bool = False, only: Sequence[str] = (), retry: bool = False
) -> list[QueuedStage]:
    """Return the pending stages of the entries (all, or ``only`` these) that are not withdrawn.

    ``pending`` leaves out stages that were done by older code or with smaller budgets; ``retry`` adds those that failed with this
    code. Raises InputError for an empty board or an unknown name.
    """
    taken_back = withdrawn_submissions(store)
    candidates = [entrant for entrant in entrants(store) if entrant.record.submission not in taken_back]
    names = [entrant.record.card.name for entrant in candidates]
    if not candidates:
        raise InputError("nothing was handed in yet: ccenv board submit DIR")
    for name in only:
        if name not in names:
            raise unknown_name("entry", name, names)
    done = {record.slot for record in store.records()}
    tasks = []
    for entrant in candidates:
        if only and entrant.record.card.name not in only:
            continue
        for stage in stages:
            if stage.track != entrant.record.card.track:
                continue
            stem, current = stage.slots(entrant.record.submission)
            failed = failure_slot(current) in done and not retry
            if current not in done and not failed and not (pending and any(slot.startswith(stem) for slot in done)):
                tasks.append(QueuedStage(entrant, stage))
    return tasks


def evaluate(
    store: BoardStore,
    home: Home,
    tasks: Sequence[QueuedStage],
    *,
    backend: str = "local",
    workers: int | None = None,
    show: Show = lambda place, task: nullcontext(lambda done, total: None),
    done: Done = lambda place, task, record: None,
    limits: Limits | None = None,
) -> list[Stored]:
    """Do tasks one after the other; store each result or failure, and return the stored records.

    A failure caused by a submission becomes a record and the queue continues. One caused by the board, its folder or its
    settings, or another process that evaluates this board, raises CcenvError; records stored before stay.
    """
    check_parallel(backend, workers=workers)
    # Evaluations resume and delete unfinished work in one folder: one at a time.
    stored = []
    processes = 1 if backend == "local" else workers or os.cpu_count() or 1
    with locked(home.folder / WORK, "evaluation of this board"), Worker(limits or Limits(), processes) as worker:
        for place, task in enumerate(tasks, start=1):
            submission = task.entrant.record.submission
            folder = home.work(submission)
            job = Job(task.entrant, store, home, folder, backend, workers)
            with show(place, task) as progress:
                result = _outcome(task, job, worker, progress)
            record = None
            with suppress(TakenError):  # another process did the same work at the same time
                if isinstance(result, Failed):
                    _check_room(folder)
                    record = store_failure(store, job, task.stage, result.reason)
                else:
                    _, slot = task.stage.slots(submission)
                    record = store.append(task.stage.kind, submission, slot, *result)
            stored += [record] if record is not None else []
            done(place, task, record)
            shutil.rmtree(folder / task.stage.name, ignore_errors=True)
        for submission in {task.entrant.record.submission for task in tasks}:
            shutil.rmtree(home.work(submission), ignore_errors=True)
    return stored


def _outcome(task: QueuedStage, job: Job, worker: Worker, progress: Progress) -> Content | Failed:
    try:
        _ = task.entrant.player  # parsed again by every rule, which may be stricter now
    except InputError as error:
        return Failed(str(error))
    return worker.do(task.stage.prepare(job), progress)


def _check_room(folder: FilePath) -> None:
    """Raise CcenvError for a full or read-only disk, which must not count as a failed submission."""
    make_folder(folder)
    write_atomic(folder / ".room", bytes(_ROOM_BYTES))
    (folder / ".room").unlink()


def describe_outcome(record: Stored) -> dict[str, Any]:
    """Return the command line's description of a stored stage."""
    content = record.content
    description = {"record": record.number, "kind": record.kind, "entry": content["name"], "stage": content["stage"]}
    return {**description, "reason": content["reason"]} if record.kind == FAILURE else description
