"""Learned players on disk, senders and adversaries alike: NAME.safetensors with the weights beside NAME.json, the card.

The tensors are w0, b0, w1, b1, ...: w has shape (n_in, n_out). The card says what they mean. Neither needs torch nor pickle.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Annotated, Any, Generic, Literal, TypeVar

import numpy as np
from pydantic import Field

from ccenv.config import StrictModel, validate
from ccenv.document import Format
from ccenv.errors import InputError
from ccenv.files import write_atomic
from ccenv.foreign import is_folder, read_bounded, shown
from ccenv.network.adversary import MlpAdversary
from ccenv.network.sender import MlpSender
from ccenv.network.tensors import MAX_FILE_BYTES, read_tensors, tensor_file

MAX_CARD_BYTES = 262_144
MAX_LAYERS = 6
WEIGHTS, CARD = ".safetensors", ".json"

LearnedPlayer = MlpSender | MlpAdversary
Arrays = tuple[np.ndarray, ...]


class Card(StrictModel):
    """What the tensors of a learned player mean; each kind adds its own fields.

    Attributes:
        name: of the player.
        activation: between the layers.
        observation_version: of the observation that it reads.
        layers: widths, input first.
        sha256: of the tensors' file.
        notes: how it was trained, versions, scores.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")
    activation: Literal["tanh", "relu"]
    observation_version: int = Field(ge=1, strict=True)
    layers: tuple[Annotated[int, Field(ge=1, strict=True)], ...] = Field(min_length=2, max_length=MAX_LAYERS + 1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    notes: dict[str, Any] = Field(default_factory=dict)


CardT = TypeVar("CardT", bound=Card)


@dataclass(frozen=True)
class LearnedKind(Generic[CardT]):
    """A kind of learned players on disk.

    Attributes:
        stem: name of the pair of files in a folder.
        form: of the card.
        card: model of the card.
    """

    stem: str
    form: Format
    card: type[CardT]

    def files(self, path: FilePath | str) -> tuple[FilePath, FilePath]:
        """Return the files of weights and card.

        Args:
            path: a folder, or the path of the pair with or without one of the two endings.
        """
        given = FilePath(path)
        if is_folder(given):
            given = given / self.stem
        elif given.suffix in {WEIGHTS, CARD}:
            given = given.with_suffix("")
        if not given.name:
            raise InputError(f"{shown(str(path))} names no file")
        return given.with_name(given.name + WEIGHTS), given.with_name(given.name + CARD)

    def save(self, path: FilePath | str, player: LearnedPlayer, notes: dict[str, Any] | None) -> None:
        """Write a player as a pair of files; the card last, so that a card always has its weights.

        Args:
            path: see :meth:`files`; a folder must exist.
            player: stored as float64.
            notes: anything JSON can hold.

        Raises:
            InputError: if the player could not be read back, or the notes are not JSON.
        """
        weights_file, card_file = self.files(path)
        layers = _widths(player, str(weights_file))
        content = tensor_file(named_layers(player.weights, player.biases))
        own = (name for name in self.card.model_fields if name not in Card.model_fields)
        data = {name: getattr(player, name) for name in ("name", "activation", "observation_version")}
        data |= {"layers": layers, **{name: getattr(player, name) for name in own}}
        data |= {"sha256": hashlib.sha256(content).hexdigest(), "notes": notes or {}}
        validate(self.card, data, str(card_file))
        try:
            text = self.form.content(data)
        except (TypeError, ValueError) as error:
            raise InputError(f"{card_file}: the notes are not JSON ({error})") from None
        write_atomic(weights_file, content)
        write_atomic(card_file, text)

    def read_card(self, path: FilePath | str) -> CardT:
        """Return the card. Raises InputError if it is missing, damaged or foreign."""
        file = self.files(path)[1]
        data = self.form.read(file)
        return validate(self.card, {key: value for key, value in data.items() if key not in self.form.head}, str(file))

    def load(self, path: FilePath | str) -> tuple[CardT, Arrays, Arrays]:
        """Return card, weights and biases as :meth:`save` wrote them.

        Raises:
            InputError: if a file is missing, damaged or foreign, or the two do not belong together.
        """
        weights_file, _ = self.files(path)
        content = read_bounded(weights_file, MAX_FILE_BYTES)
        card = self.read_card(path)
        if hashlib.sha256(content).hexdigest() != card.sha256:
            raise InputError(f"{weights_file}: does not belong to its card (sha256 differs)")
        tensors = read_tensors(content, str(weights_file))
        shapes, found = layer_shapes(card.layers), {name: tensor.shape for name, tensor in tensors.items()}
        if found != shapes or not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise InputError(f"{weights_file}: tensors {found}; the card asks for finite {shapes}")
        return card, *layers_of(tensors)


def named_layers(weights: Arrays, biases: Arrays) -> dict[str, np.ndarray]:
    """Return the arrays of a network by the names of their tensors."""
    named: dict[str, np.ndarray] = {}
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        named |= {f"w{i}": weight, f"b{i}": bias}
    return named


def layers_of(tensors: dict[str, np.ndarray]) -> tuple[Arrays, Arrays]:
    """Return weights and biases of tensors that have the names of :func:`named_layers`."""
    layers = range(len(tensors) // 2)
    return tuple(tensors[f"w{i}"] for i in layers), tuple(tensors[f"b{i}"] for i in layers)


def layer_shapes(widths: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a network whose layers have these widths."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        shapes |= {f"w{i}": (n_in, n_out), f"b{i}": (n_out,)}
    return shapes


def layer_widths(weights: Arrays) -> list[int]:
    """Return the widths of the layers, input first."""
    return [weights[0].shape[0], *(weight.shape[1] for weight in weights)]


def _widths(player: LearnedPlayer, where: str) -> list[int]:
    """Return the widths of the layers; refuse arrays that do not fit together or are not finite."""
    if not 1 <= len(player.weights) == len(player.biases) <= MAX_LAYERS:
        counts = f"{len(player.weights)} weights and {len(player.biases)} biases"
        raise InputError(f"{where}: {counts}; 1 to {MAX_LAYERS} layers are allowed")
    n_before = player.weights[0].shape[:1]
    for i, (weight, bias) in enumerate(zip(player.weights, player.biases, strict=True)):
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or weight.shape[:1] != n_before:
            raise InputError(f"{where}: layer {i} has weights of shape {weight.shape} and biases of shape {bias.shape}")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise InputError(f"{where}: layer {i} is not finite")
        n_before = bias.shape
    return layer_widths(player.weights)
