"""Senders inside contracts: a contract from a file or from an agent that has one, and who chooses inside it."""

from __future__ import annotations

from typing import Any

from ccenv.base.errors import InputError
from ccenv.agents.sender import ContractSender, PolicySender
from ccenv.agents.programs import Program, load_program

SHIPPED = "learned_contract_u80"


def contract(file: str = SHIPPED, chooser: str = "", policy: str = "") -> ContractSender:
    """Put a chooser inside a contract.

    Args:
        file: a contract (.json), or the name of an agent that runs inside one.
        chooser: ``lo``, ``hi``, ``middle``, ``random`` (anew at each decision, keyed by the seed), ``policy`` or ``external``; by
            default ``policy`` where one is given, else ``middle``.
        policy: a policy (.safetensors with its card, or the folder of the pair) whose output is the position in the interval.
    """
    program = load_contract(str(file))
    who = str(chooser) or ("policy" if policy else "middle")
    return ContractSender(f"{program.name}.{who}", program, who, _policy(str(policy)) if policy else None)


def load_contract(spec: str) -> Program:
    """Return the contract of a file or of an agent that runs inside one.

    Raises:
        UnknownNameError: if neither an agent nor a file has this name.
        ProgramError: if the file is damaged or no contract.
        InputError: for an agent without a contract.
    """
    if spec.endswith(".json"):
        return ContractSender(spec, load_program(spec), "lo").program  # refuses a program without intervals
    from ccenv.agents import make_sender  # the registry imports this module

    sender = make_sender(spec)
    if not isinstance(sender, ContractSender):
        raise InputError(f"agent {spec!r} has no contract; a file (.json) or an agent that runs inside one is needed")
    return sender.program


def _policy(spec: str) -> PolicySender:
    from ccenv.agents.learned import load_policy

    loaded: Any = load_policy(spec)
    policy = loaded.policy if isinstance(loaded, ContractSender) else loaded
    if not isinstance(policy, PolicySender):
        raise InputError(f"{spec!r} holds no policy")
    return policy
