"""Playing a submission outside the board: to see a score before handing in, or to make an entry's numbers again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents import AGENTS
from ccenv.benchmarks.run.runner import evaluate
from ccenv.benchmarks.run.summary import summarise
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.base.errors import InputError
from ccenv.leaderboard.evaluate.plan import SUITES
from ccenv.leaderboard.submission.reader import read_submission
from ccenv.leaderboard.store.submit import write_sender


def parse_seeds(text: str | None) -> list[int] | None:
    """Return the seeds of a text such as "1,2,3". Raises InputError."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds is {text!r}; whole numbers with commas between them are needed, such as 1,2,3") from None


def score_sender(
    what: str,
    suite: str | None,
    seeds: Sequence[int] | None,
    backend: str,
    workers: int | None,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Play a sender on a suite and return its summary, as an evaluation would store it.

    Raises:
        InputError: for a folder that breaks a rule, an adversary, or seeds that cannot be.
    """
    played = load_suite(suite or SUITES[0])
    with tempfile.TemporaryDirectory() as scratch:
        spec = what
        if what.partition(":")[0] not in AGENTS or FilePath(what).is_dir():
            submission = read_submission(FilePath(what))
            spec = write_sender(submission.player, submission.document.name, None, submission.files, FilePath(scratch))
        records = evaluate(played, spec, seeds=seeds, backend=backend, workers=workers, progress=progress)
    summary = summarise(played, records)
    return {"suite": f"{played.name}/{played.version}", **summary[0]}
