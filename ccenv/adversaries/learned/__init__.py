"""Learned adversaries on disk: NAME.safetensors with the weights beside NAME.json, the card. Neither needs torch nor pickle.

The tensors are w0, b0, w1, b1, ... as in ``ccenv.agents.learned``. In a folder the pair is called adversary.safetensors and
adversary.json.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ccenv.agents.learned.pair import pair_of
from ccenv.agents.learned.tensors import MAX_FILE_BYTES, read_tensors, tensor_file
from ccenv.config import StrictModel, validate
from ccenv.errors import InputError
from ccenv.files import write_atomic
from ccenv.foreign import JsonRules, is_file, is_folder, read_bounded, read_json
from ccenv.network.adversary import MlpAdversary

STEM = "adversary"
MAX_CARD_BYTES = 262_144


class Card(StrictModel):
    """What the tensors mean.

    Attributes:
        format: always ``"ccenv-adversary"``.
        version: of the format, 1.
        name: of the adversary.
        activation: between the layers.
        observation_version: of the Network-v0 observation that it reads.
        layers: widths, input first.
        columns: which moves it makes (``MlpAdversary``).
        decision_steps: engine steps for which moves are kept; 0: one smallest Rm.
        episode_rtts: length of the episodes that it was trained on.
        levels: values of each move; 0: continuous moves.
        sha256: of the tensors' file.
        notes: how it was trained, versions, scores.
    """

    format: Literal["ccenv-adversary"] = "ccenv-adversary"
    version: Literal[1] = 1
    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")
    activation: Literal["tanh", "relu"]
    observation_version: int = Field(ge=1, strict=True)
    layers: tuple[int, ...] = Field(min_length=2, max_length=7)
    columns: tuple[int, ...] = Field(min_length=1, max_length=130)
    decision_steps: int = Field(ge=0, strict=True)
    episode_rtts: int = Field(ge=1, strict=True)
    levels: int = Field(default=0, ge=0, strict=True)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    notes: dict[str, Any] = Field(default_factory=dict)


def save_adversary(path: FilePath | str, adversary: MlpAdversary, notes: dict[str, Any] | None = None) -> None:
    """Write an adversary as a pair of files; the card last, so that a card always has its weights.

    Args:
        path: an existing folder, or the path of the pair with or without one of the two endings.
        adversary: what to write; stored as float64.
        notes: anything JSON can hold.

    Raises:
        InputError: if the notes are not JSON.
    """
    weights_file, card_file = pair_of(path, STEM)
    tensors: dict[str, np.ndarray] = {}
    for i, (weight, bias) in enumerate(zip(adversary.weights, adversary.biases, strict=True)):
        tensors[f"w{i}"], tensors[f"b{i}"] = weight, bias
    content = tensor_file(tensors)
    fields = ("name", "activation", "observation_version", "columns", "decision_steps", "episode_rtts", "levels")
    data = {name: getattr(adversary, name) for name in fields}
    data |= {"layers": _widths(adversary), "sha256": hashlib.sha256(content).hexdigest(), "notes": notes or {}}
    card = validate(Card, data, str(card_file))
    try:
        text = json.dumps(card.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"{card_file}: the notes are not JSON ({error})") from None
    write_atomic(weights_file, content)
    write_atomic(card_file, text.encode())


def load_adversary(path: FilePath | str) -> MlpAdversary:
    """Read an adversary written by ``save_adversary``.

    Args:
        path: the folder, or the path of the pair with or without one of the two endings.

    Raises:
        InputError: if a file is missing, damaged or foreign; whether it fits a path the engine checks.
    """
    weights_file, card_file = pair_of(path, STEM)
    content = read_bounded(weights_file, MAX_FILE_BYTES)
    card = validate(Card, read_json(card_file, JsonRules(max_bytes=MAX_CARD_BYTES)), str(card_file))
    if hashlib.sha256(content).hexdigest() != card.sha256:
        raise InputError(f"{weights_file}: does not belong to its card (sha256 differs)")
    tensors = read_tensors(content, str(weights_file))
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (n_in, n_out) in enumerate(zip(card.layers[:-1], card.layers[1:], strict=True)):
        shapes |= {f"w{i}": (n_in, n_out), f"b{i}": (n_out,)}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if found != shapes or not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise InputError(f"{weights_file}: tensors {found}; the card asks for finite {shapes}")
    layers = range(len(card.layers) - 1)
    return MlpAdversary(
        card.name,
        tuple(tensors[f"w{i}"] for i in layers),
        tuple(tensors[f"b{i}"] for i in layers),
        card.activation,
        card.observation_version,
        card.columns,
        card.decision_steps,
        card.episode_rtts,
        card.levels,
    )


def is_adversary(path: FilePath | str) -> bool:
    """Tell whether a path names an adversary's pair of files or a folder that holds one."""
    given = FilePath(path)
    return given.suffix == ".safetensors" or (is_folder(given) and is_file(pair_of(given, STEM)[1]))


def _widths(adversary: MlpAdversary) -> list[int]:
    return [adversary.weights[0].shape[0], *(weight.shape[1] for weight in adversary.weights)]
