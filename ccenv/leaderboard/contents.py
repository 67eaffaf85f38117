"""What the records of a board say, read strictly: they may come from another board, and good hashes make no good contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from pydantic import Field

from ccenv.benchmarks.store import CELLS
from ccenv.config import StrictModel, validate
from ccenv.errors import InputError, unknown_name
from ccenv.leaderboard.damage import DAMAGE, Damage
from ccenv.leaderboard.records import (
    Cell,
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
from ccenv.leaderboard.rounds import REVEAL, ROUND
from ccenv.leaderboard.stages import ENVELOPE, EVALUATION
from ccenv.leaderboard.store import Stored
from ccenv.leaderboard.submit import SUBMISSION, SubmissionRecord

AUDIT = "audit"

ReadFile = Callable[[str], bytes]
"""Returns a file by its hash."""

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


def evaluation_of(record: Stored, read: ReadFile) -> tuple[Manifest, list[Cell]]:
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


def check_contents(records: Sequence[Stored], read: ReadFile) -> None:
    """Check that every record can be read, and is about a submission that was stored before it.

    Args:
        records: of a board, in order.
        read: returns a file by its hash.

    Raises:
        InputError: naming the first record that cannot be read, and what is wrong with it.
    """
    submissions: set[str] = set()
    for record in records:
        where = f"record {record.number}"
        if record.kind == SUBMISSION:
            about = validate(SubmissionRecord, record.content, where).submission
            submissions.add(about)
        elif record.kind in (EVALUATION, DAMAGE, ENVELOPE):
            about = fields_of(record, Head).submission
            if about not in submissions:
                raise InputError(f"{where}: there is no submission {about[:12]} before it")
            _check_stage(record, read)
        elif record.kind in _OTHERS:
            about = ""
            fields_of(record, _OTHERS[record.kind])
        else:
            kinds = [SUBMISSION, EVALUATION, DAMAGE, ENVELOPE, *_OTHERS]
            raise InputError(f"{where}: {unknown_name('kind', record.kind, kinds)}")
        if record.subject != about:
            raise InputError(f"{where}: its subject is {record.subject[:12]!r}, its content is about {about[:12]!r}")


_OTHERS: dict[str, type[StrictModel]] = {ROUND: Begun, REVEAL: Revealed, AUDIT: Audited}


def _check_stage(record: Stored, read: ReadFile) -> None:
    if record.kind == ENVELOPE:
        envelope_of(record)
        return
    fields_of(record, Played)
    if record.kind == DAMAGE:
        damage_of(record)
    else:
        evaluation_of(record, read)
