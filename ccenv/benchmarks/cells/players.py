"""Players: the senders and adversaries of a run, by name, by what builds them and by a hash of what they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath

from ccenv.adversaries import make_adversary
from ccenv.adversaries.load import is_user_adversary, load_adversary
from ccenv.agents import make_sender
from ccenv.agents.load import is_user_sender, load_sender
from ccenv.base.errors import InputError
from ccenv.network.adversary import Adversary, ExternalAdversary, MlpAdversary, RecordedAdversary, ScriptedAdversary
from ccenv.agents.identity import adversary_hash, sender_hash
from ccenv.agents.sender import ClassicSender, ContractSender, ExternalSender, PolicySender, ProgramSender, Sender, bare
from ccenv.base.user.python_file import hashes_of, held

FILE = "file"
_KINDS: dict[type, str] = {
    ClassicSender: "classic",
    ProgramSender: "program",
    ContractSender: "contract",
    PolicySender: "policy",
    ScriptedAdversary: "scripted",
    RecordedAdversary: "recorded",
    MlpAdversary: "learned",
}


@dataclass(frozen=True)
class Player:
    """A sender or adversary of a run.

    Attributes:
        label: how tables call it.
        kind: ``classic``, ``program``, ``contract`` or ``policy`` for senders, ``scripted``, ``recorded`` or ``learned`` for
            adversaries, ``file`` for both where code of a user (a Python file or an installed plugin) defines it.
        spec: what builds it.
        sha256: hash of what it is, so that a changed file is noticed.
        source_sha256: hash of the user's Python file; a worker does not run another.
    """

    label: str
    kind: str
    spec: str
    sha256: str
    source_sha256: str = ""


def agent_player(spec: str, label: str | None = None, *, code: bool = False) -> Player:
    """Return the player of a sender spec.

    Args:
        spec: what ``make_sender`` takes.
        label: how tables call it; the sender's name by default.
        code: the spec may name a Python file or a plugin, whose code runs: its user named it, not a suite or a record of others.

    Raises:
        InputError: for senders that only an environment can drive.
    """
    sender = load_sender(spec) if code else make_sender(spec)
    if isinstance(sender, ExternalSender):
        raise InputError(f"agent {spec!r} has no rule of its own: it cannot be benchmarked")
    kind = FILE if code and is_user_sender(spec) else _KINDS[type(bare(sender))]
    return Player(label or sender.name, kind, spec, sender_hash(sender), getattr(sender, "source_sha256", ""))


def adversary_player(spec: str, *, code: bool = False) -> Player:
    """Return the player of an adversary spec.

    Args:
        spec: what ``make_adversary`` takes.
        code: as in :func:`agent_player`.

    Raises:
        InputError: for an adversary that only an environment can drive.
    """
    adversary = load_adversary(spec) if code else make_adversary(spec)
    if isinstance(adversary, ExternalAdversary):
        raise InputError(f"adversary {spec!r} has no rule of its own: it cannot be benchmarked")
    if code and is_user_adversary(spec):
        return Player(adversary.name, FILE, spec, adversary_hash(adversary), getattr(adversary, "source_sha256", ""))
    return Player(spec, _KINDS[type(adversary)], spec, adversary_hash(adversary))


def sender_of(player: Player) -> Sender:
    """Build a player's sender again. Raises InputError if what it is has changed since."""
    if player.kind == FILE:
        with held(_source(player)):
            sender = load_sender(player.spec)
    else:
        sender = make_sender(player.spec)
    if sender_hash(sender) != player.sha256:
        raise InputError(f"agent {player.spec!r} changed while the benchmark ran: run it again")
    return sender


def adversary_of(player: Player) -> Adversary:
    """Build a player's adversary again. Raises InputError if what it is has changed since."""
    if player.kind != FILE:
        return make_adversary(player.spec)
    with held(_source(player)):
        adversary = load_adversary(player.spec)
    if adversary_hash(adversary) != player.sha256:
        raise InputError(f"adversary {player.spec!r} changed while the benchmark ran: run it again")
    return adversary


def _source(player: Player) -> dict[FilePath, str]:
    """Return what :func:`held` takes: the Python file of a player; nothing for a plugin."""
    return dict.fromkeys(hashes_of([player.spec]), player.source_sha256)
