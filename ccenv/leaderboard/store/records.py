"""Types of a board's records, and strict reading of benchmark folders and verification records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError, model_validator

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError
from ccenv.base.files import hash_value
from ccenv.base.foreign import JsonRules, is_file, parse_json, read_bounded, read_json, resolve_inside
from ccenv.benchmarks.store import CELLS, FORMAT, MANIFEST
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.curve import validate_suite
from ccenv.leaderboard.submission.document import check_visible

_WORDS = ("summary", "notes", "tags", "references", "table", "figures")  # not part of a suite's hash
VERIFICATION = "verification.json"
DATABASE = "board.db"  # marks a board's own folder
MAX_BYTES = 64 << 20

# Names that may appear in a page, and files that it may link.
LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:=,+\[\]-]{0,99}$"
_FILE_PATTERN = r"^traces/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,120}\.(npz|png)$"

FIRST_MOMENT = "2026-01-01T00:00:00Z"  # no record of a board is older


def _check_moment(text: str) -> str:
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        raise ValueError("no date and time of the calendar") from None
    if text < FIRST_MOMENT:
        raise ValueError(f"before {FIRST_MOMENT}: no board has records of that time")
    return text


Label = Annotated[str, Field(pattern=LABEL_PATTERN)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, Field(max_length=2000), AfterValidator(check_visible)]
Verdict = Literal["verified", "refuted", "unknown"]
Moment = Annotated[str, Field(pattern=r"^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z$"), AfterValidator(_check_moment)]
Real = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]  # sums and pictures of such numbers are finite
Positive = Annotated[float, Field(ge=1e-9, le=1e12, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=0, le=10**9)]
RoundNumber = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class MachineRecord(StrictModel):
    """The machine of a run, as ``ccenv.base.provenance.machine`` describes it."""

    processor: Text
    cores: Count | None = None
    memory_gib: Real | None = None
    system: Text = ""


class PlayerRecord(StrictModel):
    """A sender of a run, a stored ``ccenv.benchmarks.cells.cell.Player``; a board runs no code of users."""

    label: Label
    kind: Label
    spec: Text
    sha256: Sha256
    source_sha256: Literal[""] = ""


class FlowRecord(BaseModel):
    """The part of a flow that pages read."""

    rtt_s: Positive


class PathRecord(BaseModel):
    """The part of a path that pages read."""

    flows: tuple[FlowRecord, ...] = Field(min_length=1)


class CellRecord(StrictModel):
    """One finished cell of a run, of either engine."""

    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    code_sha256: Sha256
    agent_sha256: Sha256
    scenario: Label
    agent: Label
    adversary: Label
    seed: int
    engine_seed: int
    model: Label
    path: PathRecord
    metrics: dict[str, Real | None]
    parameters: dict[str, Any] | None = None
    series: Any = None
    preconditions: Any = None

    @property
    def rtt_s(self) -> float:
        """Smallest propagation RTT of the path."""
        return min(flow.rtt_s for flow in self.path.flows)


class WorstCase(StrictModel):
    """The worst value, with its adversary and trace."""

    metric: Text
    value: Real
    scenario: Label
    adversary: Label
    seed: int
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    trace: Annotated[str, Field(pattern=_FILE_PATTERN)] | None = None
    plot: Annotated[str, Field(pattern=_FILE_PATTERN)] | None = None


class Score(StrictModel):
    """The nominal score with its interval."""

    metric: Text
    adversary: Label
    iqm: Real
    low: Real
    high: Real
    n_runs: Count


class Summary(StrictModel):
    """The summary of one sender in a run."""

    agent: Label
    agent_sha256: Sha256
    n_cells: Count
    score: Score | None
    against: dict[str, dict[str, Real | None]]
    worst_case: WorstCase | None
    worst_by_goal: dict[Label, WorstCase | None] = Field(default_factory=dict)


class Manifest(StrictModel):
    """The manifest of a benchmark folder."""

    format: Literal["ccenv-bench"] = "ccenv-bench"  # the board stores it without head
    format_version: Literal[1] = 1
    suite: dict[str, Any]
    suite_sha256: Sha256
    code_sha256: Sha256
    agents: list[PlayerRecord] = Field(min_length=1)
    complete: bool
    n_cells: Count
    n_missing: Count
    versions: dict[str, Text]
    machine: MachineRecord
    finished_at: Moment
    statistics: dict[str, Text | Real]
    summary: list[Summary]
    references: list[dict[str, Any]]
    table: dict[str, dict[str, Real | None]] = Field(default_factory=dict)
    asked: dict[str, Any] = Field(default_factory=dict)
    failed: list[Any] = Field(default_factory=list, max_length=0)

    @model_validator(mode="after")
    def _check_complete(self) -> Self:
        if self.complete != (self.n_missing == 0):
            raise ValueError(f"n_missing is {self.n_missing}, but complete is {str(self.complete).lower()}")
        return self


ENDLESS = 2
"""From this version of promises on, a bound holds of an endless run."""

EXCUSED = frozenset({"invariant", "full_invariant", "utilisation_or_rise"})
"""Properties of one trace that any progress excuses (``ccenv.proofs.claims.claims.EXCUSED``)."""

EXCUSED_IN_VERSION_1 = EXCUSED | {"utilisation", "inflight", "queue", "rtt"}


OF_RUNS = frozenset(
    {"utilisation", "utilisation_with_timeouts", "inflight", "queue", "rtt", "loss", "loss_events", "loss_amount", "f-efficient"}
)
"""Properties of a sender's runs, which ``ccenv verify property`` proves step by step (``ccenv.proofs.claims.claims.CLAIMS``)."""

