"""What the records of a board say, read strictly: they may come from another board, and good hashes make no good contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field

from ccenv.benchmarks.run.store import CELLS
from ccenv.config import StrictModel, validate
from ccenv.errors import InputError, unknown_name
from ccenv.leaderboard.evaluate.damage import DAMAGE, Damage
from ccenv.leaderboard.evaluate.failure import FAILURE
from ccenv.leaderboard.evaluate.stages import ENVELOPE, EVALUATION
from ccenv.leaderboard.store.database import Stored
from ccenv.leaderboard.store.records import (
    CellRecord,
    Envelope,
    Label,
    Manifest,
    Moment,
    Sha256,
    Text,
    checked_suite,
    read_cells,
    read_manifest,
)
from ccenv.leaderboard.store.rounds import REVEAL, ROUND
from ccenv.leaderboard.submission.entry import SUBMISSION
from ccenv.leaderboard.submission.identity import name_claim
from ccenv.leaderboard.submission.recheck import Known, ReadFile, check_played, reread
from ccenv.leaderboard.submission.withdraw import WITHDRAWAL, Withdrawal, check_withdrawal

AUDIT = "audit"

ModelT = TypeVar("ModelT", bound=StrictModel)
Number = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class Head(StrictModel):
    """What every record of a stage begins with."""

    submission: Sha256
    name: Label
    stage: Label
    recorded_at: Moment


class Played(StrictModel):
    """A stage that is played with the seeds of a round."""

    round: Number


class Begun(StrictModel):
    """A round begins."""

    number: Number
    commitment: Sha256
    recorded_at: Moment


class Revealed(StrictModel):
    """A round ends."""

    number: Number
    secret: Annotated[str, Field(pattern=r"^([0-9a-f]{2}){1,64}$")]
    recorded_at: Moment


class Failure(StrictModel):
    """A stage that a submission did not come through, and why."""

    submission: Sha256
    name: Label
    stage: Label
    slot: Annotated[str, Field(max_length=280)]
    reason: Text
    code_sha256: Sha256
    machine: dict[str, Text | float | None]
    recorded_at: Moment


class Audited(StrictModel):
    """The outcome of an audit."""

    n_records: int
    n_rerun: int
    n_equal: int
    problems: tuple[Text, ...]
    recorded_at: Moment


def fields_of(record: Stored, model: type[ModelT]) -> ModelT:
    """Return the fields of a model that a record's content has. Raises InputError naming the record."""
    fields = {name: record.content[name] for name in model.model_fields if name in record.content}
    return validate(model, fields, f"record {record.number}")


def evaluation_of(record: Stored, read: ReadFile) -> tuple[Manifest, list[CellRecord]]:
    """Return the manifest and cells of an evaluation, its suites checked against their hashes."""
    where = f"record {record.number}"
    for name, kind in (("manifest", dict), ("suite", dict), ("suite_sha256", str)):
        if not isinstance(record.content.get(name), kind):
            raise InputError(f"{where}: {name}: missing, or not what it should be")
    manifest, _ = read_manifest(record.content["manifest"], where)
    checked_suite(record.content["suite"], record.content["suite_sha256"], where)
    if CELLS not in record.files:
        raise InputError(f"{where}: {CELLS}: missing")
    return manifest, read_cells(read(record.files[CELLS]), manifest, where)


def damage_of(record: Stored) -> Damage:
    """Return the record of an adversary; the panel is checked against its hash where it was stored as published."""
    damage = fields_of(record, Damage)
    if damage.played is not None:
        checked_suite(damage.suite, damage.suite_sha256, f"record {record.number}")
    return damage


def envelope_of(record: Stored) -> Envelope:
    """Return a verified envelope."""
    return fields_of(record, Envelope)


