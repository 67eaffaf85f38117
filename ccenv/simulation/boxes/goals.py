"""Goals of attacks by delay elements, counted over the measured window of packet runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ccenv.base.errors import unknown_name

Counts = Mapping[str, np.ndarray]
"""Growth over the window: ``delivered``, ``sent``, ``lost`` bytes, ``rtt_sum_s``, ``rtt_samples`` of attacked flows, with their
``path_rtt_s``, (n, flows); ``all_delivered`` of all flows, (n, N); ``capacity`` of the slowest link in bytes, (n,). For goals of
applications also the goal's ``metric`` over the whole run, (n,)."""
COUNTED = {
    "delivered": "delivered_bytes",
    "sent": "sent_bytes",
    "lost": "found_lost_bytes",
    "rtt_sum_s": "rtt_sum_s",
    "rtt_samples": "rtt_samples",
}
"""Counts of attacked flows, and the engine's fields whose growth they are."""


@dataclass(frozen=True)
class BoxGoal:
    """A goal of an attack.

    Attributes:
        metric: name in ``ccenv.network.metrics``.
        least_flows: flows that the scenario needs.
        value: of several runs, (n,).
        sign: 1 if a low value is bad for the sender, -1 if a high one is.
        summary: one line.
        application: type of the applications that it is about; None: it is about flows.
    """

    metric: str
    least_flows: int
    value: Callable[[Counts], np.ndarray]
    sign: float
    summary: str
    application: str | None = None

    def outcome(self, counts: Counts) -> np.ndarray:
        """Return the objective that searches minimise, (n,)."""
        return self.sign * self.value(counts)


def utilisation(counts: Counts) -> np.ndarray:
    """Return the attacked flows' acknowledged bytes over those that the slowest link could carry, (n,)."""
    shares: np.ndarray = counts["delivered"].sum(axis=1) / counts["capacity"]
    return shares


def _delay(counts: Counts) -> np.ndarray:
    samples = counts["rtt_samples"].sum(axis=1)
    over = (counts["rtt_sum_s"] - counts["path_rtt_s"] * counts["rtt_samples"]).sum(axis=1)
    return np.asarray(np.where(samples > 0, over / np.maximum(samples, 1.0), 0.0))


def _loss(counts: Counts) -> np.ndarray:
    return np.asarray(counts["lost"].sum(axis=1) / np.maximum(counts["sent"].sum(axis=1), 1.0))


def _fairness(counts: Counts) -> np.ndarray:
    delivered = counts["all_delivered"]
    squares = delivered.shape[1] * (delivered**2).sum(axis=1)
    return np.asarray(np.where(squares > 0, delivered.sum(axis=1) ** 2 / np.maximum(squares, 1e-300), 1.0))


def _starvation(counts: Counts) -> np.ndarray:
    delivered = counts["all_delivered"]
    return np.asarray(delivered.max(axis=1) / np.maximum(delivered.min(axis=1), 1.0))


def _metric(metric: str) -> Callable[[Counts], np.ndarray]:
    return lambda counts: counts[metric]


UTILISATION = "utilisation"
GOALS: Mapping[str, BoxGoal] = {
    UTILISATION: BoxGoal("utilisation", 1, utilisation, 1.0, "leave the link idle"),
    "delay": BoxGoal("queueing_delay_mean_s", 1, _delay, -1.0, "let packets wait, in queues and in jitter boxes"),
    "loss": BoxGoal("loss_fraction", 1, _loss, -1.0, "make the sender lose what it sends"),
    "fairness": BoxGoal("jain_index", 2, _fairness, 1.0, "keep Jain's index of all flows low"),
    "starvation": BoxGoal("starvation_ratio", 2, _starvation, -1.0, "starve one flow: largest throughput over the smallest"),
    "qoe": BoxGoal("video_qoe", 1, _metric("video_qoe"), 1.0, "spoil the video: bitrate less its changes and stalls", "video"),
    "page_load": BoxGoal("page_load_s", 1, _metric("page_load_s"), -1.0, "make pages load slowly", "page"),
}
"""All goals by name."""


def box_goal(name: str) -> BoxGoal:
    """Return the goal of a name. Raises UnknownNameError."""
    if name not in GOALS:
        raise unknown_name("goal", name, GOALS)
    return GOALS[name]