STEP_FAILS = "step fails"  # why a claim about runs is unknown where a trace from any start breaks a step to it


def _downgrade_refuted(data: Any) -> Any:
    """Return a refuted claim about runs as unknown, unless its reason says that a trace repeats; older code gave no reason."""
    if isinstance(data, dict) and data.get("verdict") == "refuted" and not data.get("reason"):
        return {**data, "verdict": "unknown", "reason": STEP_FAILS}
    return data


class ProofQuery(StrictModel):
    """One query of a verification, with the hash of its SMT-LIB text."""

    claim: Text
    verdict: Verdict
    sha256: Sha256


class Verification(StrictModel):
    """A solver's answer about one sender.

    Attributes:
        model, buffer, property_name, steps: network model, buffer, property, and T, the samples of the trace.
        setting: history before the trace.
        bound: the proved number, if the property has one.
        reason: why the verdict is unknown, or that a refuting trace repeats.
        seconds: time of the solver.
        solver: name and version.
        trace: file beside the record: the counterexample, or the trace at which a step fails.
        format_version: 1: the properties ``utilisation``, ``inflight``, ``queue`` and ``rtt`` were excused by any progress.
    """

    format: Literal["ccenv-verification"] = "ccenv-verification"
    format_version: Literal[1, 2] = 1
    agent: Label
    agent_sha256: Sha256
    model: Label
    buffer: Label
    property_name: Label
    steps: int = Field(ge=1)
    setting: Label
    verdict: Verdict
    bound: Annotated[float, Field(allow_inf_nan=False)] | None = None
    queries: tuple[ProofQuery, ...] = Field(min_length=1)
    reason: Text = ""
    seconds: float = Field(ge=0, allow_inf_nan=False)
    solver: Text
    trace: Annotated[str, Field(pattern=_FILE_PATTERN)] | None = None
    finished_at: Moment

    @model_validator(mode="before")
    @classmethod
    def _refuted_by_what_repeats(cls, data: Any) -> Any:
        of_runs = isinstance(data, dict) and str(data.get("property_name")) in EXCUSED | OF_RUNS
        return _downgrade_refuted(data) if of_runs else data

    @property
    def excused(self) -> bool:
        """Whether any progress excuses a trace: the bound then does not hold for a run."""
        return self.property_name in (EXCUSED if self.format_version >= ENDLESS else EXCUSED_IN_VERSION_1)

    @property
    def question(self) -> str:
        excuse = "or any progress, one trace of " if self.excused else ""
        return f"{excuse}{self.property_name} on {self.model}, buffer {self.buffer}, T = {self.steps}, setting {self.setting}"


class EnvelopeRow(StrictModel):
    """One cell of a verified envelope: the best constant of a metric on a model and buffer."""

    model: Label
    buffer: Label
    metric: Text
    unit: Text
    verdict: Verdict
    bound: Real | None
    beyond: Real | None
    seconds: float = Field(ge=0, le=1e9)
    reason: Text | None
    query_sha256: Sha256 | None

    _refuted_by_what_repeats = model_validator(mode="before")(_downgrade_refuted)

    @model_validator(mode="after")
    def _proved(self) -> Self:
        if (self.verdict == "verified") != (self.bound is not None) or (self.bound is not None and self.query_sha256 is None):
            raise ValueError("a verified row has its bound and the hash of its query, and no other row has a bound")
        return self


