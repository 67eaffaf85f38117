"""Goals of attacks: what adversaries minimise, counted over the measured window of runs and measured on the reported trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ccenv.base.errors import unknown_name
from ccenv.network.metrics.table import METRICS, OF_TRACE
from ccenv.network.metrics.trace import Window
from ccenv.network.trace import Trace

Counts = Mapping[str, np.ndarray]
"""Growth over the window: ``delivered``, ``sent``, ``lost`` bytes of attacked flows, their ``delay_sum`` and the ``delay_weight``
by which it is a mean in seconds, (n, flows) each; ``all_delivered`` bytes of all flows, (n, N); ``capacity`` of the slowest link
in bytes, (n,). For goals of applications also the goal's ``metric`` over the whole run, (n,)."""


@dataclass(frozen=True)
class Goal:
    """A goal of an adversary."""

    name: str  # in commands and suites
    metric: str  # the reported one of `ccenv.network.metrics`
    least_flows: int
    value: Callable[[Counts], np.ndarray]  # of several runs by their counts, (n,)
    summary: str  # one line
    application: str | None = None  # type of the applications that it is about; None: it is about flows

    def outcome(self, counts: Counts) -> np.ndarray:
        """Return what searches minimise, (n,); lower is worse for the sender."""
        return METRICS[self.metric].sign * self.value(counts)

    def measure(self, trace: Trace, first_row: int) -> float | None:
        """Return the metric of a trace from a row on, or None if it is undefined."""
        value = OF_TRACE[self.metric](Window(trace, first_row, trace.n_steps))
        return None if np.isnan(value) else value

    def badness(self, value: float | None) -> float:
        """Return the sort key of a value of the metric: lower is worse for the sender; an undefined value is no harm."""
        return np.inf if value is None else METRICS[self.metric].sign * value


def utilisation(counts: Counts) -> np.ndarray:
    """Return the attacked flows' delivered bytes over those that the link could carry, (n,)."""
    return np.asarray(counts["delivered"].sum(axis=1) / counts["capacity"])


def _delay(counts: Counts) -> np.ndarray:
    weight = counts["delay_weight"].sum(axis=1)
    return np.asarray(np.where(weight > 0, counts["delay_sum"].sum(axis=1) / np.maximum(weight, 1.0), 0.0))


def _loss(counts: Counts) -> np.ndarray:
    return np.asarray(counts["lost"].sum(axis=1) / np.maximum(counts["sent"].sum(axis=1), 1.0))


def _fairness(counts: Counts) -> np.ndarray:
    delivered = counts["all_delivered"]
    squares = delivered.shape[1] * (delivered**2).sum(axis=1)
    return np.asarray(np.where(squares > 0, delivered.sum(axis=1) ** 2 / np.maximum(squares, 1e-300), 1.0))


def _starvation(counts: Counts) -> np.ndarray:
    delivered = counts["all_delivered"]
    return np.asarray(delivered.max(axis=1) / np.maximum(delivered.min(axis=1), 1.0))


UTILISATION = "utilisation"
_TABLE = (
    Goal(UTILISATION, "utilisation", 1, utilisation, "leave the link idle"),
    Goal("delay", "queueing_delay_mean_s", 1, _delay, "let bytes wait, in the queue and in the jitter box"),
    Goal("loss", "loss_fraction", 1, _loss, "make the sender lose what it sends"),
    Goal("fairness", "jain_index", 2, _fairness, "keep Jain's index of several flows low"),
    Goal("starvation", "starvation_ratio", 2, _starvation, "starve one flow: largest throughput over the smallest"),
    Goal("qoe", "video_qoe", 1, lambda counts: counts["video_qoe"], "spoil the video: bitrate less changes, stalls", "video"),
    Goal("page_load", "page_load_s", 1, lambda counts: counts["page_load_s"], "make pages load slowly", "page"),
)
PACKET_GOALS: Mapping[str, Goal] = {goal.name: goal for goal in _TABLE}
"""All goals by name, as attacks per packet have them."""
GOALS: Mapping[str, Goal] = {goal.name: goal for goal in _TABLE if goal.application is None}
"""Goals of attacks on curves."""


def goal_of(name: str, goals: Mapping[str, Goal] = GOALS) -> Goal:
    """Return the goal of a name. Raises UnknownNameError."""
    if name not in goals:
        raise unknown_name("goal", name, goals)
    return goals[name]
