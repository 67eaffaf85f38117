"""The stages of an evaluation: a suite played with the submission's own seeds, and the verified envelope."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Protocol

from ccenv.agents.identity import sender_hash
from ccenv.base.errors import EngineError, InputError, NoEncodingError, require_extra
from ccenv.base.files import plain
from ccenv.base.provenance import VERSION, machine, now
from ccenv.benchmarks.cells.cell import Player, TraceCell, agent_player
from ccenv.benchmarks.cells.packet import cells_code
from ccenv.benchmarks.report.page import TRACES
from ccenv.benchmarks.results import ASKED
from ccenv.benchmarks.run.runner import make_cells, run_suite
from ccenv.benchmarks.store import CELLS, parse_cells
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.leaderboard.evaluate.trace_view import view_json
from ccenv.leaderboard.store.database import BoardStore
from ccenv.leaderboard.store.home import Home, evaluation_suite, find_secret
from ccenv.leaderboard.store.records import ENDLESS
from ccenv.leaderboard.store.submit import Entrant
from ccenv.proofs.formulas.setting import Setting

EVALUATION, ENVELOPE = "evaluation", "envelope"
VIEW = ".view.json"

Content = tuple[dict[str, Any], dict[str, bytes]]
Progress = Callable[[int, int], None]
"""Called with the numbers of finished and of all parts."""


@dataclass(frozen=True)
class Job:
    """The input of a stage."""

    entrant: Entrant
    store: BoardStore
    home: Home
    folder: FilePath
    backend: str
    workers: int | None

    @property
    def head(self) -> dict[str, Any]:
        record = self.entrant.record
        return {"submission": record.submission, "name": record.card.name, "recorded_at": now()}

    def with_submission_seeds(self, suite: SuiteBase) -> tuple[SuiteBase, dict[str, Any]]:
        """Return a suite with the seeds of the submission, and the record's description of the published suite."""
        record = self.entrant.record
        played = evaluation_suite(suite, suite.sha256, find_secret(self.store, self.home, record.round), record.submission)
        description = {"round": record.round, "suite": plain(suite.model_dump()), "suite_sha256": suite.sha256}
        return played, self.head | description


class Work(Protocol):
    """The work of a stage in a separate process; plain data."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds between two calls of progress that are allowed besides the cap of a cell."""

    def run(self, progress: Progress) -> Content:
        """Do or resume the work; return the record and its files."""


