"""Audits: check that records are unedited and consistent, and repeat random runs and proofs.

A board that was edited is read as far as it is sound; everything else is listed as a problem.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, cast

import numpy as np

from ccenv.base.errors import CcenvError, require_extra
from ccenv.base.files import canonical_json
from ccenv.base.foreign import parse_json
from ccenv.base.provenance import machine, now
from ccenv.benchmarks.cells.cell import TraceCell, agent_player
from ccenv.benchmarks.cells.packet import cells_code
from ccenv.benchmarks.results import summarise
from ccenv.benchmarks.run.runner import make_cells
from ccenv.benchmarks.store import CELLS, parse_cells
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.curve import Suite
from ccenv.leaderboard.audit.contents import AUDIT, Contents, Evaluation, Item
from ccenv.leaderboard.evaluate.damage import (
    DAMAGE,
    WORST_VIEW,
    Damage,
    DamageCell,
    compute_score,
    measure_damage,
    undisturbed_cells,
)
from ccenv.leaderboard.evaluate.queue import Failed, Limits, Worker
from ccenv.leaderboard.evaluate.stages import ENVELOPE, EVALUATION, VIEW, Content, Progress, Work
from ccenv.leaderboard.evaluate.trace_view import view_json
from ccenv.leaderboard.store.database import START, BoardStore, Readable, Stored, extend_chain, parse_row
from ccenv.leaderboard.store.head import Expected
from ccenv.leaderboard.store.home import Home, evaluation_suite, find_secret
from ccenv.leaderboard.store.records import Envelope, PlayedContent
from ccenv.leaderboard.store.runs import published_suite
from ccenv.leaderboard.store.submit import Entrant
from ccenv.leaderboard.submission.reader import parse_submission
from ccenv.network.trace import parse_trace


@dataclass
class Survey:
    """The sound records of a board."""

    read: Callable[[str], bytes]
    contents: Contents
    sound: list[Stored] = field(default_factory=list)  # readable records whose hashes hold
    chain: list[Stored] = field(default_factory=list)  # all rows whose hash and place in the chain hold, readable or not
    n_rows: int = 0
    problems: list[str] = field(default_factory=list)

    def records(self, kind: str | None = None, subject: str | None = None) -> list[Stored]:
        """Return sound records in order, all or those of a kind or subject."""
        chosen = (record for record in self.sound if kind in (None, record.kind))
        return [record for record in chosen if subject in (None, record.subject)]

    def file(self, sha256: str) -> bytes:
        return self.read(sha256)


def survey(store: BoardStore) -> Survey:
    """Read every row, file and content of a board; a problem with one does not stop the others."""
    out = Survey(store.file, Contents(store.file))
    before, expected = START, 1
    for row in store.rows():
        out.n_rows += 1
        number = row["number"]
        if number > expected:
            missing = f"record {expected}" if number == expected + 1 else f"records {expected} to {number - 1}"
            out.problems.append(f"{missing} of the board: missing")
        elif row["chain"] != extend_chain(before, row["sha256"]):
            out.problems.append(f"record {number} of the board does not follow the one before it")
        before, expected = row["chain"], number + 1
        try:
            record = parse_row(row)
            out.chain.append(record)
            for digest in record.files.values():
                store.file(digest)
            out.contents.add(record)
        except CcenvError as error:
            text = str(error)
            out.problems.append(text if text.startswith("record ") else f"record {number}: {text}")
        else:
            out.sound.append(record)
    return out


@dataclass
class _Redone:
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("n_rerun", "n_equal", "n_incomparable", "n_proofs", "n_confirmed", "n_undecided", "n_same_query"), 0
        )
    )
    problems: list[str] = field(default_factory=list)
    unconfirmed: dict[int, tuple[Stored, int]] = field(default_factory=dict)


def audit(
    store: BoardStore,
    home: Home,
    *,
    sample: int = 20,
    certificates: int = 5,
    seed: int | None = None,
    time_limit_s: float = 60.0,
    keep: bool = True,
    expected: Iterable[Expected] = (),
    limits: Limits | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Check a board; problems are collected, and none ends the audit.

    Checked are the hashes of all records, the chain and all files; the heads that the chain must hold, ``expected`` and the one
    in the board's folder; every submission, parsed as if it were submitted today; commitments of closed rounds; the seeds of
    every evaluation, and its summary or score, recomputed from its cells; ``sample`` random runs, repeated and compared bit by
    bit; and ``certificates`` random bounds, decided again by the solver in ``time_limit_s`` each (the extra verify). The sample's
    ``seed`` is random by default, so that nobody can predict it; ``keep`` stores the outcome as a record.

    Returns:
        dict: counts, ``head`` (hash of the chain), ``problems``, ``foreign`` (records made on another machine) and the sample's
        seed. Only the same code on the same machine promises equal bits; another run that differs is a problem too.
    """
    board = survey(store)
    problems = [*board.problems, *_check_heads(board, home, expected)]
    checked = [(item.record, _check_played(board, home, item)) for item in board.contents.items]
    problems += [f"{make_title(record)}: {problem}" for record, problem in checked if problem is not None]
    sample_seed = secrets.randbits(31) if seed is None else seed
    generator = np.random.Generator(np.random.Philox(sample_seed))
    runs = _draw_sample(generator, _all_runs(board), sample)
    proofs = _draw_sample(generator, _all_proofs(board), certificates)
    if proofs:
        require_extra("z3", "verify")
    redone = _redo(board, home, runs, proofs, time_limit_s, limits or Limits(), progress)
    problems += redone.problems + _list_unconfirmed(redone)
    head = board.chain[-1].chain if board.chain else None
    result = {"n_records": board.n_rows, "head": head, **redone.counts, "sample_seed": sample_seed, "problems": problems}
    result |= {"foreign": _list_foreign(board), "recorded_at": now()}
    if keep:
        home.remember_audit(store.append(AUDIT, "", f"{AUDIT}/{board.n_rows}", result, {}).sha256)
    return result


