"""What an audit does again, as work for a process that can be ended: runs of a suite or panel, and proved bounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ccenv.benchmarks.cells.players import agent_player
from ccenv.benchmarks.run.runner import cells_for
from ccenv.benchmarks.run.store import CELLS, parse_cells
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.curve import Suite, suite_of
from ccenv.document import canonical_json
from ccenv.errors import CcenvError
from ccenv.foreign import parse_json
from ccenv.leaderboard.evaluate.damage import DAMAGE, DamageCell, measured, undisturbed_cells
from ccenv.leaderboard.evaluate.stages import Content, Progress, Work
from ccenv.leaderboard.store.contents import damage_of
from ccenv.leaderboard.store.database import Readable, Stored
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.rounds import evaluation_suite, secret_of
from ccenv.leaderboard.submission.reader import parse_submission
from ccenv.leaderboard.submission.submit import Entrant

EQUAL, VERDICT, SAME_QUERY = "equal", "verdict", "same_query"
_NOT_COMPARED = ("key", "code_sha256")


@dataclass(frozen=True)
class Sampled:
    """Something of a record that is done again: a run by its place among the record's cells, or a row of an envelope."""

    record: Stored
    place: int

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{title_of(self.record)}, line {self.place + 1}"


def title_of(record: Stored) -> str:
    """Return what people call a record of a stage."""
    return f"record {record.number} ({record.content['name']}, {record.content['stage']})"


def played_suite(board: Readable, home: Home, record: Stored) -> SuiteBase:
    """Return the suite of a record with the seeds that follow from the submission and the secret of its round."""
    suite = suite_of(record.content["suite"], f"record {record.number}")
    secret = secret_of(board, home, record.content["round"])
    return evaluation_suite(suite, record.content["suite_sha256"], secret, record.subject)


def run_work(board: Readable, home: Home, entrant: Entrant, item: Sampled, folder: FilePath) -> Work:
    """Return the work of playing a run again.

    Args:
        board: sound records.
        home: where the secrets of open rounds lie.
        entrant: who played.
        item: which run.
        folder: for the player.
    """
    if item.record.kind == DAMAGE:
        damage = damage_of(item.record)
        return PanelAgain(damage.as_run, dict(entrant.files), item.place, damage.cells[item.place], item.title)
    line = parse_cells(board.file(item.record.files[CELLS]), FilePath(CELLS))[item.place]
    spec = entrant.write_player(folder / entrant.record.submission[:16])
    return RunAgain(played_suite(board, home, item.record), spec, entrant.record.card.spec, item.place, line)


def proof_work(entrant: Entrant, item: Sampled, time_limit_s: float, folder: FilePath) -> Work:
    """Return the work of deciding a proved bound again."""
    spec = entrant.write_player(folder / entrant.record.submission[:16])
    content = item.record.content
    return ProofAgain(spec, content["T"], content["setting_name"], time_limit_s, content["rows"][item.place])


@dataclass(frozen=True)
class RunAgain:
    """A run of a suite; equal means that all numbers are the same to the last bit."""

    played: SuiteBase
    spec: str
    classic: str | None
    place: int
    line: dict[str, Any]
    cpu_s = 0.0

    def run(self, progress: Progress) -> Content:
        """Play it."""
        del progress
        cells = cells_for(self.played, [agent_player(self.spec, self.classic)])
        if self.place >= len(cells):
            return {EQUAL: False}, {}
        again = parse_json(canonical_json(cells[self.place].run()), "run")
        return {EQUAL: all(again.get(key) == value for key, value in self.line.items() if key not in _NOT_COMPARED)}, {}


@dataclass(frozen=True)
class PanelAgain:
    """A run of the adversaries' panel."""

    suite: dict[str, Any]
    files: dict[str, bytes]
    place: int
    cell: DamageCell
    title: str
    cpu_s = 0.0

    def run(self, progress: Progress) -> Content:
        """Play it."""
        del progress
        played = suite_of(self.suite, self.title)
        if not isinstance(played, Suite):
            raise CcenvError("not a suite of the curve engine")
        panel = undisturbed_cells(played)
        if self.place >= len(panel):
            return {EQUAL: False}, {}
        adversary: Any = parse_submission(self.files, self.title).player
        again = measured(panel[self.place], adversary)[0].model_dump()
        stored = self.cell.model_dump(exclude_none=True)  # older records have no hash of the sender
        return {EQUAL: all(again[key] == value for key, value in stored.items())}, {}


@dataclass(frozen=True)
class ProofAgain:
    """A proved bound."""

    spec: str
    samples: int
    setting: str
    time_limit_s: float
    row: dict[str, Any]

    @property
    def cpu_s(self) -> float:
        """The solver holds its own limit of wall time."""
        return self.time_limit_s

    def run(self, progress: Progress) -> Content:
        """Decide it."""
        from ccenv.smt.claims.envelope import EnvelopeRun, check_bound

        del progress
        run = EnvelopeRun(self.spec, self.samples, self.setting, time_limit_s=self.time_limit_s, reuse=False)
        sha256, verdict = check_bound(run, self.row)
        return {SAME_QUERY: sha256 == self.row["query_sha256"], VERDICT: verdict}, {}
