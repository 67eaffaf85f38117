"""The stages of an evaluation, and the score of a sender outside the board, before submission or to reproduce an entry.

Verification records are made from the output of ``ccenv verify --json``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import sender_hash
from ccenv.base.config import validate
from ccenv.base.errors import InputError, shown
from ccenv.base.files import make_folder, write_atomic
from ccenv.base.foreign import as_path, read_bounded
from ccenv.base.provenance import now
from ccenv.benchmarks.results import summarise
from ccenv.benchmarks.run.runner import evaluate
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.leaderboard.evaluate.damage import DamageStage
from ccenv.leaderboard.evaluate.stages import EnvelopeStage, Stage, SuiteStage
from ccenv.leaderboard.store.records import ENDLESS, EXCUSED, MAX_BYTES, VERIFICATION, Verification
from ccenv.leaderboard.store.runs import check_published
from ccenv.leaderboard.store.submit import write_sender
from ccenv.leaderboard.submission.document import panel
from ccenv.leaderboard.submission.reader import read_submission
from ccenv.network.trace import parse_trace

# The nominal suite, whose score ranks the senders, then the one with the adversary panel, then company and unlike networks.
SUITES = ("standard-v2", "worst-case-v1", "company", "everywhere-v1")


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
    """Play a sender on a suite; return its summary as evaluations store it.

    Raises InputError for a folder that breaks a rule, an adversary, or invalid seeds.
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


_NEEDED = ("promises", "sender", "model", "buffer", "property", "T", "setting_name", "verdict", "queries", "seconds", "solver")


def make_record(report: Any, where: str, agent: str | None = None) -> Verification:
    """Turn a report into a record. Raises InputError if the report is invalid, or about another sender than ``agent``."""
    if not isinstance(report, dict):
        raise InputError(f"{where}: not a report of ccenv verify")
    missing = [key for key in _NEEDED if key not in report]
    if missing:
        raise InputError(f"{where}: not a report of ccenv verify: {missing[0]!r} is missing")
    if report["promises"] != ENDLESS:
        raise InputError(f"{where}: a report of promises {report['promises']!r}, not {ENDLESS}: make it again with this ccenv")
    sender = make_sender(agent or str(report["sender"]))
    if sender.name != report["sender"]:
        raise InputError(f"{where}: a report about {report['sender']!r}, not about {sender.name!r}")
    queries = [_query(query, where) for query in report["queries"]] if isinstance(report["queries"], list) else []
    _check_verdict(report["verdict"], [query["verdict"] for query in queries], where)
    trace = report.get("trace")
    data = {
        "format_version": ENDLESS,
        "agent": sender.name,
        "agent_sha256": sender_hash(sender),
        "model": report["model"],
        "buffer": report["buffer"],
        "property_name": report["property"],
        "steps": report["T"],
        "setting": report["setting_name"],
        "verdict": report["verdict"],
        "bound": None if report["property"] in EXCUSED else report.get("bound"),
        "queries": queries,
        "reason": report.get("reason") or (report.get("lasso", "") if report["verdict"] == "refuted" else ""),
        "seconds": report["seconds"],
        "solver": report["solver"],
        "trace": f"traces/{FilePath(trace).name}" if trace else None,
        "finished_at": now(),
    }
    return validate(Verification, data, where)


def _check_verdict(verdict: Any, verdicts: list[Any], where: str) -> None:
    """Check that a verdict follows from those of its queries: proved if all are, refuted if one is."""
    if not verdicts:
        raise InputError(f"{where}: a report without queries: nobody can decide it again")
    follows = {"verified": all(v == "verified" for v in verdicts), "refuted": "refuted" in verdicts}
    if not follows.get(str(verdict), True):
        raise InputError(f"{where}: the verdict is {verdict!r}, those of its queries are {', '.join(map(str, verdicts))[:100]}")


def _query(query: Any, where: str) -> dict[str, Any]:
    try:
        return {"claim": query["claim"], "verdict": query["verdict"], "sha256": query["evidence"]["sha256"]}
    except (KeyError, TypeError):
        raise InputError(f"{where}: not a report of ccenv verify: a query lacks its claim, verdict or evidence") from None


def _counterexample(name: Any, record: Verification, where: str) -> bytes:
    """Return the trace file of a report, if it is a trace of its sender on its model; no other local file is read out."""
    content = read_bounded(as_path("trace", name), MAX_BYTES)
    header = parse_trace(content, f"{where}, its counterexample {shown(str(name))}").header
    if (header.model, set(header.senders)) != (record.model, {record.agent}):
        seen, needed = f"{', '.join(header.senders)} on {header.model}", f"{record.agent} on {record.model}"
        raise InputError(f"{where}: its counterexample {shown(str(name))} is of {seen}, not of {needed}")
    return content


def store_report(report: Any, where: str, records: FilePath, agent: str | None = None) -> FilePath:
    """Store a report and its counterexample, replacing the same question about the same sender; return the record's folder.

    Raises InputError if the report or its trace file is invalid; CcenvError if it cannot be written.
    """
    record = make_record(report, where, agent)
    parts = [
        record.agent,
        record.agent_sha256[:8],
        record.model,
        f"buffer-{record.buffer}",
        record.property_name,
        f"T{record.steps}",
    ]
    folder = records / "verify" / re.sub("[^A-Za-z0-9_.-]", "-", "-".join(parts))
    trace = None if record.trace is None else _counterexample(report["trace"], record, where)
    make_folder(folder / "traces")
    if trace is not None:
        write_atomic(folder / str(record.trace), trace)
    write_atomic(folder / VERIFICATION, (record.model_dump_json(indent=1) + "\n").encode())
    return folder
