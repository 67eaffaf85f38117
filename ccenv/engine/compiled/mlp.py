"""Small fully connected networks, evaluated in the kernels from one flat weight array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel

MAX_LAYERS = 6
MAX_WIDTH = 256
ACTIVATIONS = {"tanh": 0, "relu": 1}

# Columns of a shape row: where the weights start, number of layers, activation, then the width of each layer.
_OFFSET, _LAYERS, _ACTIVATION, _FIRST_WIDTH = range(4)
SHAPE_WIDTH = _FIRST_WIDTH + MAX_LAYERS + 1


class Network(Protocol):
    """What the kernel evaluates: weights (n_in, n_out) and biases (n_out,) per layer, and what lies between the layers."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        """One (n_in, n_out) array per layer."""

    @property
    def biases(self) -> tuple[np.ndarray, ...]:
        """One (n_out,) array per layer."""

    @property
    def activation(self) -> str:
        """One of ACTIVATIONS."""


def pack_mlps(networks: Sequence[Network]) -> tuple[np.ndarray, np.ndarray]:
    """Pack policies for the kernel.

    Returns:
        tuple: weights, flat float64 (per layer ``packed_layer``); shapes, int64 (n, SHAPE_WIDTH).
    """
    flat: list[np.ndarray] = []
    shapes = np.zeros((max(1, len(networks)), SHAPE_WIDTH), dtype=np.int64)
    offset = 0
    for row, sender in zip(shapes, networks, strict=False):
        widths = [w.shape[0] for w in sender.weights] + [sender.weights[-1].shape[1]]
        if len(sender.weights) > MAX_LAYERS or max(widths) > MAX_WIDTH or sender.activation not in ACTIVATIONS:
            raise InputError(
                f"policy {sender.name!r}: layers {widths} with {sender.activation!r}; at most {MAX_LAYERS} layers of "
                f"{MAX_WIDTH} with one of {', '.join(ACTIVATIONS)}"
            )
        row[_OFFSET], row[_LAYERS], row[_ACTIVATION] = offset, len(sender.weights), ACTIVATIONS[sender.activation]
        row[_FIRST_WIDTH : _FIRST_WIDTH + len(widths)] = widths
        for weight, bias in zip(sender.weights, sender.biases, strict=True):
            flat.append(packed_layer(weight, bias))
            offset += weight.size + bias.size
    return (np.concatenate(flat) if flat else np.zeros(1)), shapes


def packed_layer(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return a layer as ``affine`` reads it: W (n_in, n_out) row by row, then b."""
    return np.concatenate([np.ascontiguousarray(weight, dtype=np.float64).ravel(), np.asarray(bias, dtype=np.float64)])


@kernel(inline="always")
def affine(weights, at, n_in, n_out, x, out):
    """Write x W + b to out[:n_out].

    The inner loop runs over outputs, which are independent of each other: it can be vectorised without adding up any sum in
    another order.

    Args:
        weights: flat array.
        at: where ``packed_layer`` starts in it.
        n_in: length of x.
        n_out: of the output.
        x: input; another array than out.
        out: float64 array.
    """
    bias_at = at + n_in * n_out
    for o in range(n_out):
        out[o] = weights[bias_at + o]
    for j in range(n_in):
        value = x[j]
        row = at + j * n_out
        for o in range(n_out):
            out[o] += weights[row + o] * value


@kernel(inline="always")
def activate(activation, n, x):
    """Apply one of ACTIVATIONS to x[:n]."""
    if activation == 0:
        for o in range(n):
            x[o] = np.tanh(x[o])
    else:
        for o in range(n):
            x[o] = max(0.0, x[o])


@kernel
def mlp_outputs(weights, shapes, which, observation, scratch):
    """Evaluate a network; return the row of scratch that holds its outputs.

    Args:
        weights: flat array of ``pack_mlps``.
        shapes: shape rows of ``pack_mlps``.
        which: row of the network.
        observation: its input.
        scratch: (2, MAX_WIDTH) float64.
    """
    at = shapes[which, _OFFSET]
    layers = shapes[which, _LAYERS]
    for layer in range(layers):
        n_in = shapes[which, _FIRST_WIDTH + layer]
        n_out = shapes[which, _FIRST_WIDTH + layer + 1]
        target = scratch[(layer + 1) % 2]
        if layer == 0:
            affine(weights, at, n_in, n_out, observation, target)
        else:
            affine(weights, at, n_in, n_out, scratch[layer % 2], target)
        if layer < layers - 1:
            activate(shapes[which, _ACTIVATION], n_out, target)
        at += (n_in + 1) * n_out
    return layers % 2


@kernel
def mlp_level(outputs, which, levels):
    """Return the value in [0, 1] of a discrete choice: of its evenly spaced values the first with the highest score.

    Args:
        outputs: of a network, ``levels`` scores per choice.
        which: number of the choice.
        levels: number of values.
    """
    best = 0
    for level in range(1, levels):
        if outputs[which * levels + level] > outputs[which * levels + best]:
            best = level
    return best / (levels - 1)


def mlp_reference(network: Network, observation: np.ndarray) -> np.ndarray:
    """Return what ``mlp_outputs`` computes, with NumPy: (n_out,)."""
    x = np.asarray(observation, dtype=np.float64)
    for index, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        x = x @ weight + bias
        if index < len(network.weights) - 1:
            x = np.tanh(x) if network.activation == "tanh" else np.maximum(0.0, x)
    return x


def mlp_action_reference(sender: Network, observation: np.ndarray) -> float:
    """Return the first output, clipped to [-1, 1], with NumPy: the action of a fully connected policy with the head ``mean``."""
    return float(np.clip(mlp_reference(sender, observation)[0], -1.0, 1.0))


def mlp_moves_reference(network: Network, levels: int, observation: np.ndarray) -> np.ndarray:
    """Return the moves in [0, 1] that a policy makes: its outputs clipped, or with levels ``mlp_level`` of each, with NumPy."""
    outputs = mlp_reference(network, observation)
    if not levels:
        return np.clip(outputs, 0.0, 1.0)
    return outputs.reshape(-1, levels).argmax(axis=1) / (levels - 1)
