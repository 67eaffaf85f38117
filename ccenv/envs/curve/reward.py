"""Rewards from named terms, each per environment step and dimensionless."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from ccenv.base.config import StrictModel
from ccenv.base.kernels.decorator import kernel

TERMS = ("utilisation", "queue", "loss", "delay", "jain")
_UTILISATION, _QUEUE, _LOSS, _DELAY, _JAIN = range(len(TERMS))
_N_TERMS = len(TERMS)


class RewardWeights(StrictModel):
    """Weight of each term of a reward.

    Attributes:
        utilisation: bytes delivered in the step / bytes that the link could carry in it.
        queue: bytes waiting at the bottleneck at the end of the step / (C*Rm).
        loss: bytes lost in the step / bytes that the link could carry in it; for steps of one Rm that is loss / (C*Rm).
        delay: mean queueing and jitter delay of the bytes acknowledged in the step / Rm.
        jain: Jain's fairness index of the bytes that all flows of the path got delivered in the step, whoever is rewarded: a
            flow alone has no share to be fair with, and gets 1.
    """

    utilisation: float = Field(default=1.0, allow_inf_nan=False)
    queue: float = Field(default=-0.1, allow_inf_nan=False)
    loss: float = Field(default=-1.0, allow_inf_nan=False)
    delay: float = Field(default=0.0, allow_inf_nan=False)
    jain: float = Field(default=0.0, allow_inf_nan=False)

    def vector(self) -> np.ndarray:
        """Return the weights in the order of TERMS."""
        return np.array([getattr(self, name) for name in TERMS])


@kernel
def fill_terms(counts, b, capacity_bytes, queue, rtt_s, groups, out):  # type: ignore[no-untyped-def]
    """Write the terms of environment b to out, (G, len(TERMS)); capacity and queue are its own, the rest as below."""
    n_flows = rtt_s.shape[1]
    total = 0.0
    squares = 0.0
    for i in range(n_flows):
        total += counts[0, b, i]
        squares += counts[0, b, i] ** 2
    jain = total * total / (n_flows * squares) if squares > 0.0 else 1.0
    for g in range(groups.shape[0]):
        served = 0.0
        lost = 0.0
        acked = 0.0
        delay = 0.0
        for i in range(n_flows):
            if groups[g, i]:
                served += counts[0, b, i]
                lost += counts[1, b, i]
                acked += counts[2, b, i]
                delay += counts[3, b, i] / rtt_s[b, i]
        out[g, _UTILISATION] = served / capacity_bytes
        out[g, _QUEUE] = queue
        out[g, _LOSS] = lost / capacity_bytes
        out[g, _DELAY] = delay / acked if acked > 0.0 else 0.0
        out[g, _JAIN] = jain


@kernel
def interval_terms(counts, capacity_bytes, queue, rtt_s, groups):  # type: ignore[no-untyped-def]
    """Compute the terms of one step.

    Args:
        counts: (4, B, N) bytes delivered, lost, acknowledged in the step, and bytes times their delay in seconds.
        capacity_bytes: (B,) bytes that the link could carry in the step.
        queue: (B,) bytes waiting at the end of the step / (C*Rm).
        rtt_s: (B, N) Rm.
        groups: (G, N) bool, the flows that each row of terms is about; Jain's index is of all flows.

    Returns:
        (B, G, len(TERMS)) terms.
    """
    out = np.empty((rtt_s.shape[0], groups.shape[0], _N_TERMS))
    for b in range(rtt_s.shape[0]):
        fill_terms(counts, b, capacity_bytes[b], queue[b], rtt_s, groups, out[b])
    return out


@kernel
def weigh(terms, weights):  # type: ignore[no-untyped-def]
    """Return the weighted sums of terms (n, len(TERMS)): (n,), added up in one order whatever n is."""
    out = np.zeros(len(terms))
    for b in range(len(terms)):
        for term in range(len(weights)):
            out[b] += weights[term] * terms[b, term]
    return out
