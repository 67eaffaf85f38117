"""Sources of a board's records: its database, or folders of runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as FilePath

from ccenv.base.errors import InputError
from ccenv.leaderboard.audit.contents import Audited, Contents, Evaluation, Failure, Item, check_contents
from ccenv.leaderboard.evaluate.damage import Damage
from ccenv.leaderboard.store.database import BoardStore
from ccenv.leaderboard.store.entry import ReadFile, SubmissionRecord
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.records import BenchRecord, Envelope, VerificationRecord, read_records
from ccenv.leaderboard.store.runs import published_suite
from ccenv.leaderboard.submission.identity import canonical_hash


@dataclass(frozen=True)
class DamageRecord:
    """The degradation by an adversary, and a reader of the record's files."""

    damage: Damage
    read: Callable[[str], bytes | None]


@dataclass(frozen=True)
class Round:
    """A round with its commitment, and its secret once it is closed."""

    number: int
    commitment: str
    secret: str | None


@dataclass(frozen=True)
class Records:
    """All records that a board is made from, without those of withdrawn submissions."""

    benches: list[BenchRecord]
    verifications: list[VerificationRecord]  # single questions to solvers
    submissions: list[SubmissionRecord] = field(default_factory=list)  # empty for records from folders
    envelopes: list[Envelope] = field(default_factory=list)
    damages: list[DamageRecord] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    audits: list[tuple[Audited, bool]] = field(default_factory=list)  # each with whether it was made in this board's folder
    chain: str = ""  # hash of the last record, "" without a database
    handed_in: Callable[[str], bytes] | None = None  # returns a submitted file by hash
    players: dict[str, str] = field(default_factory=dict)  # submission -> canonical hash of its player
    withdrawn: list[SubmissionRecord] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def from_folders(folders: Sequence[FilePath]) -> Records:
    """Read the runs and verifications below some folders. Raises InputError for damaged ones, or if there are none."""
    benches, verifications = read_records(folders)
    if not benches:
        listed = ", ".join(str(place) for place in folders)
        raise InputError(f"no finished benchmark below {listed}: run one first, e.g. ccenv bench run quick")
    return Records(benches, verifications)


def from_store(store: BoardStore, home: Home) -> Records:
    """Read a board's database: check all hashes, parse every submission again and compare all records with their submissions.

    Raises EditedRecordError if a record was edited; InputError if a record is invalid or not about its submission, or the board
    has no evaluation yet.
    """
    records = from_contents(check_contents(store.records(), store.file), store.file, home.local_audits())
    if not records.benches and not records.damages:
        raise InputError("nothing on this board is evaluated yet: ccenv board evaluate")
    return records


def from_contents(contents: Contents, read: ReadFile, local_audits: Collection[str] = ()) -> Records:
    submissions = [submission for digest, submission in contents.submissions.items() if digest not in contents.withdrawn]
    secrets = contents.rounds.secrets
    return Records(
        benches=[_bench(item, content, read) for item, content in contents.of(Evaluation)],
        verifications=[],
        submissions=[submission.record for submission in submissions],
        envelopes=[content for _, content in contents.of(Envelope)],
        damages=[DamageRecord(content, partial(_read, read, item.record.files)) for item, content in contents.of(Damage)],
        rounds=[
            Round(number, commitment, secrets[number].hex() if number in secrets else None)
            for number, commitment in contents.rounds.begun.items()
        ],
        audits=[(content, item.record.sha256 in local_audits) for item, content in contents.of(Audited)],
        chain=contents.items[-1].record.chain if contents.items else "",
        handed_in=read,
        players={submission.record.submission: canonical_hash(submission.player) for submission in submissions},
        withdrawn=[contents.submissions[digest].record for digest in sorted(contents.withdrawn)],
        failures=[content for _, content in contents.of(Failure)],
    )


def _bench(item: Item, content: Evaluation, read: ReadFile) -> BenchRecord:
    record, suite = item.record, published_suite(content, f"record {item.record.number}")
    reading = partial(_read, read, record.files)
    return BenchRecord(content.manifest, item.cells, suite, suite.sha256, f"{record.number:09d}", reading, record.subject)


def _read(read: ReadFile, files: dict[str, str], name: str) -> bytes | None:
    return read(files[name]) if name in files else None