class RecordContent(StrictModel):
    """The fields of every record of a board."""

    files: dict[Annotated[str, Field(max_length=200)], Sha256]
    recorded_at: Moment


class StageContent(RecordContent):
    """The fields of every record about a submission."""

    submission: Sha256
    name: Label


class PlayedContent(StageContent):
    """The fields of every record of a suite or panel played with the seeds of a round.

    ``suite`` is the published one, with the hash ``suite_sha256``.
    """

    stage: Label
    round: RoundNumber
    suite: dict[str, Any]
    suite_sha256: Sha256


class Envelope(StageContent):
    """Bounds that a solver proved about a submission within a budget; no rows without an encoding."""

    stage: Literal["envelope"]
    player_sha256: Sha256
    machine: MachineRecord
    # version of the meaning of rows (`ccenv.proofs.claims.endless.VERSION`). In version 1 any rise or fall excused a trace for
    # ever: such rows are shown as such and are no bounds of a run
    promises: Literal[1, 2] = 1
    rows: tuple[EnvelopeRow, ...]
    reason: Text
    solver: Annotated[str, Field(pattern=r"^[A-Za-z0-9 ._+-]{0,60}$")]
    setting_name: Literal["history", "sound", "none"]
    T: int = Field(ge=2, le=16, strict=True)  # samples of a trace; longer ones cannot be decided in the time of an audit
    budget_s: float = Field(gt=0, le=1e7)
    seconds: float = Field(ge=0, le=1e9)

    @property
    def bounds(self) -> tuple[EnvelopeRow, ...]:
        """The rows that hold for endless runs: none of version 1."""
        return self.rows if self.promises >= ENDLESS else ()


@dataclass(frozen=True)
class BenchRecord:
    """A run of a suite."""

    manifest: Manifest
    cells: list[CellRecord]
    suite: SuiteBase  # as published; an evaluation has other seeds
    # hash of the published suite in this version, so that records of older versions are compared with newer ones
    suite_sha256: str
    order: str  # sort key; the last record of a sender counts
    read: Callable[[str], bytes | None]  # returns a file of the record by name, None if it is missing
    submission: str = ""  # hash, "" for a record from a folder


@dataclass(frozen=True)
class VerificationRecord:
    """A verification record and how its trace is read."""

    result: Verification
    read: Callable[[str], bytes | None]


def read_records(folders: Sequence[FilePath]) -> tuple[list[BenchRecord], list[VerificationRecord]]:
    """Read all benchmarks and verifications below some folders, without the unfinished work of a board.

    Raises InputError if a folder does not exist or a record is damaged; names the file and what is wrong.
    """
    benches, verifications = [], []
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder of records")
        for file in _plain_files(folder, MANIFEST):
            bench = _read_bench(file)
            if bench is not None:
                benches.append(bench)
        for file in _plain_files(folder, VERIFICATION):
            result = validate(Verification, _read_json(file), str(file))
            verifications.append(VerificationRecord(result, partial(_read_beside, file.parent)))
    return benches, verifications


def _plain_files(folder: FilePath, name: str) -> Iterator[FilePath]:
    """Yield the files of a name in a fixed order; links are not followed."""
    boards = {file.parent for file in folder.rglob(DATABASE)}
    for file in sorted(folder.rglob(name)):
        if file.is_file() and not file.is_symlink() and not boards & set(file.parents):
            yield file


def _read_beside(folder: FilePath, name: str) -> bytes | None:
    """Return a plain file of a record's folder, None if it is not there. Raises InputError for a link."""
    file = resolve_inside(folder, name, "file of a record")
    return read_bounded(file, MAX_BYTES) if is_file(file) else None


def _read_json(file: FilePath) -> Any:
    return read_json(file, JsonRules(max_bytes=MAX_BYTES))


def _read_bench(file: FilePath) -> BenchRecord | None:
    """Read a benchmark folder; None for an unfinished run or a manifest of another program."""
    data = _read_json(file)
    if not isinstance(data, dict) or data.get("format") != FORMAT.name or "summary" not in data:
        return None
    manifest = validate(Manifest, FORMAT.check(data, str(file)), str(file))
    suite = parse_suite(manifest.suite, manifest.suite_sha256, str(file))
    check_summary(manifest, suite, str(file))
    lines = file.parent / CELLS
    cells = read_cells(read_bounded(lines, MAX_BYTES), manifest, str(lines))
    check_counts(manifest, suite, cells, str(file))
    order = f"{manifest.finished_at} {file.parent}"
    return BenchRecord(manifest, cells, suite, suite.sha256, order, partial(_read_beside, file.parent))


