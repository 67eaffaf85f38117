"""Senders for the solver by name: belief programs, and published CCAs with their own encodings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents.programs import Program, load_program
from ccenv.agents.sender import ProgramSender, ShieldSender
from ccenv.base.errors import CcenvError, InputError, NoEncodingError
from ccenv.base.foreign import fold_name
from ccenv.base.registry import load_target
from ccenv.proofs.formulas.encode import SmtSender
from ccenv.proofs.senders.intervals import require_intervals
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.senders.rate_based import Bbr, BbrEstimatedRm, BbrPacedUp, BbrPacedUpEstimatedRm, Constant, Copa, RateDelay
from ccenv.proofs.senders.relu import load_relu
from ccenv.proofs.senders.window import Aimd, Dctcp

PUBLISHED: dict[str, Callable[[], SmtSender]] = {
    "copa": Copa,
    "aimd": Aimd,
    "reno": lambda: Aimd("reno"),
    "dctcp": Dctcp,
    "bbr": Bbr,
    "bbr1": Bbr,
    "bbr_paced_up": BbrPacedUp,
    "bbr_estimated_rm": BbrEstimatedRm,
    "bbr_paced_up_estimated_rm": BbrPacedUpEstimatedRm,
    "constant": Constant,
    "rate_delay": RateDelay,
}
"""Published CCAs by name, each with its formula and exact step side by side."""

# Looked up at run time: the core does not import agents.
_AGENTS, _MAKE_SENDER = "ccenv.agents:AGENTS", "ccenv.agents:make_sender"


def smt_sender(spec: str) -> Any:
    """Return a sender by name (a published encoding or registered belief program) or file (.json program, .relu.json policy).

    Raises UnknownNameError if nothing has this name, and NoEncodingError if the sender exists but has no encoding.
    """
    if spec in PUBLISHED:
        return PUBLISHED[spec]()
    if spec.endswith(".relu.json"):
        return load_relu(FilePath(spec))
    names = ", ".join(sorted(PUBLISHED))
    return ProgramSmtSender(program_of(spec, f"has no encoding for the solver; belief programs have, and these by name: {names}"))


def program_of(spec: str, otherwise: str = "is no belief program") -> Program:
    """Return the program or shield of a registered name or a file (.json); for a chooser inside a shield, the shield.

    Raises:
        UnknownNameError: if nothing has this name.
        NoEncodingError: if the sender is no belief program, or starts with another one.
        ProgramError: for a shield with an interval that is empty at some belief.
    """
    if spec.endswith(".json") and (program := load_program(spec)).is_shield:
        require_intervals(program)
        return program
    sender = load_target(_MAKE_SENDER)(spec)
    if isinstance(sender, ShieldSender):
        require_intervals(sender.program)
        return sender.program
    if not isinstance(sender, ProgramSender):
        raise NoEncodingError(f"agent {spec!r} {otherwise}")
    if sender.start is not None:
        raise NoEncodingError(f"agent {spec!r} starts with another program; the solver takes one: {sender.program.name!r}")
    return sender.program


def registered_as(name: str) -> str | None:
    """Return the registered name or published encoding that a name equals or resembles, or None."""
    names = {entry.name for entry in load_target(_AGENTS)} | PUBLISHED.keys()
    return name if name in names else {fold_name(one): one for one in names}.get(fold_name(name))


def require_own_name(program: Program, name: str) -> None:
    """Refuse a name that equals or resembles that of another registered program. Raises InputError with both names."""
    registered = registered_as(name)
    try:
        same = registered is None or (name == registered and program == program_of(registered))
    except CcenvError:
        same = False
    if not same:
        raise InputError(f"{name!r} bears or resembles the name of the registered {registered!r}, another program")
