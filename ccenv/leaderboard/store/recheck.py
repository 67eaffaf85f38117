"""Reading a board's submissions again as if they were handed in today, and comparing them with what the records say of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ccenv.agents import AGENTS
from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.leaderboard.store.records import CellRecord, Manifest
from ccenv.leaderboard.store.entry import SubmissionRecord, card_of, classic_sender, reviewed_content
from ccenv.leaderboard.submission.identity import claims_of, registered
from ccenv.leaderboard.submission.lookalike import folded
from ccenv.leaderboard.submission.reader import parse_submission
from ccenv.network.adversary import Adversary
from ccenv.agents.identity import sender_hash
from ccenv.agents.sender import ClassicSender, ContractSender, PolicySender, ProgramSender, Sender

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