def _check_heads(board: Survey, home: Home, expected: Iterable[Expected]) -> list[str]:
    try:
        remembered = home.memory.recall()
    except CcenvError as error:
        return [str(error)]
    heads = [*expected, *([remembered] if remembered is not None else [])]
    return [problem for head in heads if (problem := head.problem(board.chain)) is not None]


def _redo(
    board: Survey, home: Home, runs: list[Sampled], proofs: list[Sampled], time_limit_s: float, limits: Limits, progress: Progress
) -> _Redone:
    redone, total = _Redone(), len(runs) + len(proofs)
    with tempfile.TemporaryDirectory() as scratch, Worker(limits) as worker:
        for done, item in enumerate([*runs, *proofs]):
            progress(done, total)
            entrant = Entrant(board.contents.submissions[item.record.subject].record, board)
            is_proof = item.record.kind == ENVELOPE
            redone.counts["n_proofs" if is_proof else "n_rerun"] += 1
            try:
                folder = FilePath(scratch)
                work = (
                    proof_work(entrant, item, time_limit_s, folder) if is_proof else run_work(board, home, entrant, item, folder)
                )
                outcome = worker.do(work, lambda done, total: None)
            except CcenvError as error:
                outcome = Failed(str(error))
            if isinstance(outcome, Failed):
                redone.problems.append(f"{item.title}: cannot be done again ({outcome.reason[:300]})")
            elif is_proof:
                _count_proof(redone, item, outcome[0], time_limit_s)
            else:
                _count_run(redone, item, outcome[0][EQUAL])
        progress(total, total)
    return redone


def _count_run(out: _Redone, item: Sampled, equal: bool) -> None:
    if equal:
        out.counts["n_equal"] += 1
    elif _is_comparable(item.record):
        out.problems.append(f"{item.title}: played again it differs")
    else:
        out.counts["n_incomparable"] += 1
        _, before = out.unconfirmed.get(item.record.number, (item.record, 0))
        out.unconfirmed[item.record.number] = item.record, before + 1


def _count_proof(out: _Redone, item: Sampled, answer: dict[str, Any], time_limit_s: float) -> None:
    same, verdict = bool(answer[SAME_QUERY]), answer[VERDICT]
    out.counts["n_same_query"] += same
    out.counts["n_confirmed"] += same and verdict == "verified"
    out.counts["n_undecided"] += verdict == "unknown"
    if verdict == "refuted":
        out.problems.append(f"{item.title}: the bound is not proved, its query has a counterexample")
    elif verdict == "unknown":
        out.problems.append(f"{item.title}: the bound is not decided within {time_limit_s:g} s: not confirmed")
    elif not same:
        out.problems.append(f"{item.title}: this ccenv asks another query than the record names: not confirmed")


