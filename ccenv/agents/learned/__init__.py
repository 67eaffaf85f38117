"""Learned senders on disk: a policy's weights beside its card (``ccenv.network.learned``), policy.* in a folder."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from pydantic import field_validator

from ccenv.document import Format
from ccenv.errors import InputError, shown
from ccenv.foreign import JsonRules, is_file, is_folder, path_of
from ccenv.network.learned import MAX_CARD_BYTES, Card, LearnedKind
from ccenv.network.sender import MlpSender

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


POLICIES = LearnedKind(
    "policy", Format("ccenv-policy", 1, "the card of a policy", rules=JsonRules(max_bytes=MAX_CARD_BYTES), indent=2), PolicyCard
)


def save_policy(path: FilePath | str, sender: MlpSender, notes: dict[str, Any] | None = None) -> None:
    """Write a policy as a pair of files.

    Args:
        path: an existing folder (the files become policy.safetensors and policy.json) or the path of the pair, with or
            without one of the two endings.
        sender: the policy; stored as float64.
        notes: anything JSON can hold: how it was trained, versions, scores.

    Raises:
        InputError: if the policy could not be read back or the notes are not JSON.
    """
    if not isinstance(sender, MlpSender):
        raise InputError(
            f"save_policy: {shown(getattr(sender, 'name', sender))} is no policy; from_sb3, from_torch and from_onnx make one"
        )
    POLICIES.save(path_of("path", path), sender, notes)


def load_policy(path: FilePath | str) -> MlpSender:
    """Read a policy written by ``save_policy``.

    Args:
        path: the folder, or the path of the pair with or without one of the two endings.

    Returns:
        MlpSender: with float64 weights.

    Raises:
        InputError: if a file is missing, damaged, foreign, or was trained on another observation.
    """
    card, weights, biases = POLICIES.load(path)
    return MlpSender(card.name, weights, biases, card.activation, card.observation_version)


def policy_notes(path: FilePath | str) -> dict[str, Any]:
    """Return the notes on a policy's card: for one that was trained here its config, status and score.

    Raises:
        InputError: if the card is missing, damaged or foreign.
    """
    return POLICIES.read_card(path).notes


def is_policy(path: FilePath | str) -> bool:
    """Tell whether a path names a policy pair or a folder that should hold one."""
    given = FilePath(path)
    if is_folder(given) or given.suffix == ".safetensors":
        return True
    return given.suffix == ".json" and is_file(POLICIES.files(given)[0])
