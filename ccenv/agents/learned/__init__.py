"""Learned senders on disk: a policy's weights beside its card (``ccenv.network.learned``), policy.* in a folder.

The card of a policy that chooses inside a contract holds the contract: its output means nothing without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import field_validator

from ccenv.document import Format
from ccenv.errors import InputError
from ccenv.foreign import JsonRules, is_file, is_folder, read_json
from ccenv.network.learned import MAX_CARD_BYTES, Card, LearnedKind
from ccenv.network.sender import ContractSender, MlpSender
from ccenv.programs import parse_program, to_data

MAX_WIDTH = 256


class PolicyCard(Card):
    """The card of a policy over the observation of ``ccenv/Sender-v0``, as the kernel plays it."""

    @field_validator("observation_version")
    @classmethod
    def _current(cls, version: int) -> int:
        from ccenv.engine.compiled.observation import OBSERVATION_VERSION

        if version != OBSERVATION_VERSION:
            raise ValueError(f"it must be {OBSERVATION_VERSION}, the version of this ccenv")
        return version

    @field_validator("layers")
    @classmethod
    def _playable(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        from ccenv.engine.compiled.observation import N_OBSERVATION

        if layers[0] != N_OBSERVATION or layers[-1] != 1 or max(layers) > MAX_WIDTH:
            allowed = f"{N_OBSERVATION} inputs, 1 output and at most {MAX_WIDTH} units per layer are allowed"
            raise ValueError(f"{list(layers)}; {allowed}")
        return layers


class ContractCard(PolicyCard):
    """The card of a policy that chooses inside a contract.

    Attributes:
        contract: the contract, a belief program of version 2.
    """

    contract: dict[str, Any]


@dataclass(frozen=True)
class _InsideContract(MlpSender):
    """What is written of a policy inside a contract."""

    contract: dict[str, Any] = field(default_factory=dict)


_RULES = JsonRules(max_bytes=MAX_CARD_BYTES)
POLICIES = LearnedKind("policy", Format("ccenv-policy", 1, "the card of a policy", rules=_RULES, indent=2), PolicyCard)
CONTRACT_POLICIES = LearnedKind(
    "policy",
    Format("ccenv-contract-policy", 1, "the card of a policy inside a contract", rules=_RULES, indent=2),
    ContractCard,
)


def save_policy(path: FilePath | str, sender: MlpSender | ContractSender, notes: dict[str, Any] | None = None) -> None:
    """Write a policy as a pair of files.

    Args:
        path: an existing folder (the files become policy.safetensors and policy.json) or the path of the pair, with or
            without one of the two endings.
        sender: the policy, or one inside a contract; stored as float64.
        notes: anything JSON can hold: how it was trained, versions, scores.

    Raises:
        InputError: if the policy could not be read back or the notes are not JSON.
    """
    if isinstance(sender, MlpSender):
        POLICIES.save(path, sender, notes)
        return
    inner = sender.policy
    if inner is None:
        raise InputError(f"{sender.name!r} chooses by {sender.chooser!r}: there are no weights to write")
    stored = _InsideContract(
        sender.name, inner.weights, inner.biases, inner.activation, inner.observation_version, to_data(sender.program)
    )
    CONTRACT_POLICIES.save(path, stored, notes)


def load_policy(path: FilePath | str) -> MlpSender | ContractSender:
    """Read a policy written by ``save_policy``.

    Args:
        path: the folder, or the path of the pair with or without one of the two endings.

    Returns:
        MlpSender or ContractSender: with float64 weights, as it was saved.

    Raises:
        InputError: if a file is missing, damaged, foreign, or was trained on another observation.
        ProgramError: if the contract is damaged.
    """
    if not _is_inside_contract(path):
        card, weights, biases = POLICIES.load(path)
        return MlpSender(card.name, weights, biases, card.activation, card.observation_version)
    inside, weights, biases = CONTRACT_POLICIES.load(path)
    program = parse_program(inside.contract, f"{CONTRACT_POLICIES.files(path)[1]}: contract")
    policy = MlpSender(inside.name, weights, biases, inside.activation, inside.observation_version)
    return ContractSender(inside.name, program, "policy", policy)


def _is_inside_contract(path: FilePath | str) -> bool:
    card = POLICIES.files(path)[1]
    data = read_json(card, _RULES) if is_file(card) else None
    return isinstance(data, dict) and data.get("format") == CONTRACT_POLICIES.form.name


def policy_notes(path: FilePath | str) -> dict[str, Any]:
    """Return the notes on a policy's card: for one that was trained here its config, status and score.

    Raises:
        InputError: if the card is missing, damaged or foreign.
    """
    return (CONTRACT_POLICIES if _is_inside_contract(path) else POLICIES).read_card(path).notes


def is_policy(path: FilePath | str) -> bool:
    """Tell whether a path names a policy pair or a folder that should hold one."""
    given = FilePath(path)
    if is_folder(given) or given.suffix == ".safetensors":
        return True
    return given.suffix == ".json" and is_file(POLICIES.files(given)[0])
