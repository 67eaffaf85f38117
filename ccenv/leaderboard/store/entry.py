"""What a board stores about a submission, and what its card says of a folder or of a classic CCA."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ccenv.agents import AGENTS, make_sender
from ccenv.base.config import StrictModel
from ccenv.base.document import hash_of
from ccenv.base.errors import InputError
from ccenv.leaderboard.store.records import Label, RecordContent, RoundNumber, Sha256, Text
from ccenv.leaderboard.submission.document import CAPS, Document, Fingerprint, Training, Url
from ccenv.agents.identity import sender_hash
from ccenv.agents.sender import ClassicSender

SUBMISSION = "submission"
REVIEWED = "reviewed code of ccenv"


def _is_submission_file(name: str) -> str:
    if name not in CAPS:
        raise ValueError(f"not a file of a submission; allowed: {', '.join(sorted(CAPS))}")
    return name


FileName = Annotated[str, Field(max_length=40), AfterValidator(_is_submission_file)]


class EntryCard(StrictModel):
    """What the board shows about where an entry comes from.

    Attributes:
        name, kind, author, licence, summary, url, training: as in the submission's document; kind ``classic`` is reviewed code.
        track: ``sender`` or ``adversary``.
        spec: of a classic CCA.
        suite: what it was made for.
    """

    name: Label
    kind: Literal["program", "policy", "contract", "scripted", "moves", "network", "classic"]
    track: Literal["sender", "adversary"]
    author: Text
    licence: Text
    summary: Text = ""
    url: Url | None = None
    training: Training = Training()
    spec: Text | None = None
    suite: Text = ""


class SubmissionRecord(RecordContent):
    """What the database holds about a submission."""

    submission: Sha256
    player_sha256: Sha256
    card: EntryCard
    signed_by: Fingerprint | None
    round: RoundNumber
    files: dict[FileName, Sha256]


def classic_sender(spec: str) -> ClassicSender:
    """Return the classic CCA of a spec. Raises InputError if it is none."""
    sender = make_sender(spec) if spec.partition(":")[0] in AGENTS else None
    if not isinstance(sender, ClassicSender):
        raise InputError(f"{spec!r} is not a classic CCA: pack it and hand in the folder: ccenv board pack {spec}")
    return sender


def reviewed_content(spec: str, sender: ClassicSender) -> dict[str, Any]:
    """Return what a record says about a classic CCA."""
    summary = AGENTS.entry(spec.partition(":")[0]).summary
    card = {"name": spec, "kind": "classic", "track": "sender", "author": REVIEWED, "licence": "MIT", "summary": summary}
    submission = hash_of({"format": SUBMISSION, "spec": spec})
    return {"submission": submission, "player_sha256": sender_hash(sender), "card": {**card, "spec": spec}}


def card_of(document: Document) -> dict[str, Any]:
    """Return what a document says that the board shows."""
    shown = document.model_dump(include={"name", "kind", "author", "licence", "summary", "url", "training", "suite"})
    return {"track": document.track, **shown}