def _list_unconfirmed(again: _Redone) -> list[str]:
    """Return the runs that an audit cannot confirm, and a notice if it could compare nothing at all."""
    counts = again.counts
    out = [
        f"{make_title(record)}: {count} of its runs differ here, and it names {_describe_origin(record)}: not confirmed"
        for record, count in again.unconfirmed.values()
    ]
    if counts["n_rerun"] and counts["n_incomparable"] == counts["n_rerun"]:
        out.append(f"nothing could be compared: all {counts['n_rerun']} runs are of other code or another machine")
    return out


def _origin_of(record: Stored) -> dict[str, Any]:
    made: dict[str, Any] = record.content if record.kind == DAMAGE else record.content["manifest"]
    return made


def _describe_origin(record: Stored) -> str:
    made = _origin_of(record)
    processor = f"processor {str(made['machine'].get('processor'))[:80]!r}"
    return processor if made["code_sha256"] == cells_code() else f"{processor} and code {made['code_sha256'][:12]}"


def _list_foreign(board: Survey) -> list[str]:
    processor = machine()["processor"]
    stages = (record for record in board.sound if record.kind in (EVALUATION, DAMAGE))
    foreign = [record for record in stages if _origin_of(record)["machine"].get("processor") != processor]
    return [f"{make_title(record)}: {_describe_origin(record)}; this is {processor!r}" for record in foreign]


def _is_comparable(record: Stored) -> bool:
    made = _origin_of(record)
    return bool(made["code_sha256"] == cells_code() and made["machine"].get("processor") == machine()["processor"])


def _check_played(board: Survey, home: Home, item: Item) -> str | None:
    """Recompute the seeds of a record, and its summary or score from its cells; return the problem, or None."""
    content, data = item.content, item.record.content
    if not isinstance(content, (Evaluation, Damage)):
        return None
    try:
        played = rebuild_suite(board, home, content, make_title(item.record))
    except CcenvError as error:
        return f"its seeds cannot be checked ({error})"
    is_damage = isinstance(content, Damage)
    if (data["played"] if is_damage else data["manifest"]["suite"])["seeds"] != list(played.seeds):
        return "its seeds do not follow from the submission and the secret"
    if isinstance(content, Damage):
        return None if compute_score(content.cells) == data["score"] else "its score does not follow from its cells"
    summary_again = summarise(played, parse_cells(board.file(item.record.files[CELLS]), FilePath(CELLS)))
    summary = [
        entry | {"worst_case": worst and {key: value for key, value in worst.items() if key not in ("trace", "plot")}}
        for entry in data["manifest"]["summary"]
        for worst in [entry["worst_case"]]
    ]
    return None if summary_again == summary else "its summary does not follow from its cells"


def _all_runs(board: Survey) -> list[Sampled]:
    """Return the runs of current records: not withdrawn, not superseded by a run of other code."""
    played = [*board.contents.of(Evaluation), *board.contents.of(Damage)]
    newest = {(type(content), content.submission, content.suite_sha256): item.record.number for item, content in played}
    out = []
    for item, content in sorted(played, key=lambda pair: pair[0].record.number):
        superseded = newest[type(content), content.submission, content.suite_sha256] != item.record.number
        if not superseded or _origin_of(item.record)["code_sha256"] == cells_code():
            n_runs = len(content.cells) if isinstance(content, Damage) else len(item.cells)
            out += [Sampled(item, place) for place in range(n_runs)]
    return out


def _all_proofs(board: Survey) -> list[Sampled]:
    return [
        Sampled(item, place)
        for item, envelope in board.contents.of(Envelope)
        for place, row in enumerate(envelope.rows)
        if row.bound is not None
    ]


def _draw_sample(generator: np.random.Generator, items: list[Sampled], count: int) -> list[Sampled]:
    chosen = generator.permutation(len(items))[:count]
    return [items[int(i)] for i in sorted(chosen)]


EQUAL, VERDICT, SAME_QUERY = "equal", "verdict", "same_query"
_NOT_COMPARED = ("key", "code_sha256")


@dataclass(frozen=True)
class Sampled:
    """A sampled part of a record: a run by its index among the cells, or a row of an envelope."""

    item: Item
    place: int

    @property
    def record(self) -> Stored:
        return self.item.record

    @property
    def title(self) -> str:
        """Name for messages."""
        return f"{make_title(self.record)}, line {self.place + 1}"


