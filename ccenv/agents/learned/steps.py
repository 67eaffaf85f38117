"""Networks as lists of steps, between torch or ONNX and the stages that the engines evaluate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ccenv.agents.sender import GATES, PolicySender
from ccenv.base.errors import InputError


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
    """The stages of a ``PolicySender``; ``squashed``: the output is the tanh of the last stage."""

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    activation: Activation
    kinds: tuple[str, ...]
    hidden_weights: tuple[np.ndarray, ...]
    hidden_biases: tuple[np.ndarray, ...]
    squashed: bool


def build_stages(what: str, n_inputs: int, steps: Sequence[Step]) -> Stages:
    """Merge neighbouring linear steps into stages; after a final activation comes an identity layer.

    A final tanh after steps with ReLU squashes the output. Raises InputError for steps that do not fit together, or with two
    kinds of activations.
    """
    _check_widths(what, n_inputs, steps)
    squashed = steps[-1:] == ["tanh"] and "relu" in steps[:-1]
    steps = steps[:-1] if squashed else steps
    names = sorted({step for step in steps if isinstance(step, str)})
    if len(names) > 1:
        raise InputError(f"{what}: layers with {' and '.join(names)}; one kind is needed: give the policy activation_fn=nn.Tanh")
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
        "relu" if names == ["relu"] else "tanh",
        (*stages, "dense") if cells else (),
        tuple(cell.hidden_weight for cell in cells),
        tuple(cell.hidden_bias for cell in cells),
        squashed,
    )


def output_width(steps: Sequence[Step], n_inputs: int) -> int:
    for step in reversed(steps):
        if isinstance(step, Linear):
            return int(step.weight.shape[1])
        if isinstance(step, Cell):
            return int(step.hidden_weight.shape[0])
    return n_inputs


def _check_widths(what: str, n_inputs: int, steps: Sequence[Step]) -> None:
    width, problem = n_inputs, "the observation has {} numbers, the first layer takes {}"
    for step in steps:
        if isinstance(step, str):
            continue
        if step.weight.shape[0] != width:
            raise InputError(f"{what}: {problem.format(width, step.weight.shape[0])}")
        width, problem = output_width([step], width), "a layer gives {} numbers, the next one takes {}"
        gates = GATES[step.kind] if isinstance(step, Cell) else 1
        shapes = [step.weight.shape[1], *step.bias.shape]
        shapes += [step.hidden_weight.shape[1], *step.hidden_bias.shape] if isinstance(step, Cell) else []
        if any(size != gates * width for size in shapes):
            raise InputError(f"{what}: a layer of {width} units has weights and biases for {shapes} numbers")


_ALLOWED = "Linear, Tanh, ReLU, GRU, LSTM, GRUCell and LSTMCell are allowed"


def is_recurrent(sender: PolicySender) -> bool:
    return bool(sender.hidden_weights)


def torch_steps(what: str, *modules: Any) -> list[Step]:
    """Return the steps of modules, layer by layer in the order in which they were added.

    Raises InputError for a layer that the engines do not support.
    """
    return [step for module in modules for step in _convert_module(what, module)]


def _convert_module(what: str, module: Any) -> list[Step]:
    from torch import nn

    if isinstance(module, nn.Linear):
        bias = np.zeros(module.out_features) if module.bias is None else _numbers(module.bias)
        return [Linear(_numbers(module.weight).T, bias)]
    if isinstance(module, nn.Tanh):
        return ["tanh"]
    if isinstance(module, nn.ReLU):
        return ["relu"]
    if isinstance(module, (nn.Identity, nn.Dropout, nn.Flatten)):
        return []
    if isinstance(module, (nn.GRUCell, nn.LSTMCell)):
        return [_convert_cell("gru" if isinstance(module, nn.GRUCell) else "lstm", module, "")]
    if isinstance(module, (nn.GRU, nn.LSTM)):
        if module.bidirectional or getattr(module, "proj_size", False):
            raise InputError(f"{what}: a layer is {module}; the engines play no cells that look ahead or project")
        cell_type = "gru" if isinstance(module, nn.GRU) else "lstm"
        return [_convert_cell(cell_type, module, f"_l{layer}") for layer in range(module.num_layers)]
    children = list(module.children())
    if not children:
        raise InputError(f"{what}: a layer is {type(module).__name__}; {_ALLOWED}")
    return [step for child in children for step in _convert_module(what, child)]


def _convert_cell(cell: str, module: Any, ending: str) -> Cell:
    weight, hidden = (_numbers(getattr(module, f"weight_{side}{ending}")).T for side in ("ih", "hh"))
    if module.bias:
        return Cell(
            cell, weight, _numbers(getattr(module, f"bias_ih{ending}")), hidden, _numbers(getattr(module, f"bias_hh{ending}"))
        )
    return Cell(cell, weight, np.zeros(weight.shape[1]), hidden, np.zeros(weight.shape[1]))


def _numbers(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().numpy(), np.float64)


def make_torch_play(module: Any, head: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from (n, T, width) observations to a module's (n, T) actions, or indices for a categorical head."""
    import torch
    from torch import nn

    layers = list(module.modules())
    cells = any(isinstance(layer, (nn.GRUCell, nn.LSTMCell)) for layer in layers)
    sequences = [layer for layer in layers if isinstance(layer, (nn.GRU, nn.LSTM))]
    dtype = next((p.dtype for p in module.parameters()), torch.float32)

    def outputs(seen: Any) -> Any:
        if cells:
            decisions, state = [], None
            for decision in range(seen.shape[1]):
                out, state = module(seen[:, decision], state)
                decisions.append(out)
            return torch.stack(decisions, dim=1)
        if not sequences:
            return module(seen[:, 0])[:, None]
        ahead = all(layer.batch_first for layer in sequences)
        out = module(seen if ahead else seen.transpose(0, 1))
        out = out[0] if isinstance(out, tuple) else out
        return out if ahead else out.transpose(0, 1)

    def play(seen: np.ndarray) -> np.ndarray:
        was_training = module.training
        module.eval()
        try:
            with torch.no_grad():
                out = outputs(torch.as_tensor(seen, dtype=dtype))
        finally:
            module.train(was_training)
        values = np.asarray(out.detach().cpu(), np.float64).reshape(*seen.shape[:2], -1)
        if head == "categorical":
            return np.asarray(values.argmax(axis=-1), np.float64)
        return np.tanh(values[..., 0]) if head == "squashed" else values[..., 0]

    return play
