"""Taking something in: a submission folder, or a classic CCA of this package, whose code was reviewed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, Literal

from ccenv.adversary import Adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.learned import save_policy
from ccenv.benchmarks.hashing import hash_of, sender_hash
from ccenv.benchmarks.provenance import now
from ccenv.config import StrictModel, validate
from ccenv.errors import InputError
from ccenv.files import write_atomic
from ccenv.leaderboard.home import Home
from ccenv.leaderboard.records import Label, Moment, Sha256, Text
from ccenv.leaderboard.rounds import open_round
from ccenv.leaderboard.store import Store, Stored, TakenError
from ccenv.leaderboard.submission.document import Document, Training, Url
from ccenv.leaderboard.submission.reader import Submission, parse_submission, read_submission
from ccenv.sender import ClassicSender, MlpSender, ProgramSender, Sender

SUBMISSION = "submission"
REVIEWED = "reviewed code of ccenv"


class Card(StrictModel):
    """What the board shows about where an entry comes from.

    Attributes:
        name, kind, author, licence, summary, url, training: as in the submission's document; kind ``classic`` is reviewed code.
        track: ``sender`` or ``adversary``.
        spec: of a classic CCA.
        suite: what it was made for.
    """

    name: Label
    kind: Literal["program", "policy", "scripted", "moves", "network", "classic"]
    track: Literal["sender", "adversary"]
    author: Text
    licence: Text
    summary: Text = ""
    url: Url | None = None
    training: Training = Training()
    spec: Text | None = None
    suite: Text = ""


class SubmissionRecord(StrictModel):
    """What the database holds about a submission.

    Attributes:
        submission: its hash, which the seeds of its evaluation follow from.
        player_sha256: what it plays, whatever it is called.
        card: what it says about itself.
        signed_by: fingerprint of a key, or None.
        round: the round that it belongs to.
        recorded_at: when it was frozen.
        files: name -> hash of the files handed in.
    """

    submission: Sha256
    player_sha256: Sha256
    card: Card
    signed_by: Text | None
    round: int
    recorded_at: Moment
    files: dict[str, Sha256]


@dataclass(frozen=True)
class Entrant:
    """A submission of the board that can play.

    Attributes:
        record: what the database holds.
        store: where its files lie.
    """

    record: SubmissionRecord
    store: Store

    @cached_property
    def player(self) -> Sender | Adversary:
        """The sender or adversary, read again through every rule."""
        if self.record.card.spec is not None:
            return make_sender(self.record.card.spec)
        files = {name: self.store.file(digest) for name, digest in self.record.files.items()}
        return parse_submission(files, self.record.card.name).player

    def write_player(self, folder: FilePath) -> str:
        """Write the player in the form that specs name, and return its spec."""
        return write_sender(self.player, self.record.card.name, self.record.card.spec, folder)


def write_sender(player: Sender | Adversary, name: str, spec: str | None, folder: FilePath) -> str:
    """Write a sender in the form that specs name, and return its spec.

    Args:
        player: what to write.
        name: of the entry.
        spec: of a classic CCA, which needs no file.
        folder: made if it does not exist.

    Raises:
        InputError: if it is not a sender.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(player, ProgramSender):
        from ccenv.programs import to_json

        write_atomic(folder / f"{name}.json", to_json(player.program).encode())
        return str(folder / f"{name}.json")
    if isinstance(player, MlpSender):
        save_policy(folder, player)
        return str(folder)
    if isinstance(player, ClassicSender) and spec is not None:
        return spec
    raise InputError(f"{name!r} is not a sender")


def submit_folder(store: Store, home: Home, folder: FilePath) -> tuple[Stored, Submission]:
    """Take a submission folder in.

    Raises:
        InputError: if it breaks a rule, is on the board already, or its name is taken.
    """
    submission = read_submission(folder)
    document = submission.document
    card = {"track": document.track, **_shown(document)}
    stored = _store(store, home, submission.sha256, submission.player_sha256, card, submission.signed_by, submission.files)
    return stored, submission


def submit_reviewed(store: Store, home: Home, spec: str) -> Stored:
    """Take a classic CCA of this package in.

    Raises:
        InputError: if the spec names none, or it is on the board already.
    """
    sender = make_sender(spec)
    if not isinstance(sender, ClassicSender):
        raise InputError(f"{spec!r} is not a classic CCA: pack it and hand in the folder: ccenv board pack {spec}")
    summary = AGENTS.entry(spec.partition(":")[0]).summary
    card = {"name": spec, "kind": "classic", "track": "sender", "author": REVIEWED, "licence": "MIT", "summary": summary}
    submission = hash_of({"format": SUBMISSION, "spec": spec})
    return _store(store, home, submission, sender_hash(sender), {**card, "spec": spec}, None, {})


def entrants(store: Store) -> list[Entrant]:
    """Return everything that was taken in, in order."""
    return [
        Entrant(validate(SubmissionRecord, record.content, f"record {record.number}"), store)
        for record in store.records(SUBMISSION)
    ]


def _shown(document: Document) -> dict[str, Any]:
    """Return what a document says that the board shows."""
    return document.model_dump(include={"name", "kind", "author", "licence", "summary", "url", "training", "suite"})


def _store(
    store: Store,
    home: Home,
    submission: str,
    player_sha256: str,
    card: dict[str, Any],
    signed_by: str | None,
    files: dict[str, bytes],
) -> Stored:
    content = {
        "submission": submission,
        "player_sha256": player_sha256,
        "card": card,
        "signed_by": signed_by,
        "round": open_round(store, home),
        "recorded_at": now(),
    }
    validate(SubmissionRecord, {**content, "files": {}}, str(card["name"]))
    for other in entrants(store):
        if other.record.player_sha256 == player_sha256:
            raise _replayed(other)
        if other.record.card.name == card["name"]:
            raise InputError(f"the name {card['name']!r} is taken by an entry of {other.record.card.author}: choose another one")
    try:
        return store.append(SUBMISSION, submission, f"{SUBMISSION}/{player_sha256}", content, files)
    except TakenError:  # by another process, since we looked
        raise _replayed(next(e for e in entrants(store) if e.record.player_sha256 == player_sha256)) from None


def _replayed(other: Entrant) -> InputError:
    card = other.record.card
    return InputError(f"replayed: the board has exactly this {card.kind} as {card.name!r} by {card.author}")
