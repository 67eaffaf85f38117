"""What a flow's policy does, in NumPy: slow and plain, what the kernels are held to."""

from __future__ import annotations

import numpy as np

from ccenv.agents.sender import GATES, PolicySender


class PolicyReference:
    """What a flow's policy does, in NumPy: slow and plain.

    Attributes:
        sender: the policy.
        states: of its recurrent cells, one array each; an LSTM's holds output and cell.
        history: intervals seen, each a list of signals; empty before the first decision.
        action: the last one.
    """

    def __init__(self, sender: PolicySender) -> None:
        """Begin with empty memory."""
        sizes = {"gru": 1, "lstm": 2}
        cells = [kind for kind in sender.stage_kinds if kind in GATES]
        self.sender = sender
        self.states = [np.zeros(sizes[kind] * len(u)) for kind, u in zip(cells, sender.hidden_weights, strict=True)]
        self.history: list[np.ndarray] = []
        self.action = 0.0

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """Return the outputs of the network and advance its states."""
        sender, cell, value = self.sender, 0, np.asarray(x, dtype=np.float64)
        for i, kind in enumerate(sender.stage_kinds):
            value = value @ sender.weights[i] + sender.biases[i]
            if kind in GATES:
                value, self.states[cell] = _cell_reference(kind, value, self.states[cell], sender, cell)
                cell += 1
            elif i < len(sender.weights) - 1:
                value = np.tanh(value) if sender.activation == "tanh" else np.maximum(0.0, value)
        return value

    def decide(self, signals: np.ndarray) -> float:
        """Return the action for the signals of an interval, all N_SIGNALS of them."""
        seen = np.asarray(signals)[self.sender.interface.numbers]
        length = self.sender.interface.history
        self.history = [*self.history, seen][-length:] if self.history else [seen] * length
        return self.act(self.sender.interface.with_extra(np.concatenate(self.history)))

    def act(self, x: np.ndarray) -> float:
        """Return the action for an observation, the whole history of it."""
        outputs = self.outputs(x)
        if self.sender.head == "categorical":
            self.action = 2.0 * int(np.argmax(outputs)) / (len(outputs) - 1) - 1.0
        else:
            value = np.tanh(outputs[0]) if self.sender.head == "squashed" else outputs[0]
            self.action = float(np.clip(value, -1.0, 1.0))
        return self.action


def _cell_reference(
    kind: str, gates: np.ndarray, state: np.ndarray, sender: PolicySender, cell: int
) -> tuple[np.ndarray, np.ndarray]:
    n = len(sender.hidden_weights[cell])
    h = state[:n]
    own = h @ sender.hidden_weights[cell] + sender.hidden_biases[cell]
    if kind == "gru":
        r, z = (1 / (1 + np.exp(-(gates[i * n : (i + 1) * n] + own[i * n : (i + 1) * n]))) for i in (0, 1))
        new = np.tanh(gates[2 * n :] + r * own[2 * n :])
        h = (1 - z) * new + z * h
        return h, h
    i, f, g, o = ((gates + own)[k * n : (k + 1) * n] for k in range(4))
    c = state[n:] / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
    h = np.tanh(c) / (1 + np.exp(-o))
    return h, np.concatenate([h, c])
