"""Strict reading of a board's records: they may come from another board, and valid hashes do not imply valid contents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from ccenv.agents.sender import ProgramSender, ShieldSender
from ccenv.base.config import validate
from ccenv.base.errors import InputError, unknown_name
from ccenv.benchmarks.store import CELLS
from ccenv.leaderboard.evaluate.damage import DAMAGE, Damage
from ccenv.leaderboard.evaluate.queue import FAILURE
from ccenv.leaderboard.evaluate.stages import ENVELOPE, EVALUATION
from ccenv.leaderboard.store.database import Stored
from ccenv.leaderboard.store.entry import SUBMISSION, CheckedSubmission, ReadFile, check_author, check_players, recheck_submission
from ccenv.leaderboard.store.home import REVEAL, ROUND, Begun, Revealed, Rounds
from ccenv.leaderboard.store.records import (
    CellRecord,
    Count,
    Envelope,
    Label,
    MachineRecord,
    Manifest,
    PlayedContent,
    RecordContent,
    Sha256,
    StageContent,
    Text,
    check_counts,
    check_summary,
    read_cells,
)
from ccenv.leaderboard.store.runs import check_metrics, check_runs, played_suite
from ccenv.leaderboard.store.submit import WITHDRAWAL, Withdrawal, check_withdrawal
from ccenv.leaderboard.submission.identity import name_claim
from ccenv.proofs.senders.catalog import PUBLISHED

AUDIT = "audit"

ContentT = TypeVar("ContentT", bound=RecordContent)


class Evaluation(PlayedContent):
    """A sender's evaluation on a suite."""

    manifest: Manifest


class Failure(StageContent):
    """A stage at which a submission failed, with the reason."""

    stage: Label
    slot: Annotated[str, Field(max_length=280)]
    reason: Text
    code_sha256: Sha256
    machine: MachineRecord


class Audited(RecordContent):
    """The outcome of an audit."""

    n_records: Count
    head: Sha256 | None
    n_rerun: Count
    n_equal: Count
    n_incomparable: Count
    n_proofs: Count
    n_confirmed: Count
    n_undecided: Count
    n_same_query: Count
    sample_seed: Annotated[int, Field(strict=True, ge=0)]
    problems: tuple[Text, ...]
    foreign: tuple[Text, ...]

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        for parts, total in (
            (("n_equal", "n_incomparable"), "n_rerun"),
            (("n_confirmed", "n_undecided"), "n_proofs"),
            (("n_same_query",), "n_proofs"),
            (("n_confirmed",), "n_same_query"),
        ):
            if sum(getattr(self, part) for part in parts) > getattr(self, total):
                stated = " and ".join(f"{part} is {getattr(self, part)}" for part in parts)
                raise ValueError(f"{stated}; {total} is only {getattr(self, total)}")
        return self


@dataclass(frozen=True)
class Item:
    """A parsed record."""

    record: Stored
    content: RecordContent
    cells: list[CellRecord] = field(default_factory=list)


