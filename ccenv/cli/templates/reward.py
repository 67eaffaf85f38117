"""A custom reward: gymnasium.make("ccenv/Sender-v0", reward="{name}.py"); slower than weights of terms."""

from __future__ import annotations

from typing import Any


def reward(terms: Any) -> float:
    """Return the reward of one flow and step.

    Args:
        terms: by name, as docs/interface.md lists them: throughput, utilisation, delay, delay_log2, queue, loss, power, jain, ...
    """
    excess = max(0.0, terms.delay - 0.5)  # of the propagation RTT; half of it is free
    return float(terms.throughput - 0.5 * excess * excess - terms.loss)
