"""A torch module as steps, and how it is called to compare the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ccenv.agents.learned.steps import Cell, Linear, Step
from ccenv.base.errors import InputError
from ccenv.agents.sender import PolicySender

_ALLOWED = "Linear, Tanh, ReLU, GRU, LSTM, GRUCell and LSTMCell are allowed"


def is_recurrent(sender: PolicySender) -> bool:
    """Tell whether a policy has a memory."""
    return bool(sender.hidden_weights)


def torch_steps(what: str, *modules: Any) -> list[Step]:
    """Return the steps of modules, layer after layer in the order in which they were added.

    Raises:
        InputError: for a layer that the engines do not play.
    """
    return [step for module in modules for step in _steps(what, module)]


def _steps(what: str, module: Any) -> list[Step]:
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
        return [_cell("gru" if isinstance(module, nn.GRUCell) else "lstm", module, "")]
    if isinstance(module, (nn.GRU, nn.LSTM)):
        if module.bidirectional or getattr(module, "proj_size", False):
            raise InputError(f"{what}: a layer is {module}; the engines play no cells that look ahead or project")
        kind = "gru" if isinstance(module, nn.GRU) else "lstm"
        return [_cell(kind, module, f"_l{layer}") for layer in range(module.num_layers)]
    children = list(module.children())
    if not children:
        raise InputError(f"{what}: a layer is {type(module).__name__}; {_ALLOWED}")
    return [step for child in children for step in _steps(what, child)]


def _cell(kind: str, module: Any, ending: str) -> Cell:
    weight, hidden = (_numbers(getattr(module, f"weight_{side}{ending}")).T for side in ("ih", "hh"))
    if module.bias:
        return Cell(
            kind, weight, _numbers(getattr(module, f"bias_ih{ending}")), hidden, _numbers(getattr(module, f"bias_hh{ending}"))
        )
    return Cell(kind, weight, np.zeros(weight.shape[1]), hidden, np.zeros(weight.shape[1]))


def _numbers(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().numpy(), np.float64)


def torch_player(module: Any, head: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return what a module does: (n, T, width) observations to (n, T) actions, of a categorical head their numbers."""
    import torch
    from torch import nn

    layers = list(module.modules())
    cells = any(isinstance(layer, (nn.GRUCell, nn.LSTMCell)) for layer in layers)
    sequences = [layer for layer in layers if isinstance(layer, (nn.GRU, nn.LSTM))]
    kind = next((p.dtype for p in module.parameters()), torch.float32)

    def outputs(seen: Any) -> Any:
        if cells:
            found, state = [], None
            for decision in range(seen.shape[1]):
                out, state = module(seen[:, decision], state)
                found.append(out)
            return torch.stack(found, dim=1)
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
                out = outputs(torch.as_tensor(seen, dtype=kind))
        finally:
            module.train(was_training)
        found = np.asarray(out.detach().cpu(), np.float64).reshape(*seen.shape[:2], -1)
        if head == "categorical":
            return np.asarray(found.argmax(axis=-1), np.float64)
        return np.tanh(found[..., 0]) if head == "squashed" else found[..., 0]

    return play
