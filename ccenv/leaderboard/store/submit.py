"""Taking something in: a submission folder, or a classic CCA of this package, whose code was reviewed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents import make_sender
from ccenv.agents.learned import save_policy
from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.base.files import write_atomic
from ccenv.base.foreign import parse_json
from ccenv.leaderboard.store.database import BoardStore, ClaimedError, MovedError, Readable, Stored, TakenError
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.rounds import open_round
from ccenv.leaderboard.submission.document import PAYLOAD
from ccenv.leaderboard.store.entry import SUBMISSION, SubmissionRecord, card_of, classic_sender, reviewed_content
from ccenv.leaderboard.submission.identity import check_author, check_reserved, claims_of, name_claim
from ccenv.leaderboard.submission.reader import Submission, parse_submission, read_submission
from ccenv.network.adversary import Adversary
from ccenv.agents.sender import ClassicSender, ContractSender, PolicySender, ProgramSender, Sender
from ccenv.base.provenance import now


@dataclass(frozen=True)
class Entrant:
    """A submission of the board that can play."""

    record: SubmissionRecord
    store: Readable

    @cached_property
    def files(self) -> dict[str, bytes]:
        """What was handed in: name -> content; nothing for a classic CCA."""
        return {name: self.store.file(digest) for name, digest in self.record.files.items()}

    @cached_property
    def player(self) -> Sender | Adversary:
        """The sender or adversary, read again through every rule."""
        if self.record.card.spec is not None:
            return make_sender(self.record.card.spec)
        return parse_submission(self.files, self.record.card.name, bounded=False).player

    def write_player(self, folder: FilePath) -> str:
        """Write the player in the form that specs name, and return its spec."""
        return write_sender(self.player, self.record.card.name, self.record.card.spec, self.files, folder)


def write_sender(player: Sender | Adversary, name: str, spec: str | None, files: Mapping[str, bytes], folder: FilePath) -> str:
    """Write a sender in the form that specs name, and return its spec.

    A program is written as it was read, but for its name, so that what passed the cap once passes it again.

    Raises:
        InputError: if it is not a sender.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(player, ProgramSender):
        data = parse_json(files[PAYLOAD["program"]], name)
        text = json.dumps({**data, "name": name}, separators=(",", ":"), ensure_ascii=False)
        write_atomic(folder / f"{name}.json", text.encode())
        return str(folder / f"{name}.json")
    if isinstance(player, (PolicySender, ContractSender)):
        save_policy(folder, player)
        return str(folder)
    if isinstance(player, ClassicSender) and spec is not None:
        return spec
    raise InputError(f"{name!r} is not a sender")


def submit_folder(store: BoardStore, home: Home, folder: FilePath, *, own: bool = False) -> tuple[Stored, Submission]:
    """Take a submission folder in.

    Raises:
        InputError: if it breaks a rule, is on the board already, or its name is taken, looks like another one or is kept.
    """
    submission = read_submission(folder)
    document = submission.document
    if not own:
        check_reserved(document.name, document.author, submission.player)
    content: dict[str, Any] = {"submission": submission.sha256, "player_sha256": submission.player_sha256}
    content |= {"card": card_of(document), "signed_by": submission.signed_by}
    return _store(store, home, content, submission.player, submission.files), submission


def submit_reviewed(store: BoardStore, home: Home, spec: str) -> Stored:
    """Take a classic CCA of this package in.

    Raises:
        InputError: if the spec names none, or it is on the board already.
    """
    sender = classic_sender(spec)
    return _store(store, home, {**reviewed_content(spec, sender), "signed_by": None}, sender, {})


def entrants(store: Readable) -> list[Entrant]:
    """Return everything that was taken in, in order."""
    return [
        Entrant(validate(SubmissionRecord, record.content, f"record {record.number}"), store)
        for record in store.records(SUBMISSION)
    ]


def _store(store: BoardStore, home: Home, content: dict[str, Any], player: Sender | Adversary, files: dict[str, bytes]) -> Stored:
    card, player_sha256 = content["card"], content["player_sha256"]
    slot = f"{SUBMISSION}/{player_sha256}"
    try:
        while True:
            before = store.chain()
            content |= {"round": open_round(store, home), "recorded_at": now()}
            validate(SubmissionRecord, {**content, "files": {}}, card["name"])
            there = [entrant.record for entrant in entrants(store)]
            check_author(card["author"], content["signed_by"], there, repr(card["name"]))
            with suppress(MovedError):  # the round was closed, or somebody handed in: both decide what is allowed
                return store.append(
                    SUBMISSION, content["submission"], slot, content, files, claims_of(card["name"], player), after=before
                )
    except TakenError as error:
        held = [record for record in there if record.player_sha256 == player_sha256]
        raise (_replayed(held[0], "exactly this") if held else error) from None
    except ClaimedError as error:
        rows = [r for r in store.records(SUBMISSION) if r.number == error.number]
        holder = validate(SubmissionRecord, rows[0].content, f"record {error.number}")
        if error.claim != name_claim(card["name"]):
            raise _replayed(holder, "an equal") from None
        name, taken = card["name"], holder.card.name
        alike = f"the name {name!r} is" if name == taken else f"the name {name!r} looks like {taken!r}, which is"
        raise InputError(f"{alike} taken by an entry of {holder.card.author}: choose another one") from None


def _replayed(holder: SubmissionRecord, how: str) -> InputError:
    card = holder.card
    return InputError(f"replayed: the board has {how} {card.kind} as {card.name!r} by {card.author}")