class Stage(Protocol):
    """A stage of the evaluation of a submission."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def kind(self) -> str:
        """Kind of the record."""

    @property
    def track(self) -> str:
        """Track of the submissions."""

    def slots(self, submission: str) -> tuple[str, str]:
        """Return the prefix of the slots of any time it was done, and the slot of doing it now."""

    def prepare(self, job: Job) -> Work:
        """Return the work; errors here concern the board or its settings, not the submission."""


@dataclass(frozen=True)
class SuiteStage:
    """A suite, played by a sender with the seeds of its submission.

    With ``traces`` the worst trace is stored; its view always is, and the trace can be reproduced.
    """

    suite: SuiteBase
    traces: bool = True
    kind = EVALUATION
    track = "sender"

    @property
    def name(self) -> str:
        return self.suite.name

    def slots(self, submission: str) -> tuple[str, str]:
        """Once per version of the suite and of the code."""
        stem = f"{EVALUATION}/{submission}/{self.suite.sha256}/"
        return stem, stem + cells_code()

    def prepare(self, job: Job) -> Work:
        """Derive the seeds and write the player."""
        played, content = job.with_submission_seeds(self.suite)
        spec, classic = job.entrant.write_player(job.folder / "player"), job.entrant.record.card.spec
        content |= {"stage": self.name}
        return SuiteWork(played, content, job.folder / self.name, spec, classic, job.backend, job.workers, self.traces)


@dataclass(frozen=True)
class SuiteWork:
    """A suite to be played."""

    played: SuiteBase
    content: dict[str, Any]
    folder: FilePath
    spec: str
    classic: str | None
    backend: str
    workers: int | None
    traces: bool
    cpu_s = 0.0

    def run(self, progress: Progress) -> Content:
        """Play what is not finished yet."""
        name = self.content["name"]
        manifest = run_suite(
            self.played,
            self.folder,
            extra_agents=[self.spec],
            backend=self.backend,
            workers=self.workers,
            progress=progress,
            pictures=False,
        )
        if not manifest["complete"]:
            raise InputError(f"{name}: {manifest['n_missing']} cells of suite {self.content['stage']} are missing")
        cells = (self.folder / CELLS).read_bytes()
        player = agent_player(self.spec, self.classic)
        files = {CELLS: cells, **self._worst_files(self.played, player, manifest["summary"][0], cells)}
        # A board runs no code of users: these keys are empty and stay out of the record.
        for key in (ASKED, "failed"):
            manifest.pop(key)
        agents = [{key: value for key, value in agent.items() if key != "source_sha256"} for agent in manifest["agents"]]
        manifest["agents"] = [{**agent, "spec": self.classic or name} for agent in agents]
        return {**self.content, "manifest": manifest}, files

    def _worst_files(self, played: SuiteBase, player: Player, entry: dict[str, Any], lines: bytes) -> dict[str, bytes]:
        """Return the trace and view of the worst case, repeated and compared with its record; packet suites have none."""
        worst = entry["worst_case"]
        cell = next((c for c in make_cells(played, [player]) if worst and c.key == worst["key"]), None)
        if not isinstance(cell, TraceCell):
            return {}
        trace = cell.trace()
        recorded = next(record for record in parse_cells(lines, FilePath(CELLS)) if record["key"] == cell.key)
        if cell.values(trace) != recorded["metrics"]:
            raise EngineError(f"cell {cell.name}: played again it has other metrics than its record")
        worst["trace"] = f"{TRACES}/{cell.key}.npz"
        files = {worst["trace"] + VIEW: view_json(trace)}
        if self.traces:
            with tempfile.TemporaryDirectory() as scratch:
                trace.save(FilePath(scratch) / "trace.npz")
                files[worst["trace"]] = (FilePath(scratch) / "trace.npz").read_bytes()
        return files


@dataclass(frozen=True)
class EnvelopeStage:
    """Bounds that a solver proves within a budget; a sender without an encoding gets a record that says so."""

    budget_s: float
    samples: int = 9
    name = "envelope"
    kind = ENVELOPE
    track = "sender"

    def slots(self, submission: str) -> tuple[str, str]:
        """Once per version of ccenv, length and budget."""
        stem = f"{ENVELOPE}/{submission}/"
        return stem, f"{stem}{VERSION}/T{self.samples}/{self.budget_s:g}s"

    def prepare(self, job: Job) -> Work:
        """Check the setting and write the player."""
        require_extra("z3", "verify")

        Setting(samples=self.samples)
        spec = job.entrant.write_player(job.folder / "player")
        content = {**job.head, "stage": self.name, "T": self.samples, "budget_s": self.budget_s, "machine": machine()}
        content["player_sha256"] = sender_hash(job.entrant.player)  # type: ignore[arg-type]
        content["promises"] = ENDLESS
        return EnvelopeWork(content, str(job.folder / self.name), spec, job.workers or 1)


@dataclass(frozen=True)
class EnvelopeWork:
    """An envelope to be computed."""

    content: dict[str, Any]
    folder: str
    spec: str
    workers: int

    @property
    def cpu_s(self) -> float:
        """The solver holds its own budget of wall time; here only what it could burn in that time."""
        return float(self.content["budget_s"]) * self.workers

    def run(self, progress: Progress) -> Content:
        from ccenv.proofs.claims.envelope import EnvelopeRun, run_envelope

        content, done = self.content, 0

        def show(_: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            progress(done, max(done, _ENVELOPE_ROWS))

        run = EnvelopeRun(self.spec, content["T"], None, content["budget_s"], folder=self.folder)
        try:
            table = run_envelope(run, self.workers, progress=show)
        except NoEncodingError as error:
            reason = str(error).replace(self.spec, content["name"])[:500]
            return {**content, "rows": [], "reason": reason, "solver": "", "setting_name": "none", "seconds": 0.0}, {}
        rows = [{key: row.get(key) for key in _ROW} for row in table["rows"]]
        return {
            **content,
            "rows": rows,
            "reason": "",
            "solver": table["solver"],
            "setting_name": table["setting_name"],
            "seconds": table["seconds"],
        }, {}


_ENVELOPE_ROWS = 33  # of a program; for the progress bar only
_ROW = ("model", "buffer", "metric", "unit", "verdict", "bound", "beyond", "seconds", "reason", "query_sha256")
