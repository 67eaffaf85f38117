"""A network as a list of steps, between a foreign format and the stages that the engines play."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ccenv.base.errors import InputError
from ccenv.agents.sender import GATES


@dataclass(frozen=True)
class Linear:
    """x @ weight + bias, of shapes (n_in, n_out) and (n_out,)."""

    weight: np.ndarray
    bias: np.ndarray


@dataclass(frozen=True)
class Cell:
    """A recurrent layer, the weights of its gates side by side in PyTorch's order.

    Attributes:
        kind: a key of ``ccenv.agents.sender.GATES``.
        weight, bias: for its input, (n_in, gates * n) and (gates * n,).
        hidden_weight, hidden_bias: for its state, (n, gates * n) and (gates * n,).
    """

    kind: str
    weight: np.ndarray
    bias: np.ndarray
    hidden_weight: np.ndarray
    hidden_bias: np.ndarray


Activation = Literal["tanh", "relu"]
Step = Linear | Cell | Activation
"""One step of a network."""


@dataclass(frozen=True)
class Stages:
    """The stages of a ``PolicySender``.

    Attributes:
        weights, biases: of each stage.
        activation: after each dense stage but the last.
        kinds: of the stages; empty: all dense.
        hidden_weights, hidden_biases: of the cells.
        squashed: the output is the tanh of the last stage.
    """

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    activation: Activation
    kinds: tuple[str, ...]
    hidden_weights: tuple[np.ndarray, ...]
    hidden_biases: tuple[np.ndarray, ...]
    squashed: bool


def stages_of(what: str, n_inputs: int, steps: Sequence[Step]) -> Stages:
    """Put linear steps without an activation between them together; a last activation goes through the identity.

    A last tanh after steps with ReLU is the squashing of the output.

    Raises:
        InputError: for steps that do not fit together, or with two kinds of activations.
    """
    _check_widths(what, n_inputs, steps)
    squashed = steps[-1:] == ["tanh"] and "relu" in steps[:-1]
    steps = steps[:-1] if squashed else steps
    kinds = sorted({step for step in steps if isinstance(step, str)})
    if len(kinds) > 1:
        raise InputError(f"{what}: layers with {' and '.join(kinds)}; one kind is needed: give the policy activation_fn=nn.Tanh")
    weights, biases, stages, cells = [np.eye(n_inputs)], [np.zeros(n_inputs)], [], []
    for step in steps:
        if isinstance(step, Linear):
            weights[-1], biases[-1] = weights[-1] @ step.weight, biases[-1] @ step.weight + step.bias
            continue
        if isinstance(step, Cell):
            weights[-1], biases[-1] = weights[-1] @ step.weight, biases[-1] @ step.weight + step.bias
            cells.append(step)
        stages.append(step.kind if isinstance(step, Cell) else "dense")
        size = step.hidden_weight.shape[0] if isinstance(step, Cell) else weights[-1].shape[1]
        weights.append(np.eye(size))
        biases.append(np.zeros(size))
    return Stages(
        tuple(weights),
        tuple(biases),
        "relu" if kinds == ["relu"] else "tanh",
        (*stages, "dense") if cells else (),
        tuple(cell.hidden_weight for cell in cells),
        tuple(cell.hidden_bias for cell in cells),
        squashed,
    )


def width_of(steps: Sequence[Step], n_inputs: int) -> int:
    """Return how many numbers the steps give."""
    for step in reversed(steps):
        if isinstance(step, Linear):
            return int(step.weight.shape[1])
        if isinstance(step, Cell):
            return int(step.hidden_weight.shape[0])
    return n_inputs


def _check_widths(what: str, n_inputs: int, steps: Sequence[Step]) -> None:
    before, said = n_inputs, "the observation has {} numbers, the first layer takes {}"
    for step in steps:
        if isinstance(step, str):
            continue
        if step.weight.shape[0] != before:
            raise InputError(f"{what}: {said.format(before, step.weight.shape[0])}")
        before, said = width_of([step], before), "a layer gives {} numbers, the next one takes {}"
        gates = GATES[step.kind] if isinstance(step, Cell) else 1
        shapes = [step.weight.shape[1], *step.bias.shape]
        shapes += [step.hidden_weight.shape[1], *step.hidden_bias.shape] if isinstance(step, Cell) else []
        if any(size != gates * before for size in shapes):
            raise InputError(f"{what}: a layer of {before} units has weights and biases for {shapes} numbers")