class Contents:
    """The records of a board, parsed in order; each may refer only to earlier ones. ``read`` returns a file by its hash."""

    def __init__(self, read: ReadFile) -> None:
        self.items: list[Item] = []
        self.submissions: dict[str, CheckedSubmission] = {}
        self.claims: dict[str, int] = {}  # claim -> number of the record that holds it
        self.withdrawn: set[str] = set()  # hashes of withdrawn submissions
        self.rounds = Rounds()
        self._read = read

    def add(self, record: Stored) -> None:
        """Parse the next record. Raises InputError with the record and the problem."""
        where = f"record {record.number}"
        if record.kind == SUBMISSION:
            item = Item(record, self._submission(record, where))
        elif record.kind in _CONTENTS:
            item = self._item(record, where)
        else:
            raise InputError(f"{where}: {unknown_name('kind', record.kind, [SUBMISSION, *_CONTENTS])}")
        subject = getattr(item.content, "submission", "")
        if record.subject != subject:
            raise InputError(f"{where}: its subject is {record.subject[:12]!r}, its content is about {subject[:12]!r}")
        slot = _slot_pattern(record.kind, item.content)
        if re.fullmatch(slot, record.slot) is None:
            raise InputError(f"{where}: its slot is {record.slot[:120]!r}, which is not what its content says")
        self.items.append(item)

    def of(self, kind: type[ContentT]) -> Iterator[tuple[Item, ContentT]]:
        """Yield the records of a type, without those of withdrawn submissions."""
        for item in self.items:
            if isinstance(item.content, kind) and item.record.subject not in self.withdrawn:
                yield item, item.content

    def _item(self, record: Stored, where: str) -> Item:
        content = validate(_CONTENTS[record.kind], record.content, where)
        cells: list[CellRecord] = []
        if isinstance(content, StageContent):
            if content.submission not in self.submissions:
                raise InputError(f"{where}: there is no submission {content.submission[:12]} before it")
            submission = self.submissions[content.submission]
            if content.name != submission.record.card.name:
                raise InputError(f"{where}: calls the submission {content.name!r}; its card says {submission.record.card.name!r}")
            if _TRACKS.get(record.kind, submission.record.card.track) != submission.record.card.track:
                raise InputError(f"{where}: {record.kind} of an entry of the track {submission.record.card.track!r}")
            if isinstance(content, PlayedContent):
                cells = self._played(record, content, submission, where)
            elif isinstance(content, Envelope):
                _check_envelope(content, submission, where)
            elif isinstance(content, Withdrawal):
                check_withdrawal(content, record.files, submission.record, self._read, where)
                self.withdrawn.add(content.submission)
        elif isinstance(content, Audited):
            self._check_audit(content, record.number, where)
        elif isinstance(content, Begun):
            self.rounds.begin(content, where)
        elif isinstance(content, Revealed):
            self.rounds.reveal(content, where)
            for item in self.items:
                if isinstance(item.content, PlayedContent) and item.content.round == content.number:
                    self.rounds.check_seeds(item.content, _played_data(item.content)["seeds"], f"record {item.record.number}")
        return Item(record, content, cells)

    def _played(self, record: Stored, content: PlayedContent, submission: CheckedSubmission, where: str) -> list[CellRecord]:
        """Check that a record of runs is about its submission, and holds exactly the runs of its suite and seeds."""
        if content.round != submission.record.round:
            raise InputError(f"{where}: of round {content.round}; the submission is of round {submission.record.round}")
        cells: list[CellRecord] = []
        if isinstance(content, Evaluation):
            played = _load_played_suite(content, where, agents=[], references=[])
            if content.stage != played.name:
                raise InputError(f"{where}: stage {content.stage!r}; its suite is {played.name!r}")
            if CELLS not in record.files:
                raise InputError(f"{where}: {CELLS}: missing")
            cells = read_cells(self._read(record.files[CELLS]), content.manifest, where)
            check_players(submission, content.manifest, cells, where)
            check_summary(content.manifest, played, where)
            runs = [(cell.scenario, cell.agent, cell.adversary, cell.seed) for cell in cells]
            check_runs(runs, played, [submission.record.card.name], where)
            check_metrics(cells, played, where)
            check_counts(content.manifest, played, cells, where)
        elif isinstance(content, Damage):
            played = _load_played_suite(content, where)
            adversary = played.score.adversary
            against = played.model_copy(update={"adversaries": (adversary,)})
            check_runs([(c.scenario, c.sender, adversary, c.seed) for c in content.cells], against, played.agents, where)
        self.rounds.check_seeds(content, _played_data(content)["seeds"], where)
        return cells

    def _check_audit(self, audited: Audited, number: int, where: str) -> None:
        """Check that an audit counts no more than what comes before it."""
        n_runs = n_bounds = 0
        for item in self.items:
            n_runs += len(item.content.cells) if isinstance(item.content, Damage) else len(item.cells)
            n_bounds += sum(row.bound is not None for row in item.content.rows) if isinstance(item.content, Envelope) else 0
        for name, most in (("n_records", number - 1), ("n_rerun", n_runs), ("n_proofs", n_bounds)):
            if getattr(audited, name) > most:
                raise InputError(f"{where}: {name} is {getattr(audited, name)}; before it there are {most}")

    def _submission(self, record: Stored, where: str) -> RecordContent:
        submission = recheck_submission(record.content, self._read, where)
        self.rounds.take(submission.record.round, where)
        for claim in submission.claims:
            if claim in self.claims:
                what = "a name that looks like its own" if claim == name_claim(submission.record.card.name) else "an equal player"
                raise InputError(f"{where}: record {self.claims[claim]} has {what} already")
        digest = submission.record.submission
        if digest in self.submissions:
            raise InputError(f"{where}: submission {digest[:12]} is there already")
        earlier = (other.record for other in self.submissions.values())
        check_author(submission.record.card.author, submission.record.signed_by, earlier, where)
        self.submissions[digest] = submission
        self.claims |= dict.fromkeys(submission.claims, record.number)
        return submission.record


