"""What an adversary aims at: one line per goal, counted in the engine while it searches and measured on the trace it reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ccenv.base.errors import unknown_name
from ccenv.network.metrics.table import METRICS, OF_TRACE
from ccenv.network.metrics.trace import Window
from ccenv.network.trace import Trace

Counts = Mapping[str, np.ndarray]
"""What the measured window adds to the engine's totals: A, L, S, delay_byte_s, acked (B, N) and capacity (B,)."""


@dataclass(frozen=True)
class Goal:
    """One aim of an adversary.

    Attributes:
        name: how commands and suites call it.
        metric: of ``ccenv.network.metrics.table``, what is reported.
        least_flows: flows that it needs.
        outcome: of several runs, (B,); lower is worse for the sender. What searches make as low as they can.
        summary: one line.
    """

    name: str
    metric: str
    least_flows: int
    outcome: Callable[[Counts], np.ndarray]
    summary: str

    def measure(self, trace: Trace, first_row: int) -> float | None:
        """Return the metric of a trace from a row on; None where it is undefined."""
        value = OF_TRACE[self.metric](Window(trace, first_row, trace.n_steps))
        return None if np.isnan(value) else value

    def badness(self, value: float | None) -> float:
        """Return what orders values of the metric: lower is worse for the sender, an undefined value is no harm."""
        return np.inf if value is None else METRICS[self.metric].sign * value


def _utilisation(counts: Counts) -> np.ndarray:
    delivered = counts["S"][:, 0] if counts["S"].shape[1] == 1 else counts["S"].sum(axis=1)
    return np.asarray(delivered / counts["capacity"])


def _delay(counts: Counts) -> np.ndarray:
    acked = counts["acked"].sum(axis=1)
    return np.asarray(np.where(acked > 0, -counts["delay_byte_s"].sum(axis=1) / np.maximum(acked, 1.0), 0.0))


def _loss(counts: Counts) -> np.ndarray:
    return np.asarray(-counts["L"].sum(axis=1) / np.maximum(counts["A"].sum(axis=1), 1.0))


def _fairness(counts: Counts) -> np.ndarray:
    S = counts["S"]
    squares = S.shape[1] * (S**2).sum(axis=1)
    return np.asarray(np.where(squares > 0, S.sum(axis=1) ** 2 / np.maximum(squares, 1e-300), 1.0))


def _starvation(counts: Counts) -> np.ndarray:
    S = counts["S"]
    return np.asarray(-S.max(axis=1) / np.maximum(S.min(axis=1), 1.0))


_TABLE = (
    Goal("utilisation", "utilisation", 1, _utilisation, "leave the link idle"),
    Goal("delay", "queueing_delay_mean_s", 1, _delay, "let bytes wait, in the queue and in the jitter box"),
    Goal("loss", "loss_fraction", 1, _loss, "make the sender lose what it sends"),
    Goal("fairness", "jain_index", 2, _fairness, "keep Jain's index of several flows low"),
    Goal("starvation", "starvation_ratio", 2, _starvation, "starve one flow: largest throughput over the smallest"),
)

GOALS: Mapping[str, Goal] = {goal.name: goal for goal in _TABLE}
"""All goals by name."""
UTILISATION = "utilisation"


def goal_of(name: str) -> Goal:
    """Return the goal of a name. Raises UnknownNameError."""
    if name not in GOALS:
        raise unknown_name("goal", name, GOALS)
    return GOALS[name]
