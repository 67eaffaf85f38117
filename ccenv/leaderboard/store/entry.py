"""What a board stores about a submission, and what its card says of a folder or of a classic CCA.

Reading a board's submissions again as if they were handed in today, and comparing them with what the records say of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.sender import ClassicSender, ContractSender, PolicySender, ProgramSender, Sender
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError
from ccenv.base.files import hash_of
from ccenv.leaderboard.store.records import CellRecord, Label, Manifest, RecordContent, RoundNumber, Sha256, Text
from ccenv.leaderboard.submission.document import CAPS, Document, Fingerprint, Training, Url, folded
from ccenv.leaderboard.submission.identity import claims_of, registered
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


ReadFile = Callable[[str], bytes]
"""Returns a file by its hash."""

CLASSIC = "classic"


@dataclass(frozen=True)
class Known:
    """A submission that was read again."""

    record: SubmissionRecord
    player: Sender | Adversary
    claims: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Hash of the sender that runs name; "" of an adversary."""
        known = isinstance(self.player, (ClassicSender, ContractSender, PolicySender, ProgramSender))
        return sender_hash(self.player) if known else ""  # type: ignore[arg-type]


def reread(content: Any, read: ReadFile, where: str) -> Known:
    """Read a submission again through every rule, and compare document, card, player, signer and files with its record.

    Raises:
        InputError: if it breaks a rule, or the record says something else than what was handed in.
    """
    record = validate(SubmissionRecord, content, where)
    name = record.card.name
    if record.card.spec is not None or record.card.kind == CLASSIC:
        player: Sender | Adversary = classic_sender(record.card.spec or "")
        today = {**reviewed_content(str(record.card.spec), player), "signed_by": None}  # type: ignore[arg-type]
        today["card"]["summary"] = record.card.summary  # words of the registry, which later versions may choose anew
        if record.files:
            raise InputError(f"{where}: {name!r} is reviewed code and has no files; the record lists {_first(record.files)}")
    else:
        own = registered().get(folded(name))
        if own is not None and (own != name or (own in AGENTS and CLASSIC in AGENTS.entry(own).tags)):
            raise InputError(f"{where}: the name {name!r} is kept for ccenv's own {own!r}, which this is not")
        submission = parse_submission({file: read(digest) for file, digest in record.files.items()}, where, bounded=False)
        player = submission.player
        today = {"submission": submission.sha256, "player_sha256": submission.player_sha256}
        today |= {"card": card_of(submission.document), "signed_by": submission.signed_by}
    seen = record.model_dump(include={"submission", "player_sha256", "signed_by"})
    card = record.card.model_dump()
    handed_in = validate(SubmissionRecord, {**record.model_dump(), **today}, where).card.model_dump()
    for key in card:
        if card[key] != handed_in[key]:
            raise InputError(f"{where}: its card has {key} {_shown(card[key])}; what was handed in says {_shown(handed_in[key])}")
    for key in seen:
        if seen[key] != today[key]:
            raise InputError(f"{where}: its {key} is {_shown(seen[key])}; what was handed in has {_shown(today[key])}")
    return Known(record, player, claims_of(name, player))


def submission_claims(content: Any, read: ReadFile, where: str) -> tuple[str, ...]:
    """Return what a stored submission alone may have. Raises InputError if it cannot be read today."""
    return reread(content, read, where).claims


def check_players(known: Known, manifest: Manifest, cells: list[CellRecord], where: str) -> None:
    """Check that an evaluation is about its submission and no other. Raises InputError if a player, summary or cell is not."""
    name, card = known.record.card.name, known.record.card
    own = (name, known.sha256)
    agents = [(agent.label, agent.sha256) for agent in manifest.agents]
    if agents != [own] or manifest.agents[0].kind != card.kind:
        shown = ", ".join(f"{label} {sha256[:12]}" for label, sha256 in agents)
        raise InputError(f"{where}: played by {shown}; the submission is {name} {known.sha256[:12]}")
    if [(entry.agent, entry.agent_sha256) for entry in manifest.summary] != [own]:
        raise InputError(f"{where}: {len(manifest.summary)} summaries; one is needed, about {name} {known.sha256[:12]}")
    for cell in cells:
        if (cell.agent, cell.agent_sha256) != own:
            raise InputError(f"{where}: a run of {cell.agent} {cell.agent_sha256[:12]}, which is not the submission")
        if cell.code_sha256 != cells[0].code_sha256:
            raise InputError(f"{where}: a run of code {cell.code_sha256[:12]}; its first one is of {cells[0].code_sha256[:12]}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _first(files: dict[str, str]) -> str:
    return min(files)


def check_author(author: str, signed_by: str | None, others: Iterable[SubmissionRecord], where: str) -> None:
    """Check that an author is who handed in under that name before: the first key that signed for it signs all that follows.

    Raises:
        InputError: if an entry before it, by an author whose name looks like this one, was signed with another key.
    """
    alike = [other for other in others if other.signed_by is not None and folded(other.card.author) == folded(author)]
    if alike and alike[0].signed_by != signed_by:
        held = f"{alike[0].card.author!r} signed {alike[0].card.name!r} with {alike[0].signed_by}"
        raise InputError(f"{where}: the author {author!r} is signed by {signed_by or 'nobody'}, but {held}: sign with that key")