class Contents:
    """What the records of a board say, read one after the other: each must be readable and about what came before it.

    Args:
        read: returns a file by its hash.

    Attributes:
        known: submission -> what was handed in, read again.
        claims: claim -> number of the record that has it.
        withdrawn: submissions that were taken back.
    """

    def __init__(self, read: ReadFile) -> None:
        self.known: dict[str, Known] = {}
        self.claims: dict[str, int] = {}
        self.withdrawn: set[str] = set()
        self._read = read

    def add(self, record: Stored) -> None:
        """Read the next record.

        Raises:
            InputError: naming the record and what is wrong with it.
        """
        where = f"record {record.number}"
        if record.kind == SUBMISSION:
            about = self._submission(record, where)
        elif record.kind in _STAGES:
            about = fields_of(record, _STAGES[record.kind]).submission
            if about not in self.known:
                raise InputError(f"{where}: there is no submission {about[:12]} before it")
            _STAGE_CHECKS[record.kind](record, self.known[about], self._read)
            if record.kind == WITHDRAWAL:
                self.withdrawn.add(about)
        elif record.kind in _OTHERS:
            about = ""
            fields_of(record, _OTHERS[record.kind])
        else:
            raise InputError(f"{where}: {unknown_name('kind', record.kind, [SUBMISSION, *_STAGES, *_OTHERS])}")
        if record.subject != about:
            raise InputError(f"{where}: its subject is {record.subject[:12]!r}, its content is about {about[:12]!r}")

    def _submission(self, record: Stored, where: str) -> str:
        known = reread(record.content, self._read, where)
        for claim in known.claims:
            if claim in self.claims:
                what = "a name that looks like its own" if claim == name_claim(known.record.card.name) else "an equal player"
                raise InputError(f"{where}: record {self.claims[claim]} has {what} already")
        about = known.record.submission
        if about in self.known:
            raise InputError(f"{where}: submission {about[:12]} is there already")
        self.known[about] = known
        self.claims |= dict.fromkeys(known.claims, record.number)
        return about


def check_contents(records: Sequence[Stored], read: ReadFile) -> Contents:
    """Check that every record can be read, and is about a submission that was stored before it.

    Args:
        records: of a board, in order.
        read: returns a file by its hash.

    Raises:
        InputError: naming the first record that cannot be read, and what is wrong with it.
    """
    contents = Contents(read)
    for record in records:
        contents.add(record)
    return contents


def _check_envelope(record: Stored, known: Known, read: ReadFile) -> None:
    from ccenv.smt.claims.envelope import BUFFERS, METRICS, MODELS

    del read
    known_names = {"model": MODELS, "buffer": BUFFERS, "metric": METRICS}
    for row in envelope_of(record).rows:
        for what, valid in known_names.items():
            if getattr(row, what) not in valid:
                raise InputError(f"record {record.number}: {unknown_name(what, getattr(row, what), valid)}")
    about = record.content.get("player_sha256")
    if about is not None and about != known.sha256:
        raise InputError(f"record {record.number}: about the player {str(about)[:12]}; the submission is {known.sha256[:12]}")
    _check_name(record, known)


def _check_damage(record: Stored, known: Known, read: ReadFile) -> None:
    del read
    damage = damage_of(record)
    panel = {str(spec) for spec in damage.suite.get("agents", ())}
    strangers = sorted({cell.sender for cell in damage.cells} - panel)
    if strangers:
        raise InputError(f"record {record.number}: a run against {strangers[0]!r}, which is not on the panel")
    _check_round(record, known)


def _check_evaluation(record: Stored, known: Known, read: ReadFile) -> None:
    manifest, cells = evaluation_of(record, read)
    check_played(known, manifest, cells, record.content["suite"], f"record {record.number}")
    _check_round(record, known)


def _check_round(record: Stored, known: Known) -> None:
    played = fields_of(record, Played).round
    if played != known.record.round:
        raise InputError(f"record {record.number}: of round {played}; the submission is of round {known.record.round}")
    _check_name(record, known)


def _check_name(record: Stored, known: Known) -> None:
    name = record.content["name"]  # which the model of its kind has checked
    if name != known.record.card.name:
        raise InputError(f"record {record.number}: calls the submission {name!r}; its card says {known.record.card.name!r}")


def _check_withdrawal(record: Stored, known: Known, read: ReadFile) -> None:
    check_withdrawal(fields_of(record, Withdrawal), record.files, known.record, read, f"record {record.number}")
    _check_name(record, known)


def _check_failure(record: Stored, known: Known, read: ReadFile) -> None:
    del read
    _check_name(record, known)


_OTHERS: dict[str, type[StrictModel]] = {ROUND: Begun, REVEAL: Revealed, AUDIT: Audited}
_STAGES: dict[str, Any] = {
    EVALUATION: Head,
    DAMAGE: Head,
    ENVELOPE: Head,
    FAILURE: Failure,
    WITHDRAWAL: Withdrawal,
}
_STAGE_CHECKS: dict[str, Callable[[Stored, Known, ReadFile], None]] = {
    EVALUATION: _check_evaluation,
    DAMAGE: _check_damage,
    ENVELOPE: _check_envelope,
    FAILURE: _check_failure,
    WITHDRAWAL: _check_withdrawal,
}
