"""Belief programs by name, for what exports them."""

from __future__ import annotations

from ccenv.agents import AGENTS, make_sender
from ccenv.export.bpf import ExportError
from ccenv.network.sender import ProgramSender
from ccenv.programs import Program


def program_named(spec: str) -> Program:
    """Return the one program of a registered sender or a ``.json`` file.

    Raises:
        ExportError: if it is no belief program, or two of them.
        UnknownNameError: for an unknown name.
    """
    sender = make_sender(spec)
    if not isinstance(sender, ProgramSender):
        known = [name for tag in ("synthesized", "distilled") for name in AGENTS.names(tag)]
        raise ExportError(f"{spec!r} is no belief program; programs: {', '.join(known)}")
    if sender.start is not None:
        raise ExportError(f"{spec!r} is two programs, first {sender.start.name}, then {sender.program.name}; export one of them")
    return sender.program
