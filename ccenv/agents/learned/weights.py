"""Learned senders and adversaries on disk: NAME.safetensors with the weights and NAME.json, the card that describes them.

The tensors of stage i are w<i> of shape (n_in, n_out) and b<i>; a recurrent cell has the weights of its gates side by side in
them, and u<i>, c<i> for its state. Reading needs neither torch nor pickle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
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
    """The card of a learned sender or adversary; each form adds fields.

    Attributes:
        name: of the agent.
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
        return ("dense",) * (len(self.layers) - 1)


CardT = TypeVar("CardT", bound=Card)
AgentT = TypeVar("AgentT", PolicySender, MlpAdversary)


@dataclass(frozen=True)
class Network:
    """The arrays of a network: weights and biases per stage, hidden ones per recurrent cell."""

    weights: Arrays
    biases: Arrays
    hidden_weights: Arrays = ()
    hidden_biases: Arrays = ()


@dataclass(frozen=True)
class LearnedKind(Generic[CardT, AgentT]):
    """A stored form of learned agents."""

    stem: str  # name of the pair of files in a folder
    form: Format
    card: type[CardT]
    # fields of an agent's card, without `sha256` and `notes`; its argument `layers` are the widths
    describe: Callable[[AgentT, list[int]], dict[str, Any]]

    def files(self, path: FilePath | str) -> tuple[FilePath, FilePath]:
        """Return the files of weights and card for a folder, or for the path of the pair with or without an ending."""
        stem = FilePath(path)
        if is_folder(stem):
            stem = stem / self.stem
        elif stem.suffix in {WEIGHTS, CARD}:
            stem = stem.with_suffix("")
        if not stem.name:
            raise InputError(f"{shown(str(path))} names no file")
        return stem.with_name(stem.name + WEIGHTS), stem.with_name(stem.name + CARD)

    def save(
        self, path: FilePath | str, agent: AgentT, notes: dict[str, Any] | None, more: Mapping[str, Any] | None = None
    ) -> None:
        """Write an agent as a pair of files in float64; the card last, so that a card always has its weights.

        ``more`` are further fields of the card. Raises InputError if the agent could not be read back, or the notes are not JSON.
        """
        weights_file, card_file = self.files(path)
        layers = checked_widths(agent, str(weights_file))
        content = tensor_file(named_layers(agent))
        data = self.describe(agent, layers) | dict(more or {})
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
        """Return card and network. Raises InputError if a file is missing, damaged or foreign, or the two do not match."""
        weights_file, _ = self.files(path)
        content = read_bounded(weights_file, MAX_FILE_BYTES)
        card = self.read_card(path)
        if hashlib.sha256(content).hexdigest() != card.sha256:
            raise InputError(f"{weights_file}: does not belong to its card (sha256 differs)")
        tensors = read_tensors(content, str(weights_file))
        shapes = layer_shapes(card.layers, card.stage_kinds)
        seen = {name: tensor.shape for name, tensor in tensors.items()}
        if seen != shapes or not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise InputError(f"{weights_file}: tensors {shown(seen, 200)}; the card asks for finite {shapes}")
        return card, network_of(tensors, card.stage_kinds)


def named_layers(agent: LearnedPlayer) -> dict[str, np.ndarray]:
    """Return the arrays of an agent's network by tensor name."""
    named: dict[str, np.ndarray] = {}
    hidden = iter(_cells(agent))
    for i, (stage, weight, bias) in enumerate(zip(_stages(agent), agent.weights, agent.biases, strict=True)):
        named |= {f"w{i}": weight, f"b{i}": bias}
        if stage in GATES:
            named[f"u{i}"], named[f"c{i}"] = next(hidden)
    return named


def network_of(tensors: dict[str, np.ndarray], stages: Sequence[str]) -> Network:
    """Return the network of tensors that have the names of :func:`named_layers`."""
    cells = [i for i, stage in enumerate(stages) if stage in GATES]
    every = range(len(stages))
    stage_indices = {"w": every, "b": every, "u": cells, "c": cells}
    return Network(*(tuple(tensors[f"{letter}{i}"] for i in indices) for letter, indices in stage_indices.items()))


def layer_shapes(widths: Sequence[int], kinds: Sequence[str] = ()) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a network with these widths (input first) and stage types (none: all dense)."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        gates = GATES.get(kinds[i], 1) if kinds else 1
        shapes |= {f"w{i}": (n_in, gates * n_out), f"b{i}": (gates * n_out,)}
        if kinds and kinds[i] in GATES:
            shapes |= {f"u{i}": (n_out, gates * n_out), f"c{i}": (gates * n_out,)}
    return shapes


def layer_widths(agent: LearnedPlayer) -> list[int]:
    """Return the widths of the stages, input first."""
    outs = [weight.shape[1] // GATES.get(stage, 1) for stage, weight in zip(_stages(agent), agent.weights, strict=True)]
    return [agent.weights[0].shape[0], *outs]


def checked_widths(agent: LearnedPlayer, where: str) -> list[int]:
    """Return the widths of the stages. Raises InputError for arrays that do not fit together or are not finite."""
    if not 1 <= len(agent.weights) == len(agent.biases) <= MAX_LAYERS:
        counts = f"{len(agent.weights)} weights and {len(agent.biases)} biases"
        raise InputError(f"{where}: {counts}; 1 to {MAX_LAYERS} layers are allowed")
    stages, cells = _stages(agent), _cells(agent)
    if len(stages) != len(agent.weights) or len(cells) != sum(stage in GATES for stage in stages):
        raise InputError(f"{where}: stages {list(stages)} for {len(agent.weights)} weights and {len(cells)} cells")
    n_before, hidden = agent.weights[0].shape[:1], iter(cells)
    for i, (stage, weight, bias) in enumerate(zip(stages, agent.weights, agent.biases, strict=True)):
        gates = GATES.get(stage, 1)
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or weight.shape[:1] != n_before or weight.shape[1] % gates:
            raise InputError(f"{where}: layer {i} has weights of shape {weight.shape} and biases of shape {bias.shape}")
        n_before = (weight.shape[1] // gates,)
        state = next(hidden) if stage in GATES else ()
        if state and (state[0].shape != (*n_before, *bias.shape) or state[1].shape != bias.shape):
            raise InputError(f"{where}: cell {i} has weights of shape {state[0].shape} and biases of shape {state[1].shape}")
        if not all(np.isfinite(array).all() for array in (weight, bias, *state)):
            raise InputError(f"{where}: layer {i} is not finite")
    return layer_widths(agent)


def _stages(agent: LearnedPlayer) -> tuple[str, ...]:
    return agent.stage_kinds if isinstance(agent, PolicySender) else ("dense",) * len(agent.weights)


def _cells(agent: LearnedPlayer) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(agent.hidden_weights, agent.hidden_biases, strict=True)) if isinstance(agent, PolicySender) else []
