"""Players: the senders and adversaries of a run, by name, by what builds them and by a hash of what they are."""

from __future__ import annotations

from dataclasses import dataclass

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.agents.files import is_python_file, load_sender
from ccenv.errors import InputError
from ccenv.network.adversary import ExternalAdversary, MlpAdversary, RecordedAdversary, ScriptedAdversary
from ccenv.network.identity import adversary_hash, sender_hash
from ccenv.network.sender import ClassicSender, ContractSender, ExternalSender, MlpSender, ProgramSender, Sender, bare

FILE = "file"
_KINDS: dict[type, str] = {
    ClassicSender: "classic",
    ProgramSender: "program",
    ContractSender: "contract",
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
        kind: ``classic``, ``program``, ``contract``, ``policy`` or ``file`` (a Python file) for senders, ``scripted``,
            ``recorded`` or ``learned`` for adversaries.
        spec: what builds it.
        sha256: hash of what it is, so that a changed file is noticed.
    """

    label: str
    kind: str
    spec: str
    sha256: str


def agent_player(spec: str, label: str | None = None, *, code: bool = False) -> Player:
    """Return the player of a sender spec.

    Args:
        spec: what ``make_sender`` takes.
        label: how tables call it; the sender's name by default.
        code: the spec may name a Python file, whose code runs: its user named it, not a suite or a record of others.

    Raises:
        InputError: for senders that only an environment can drive.
    """
    sender = load_sender(spec) if code else make_sender(spec)
    if isinstance(sender, ExternalSender):
        raise InputError(f"agent {spec!r} has no rule of its own: it cannot be benchmarked")
    kind = FILE if is_python_file(spec) else _KINDS[type(bare(sender))]
    return Player(label or sender.name, kind, spec, sender_hash(sender))


def adversary_player(spec: str) -> Player:
    """Return the player of an adversary spec. Raises InputError for one that only an environment can drive."""
    adversary = make_adversary(spec)
    if isinstance(adversary, ExternalAdversary):
        raise InputError(f"adversary {spec!r} has no rule of its own: it cannot be benchmarked")
    return Player(spec, _KINDS[type(adversary)], spec, adversary_hash(adversary))


def sender_of(player: Player) -> Sender:
    """Build a player's sender again. Raises InputError if what it is has changed since."""
    sender = load_sender(player.spec) if player.kind == FILE else make_sender(player.spec)
    if sender_hash(sender) != player.sha256:
        raise InputError(f"agent {player.spec!r} changed while the benchmark ran: run it again")
    return sender
