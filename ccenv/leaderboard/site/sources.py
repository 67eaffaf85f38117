"""Where the records of a board come from: its database, or folders of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from ccenv.errors import InputError
from ccenv.leaderboard.evaluate.damage import DAMAGE, Damage
from ccenv.leaderboard.evaluate.failure import FAILURE
from ccenv.leaderboard.evaluate.stages import ENVELOPE, EVALUATION
from ccenv.leaderboard.store.contents import AUDIT, check_contents, damage_of, envelope_of, evaluation_of
from ccenv.leaderboard.store.database import BoardStore, Stored
from ccenv.leaderboard.store.records import BenchRecord, Envelope, VerificationRecord, checked_suite, read_records
from ccenv.leaderboard.store.rounds import ROUND, revealed
from ccenv.leaderboard.submission.canonical import canonical_hash
from ccenv.leaderboard.submission.entry import SubmissionRecord


@dataclass(frozen=True)
class EnvelopeRecord:
    """The verified envelope of an entry, which is found by the hash of its submission."""

    name: str
    submission: str
    envelope: Envelope


@dataclass(frozen=True)
class DamageRecord:
    """What an adversary did to the panel; the adversary is found by the hash of its submission."""

    name: str
    submission: str
    damage: Damage
    read: Callable[[str], bytes | None]


@dataclass(frozen=True)
class Round:
    """A round: what was committed to, and the secret once it is closed."""

    number: int
    commitment: str
    secret: str | None


@dataclass(frozen=True)
class Records:
    """Everything that a board is made from.

    Attributes:
        benches: runs of suites.
        verifications: single questions to solvers.
        submissions: what was handed in; empty where the records come from folders.
        envelopes, damages: the newest of each entry.
        rounds: of the board.
        audits: contents of the records of audits.
        chain: hash of the last record, "" without a database.
        handed_in: returns a file that was handed in, by hash.
        players: submission -> canonical hash of what it plays.
        withdrawn: submissions that were taken back, of which nothing else is here.
        failures: stages that an entry did not come through.
    """

    benches: list[BenchRecord]
    verifications: list[VerificationRecord]
    submissions: list[SubmissionRecord] = field(default_factory=list)
    envelopes: list[EnvelopeRecord] = field(default_factory=list)
    damages: list[DamageRecord] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    audits: list[dict[str, Any]] = field(default_factory=list)
    chain: str = ""
    handed_in: Callable[[str], bytes] | None = None
    players: dict[str, str] = field(default_factory=dict)
    withdrawn: list[SubmissionRecord] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)


def from_folders(places: Sequence[FilePath]) -> Records:
    """Read the runs and verifications below some folders. Raises InputError for damaged ones, or if there are none."""
    benches, verifications = read_records(places)
    if not benches:
        shown = ", ".join(str(place) for place in places)
        raise InputError(f"no finished benchmark below {shown}: run one first, e.g. ccenv bench run quick")
    return Records(benches, verifications)


def from_store(store: BoardStore) -> Records:
    """Read a board's database: every hash is checked, every submission read again, every record compared with its submission.

    Raises:
        EditedRecordError: if a record is not what was stored.
        InputError: if a record cannot be read or is about another player than its submission, a suite is not the one whose hash
            is recorded, or nothing was evaluated yet.
    """
    everything = store.records()
    contents = check_contents(everything, store.file)
    stored = [record for record in everything if record.subject not in contents.withdrawn]
    benches = [_bench(store, record) for record in stored if record.kind == EVALUATION]
    damages = [_damage(store, record) for record in stored if record.kind == DAMAGE]
    if not benches and not damages:
        raise InputError("nothing on this board is evaluated yet: ccenv board evaluate")
    shown = revealed(store)
    there = [known for submission, known in contents.known.items() if submission not in contents.withdrawn]
    return Records(
        benches=benches,
        verifications=[],
        submissions=[known.record for known in there],
        envelopes=[_envelope(record) for record in stored if record.kind == ENVELOPE],
        damages=damages,
        rounds=[
            Round(r.content["number"], r.content["commitment"], shown.get(r.content["number"])) for r in stored if r.kind == ROUND
        ],
        audits=[record.content for record in stored if record.kind == AUDIT],
        chain=everything[-1].chain,
        handed_in=store.file,
        players={known.record.submission: canonical_hash(known.player) for known in there},
        withdrawn=[contents.known[submission].record for submission in sorted(contents.withdrawn)],
        failures=[record.content for record in stored if record.kind == FAILURE],
    )


def _bench(store: BoardStore, record: Stored) -> BenchRecord:
    manifest, cells = evaluation_of(record, store.file)
    suite = checked_suite(record.content["suite"], record.content["suite_sha256"], f"record {record.number}")
    read = partial(_read, store, record.files)
    return BenchRecord(manifest, cells, suite, suite.sha256, f"{record.number:09d}", read, record.subject)


def _read(store: BoardStore, files: dict[str, str], name: str) -> bytes | None:
    return store.file(files[name]) if name in files else None


def _envelope(record: Stored) -> EnvelopeRecord:
    return EnvelopeRecord(record.content["name"], record.subject, envelope_of(record))


def _damage(store: BoardStore, record: Stored) -> DamageRecord:
    return DamageRecord(record.content["name"], record.subject, damage_of(record), partial(_read, store, record.files))
