"""Read a submission folder: all rules, in a fixed order, before anything is built from it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from ccenv.agents.identity import adversary_hash, sender_hash
from ccenv.agents.programs import Program, parse_program, to_data
from ccenv.agents.sender import ProgramSender, Sender, ShieldSender
from ccenv.base.config import validate
from ccenv.base.errors import InputError, ProgramError
from ccenv.base.files import hash_value
from ccenv.base.foreign import read_folder
from ccenv.leaderboard.submission.document import BESIDE, CAPS, DOCUMENT, FORMAT, SIGNATURE, Document
from ccenv.leaderboard.submission.signature import signed_by
from ccenv.leaderboard.submission.weights import read_moves, read_network, read_policy, read_scripted
from ccenv.network.adversary import Adversary, RecordedAdversary
from ccenv.proofs.senders.intervals import require_intervals

MAX_MESSAGE = 400


@dataclass(frozen=True)
class Submission:
    """A submission that passed every rule."""

    document: Document
    files: dict[str, bytes]
    player: Sender | Adversary
    player_sha256: str
    signed_by: str | None

    @property
    def sha256(self) -> str:
        """Hash of the document, which lists the hashes of all other files but the signature."""
        return hashlib.sha256(self.files[DOCUMENT]).hexdigest()


def read_submission(folder: FilePath) -> Submission:
    """Read a folder and apply every rule.

    Raises:
        InputError: one line with the file, what was seen and what is allowed.
        CcenvError: if a signature cannot be checked here.
    """
    try:
        return parse_submission(read_folder(folder, CAPS), str(folder))
    except InputError as error:
        text = str(error)
        raise InputError(
            text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE // 2]} ... {text[-MAX_MESSAGE // 2 :]}"
        ) from None


def parse_submission(files: dict[str, bytes], where: str, *, bounded: bool = True) -> Submission:
    """Parse a submission from the contents of its files (see :func:`read_submission`); programs on a board may be unbounded."""
    if DOCUMENT not in files:
        raise InputError(f"{where}: there is no {DOCUMENT}")
    document = validate(Document, FORMAT.parse(files[DOCUMENT], f"{where}/{DOCUMENT}"), f"{where}/{DOCUMENT}")
    members = document.members
    for name in files:
        if name not in (DOCUMENT, SIGNATURE, *members):
            raise InputError(f"{where}: {name} does not belong to kind {document.kind!r}, which has {' and '.join(members)}")
    for name in members:
        if name not in files:
            raise InputError(f"{where}: there is no {name}, which kind {document.kind!r} needs")
        if hashlib.sha256(files[name]).hexdigest() != document.files[name]:
            raise InputError(f"{where}/{name}: its SHA-256 is not the one in {DOCUMENT}: changed after packing")
    signer = _check_signer(document, files, where)
    player, sha256 = build_player(document, files, where, bounded)
    return Submission(document, files, player, sha256, signer)


def _check_signer(document: Document, files: dict[str, bytes], where: str) -> str | None:
    """Return the fingerprint of the signing key, which must be the one in the document, or None."""
    named = document.signed_with
    if SIGNATURE not in files:
        if named is not None:
            raise InputError(f"{where}: there is no {SIGNATURE}, but {DOCUMENT} is signed with {named}")
        return None
    signer = signed_by(files[DOCUMENT], files[SIGNATURE], f"{where}/{SIGNATURE}")
    if signer != named:
        statement = "names no key" if named is None else f"names {named}"
        raise InputError(f"{where}/{SIGNATURE}: made with {signer}, but {DOCUMENT} {statement} as signed_with")
    return signer


def build_player(document: Document, files: dict[str, bytes], where: str, bounded: bool = True) -> tuple[Sender | Adversary, str]:
    content, folder, where = files[document.payload], where, f"{where}/{document.payload}"
    if document.kind == "program":
        program, sha256 = _program(content, document.name, where, bounded)
        if program.is_shield:
            raise InputError(f"{where}: a shield decides no rate; kind 'contract' has the weights of who chooses beside it")
        return ProgramSender(document.name, program), sha256
    if document.kind == "contract" and document.architecture is not None:
        return _build_shield_sender(document, files, folder, bounded)
    if document.kind == "policy" and document.architecture is not None:
        policy = read_policy(content, document.architecture, document.name, where)
        return policy, sender_hash(policy)
    if document.kind == "scripted":
        from ccenv.adversaries import make_adversary

        adversary = make_adversary(read_scripted(content, where))
        return adversary, adversary_hash(adversary)
    if document.kind == "network" and document.architecture is not None and document.moves is not None:
        learned = read_network(content, document.architecture, document.moves, document.name, where)
        return learned, adversary_hash(learned)
    moves = RecordedAdversary(document.name, read_moves(content, where), periodic=True)
    return moves, adversary_hash(moves)


def _program(content: bytes, name: str, where: str, bounded: bool) -> tuple[Program, str]:
    """Return the program of a file under another name, and its hash without the name."""
    try:
        program = parse_program(content, where, bounded=bounded)
    except ProgramError as error:
        raise InputError(str(error)) from None
    nameless = to_data(replace(program, name="", source=""))
    return replace(program, name=name), hash_value({"kind": "program", **nameless})


def _build_shield_sender(document: Document, files: dict[str, bytes], folder: str, bounded: bool) -> tuple[Sender, str]:
    """Return a policy inside its shield, which allows a rate at every belief."""
    (name,) = BESIDE["contract"]
    shield, sha256 = _program(files[name], document.name, f"{folder}/{name}", bounded)
    if document.architecture is None:
        raise InputError(f"{folder}: kind 'contract' needs an architecture")
    policy = read_policy(files[document.payload], document.architecture, document.name, f"{folder}/{document.payload}")
    try:
        sender = ShieldSender(document.name, shield, "policy", policy)
        require_intervals(shield)
    except ProgramError as error:
        raise InputError(f"{folder}/{name}: {error}") from None
    return sender, hash_value({"kind": "contract", "program": sha256, "policy": sender_hash(policy)})