def parse_suite(data: dict[str, Any], sha256: str, where: str) -> SuiteBase:
    """Return a recorded suite. Raises InputError if its text does not match its hash.

    The stored text is hashed, not the parsed suite: later versions of the format may add keys. Older records hash all keys.
    """
    digest = played_hash(data)
    if sha256 not in (digest, hash_value(data)):
        raise InputError(f"{where}: the suite was edited after the run: its hash is {digest[:12]}")
    return validate_suite(data, where)


def check_summary(manifest: Manifest, suite: SuiteBase, where: str) -> None:
    """Check that summaries have exactly the adversaries and metrics of their suite. Raises InputError."""
    for entry in manifest.summary:
        against = {name: set(values) for name, values in entry.against.items()}
        if against != {name: set(suite.metrics) for name in suite.opponents}:
            raise InputError(f"{where}: summary of {entry.agent}: against has not the adversaries and metrics of its suite")
        score, worst = entry.score, entry.worst_case
        if score is not None and (score.metric, score.adversary) != (suite.score.metric, suite.score.adversary):
            raise InputError(f"{where}: summary of {entry.agent}: score is not that of its suite")
        if worst is not None and (worst.metric != suite.worst_case.metric or worst.adversary not in suite.opponents):
            raise InputError(f"{where}: summary of {entry.agent}: worst_case is not that of its suite")


def check_counts(manifest: Manifest, suite: SuiteBase, cells: Sequence[CellRecord], where: str) -> None:
    """Check the counts of a manifest and its summary against its suite and its cells. Raises InputError naming the field."""
    n_runs = len(getattr(suite, "cases", ())) * len(suite.opponents) * len(suite.seeds)  # of one sender
    senders = {agent.label for agent in manifest.agents} | {cell.agent for cell in cells}
    if manifest.n_cells + manifest.n_missing > n_runs * len(senders):
        stated = f"n_cells is {manifest.n_cells} and n_missing {manifest.n_missing}"
        raise InputError(f"{where}: {stated}; suite {suite.name!r} has {n_runs} cells for each of {len(senders)} senders")
    n_cells = Counter(cell.agent for cell in cells)
    n_scored = Counter(
        cell.agent
        for cell in cells
        if cell.adversary == suite.score.adversary and cell.metrics.get(suite.score.metric) is not None
    )
    for entry in manifest.summary:
        if entry.n_cells != n_cells[entry.agent]:
            raise InputError(
                f"{where}: summary of {entry.agent}: n_cells is {entry.n_cells}; its cells are {n_cells[entry.agent]}"
            )
        n_score = entry.score.n_runs if entry.score is not None else 0
        if n_score != n_scored[entry.agent]:
            stands_on = f"runs with the metric of the score are {n_scored[entry.agent]}"
            raise InputError(f"{where}: summary of {entry.agent}: score.n_runs is {n_score}; {stands_on}")


def played_hash(data: dict[str, Any]) -> str:
    """Return the hash of a recorded suite's text, words, published values and figures left out."""
    return hash_value({key: value for key, value in data.items() if key not in _WORDS})


_CELLS = TypeAdapter(list[CellRecord])


def read_cells(content: bytes, manifest: Manifest, where: str) -> list[CellRecord]:
    """Read the cells of a run, one JSON object a line. Raises InputError naming the line."""
    lines = content.splitlines()
    try:  # all lines at once: a board of thousands needs the speed
        cells = _CELLS.validate_python(parse_json(b"[" + b",".join(lines) + b"]", where))
    except (InputError, ValidationError):
        cells = []
    if len(cells) != len(lines):
        cells = [
            validate(CellRecord, parse_json(line, f"{where}, line {n}"), f"{where}, line {n}")
            for n, line in enumerate(lines, start=1)
        ]
    if len(cells) != manifest.n_cells:
        raise InputError(f"{where}: {len(cells)} cells; the manifest says {manifest.n_cells}")
    return cells


def slug(label: str, sha256: str) -> str:
    """Return a file name for a sender's page."""
    return f"{re.sub('[^A-Za-z0-9_.-]', '-', label)}-{sha256[:8]}"
