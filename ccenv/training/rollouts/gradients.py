"""Actor and critic for torch in one step of the graph: the library's matrix products, and compiled loops for all between them.

torch's own tanh costs four times as much as the matrix products of a layer of 64, and small operations cost more than their
arithmetic. Values and gradients are those of the library's modules (a test compares them).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit

from ccenv.envs.batches.actor_critic import fast_tanh

_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_LOG_SQRT_2_PI = np.float32(0.5 * math.log(2.0 * math.pi))


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _tanh(x):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        x[i] = fast_tanh(x[i])


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _tanh_backward(gradient, tanh):  # type: ignore[no-untyped-def]
    for i in range(len(gradient)):
        gradient[i] *= _ONE - tanh[i] * tanh[i]


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _log_probs(means, actions, log_std, scaled, out):  # type: ignore[no-untyped-def]
    """Fill in (action - mean) / deviation, (n, k), and the logarithms of the densities, (n,)."""
    for j in range(means.shape[1]):
        inverse = np.exp(-log_std[j])
        constant = log_std[j] + _LOG_SQRT_2_PI
        for i in range(means.shape[0]):
            scaled[i, j] = (actions[i, j] - means[i, j]) * inverse
            out[i] -= _HALF * scaled[i, j] * scaled[i, j] + constant


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _log_probs_backward(gradient, scaled, log_std, means, log_stds):  # type: ignore[no-untyped-def]
    """Fill in the gradients of the means, (n, k), and of log_std, (k,)."""
    for j in range(scaled.shape[1]):
        inverse = np.exp(-log_std[j])
        total = np.float32(0.0)
        for i in range(scaled.shape[0]):
            means[i, j] = gradient[i] * scaled[i, j] * inverse
            total += gradient[i] * (scaled[i, j] * scaled[i, j] - _ONE)
        log_stds[j] = total


class Networks(torch.autograd.Function):
    """The outputs of two networks on the same input.

    Call ``Networks.apply(input, squashing, n, *parameters)``: tanh or ReLU between the layers, the first n parameters are weights
    and biases of one network by layer, the others those of the other.
    """

    @staticmethod
    def forward(ctx: Any, seen: torch.Tensor, tanh: bool, n: int, *parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both outputs."""
        hidden: list[torch.Tensor] = []
        outputs = []
        for own in (parameters[:n], parameters[n:]):
            x = seen
            for place in range(0, len(own), 2):
                x = torch.addmm(own[place + 1], x, own[place].t())
                if place < len(own) - 2:
                    if tanh:
                        _tanh(x.numpy().reshape(-1))
                    else:
                        x.relu_()
                    hidden.append(x)
            outputs.append(x)
        ctx.save_for_backward(seen, *hidden, *parameters)
        ctx.tanh, ctx.n, ctx.n_hidden = tanh, n, len(hidden)
        return outputs[0], outputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of the parameters."""
        seen, *rest = ctx.saved_tensors
        hidden, parameters = rest[: ctx.n_hidden], rest[ctx.n_hidden :]
        first = ctx.n // 2 - 1  # hidden layers of the first network
        found: list[torch.Tensor] = []
        for gradient, own, inside in (
            (gradients[0], parameters[: ctx.n], hidden[:first]),
            (gradients[1], parameters[ctx.n :], hidden[first:]),
        ):
            back = gradient.contiguous()
            of_layers: list[torch.Tensor] = []
            for layer in range(len(own) // 2 - 1, -1, -1):
                x = inside[layer - 1] if layer else seen
                of_layers = [(x.t() @ back).t(), back.sum(0), *of_layers]  # back.t() @ x is slow where x is narrow
                if layer:
                    back = back @ own[2 * layer]
                    if ctx.tanh:
                        _tanh_backward(back.numpy().reshape(-1), x.numpy().reshape(-1))
                    else:
                        back *= x > 0
            found += of_layers
        return (None, None, None, *found)


class GaussianLogProb(torch.autograd.Function):
    """Logarithms of the densities (n,) of actions (n, k) under normal distributions: ``apply(means, log_std, actions)``."""

    @staticmethod
    def forward(ctx: Any, means: torch.Tensor, log_std: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return them."""
        scaled, out = torch.empty_like(means), torch.zeros(len(means))
        _log_probs(means.numpy(), actions.numpy(), log_std.numpy(), scaled.numpy(), out.numpy())
        ctx.save_for_backward(scaled, log_std)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of means and log_std."""
        scaled, log_std = ctx.saved_tensors
        means, log_stds = torch.empty_like(scaled), torch.empty_like(log_std)
        gradient = gradients[0].contiguous()
        _log_probs_backward(gradient.numpy(), scaled.numpy(), log_std.numpy(), means.numpy(), log_stds.numpy())
        return means, log_stds, None
