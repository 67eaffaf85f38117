"""The operator's queue: all pending stages of all submissions, each stored when it is complete.

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

from ccenv.base.errors import InputError, require_extra, unknown_name
from ccenv.base.files import locked, make_folder, write_atomic
from ccenv.benchmarks.run.runner import BACKENDS
from ccenv.leaderboard.evaluate.limits import FAILURE, Failed, Limits, Worker, failure_slot, store_failure
from ccenv.leaderboard.evaluate.stages import Content, Job, Stage
from ccenv.leaderboard.store.database import BoardStore, Stored, TakenError
from ccenv.leaderboard.store.home import WORK, Home
from ccenv.leaderboard.store.submit import Entrant, entrants, withdrawn_submissions

_ROOM_BYTES = 1 << 20

Progress = Callable[[int, int], None]
"""Called with the numbers of finished and of all parts of the current task."""

Show = Callable[[int, "QueuedStage"], AbstractContextManager[Progress]]
"""Called with index and task before it starts; the returned context surrounds the task."""

Done = Callable[[int, "QueuedStage", "Stored | None"], None]
"""Called with index, task and stored record; the record is None if another process stored it first."""


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
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if backend == "ray":
        require_extra("ray", "rllib")
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1")
    # Evaluations resume and delete unfinished work in one folder: one at a time.
    with locked(home.folder / WORK, "evaluation of this board"):
        return _evaluate(store, home, tasks, backend, workers, show, done, limits or Limits())


def _evaluate(
    store: BoardStore,
    home: Home,
    tasks: Sequence[QueuedStage],
    backend: str,
    workers: int | None,
    show: Show,
    done: Done,
    limits: Limits,
) -> list[Stored]:
    stored = []
    with Worker(limits, 1 if backend == "local" else workers or os.cpu_count() or 1) as worker:
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
    return worker.run(task.stage.prepare(job), progress)


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