def check_contents(records: Sequence[Stored], read: ReadFile) -> Contents:
    """Parse all records in order. Raises InputError with the first faulty record and the problem."""
    contents = Contents(read)
    for record in records:
        contents.add(record)
    return contents


def _played_data(content: PlayedContent) -> dict[str, Any]:
    suite: dict[str, Any] = content.manifest.suite if isinstance(content, Evaluation) else content.played  # type: ignore[attr-defined]
    return suite


def _load_played_suite(content: PlayedContent, where: str, **changes: Any) -> Any:
    return played_suite(content, _played_data(content), where, **changes)


def _check_envelope(envelope: Envelope, submission: CheckedSubmission, where: str) -> None:
    """Check that an envelope has the rows of the table about its submission, with bounds on the grid of the search."""
    from ccenv.proofs.claims.envelope import METRICS, list_cells

    if envelope.player_sha256 != submission.sha256:
        raise InputError(f"{where}: about the player {envelope.player_sha256[:12]}; the submission is {submission.sha256[:12]}")
    rows = [(row.model, row.buffer, row.metric) for row in envelope.rows]
    if rows != (list_cells() if rows else []) or (envelope.setting_name == "none") != (not rows):
        raise InputError(
            f"{where}: rows: {len(rows)}; an envelope has the {len(list_cells())} of its table in order, or none at all"
        )
    if rows and not _is_encoded(submission):
        raise InputError(f"{where}: rows: {len(rows)} of {submission.record.card.name!r}, of which the solver has no encoding")
    for row in envelope.rows:
        metric = METRICS[row.metric]
        if row.unit != metric.unit:
            raise InputError(f"{where}: {row.metric} in {row.unit[:40]!r}; its unit is {metric.unit!r}")
        for value in (row.bound, row.beyond):
            if value is not None and not (metric.low <= value <= metric.high and value % float(metric.precision) == 0):
                allowed = f"{float(metric.low):g} to {float(metric.high):g} in steps of {float(metric.precision):g}"
                raise InputError(f"{where}: {row.metric} of {value:g}; what is tried is {allowed}")


def _is_encoded(submission: CheckedSubmission) -> bool:
    """Tell whether the solver has an encoding: of a shield, a published CCA, or a program alone from its start."""
    player = submission.player
    if isinstance(player, ProgramSender):
        return player.start is None
    return isinstance(player, ShieldSender) or (submission.record.card.spec or "").partition(":")[0] in PUBLISHED


def _slot_pattern(kind: str, content: Any) -> str:
    """Return the regular expression of the slot that follows from a record's content."""
    if isinstance(content, (Begun, Revealed)):
        return f"{kind}/{content.number}"
    if isinstance(content, Audited):
        return f"{kind}/{content.n_records}"
    if kind == SUBMISSION:
        return f"{kind}/{content.player_sha256}"
    if isinstance(content, Withdrawal):
        return f"{kind}/{content.submission}"
    if isinstance(content, Envelope):
        return rf"{kind}/{content.submission}/[0-9A-Za-z.+-]{{1,40}}/T{content.T}/{re.escape(f'{content.budget_s:g}')}s"
    if isinstance(content, Failure):
        stem = rf"({EVALUATION}|{DAMAGE}|{ENVELOPE})/{content.submission}/"
        return rf"{kind}/(?={stem}){re.escape(content.slot)}(/[1-9][0-9]{{0,5}})?"
    code = content.manifest.code_sha256 if isinstance(content, Evaluation) else content.code_sha256
    return f"{kind}/{content.submission}/{content.suite_sha256}/{code}"


_CONTENTS: dict[str, type[RecordContent]] = {
    ROUND: Begun,
    REVEAL: Revealed,
    AUDIT: Audited,
    EVALUATION: Evaluation,
    DAMAGE: Damage,
    ENVELOPE: Envelope,
    FAILURE: Failure,
    WITHDRAWAL: Withdrawal,
}
_TRACKS: dict[str, Literal["sender", "adversary"]] = {EVALUATION: "sender", ENVELOPE: "sender", DAMAGE: "adversary"}
