"""The stages of an evaluation, and the score of a sender outside the board, before submission or to reproduce an entry."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents import AGENTS
from ccenv.base.errors import InputError
from ccenv.benchmarks.run.runner import evaluate
from ccenv.benchmarks.run.summary import summarise
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.leaderboard.evaluate.damage import DamageStage
from ccenv.leaderboard.evaluate.stages import EnvelopeStage, Stage, SuiteStage
from ccenv.leaderboard.store.runs import check_published
from ccenv.leaderboard.store.submit import write_sender
from ccenv.leaderboard.submission.document import panel
from ccenv.leaderboard.submission.reader import read_submission

# The nominal suite, whose score ranks the senders, then the one with the adversary panel.
SUITES = ("standard-v2", "worst-case-v1")


def nominal_suite() -> str:
    """Return name/version of the suite whose score ranks the senders."""
    suite = load_suite(SUITES[0])
    return f"{suite.name}/{suite.version}"


def make_stages(suites: Sequence[str], budget_s: float, traces: bool) -> list[Stage]:
    """Return the stages of an evaluation on ``suites`` (names or files; empty: the board's), with the adversaries' panel.

    ``budget_s`` is for the verified envelope (0: none); with ``traces`` worst traces are stored beside their views.
    """
    stages: list[Stage] = [SuiteStage(check_published(load_suite(name), name), traces) for name in suites or SUITES]
    if budget_s > 0:
        stages.append(EnvelopeStage(budget_s))
    return [*stages, DamageStage(panel())]


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
    """Play a sender on a suite and return its summary in the form of a stored evaluation.

    Raises:
        InputError: for a folder that breaks a rule, an adversary, or invalid seeds.
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