def make_title(record: Stored) -> str:
    return f"record {record.number} ({record.content['name']}, {record.content['stage']})"


def rebuild_suite(board: Readable, home: Home, content: PlayedContent, where: str) -> SuiteBase:
    """Return the suite of a record with the seeds that follow from the submission and the secret of its round."""
    suite = published_suite(content, where)
    secret = find_secret(board, home, content.round)
    return evaluation_suite(suite, content.suite_sha256, secret, content.submission).model_copy(update={"agents": suite.agents})


def run_work(board: Readable, home: Home, entrant: Entrant, sampled: Sampled, folder: FilePath) -> Work:
    content, record, place = sampled.item.content, sampled.record, sampled.place
    if not isinstance(content, (Evaluation, Damage)):
        raise CcenvError(f"{sampled.title}: not a run")
    played = rebuild_suite(board, home, content, sampled.title)
    if isinstance(content, Damage):
        cell = content.cells[place]
        view = _file(board, record, WORST_VIEW) if cell == content.worst else None
        return RepeatedPanelRun(played, dict(entrant.files), place, cell, view, sampled.title)
    line = parse_cells(board.file(record.files[CELLS]), FilePath(CELLS))[place]
    worst = content.manifest.summary[0].worst_case
    views: list[bytes] = []
    if worst is not None and worst.trace is not None and worst.key == line["key"]:
        stored, trace = _file(board, record, worst.trace + VIEW), _file(board, record, worst.trace)
        views = [view for view in (stored, trace and view_json(parse_trace(trace, sampled.title))) if view is not None]
    spec = entrant.write_player(folder / entrant.record.submission[:16])
    return RepeatedRun(played, spec, entrant.record.card.spec, place, line, views)


def _file(board: Readable, record: Stored, name: str) -> bytes | None:
    return board.file(record.files[name]) if name in record.files else None


def proof_work(entrant: Entrant, sampled: Sampled, time_limit_s: float, folder: FilePath) -> Work:
    spec = entrant.write_player(folder / entrant.record.submission[:16])
    content = sampled.record.content
    return RepeatedProof(spec, content["T"], time_limit_s, content["rows"][sampled.place])


@dataclass(frozen=True)
class RepeatedRun:
    """A run of a suite; equal: all numbers, and the view of its trace, agree bit by bit."""

    played: SuiteBase
    spec: str
    classic: str | None
    place: int
    line: dict[str, Any]
    views: list[bytes]
    cpu_s = 0.0

    def run(self, progress: Progress) -> Content:
        del progress
        cell = make_cells(self.played, [agent_player(self.spec, self.classic)])[self.place]
        again = parse_json(canonical_json(cell.run()), "run")
        equal = all(again.get(key) == value for key, value in self.line.items() if key not in _NOT_COMPARED)
        if equal and self.views:
            equal = isinstance(cell, TraceCell) and {view_json(cell.trace())} == set(self.views)
        return {EQUAL: equal}, {}


@dataclass(frozen=True)
class RepeatedPanelRun:
    """A run of the adversaries' panel."""

    played: SuiteBase
    files: dict[str, bytes]
    place: int
    cell: DamageCell
    view: bytes | None
    title: str
    cpu_s = 0.0

    def run(self, progress: Progress) -> Content:
        del progress
        adversary: Any = parse_submission(self.files, self.title).player
        again, trace = measure_damage(undisturbed_cells(cast(Suite, self.played))[self.place], adversary)
        return {EQUAL: again == self.cell and self.view in (None, view_json(trace))}, {}


@dataclass(frozen=True)
class RepeatedProof:
    """A proved bound, in the setting of an evaluation, which a record cannot choose."""

    spec: str
    samples: int
    time_limit_s: float
    row: dict[str, Any]

    @property
    def cpu_s(self) -> float:
        """The solver holds its own limit of wall time."""
        return self.time_limit_s

    def run(self, progress: Progress) -> Content:
        from ccenv.proofs.claims.envelope import EnvelopeRun, check_bound

        del progress
        run = EnvelopeRun(self.spec, self.samples, time_limit_s=self.time_limit_s, reuse=False)
        sha256, verdict = check_bound(run, self.row)
        return {SAME_QUERY: sha256 == self.row["query_sha256"], VERDICT: verdict}, {}
