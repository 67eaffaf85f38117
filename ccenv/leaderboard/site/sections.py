"""Theorems of senders on the board: a certificate stands with its program's sender, once the checker confirmed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccenv.proofs.certificates.library import Stored
from ccenv.base.errors import CcenvError
from ccenv.leaderboard.submission.canonical import canonical_hash
from ccenv.leaderboard.submission.weights import on_grid
from ccenv.agents.identity import sender_hash
from ccenv.agents.sender import ContractSender, ProgramSender, Sender
from ccenv.agents.programs import Program, parse_program
from ccenv.base.registry import load_target

FOLDER = "certificates"

# Looked up at run time: the core does not import agents.
_MAKE_SENDER = "ccenv.agents:make_sender"


@dataclass(frozen=True)
class Theorem:
    """A theorem with its certificate, which the checker confirmed without solving."""

    statement: str
    figures: Mapping[str, float | None]
    assumptions: Sequence[str]
    link: str
    content: bytes
    queries: int
    solver: str

    def to_dict(self) -> dict[str, Any]:
        """Return what ``board.json`` holds of it."""
        about = {"statement": self.statement, **self.figures, "assumptions": list(self.assumptions)}
        return {**about, "certificate": self.link, "checked": "without solving"}


class Certified:
    """Certificates by the programs that they are about."""

    def __init__(self, certificates: Sequence[Stored]) -> None:
        """Sort certificates by program."""
        self._about: dict[str, list[Stored]] = {}
        for stored in certificates:
            for digest in _hashes(stored):
                self._about.setdefault(digest, []).append(stored)

    def theorems(self, played: str, slug: str) -> list[Theorem]:
        """Check the certificates about a program, and return what they say.

        Raises:
            InputError: if the checker refuses one of them.
        """
        return [_shown(stored, f"{slug}-{place}") for place, stored in enumerate(self._about.get(played, ()), start=1)]


def _hashes(stored: Stored) -> set[str]:
    """Return the hashes that a sender of the certificate's program has, as registered and as submitted."""
    name = stored.certificate.theorem.sender
    try:
        program = parse_program(stored.certificate.program)
        sender: Sender | None = _chooser(name, program) if program.is_contract else ProgramSender(name, program)
    except CcenvError:
        return set()
    return set() if sender is None else {sender_hash(sender), canonical_hash(sender), canonical_hash(on_grid(sender))}


def _chooser(name: str, contract: Program) -> ContractSender | None:
    """Return the registered agent of a name, if it chooses inside this very contract: by itself a contract plays nothing."""
    if not name.isidentifier():  # no file that a certificate names is read
        return None
    sender = load_target(_MAKE_SENDER)(name)
    return sender if isinstance(sender, ContractSender) and sender.program == contract else None


def _shown(stored: Stored, name: str) -> Theorem:
    stored.confirm()
    certificate = stored.certificate
    return Theorem(
        certificate.statement,
        certificate.figures,
        certificate.assumptions,
        f"{FOLDER}/{name}.certificate.json",
        stored.content,
        len(certificate.queries),
        " and ".join(sorted({query.solver for query in certificate.queries})),
    )
