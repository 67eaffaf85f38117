"""Stages that a submission did not come through: stored with their reason, so that the queue goes on."""

from __future__ import annotations

from ccenv.benchmarks.cells.code import cells_code
from ccenv.leaderboard.evaluate.stages import Job, Stage
from ccenv.leaderboard.store.database import BoardStore, Stored
from ccenv.base.provenance import machine

FAILURE = "failure"
LONGEST_REASON = 500


def failure_slot(slot: str, attempt: int = 1) -> str:
    """Return the slot of a failure of what would have been stored in another slot."""
    return f"{FAILURE}/{slot}" if attempt == 1 else f"{FAILURE}/{slot}/{attempt}"


def store_failure(store: BoardStore, job: Job, stage: Stage, reason: str) -> Stored:
    """Store that a stage failed; another attempt at the same stage gets a record of its own."""
    submission = job.entrant.record.submission
    _, slot = stage.slots(submission)
    tried = sum(record.content.get("slot") == slot for record in store.records(FAILURE, submission))
    content = {**job.head, "stage": stage.name, "slot": slot, "reason": _public(reason, job)}
    content |= {"code_sha256": cells_code(), "machine": machine()}
    return store.append(FAILURE, submission, failure_slot(slot, tried + 1), content, {})


def _public(reason: str, job: Job) -> str:
    for folder in (job.folder, job.home.folder):
        for shown in (str(folder.resolve()), str(folder)):
            reason = reason.replace(shown, job.entrant.record.card.name)
    line = " ".join("".join(c if c.isprintable() else " " for c in reason).split())
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 3] + "..."
