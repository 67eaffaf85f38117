"""The record of a submission, its card, and the check that a record agrees with the submitted files, parsed again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.sender import ClassicSender, PolicySender, ProgramSender, Sender, ShieldSender
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError, cut
from ccenv.base.files import hash_value
from ccenv.leaderboard.store.records import CellRecord, Label, Manifest, RecordContent, RoundNumber, Sha256, Text
from ccenv.leaderboard.submission.document import CAPS, Document, Fingerprint, Training, Url, fold_text
from ccenv.leaderboard.submission.identity import make_claims, registered_names
from ccenv.leaderboard.submission.reader import parse_submission
from ccenv.network.adversary import Adversary

SUBMISSION = "submission"
REVIEWED = "reviewed code of ccenv"


def _is_submission_file(name: str) -> str:
    if name not in CAPS:
        raise ValueError(f"not a file of a submission; allowed: {', '.join(sorted(CAPS))}")
    return name


FileName = Annotated[str, Field(max_length=40), AfterValidator(_is_submission_file)]


class EntryCard(StrictModel):
    """The origin of an entry as shown on the board: fields of its document; kind ``classic`` is reviewed code with its spec."""

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
    """The stored record of a submission."""

    submission: Sha256
    player_sha256: Sha256
    card: EntryCard
    signed_by: Fingerprint | None
    round: RoundNumber
    files: dict[FileName, Sha256]


def build_classic_sender(spec: str) -> ClassicSender:
    """Return the classic CCA of a spec. Raises InputError if it is none."""
    sender = make_sender(spec) if spec.partition(":")[0] in AGENTS else None
    if not isinstance(sender, ClassicSender):
        raise InputError(f"{spec!r} is not a classic CCA: pack it and hand in the folder: ccenv board pack {spec}")
    return sender


def reviewed_content(spec: str, sender: ClassicSender) -> dict[str, Any]:
    summary = AGENTS.entry(spec.partition(":")[0]).summary
    card = {"name": spec, "kind": "classic", "track": "sender", "author": REVIEWED, "licence": "MIT", "summary": summary}
    submission = hash_value({"format": SUBMISSION, "spec": spec})
    return {"submission": submission, "player_sha256": sender_hash(sender), "card": {**card, "spec": spec}}


def make_card(document: Document) -> dict[str, Any]:
    fields = document.model_dump(include={"name", "kind", "author", "licence", "summary", "url", "training", "suite"})
    return {"track": document.track, **fields}


ReadFile = Callable[[str], bytes]
"""Returns a file by its hash."""

CLASSIC = "classic"


@dataclass(frozen=True)
class CheckedSubmission:
    """A submission that agrees with its record."""

    record: SubmissionRecord
    player: Sender | Adversary
    claims: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Hash of the sender in the records of runs; "" for an adversary."""
        is_sender = isinstance(self.player, (ClassicSender, ShieldSender, PolicySender, ProgramSender))
        return sender_hash(self.player) if is_sender else ""  # type: ignore[arg-type]


def recheck_submission(content: Any, read: ReadFile, where: str) -> CheckedSubmission:
    """Parse a submission by every rule of today, and compare document, card, player, signer and files with its record.

    Raises InputError if it breaks a rule, or differs from its record.
    """
    record = validate(SubmissionRecord, content, where)
    name = record.card.name
    if record.card.spec is not None or record.card.kind == CLASSIC:
        player: Sender | Adversary = build_classic_sender(record.card.spec or "")
        expected = {**reviewed_content(str(record.card.spec), player), "signed_by": None}  # type: ignore[arg-type]
        expected["card"]["summary"] = record.card.summary  # words of the registry, which later versions may choose anew
        if record.files:
            raise InputError(f"{where}: {name!r} is reviewed code and has no files; the record lists {min(record.files)}")
    else:
        kept = registered_names().get(fold_text(name))
        if kept is not None and (kept != name or (kept in AGENTS and CLASSIC in AGENTS.entry(kept).tags)):
            raise InputError(f"{where}: the name {name!r} is kept for ccenv's own {kept!r}, which this is not")
        submission = parse_submission({file: read(digest) for file, digest in record.files.items()}, where, bounded=False)
        player = submission.player
        expected = {"submission": submission.sha256, "player_sha256": submission.player_sha256}
        expected |= {"card": make_card(submission.document), "signed_by": submission.signed_by}
    stated = record.model_dump(include={"submission", "player_sha256", "signed_by"})
    card = record.card.model_dump()
    submitted = validate(SubmissionRecord, {**record.model_dump(), **expected}, where).card.model_dump()
    for key in card:
        if card[key] != submitted[key]:
            raise InputError(
                f"{where}: its card has {key} {cut(repr(card[key]), 80)}; what was handed in says {cut(repr(submitted[key]), 80)}"
            )
    for key in stated:
        if stated[key] != expected[key]:
            said, wanted = cut(repr(stated[key]), 80), cut(repr(expected[key]), 80)
            raise InputError(f"{where}: its {key} is {said}; what was handed in has {wanted}")
    return CheckedSubmission(record, player, make_claims(name, player))


def submission_claims(content: Any, read: ReadFile, where: str) -> tuple[str, ...]:
    """Return the unique claims of a stored submission. Raises InputError if it breaks a rule of today."""
    return recheck_submission(content, read, where).claims


def check_players(submission: CheckedSubmission, manifest: Manifest, cells: list[CellRecord], where: str) -> None:
    """Check that all players, summaries and cells of an evaluation are of its submission. Raises InputError."""
    name, card = submission.record.card.name, submission.record.card
    identity = (name, submission.sha256)
    agents = [(agent.label, agent.sha256) for agent in manifest.agents]
    if agents != [identity] or manifest.agents[0].kind != card.kind:
        players = ", ".join(f"{label} {sha256[:12]}" for label, sha256 in agents)
        raise InputError(f"{where}: played by {players}; the submission is {name} {submission.sha256[:12]}")
    if [(entry.agent, entry.agent_sha256) for entry in manifest.summary] != [identity]:
        raise InputError(f"{where}: {len(manifest.summary)} summaries; one is needed, about {name} {submission.sha256[:12]}")
    for cell in cells:
        if (cell.agent, cell.agent_sha256) != identity:
            raise InputError(f"{where}: a run of {cell.agent} {cell.agent_sha256[:12]}, which is not the submission")
        if cell.code_sha256 != cells[0].code_sha256:
            raise InputError(f"{where}: a run of code {cell.code_sha256[:12]}; its first one is of {cells[0].code_sha256[:12]}")


def check_author(author: str, signed_by: str | None, others: Iterable[SubmissionRecord], where: str) -> None:
    """Raise InputError unless an author's later entries are signed by the first key that signed for the folded name."""
    signed = [other for other in others if other.signed_by is not None and fold_text(other.card.author) == fold_text(author)]
    if signed and signed[0].signed_by != signed_by:
        holder = f"{signed[0].card.author!r} signed {signed[0].card.name!r} with {signed[0].signed_by}"
        raise InputError(f"{where}: the author {author!r} is signed by {signed_by or 'nobody'}, but {holder}: sign with that key")
