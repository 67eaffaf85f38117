"""Belief programs and contracts by name, for what exports them."""

from __future__ import annotations

from typing import NamedTuple

from ccenv.agents import AGENTS, make_sender
from ccenv.live.export.bpf import COMPILED, POSITIONS, USER, ExportError
from ccenv.agents.sender import ContractSender, PolicySender, ProgramSender
from ccenv.agents.programs import Program


class Exported(NamedTuple):
    """What is exported of a sender.

    Attributes:
        program: the program, or the contract.
        chooser: of a contract: as ``export_bpf`` takes it.
        contract: of a contract: the sender, with the policy that may answer outside the kernel.
    """

    program: Program
    chooser: str | PolicySender | None = None
    contract: ContractSender | None = None


def program_named(spec: str, chooser: str | None = None) -> Exported:
    """Return the one program, or the contract, of a registered sender or a ``.json`` file.

    Args:
        spec: of the sender.
        chooser: of a contract, instead of its own; ``user`` stands for its policy or its random choices in a process,
            ``policy`` for its policy compiled in.

    Raises:
        ExportError: if it is no belief program, or two of them, or its chooser cannot be exported.
        UnknownNameError: for an unknown name.
    """
    sender = make_sender(spec)
    if isinstance(sender, ContractSender):
        own = sender.chooser if sender.chooser in POSITIONS else USER
        if sender.chooser == "external":
            raise ExportError(f"{spec!r}: an environment chooses; choosers are {', '.join([*POSITIONS, 'policy', 'random'])}")
        if chooser == COMPILED:
            if sender.policy is None:
                raise ExportError(f"{spec!r} has no policy that could be compiled in; its chooser is {sender.chooser}")
            return Exported(sender.program, sender.policy, sender)
        return Exported(sender.program, chooser or own, sender)
    if not isinstance(sender, ProgramSender):
        known = [name for tag in ("synthesized", "distilled", "contract") for name in AGENTS.names(tag)]
        raise ExportError(f"{spec!r} is no belief program; programs: {', '.join(known)}")
    if sender.start is not None:
        raise ExportError(f"{spec!r} is two programs, first {sender.start.name}, then {sender.program.name}; export one of them")
    return Exported(sender.program, chooser)
