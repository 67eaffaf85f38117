"""Players: the senders and adversaries of a run, by name, by what builds them and by a hash of what they are."""

from __future__ import annotations

from dataclasses import dataclass

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.errors import InputError
from ccenv.network.adversary import ExternalAdversary, MlpAdversary, RecordedAdversary, ScriptedAdversary
from ccenv.network.identity import adversary_hash, sender_hash
from ccenv.network.sender import ClassicSender, ExternalSender, MlpSender, ProgramSender, Sender, bare

_KINDS: dict[type, str] = {
    ClassicSender: "classic",
    ProgramSender: "program",
    MlpSender: "policy",
    ScriptedAdversary: "scripted",
    RecordedAdversary: "recorded",
    MlpAdversary: "learned",
}


@dataclass(frozen=True)
class Player:
    """A sender or adversary of a run.

    Attributes:
        label: how tables call it.
        kind: ``classic``, ``program`` or ``policy`` for senders, ``scripted``, ``recorded`` or ``learned`` for adversaries.
        spec: what builds it.
        sha256: hash of what it is, so that a changed file is noticed.
    """

    label: str
    kind: str
    spec: str
    sha256: str


def agent_player(spec: str, label: str | None = None) -> Player:
    """Return the player of a sender spec. Raises InputError for senders that only an environment can drive."""
    sender = make_sender(spec)
    if isinstance(sender, ExternalSender):
        raise InputError(f"agent {spec!r} has no rule of its own: it cannot be benchmarked")
    return Player(label or sender.name, _KINDS[type(bare(sender))], spec, sender_hash(sender))


def adversary_player(spec: str) -> Player:
    """Return the player of an adversary spec. Raises InputError for one that only an environment can drive."""
    adversary = make_adversary(spec)
    if isinstance(adversary, ExternalAdversary):
        raise InputError(f"adversary {spec!r} has no rule of its own: it cannot be benchmarked")
    return Player(spec, _KINDS[type(adversary)], spec, adversary_hash(adversary))


def sender_of(player: Player) -> Sender:
    """Build a player's sender again. Raises InputError if what it is has changed since."""
    sender = make_sender(player.spec)
    if sender_hash(sender) != player.sha256:
        raise InputError(f"agent {player.spec!r} changed while the benchmark ran: run it again")
    return sender
