"""Small fully connected policies, evaluated in the kernel from one flat weight array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numba import njit

from ccenv.errors import InputError

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
        tuple: weights, flat float64 (per layer W row by row, then b); shapes, int64 (n, SHAPE_WIDTH).
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
            flat += [np.ascontiguousarray(weight.T, dtype=np.float64).ravel(), np.asarray(bias, dtype=np.float64)]
            offset += weight.size + bias.size
    return (np.concatenate(flat) if flat else np.zeros(1)), shapes


@njit(cache=True, error_model="numpy")
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
    for j in range(shapes[which, _FIRST_WIDTH]):
        scratch[0, j] = observation[j]
    for layer in range(layers):
        n_in = shapes[which, _FIRST_WIDTH + layer]
        n_out = shapes[which, _FIRST_WIDTH + layer + 1]
        source = layer % 2
        bias_at = at + n_in * n_out
        for o in range(n_out):
            total = weights[bias_at + o]
            for j in range(n_in):
                total += weights[at + o * n_in + j] * scratch[source, j]
            if layer < layers - 1:
                total = np.tanh(total) if shapes[which, _ACTIVATION] == 0 else max(0.0, total)
            scratch[1 - source, o] = total
        at = bias_at + n_out
    return layers % 2


@njit(cache=True, error_model="numpy")
def mlp_action(weights, shapes, which, observation, scratch):
    """Return the first output of a policy, clipped to [-1, 1]; arguments as ``mlp_outputs``."""
    row = mlp_outputs(weights, shapes, which, observation, scratch)
    return min(1.0, max(-1.0, scratch[row, 0]))


@njit(cache=True, error_model="numpy")
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
    """Return what ``mlp_action`` computes, with NumPy."""
    return float(np.clip(mlp_reference(sender, observation)[0], -1.0, 1.0))


def mlp_moves_reference(network: Network, levels: int, observation: np.ndarray) -> np.ndarray:
    """Return the moves in [0, 1] that a policy makes: its outputs clipped, or with levels ``mlp_level`` of each, with NumPy."""
    outputs = mlp_reference(network, observation)
    if not levels:
        return np.clip(outputs, 0.0, 1.0)
    return outputs.reshape(-1, levels).argmax(axis=1) / (levels - 1)
