"""Submission of folders and of the reviewed classic CCAs, and withdrawal by the operator or the holder of the signing key.

Records are never deleted: a withdrawn entry is neither evaluated nor shown, and its name stays taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, Literal

from ccenv.agents import make_sender
from ccenv.agents.learned import save_policy
from ccenv.agents.sender import ClassicSender, PolicySender, ProgramSender, Sender, ShieldSender
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.files import Format, make_folder, write_atomic
from ccenv.base.foreign import STRANGER, parse_json, read_folder
from ccenv.base.provenance import now
from ccenv.leaderboard.store.database import BoardStore, ClaimedError, MovedError, Readable, Stored, TakenError
from ccenv.leaderboard.store.entry import (
    SUBMISSION,
    SubmissionRecord,
    build_classic_sender,
    check_author,
    make_card,
    reviewed_content,
)
from ccenv.leaderboard.store.home import Home, open_round
from ccenv.leaderboard.store.records import Sha256, StageContent
from ccenv.leaderboard.submission.document import PAYLOAD, Line
from ccenv.leaderboard.submission.identity import check_reserved, make_claims, name_claim
from ccenv.leaderboard.submission.reader import Submission, parse_submission, read_submission
from ccenv.leaderboard.submission.signature import read_fingerprint, sign, signed_by
from ccenv.network.adversary import Adversary


@dataclass(frozen=True)
class Entrant:
    """A stored submission with its player."""

    record: SubmissionRecord
    store: Readable

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Name -> content of the submitted files; empty for a classic CCA."""
        return {name: self.store.file(digest) for name, digest in self.record.files.items()}

    @cached_property
    def player(self) -> Sender | Adversary:
        """The sender or adversary, parsed again by every rule."""
        if self.record.card.spec is not None:
            return make_sender(self.record.card.spec)
        return parse_submission(self.files, self.record.card.name, bounded=False).player

    def write_player(self, folder: FilePath) -> str:
        return write_sender(self.player, self.record.card.name, self.record.card.spec, self.files, folder)


