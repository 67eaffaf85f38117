"""The work that an audit repeats in a separate process: runs of a suite or panel, and proved bounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, cast

from ccenv.base.errors import CcenvError
from ccenv.base.files import canonical_json
from ccenv.base.foreign import parse_json
from ccenv.benchmarks.cells.cell import TraceCell, agent_player
from ccenv.benchmarks.run.runner import make_cells
from ccenv.benchmarks.store import CELLS, parse_cells
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.curve import Suite
from ccenv.leaderboard.audit.contents import Evaluation, Item
from ccenv.leaderboard.evaluate.damage import WORST_VIEW, Damage, DamageCell, measure_damage, undisturbed_cells
from ccenv.leaderboard.evaluate.stages import VIEW, Content, Progress, Work
from ccenv.leaderboard.evaluate.trace_view import view_json
from ccenv.leaderboard.store.database import Readable, Stored
from ccenv.leaderboard.store.home import Home, evaluation_suite, find_secret
from ccenv.leaderboard.store.records import PlayedContent
from ccenv.leaderboard.store.runs import published_suite
from ccenv.leaderboard.store.submit import Entrant
from ccenv.leaderboard.submission.reader import parse_submission
from ccenv.network.trace import parse_trace

EQUAL, VERDICT, SAME_QUERY = "equal", "verdict", "same_query"
_NOT_COMPARED = ("key", "code_sha256")


@dataclass(frozen=True)
class Sampled:
    """A sampled part of a record: a run by its index among the cells, or a row of an envelope."""

    item: Item
    place: int

    @property
    def record(self) -> Stored:
        """The record that it is part of."""
        return self.item.record

    @property
    def title(self) -> str:
        """Name for messages."""
        return f"{make_title(self.record)}, line {self.place + 1}"


def make_title(record: Stored) -> str:
    """Return the name of a record for messages."""
    return f"record {record.number} ({record.content['name']}, {record.content['stage']})"


def rebuild_suite(board: Readable, home: Home, content: PlayedContent, where: str) -> SuiteBase:
    """Return the suite of a record with the seeds that follow from the submission and the secret of its round."""
    suite = published_suite(content, where)
    secret = find_secret(board, home, content.round)
    return evaluation_suite(suite, content.suite_sha256, secret, content.submission).model_copy(update={"agents": suite.agents})


def run_work(board: Readable, home: Home, entrant: Entrant, sampled: Sampled, folder: FilePath) -> Work:
    """Return the work of repeating a run."""
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
    """Return the work of deciding a proved bound again."""
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
        """Play it."""
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
        """Play it."""
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
        """Decide it."""
        from ccenv.proofs.claims.envelope import EnvelopeRun, check_bound

        del progress
        run = EnvelopeRun(self.spec, self.samples, time_limit_s=self.time_limit_s, reuse=False)
        sha256, verdict = check_bound(run, self.row)
        return {SAME_QUERY: sha256 == self.row["query_sha256"], VERDICT: verdict}, {}
