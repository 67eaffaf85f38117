"""What the kernels of policies compute, with NumPy."""

import numpy as np

from ccenv.engine.compiled.policies import Network


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