def write_sender(player: Sender | Adversary, name: str, spec: str | None, files: Mapping[str, bytes], folder: FilePath) -> str:
    """Write a sender to a folder and return its spec; of a program only the name changes. Raises InputError for an adversary."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(player, ProgramSender):
        data = parse_json(files[PAYLOAD["program"]], name)
        text = json.dumps({**data, "name": name}, separators=(",", ":"), ensure_ascii=False)
        write_atomic(folder / f"{name}.json", text.encode())
        return str(folder / f"{name}.json")
    if isinstance(player, (PolicySender, ShieldSender)):
        save_policy(folder, player)
        return str(folder)
    if isinstance(player, ClassicSender) and spec is not None:
        return spec
    raise InputError(f"{name!r} is not a sender")


def submit_folder(store: BoardStore, home: Home, folder: FilePath, *, own: bool = False) -> tuple[Stored, Submission]:
    """Store a submission folder on the board.

    Raises InputError if it breaks a rule, is on the board already, or its name is taken, reserved or looks like another one.
    """
    submission = read_submission(folder)
    document = submission.document
    if not own:
        check_reserved(document.name, document.author, submission.player)
    content: dict[str, Any] = {"submission": submission.sha256, "player_sha256": submission.player_sha256}
    content |= {"card": make_card(document), "signed_by": submission.signed_by}
    return _store_submission(store, home, content, submission.player, submission.files), submission


def submit_reviewed(store: BoardStore, home: Home, spec: str) -> Stored:
    """Store a classic CCA of this package. Raises InputError for any other spec, or if it is on the board already."""
    sender = build_classic_sender(spec)
    return _store_submission(store, home, {**reviewed_content(spec, sender), "signed_by": None}, sender, {})


def entrants(store: Readable) -> list[Entrant]:
    """Return all submissions, in order."""
    return [
        Entrant(validate(SubmissionRecord, record.content, f"record {record.number}"), store)
        for record in store.records(SUBMISSION)
    ]


def _store_submission(
    store: BoardStore, home: Home, content: dict[str, Any], player: Sender | Adversary, files: dict[str, bytes]
) -> Stored:
    card, player_sha256 = content["card"], content["player_sha256"]
    slot = f"{SUBMISSION}/{player_sha256}"
    try:
        while True:
            before = store.chain()
            content |= {"round": open_round(store, home), "recorded_at": now()}
            validate(SubmissionRecord, {**content, "files": {}}, card["name"])
            records = [entrant.record for entrant in entrants(store)]
            check_author(card["author"], content["signed_by"], records, repr(card["name"]))
            with suppress(MovedError):  # a closed round or another submission changes what is allowed
                return store.append(
                    SUBMISSION, content["submission"], slot, content, files, make_claims(card["name"], player), after=before
                )
    except TakenError as error:
        equal_players = [record for record in records if record.player_sha256 == player_sha256]
        raise (_replayed_error(equal_players[0], "exactly this") if equal_players else error) from None
    except ClaimedError as error:
        rows = [r for r in store.records(SUBMISSION) if r.number == error.number]
        holder = validate(SubmissionRecord, rows[0].content, f"record {error.number}")
        if error.claim != name_claim(card["name"]):
            raise _replayed_error(holder, "an equal") from None
        name, taken = card["name"], holder.card.name
        alike = f"the name {name!r} is" if name == taken else f"the name {name!r} looks like {taken!r}, which is"
        raise InputError(f"{alike} taken by an entry of {holder.card.author}: choose another one") from None


def _replayed_error(holder: SubmissionRecord, how: str) -> InputError:
    card = holder.card
    return InputError(f"replayed: the board has {how} {card.kind} as {card.name!r} by {card.author}")


WITHDRAWAL = "withdrawal"
NAMESPACE = "ccenv-withdrawal"
REQUEST, SIGNATURE = "withdraw.json", "withdraw.json.sig"
_CAPS = {REQUEST: 4_096, SIGNATURE: 4_096}
RULES = replace(STRANGER, max_bytes=_CAPS[REQUEST], max_depth=2)
FORMAT = Format("ccenv-withdrawal", 1, "a request to take an entry back", "format_version", RULES, indent=2, ensure_ascii=False)


class Request(StrictModel):
    """The request to withdraw an entry, signed by the holder of its key."""

    format: Literal["ccenv-withdrawal"]
    format_version: Literal[1]
    submission: Sha256
    reason: Line = ""


class Withdrawal(StageContent):
    """The record of a withdrawal; by ``key``: the signed request is among its files."""

    by: Literal["operator", "key"]
    reason: Line = ""


def make_request(folder: FilePath, key: FilePath, out: FilePath, reason: str = "") -> FilePath:
    """Write the signed request to withdraw a submission.

    Raises InputError if the submission was not signed with this key, or the folder holds something else; CcenvError if it cannot
    be signed or written.
    """
    submission = read_submission(folder)
    signer = read_fingerprint(key)
    if submission.signed_by != signer:
        raise InputError(f"{folder}: signed by {submission.signed_by or 'nobody'}, not by {signer}: that key cannot take it back")
    request = validate(Request, {**FORMAT.head, "submission": submission.sha256, "reason": reason}, "request")
    content = FORMAT.content(request.model_dump())
    signature = sign(content, key, NAMESPACE)
    make_folder(out)
    if {entry.name for entry in out.iterdir()} - set(_CAPS):
        raise InputError(f"{out} holds something that is not a request: give another --out")
    write_atomic(out / REQUEST, content)
    write_atomic(out / SIGNATURE, signature)
    return out


def withdraw_by_request(store: BoardStore, folder: FilePath) -> Stored:
    """Withdraw an entry by a signed request.

    Raises InputError if the request breaks a rule, is about no entry of the board, or is signed by another key.
    """
    files = read_folder(folder, _CAPS)
    request = _request(files, str(folder))
    record = next((e.record for e in entrants(store) if e.record.submission == request.submission), None)
    if record is None:
        raise InputError(f"{folder}: there is no submission {request.submission[:12]} on this board")
    _check_signer(files, record, str(folder))
    return _store_withdrawal(store, record, "key", request.reason, files)


def withdraw_by_operator(store: BoardStore, name: str, reason: str = "") -> Stored:
    """Withdraw an entry. Raises InputError if there is no entry of the name, or it was withdrawn already."""
    records = {entrant.record.card.name: entrant.record for entrant in entrants(store)}
    if name not in records:
        raise unknown_name("entry", name, sorted(records))
    return _store_withdrawal(store, records[name], "operator", reason, {})


def withdrawn_submissions(store: Readable) -> set[str]:
    return {record.subject for record in store.records(WITHDRAWAL)}


def check_withdrawal(
    withdrawal: Withdrawal, files: Mapping[str, str], record: SubmissionRecord, read: Callable[[str], bytes], where: str
) -> None:
    """Check that a stored withdrawal is by the operator or by the key that signed the submission.

    Raises InputError if its files do not match, or another key signed it.
    """
    expected = set(_CAPS) if withdrawal.by == "key" else set()
    if set(files) != expected:
        listed = ", ".join(sorted(files)) or "nothing"
        raise InputError(f"{where}: files {listed}; by {withdrawal.by} it has {', '.join(sorted(expected)) or 'none'}")
    if withdrawal.by == "key":
        contents = {name: read(digest) for name, digest in files.items()}
        if _request(contents, where).submission != withdrawal.submission:
            raise InputError(f"{where}: the request is about another submission")
        _check_signer(contents, record, where)


def _request(files: Mapping[str, bytes], where: str) -> Request:
    missing = sorted(set(_CAPS) - set(files))
    if missing:
        raise InputError(f"{where}: there is no {missing[0]}")
    return validate(Request, FORMAT.parse(files[REQUEST], f"{where}/{REQUEST}"), f"{where}/{REQUEST}")


def _check_signer(files: Mapping[str, bytes], record: SubmissionRecord, where: str) -> None:
    signer = signed_by(files[REQUEST], files[SIGNATURE], f"{where}/{SIGNATURE}", NAMESPACE)
    if record.signed_by != signer:
        raise InputError(f"{where}: signed by {signer}; {record.card.name!r} was signed by {record.signed_by or 'nobody'}")


def _store_withdrawal(store: BoardStore, record: SubmissionRecord, by: str, reason: str, files: Mapping[str, bytes]) -> Stored:
    content = {"submission": record.submission, "name": record.card.name, "by": by, "reason": reason, "recorded_at": now()}
    validate(Withdrawal, {**content, "files": {}}, "withdrawal")
    try:
        return store.append(WITHDRAWAL, record.submission, f"{WITHDRAWAL}/{record.submission}", content, files)
    except TakenError:
        raise InputError(f"{record.card.name!r} was taken back already") from None
