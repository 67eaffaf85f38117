"""Learned players on disk, senders and adversaries alike: NAME.safetensors with the weights beside NAME.json, the card.

The tensors of stage i are w<i> of shape (n_in, n_out) and b<i>; a recurrent cell has the weights of its gates side by side in
them, and u<i>, c<i> for its state. The card says what they mean. Neither needs torch nor pickle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Annotated, Any, Generic, Literal, TypeVar

import numpy as np
from pydantic import Field

from ccenv.agents.sender import GATES, PolicySender
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError
from ccenv.base.files import Format, write_atomic
from ccenv.base.foreign import is_folder, read_bounded, shown
from ccenv.base.foreign.tensors import MAX_FILE_BYTES, read_tensors, tensor_file
from ccenv.network.adversary import MlpAdversary

MAX_CARD_BYTES = 262_144
MAX_LAYERS = 6
WEIGHTS, CARD = ".safetensors", ".json"

LearnedPlayer = PolicySender | MlpAdversary
Arrays = tuple[np.ndarray, ...]
Layers = tuple[Annotated[int, Field(ge=1, strict=True)], ...]


class Card(StrictModel):
    """What the tensors of a learned player mean; each kind adds its own fields.

    Attributes:
        name: of the player.
        activation: between the layers.
        layers: widths, input first.
        sha256: of the tensors' file.
        notes: how it was trained, versions, scores.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")
    activation: Literal["tanh", "relu"]
    layers: Layers = Field(min_length=2, max_length=MAX_LAYERS + 1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    notes: dict[str, Any] = Field(default_factory=dict)

    @property
    def stage_kinds(self) -> tuple[str, ...]:
        """Kind of each stage."""
        return ("dense",) * (len(self.layers) - 1)


CardT = TypeVar("CardT", bound=Card)
PlayerT = TypeVar("PlayerT", PolicySender, MlpAdversary)


@dataclass(frozen=True)
class Network:
    """The arrays of a network as a player holds them.

    Attributes:
        weights, biases: per stage.
        hidden_weights, hidden_biases: per recurrent cell.
    """

    weights: Arrays
    biases: Arrays
    hidden_weights: Arrays = ()
    hidden_biases: Arrays = ()


@dataclass(frozen=True)
class LearnedKind(Generic[CardT, PlayerT]):
    """A kind of learned players on disk.

    Attributes:
        stem: name of the pair of files in a folder.
        form: of the card.
        card: model of the card.
        describe: fields of a player's card, without ``sha256`` and ``notes``; its argument ``layers`` are the widths.
    """

    stem: str
    form: Format
    card: type[CardT]
    describe: Callable[[PlayerT, list[int]], dict[str, Any]]

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

    def save(self, path: FilePath | str, player: PlayerT, notes: dict[str, Any] | None) -> None:
        """Write a player as a pair of files; the card last, so that a card always has its weights.

        Args:
            path: see :meth:`files`; a folder must exist.
            player: stored as float64.
            notes: anything JSON can hold.

        Raises:
            InputError: if the player could not be read back, or the notes are not JSON.
        """
        weights_file, card_file = self.files(path)
        layers = checked_widths(player, str(weights_file))
        content = tensor_file(named_layers(player))
        data = self.describe(player, layers)
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

    def load(self, path: FilePath | str) -> tuple[CardT, Network]:
        """Return card and network as :meth:`save` wrote them.

        Raises:
            InputError: if a file is missing, damaged or foreign, or the two do not belong together.
        """
        weights_file, _ = self.files(path)
        content = read_bounded(weights_file, MAX_FILE_BYTES)
        card = self.read_card(path)
        if hashlib.sha256(content).hexdigest() != card.sha256:
            raise InputError(f"{weights_file}: does not belong to its card (sha256 differs)")
        tensors = read_tensors(content, str(weights_file))
        shapes = layer_shapes(card.layers, card.stage_kinds)
        found = {name: tensor.shape for name, tensor in tensors.items()}
        if found != shapes or not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise InputError(f"{weights_file}: tensors {shown(found, 200)}; the card asks for finite {shapes}")
        return card, network_of(tensors, card.stage_kinds)


def named_layers(player: LearnedPlayer) -> dict[str, np.ndarray]:
    """Return the arrays of a player's network by the names of their tensors."""
    named: dict[str, np.ndarray] = {}
    hidden = iter(_cells(player))
    for i, (kind, weight, bias) in enumerate(zip(_kinds(player), player.weights, player.biases, strict=True)):
        named |= {f"w{i}": weight, f"b{i}": bias}
        if kind in GATES:
            named[f"u{i}"], named[f"c{i}"] = next(hidden)
    return named


def network_of(tensors: dict[str, np.ndarray], kinds: Sequence[str]) -> Network:
    """Return the network of tensors that have the names of :func:`named_layers`."""
    cells = [i for i, kind in enumerate(kinds) if kind in GATES]
    every = range(len(kinds))
    places = {"w": every, "b": every, "u": cells, "c": cells}
    return Network(*(tuple(tensors[f"{letter}{i}"] for i in which) for letter, which in places.items()))


def layer_shapes(widths: Sequence[int], kinds: Sequence[str] = ()) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a network whose stages have these widths (input first) and kinds (none: all dense)."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        gates = GATES.get(kinds[i], 1) if kinds else 1
        shapes |= {f"w{i}": (n_in, gates * n_out), f"b{i}": (gates * n_out,)}
        if kinds and kinds[i] in GATES:
            shapes |= {f"u{i}": (n_out, gates * n_out), f"c{i}": (gates * n_out,)}
    return shapes


def layer_widths(player: LearnedPlayer) -> list[int]:
    """Return the widths of the stages, input first."""
    outs = [weight.shape[1] // GATES.get(kind, 1) for kind, weight in zip(_kinds(player), player.weights, strict=True)]
    return [player.weights[0].shape[0], *outs]


def checked_widths(player: LearnedPlayer, where: str) -> list[int]:
    """Return the widths of the stages. Raises InputError for arrays that do not fit together or are not finite."""
    if not 1 <= len(player.weights) == len(player.biases) <= MAX_LAYERS:
        counts = f"{len(player.weights)} weights and {len(player.biases)} biases"
        raise InputError(f"{where}: {counts}; 1 to {MAX_LAYERS} layers are allowed")
    kinds, cells = _kinds(player), _cells(player)
    if len(kinds) != len(player.weights) or len(cells) != sum(kind in GATES for kind in kinds):
        raise InputError(f"{where}: stages {list(kinds)} for {len(player.weights)} weights and {len(cells)} cells")
    n_before, hidden = player.weights[0].shape[:1], iter(cells)
    for i, (kind, weight, bias) in enumerate(zip(kinds, player.weights, player.biases, strict=True)):
        gates = GATES.get(kind, 1)
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or weight.shape[:1] != n_before or weight.shape[1] % gates:
            raise InputError(f"{where}: layer {i} has weights of shape {weight.shape} and biases of shape {bias.shape}")
        n_before = (weight.shape[1] // gates,)
        state = next(hidden) if kind in GATES else ()
        if state and (state[0].shape != (*n_before, *bias.shape) or state[1].shape != bias.shape):
            raise InputError(f"{where}: cell {i} has weights of shape {state[0].shape} and biases of shape {state[1].shape}")
        if not all(np.isfinite(array).all() for array in (weight, bias, *state)):
            raise InputError(f"{where}: layer {i} is not finite")
    return layer_widths(player)


def _kinds(player: LearnedPlayer) -> tuple[str, ...]:
    return player.stage_kinds if isinstance(player, PolicySender) else ("dense",) * len(player.weights)


def _cells(player: LearnedPlayer) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return weights and biases of the state of each cell."""
    return list(zip(player.hidden_weights, player.hidden_biases, strict=True)) if isinstance(player, PolicySender) else []
