"""The operator's work: every stage of every submission that is not done yet, each stored when it is complete.

Unfinished work lies in the board's folder, where a suite's run resumes cell by cell; the database holds finished stages only. So
a crash at any point loses no more than the cells that were being played, and leaves nothing half-stored.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ccenv.errors import InputError, unknown_name
from ccenv.files import locked
from ccenv.leaderboard.home import WORK, Home
from ccenv.leaderboard.stages import Job, Stage
from ccenv.leaderboard.store import Store, Stored, TakenError
from ccenv.leaderboard.submit import Entrant, entrants

Progress = Callable[[int, int], None]
"""Called with the numbers of finished and of all parts of the task at hand."""


@dataclass(frozen=True)
class Task:
    """A stage of a submission that is to be done."""

    entrant: Entrant
    stage: Stage

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.entrant.record.card.name}: {self.stage.name}"


def tasks_of(store: Store, stages: Sequence[Stage], *, pending: bool = False, only: Sequence[str] = ()) -> list[Task]:
    """Return what is to be done.

    Args:
        store: the board.
        stages: in the order in which they are done.
        pending: only what was never done; otherwise also what older code or smaller budgets did.
        only: names of entries; empty: all.

    Raises:
        InputError: if there is nothing on the board, or no entry of a name.
    """
    everything = entrants(store)
    names = [entrant.record.card.name for entrant in everything]
    if not everything:
        raise InputError("nothing was handed in yet: ccenv board submit DIR")
    for name in only:
        if name not in names:
            raise unknown_name("entry", name, names)
    done = {record.slot for record in store.records()}
    tasks = []
    for entrant in everything:
        if only and entrant.record.card.name not in only:
            continue
        for stage in stages:
            if stage.track != entrant.record.card.track:
                continue
            stem, whole = stage.slots(entrant.record.submission)
            if whole not in done and not (pending and any(slot.startswith(stem) for slot in done)):
                tasks.append(Task(entrant, stage))
    return tasks


def evaluate(
    store: Store,
    home: Home,
    tasks: Sequence[Task],
    *,
    backend: str = "local",
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
) -> list[Stored]:
    """Do tasks one after the other and store each when it is complete.

    Args:
        store: the board.
        home: where secrets and unfinished work lie.
        tasks: of :func:`tasks_of`.
        backend: of the benchmark runner; it does not change the results.
        workers: processes; by default one per usable core.
        progress: called as parts of a task finish.

    Returns:
        list: the records that were stored.

    Raises:
        CcenvError: if a stage fails, what was stored before stays; or if another process evaluates this board.
    """
    # Unfinished work of one evaluation is where the next one goes on, and is deleted when it is done: one at a time.
    with locked(home.folder / WORK, "evaluation of this board"):
        return _evaluate(store, home, tasks, backend, workers, progress)


def _evaluate(
    store: Store, home: Home, tasks: Sequence[Task], backend: str, workers: int | None, progress: Progress
) -> list[Stored]:
    stored = []
    for task in tasks:
        submission = task.entrant.record.submission
        folder = home.work(submission)
        job = Job(task.entrant, store, home, folder, backend, workers, progress)
        content, files = task.stage.run(job)
        _, slot = task.stage.slots(submission)
        with suppress(TakenError):  # another process did the same work at the same time
            stored.append(store.append(task.stage.kind, submission, slot, content, files))
        shutil.rmtree(folder / task.stage.name, ignore_errors=True)
    for submission in {task.entrant.record.submission for task in tasks}:
        shutil.rmtree(home.work(submission), ignore_errors=True)
    return stored


def outcome(record: Stored) -> dict[str, Any]:
    """Return what the command line says about a stored stage."""
    content = record.content
    return {"record": record.number, "kind": record.kind, "entry": content["name"], "stage": content["stage"]}
