"""Performance profiles and probabilities of improvement: whole distributions beside aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.benchmarks.suite_base import SuiteBase
from ccenv.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

POINTS = 200


def performance_profile(values: Any, thresholds: Any) -> np.ndarray:
    """Return the share of the runs with a value above each threshold.

    Args:
        values: (n,) one per run, of all tasks.
        thresholds: (k,).

    Returns:
        np.ndarray: (k,) in [0, 1], not increasing in ascending thresholds.

    Raises:
        InputError: without values.

    Reference: Agarwal et al., NeurIPS 2021 (RLiable), s.4.2, "run-score distribution".
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        raise InputError("a performance profile needs at least one value")
    return np.asarray((x[None, :] > np.asarray(thresholds, dtype=np.float64)[:, None]).mean(axis=1))


def probability_of_improvement(a: list[list[float]], b: list[list[float]]) -> float:
    """Return the probability that a run of a is better than one of b on the same task, averaged over tasks; ties count half.

    Args:
        a: per task the values of its runs, higher is better.
        b: the same of the other sender, for the same tasks.

    Returns:
        float: in [0, 1]; 1/2 for equal senders.

    Raises:
        InputError: if the tasks differ in number or one has no runs.

    Reference: Agarwal et al., NeurIPS 2021 (RLiable), s.4.3 (Mann-Whitney U per task).
    """
    if len(a) != len(b) or not a or any(len(x) == 0 or len(y) == 0 for x, y in zip(a, b, strict=True)):
        raise InputError("a probability of improvement needs the same tasks of both, with at least one run each")
    shares = []
    for x, y in zip(a, b, strict=True):
        difference = np.subtract.outer(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
        shares.append(float((difference > 0).mean() + 0.5 * (difference == 0).mean()))
    return sum(shares) / len(shares)


def draw_profiles(suite: SuiteBase, records: list[dict[str, Any]]) -> Canvas | None:
    """Draw the performance profile of each sender's nominal score; None with fewer than two senders."""
    from matplotlib.figure import Figure as Canvas

    metric = suite.measure(suite.score.metric)
    by_agent: dict[str, list[float]] = {}
    for record in records:
        value = record["metrics"].get(metric.name)
        if value is not None and record["adversary"] == suite.score.adversary:
            by_agent.setdefault(record["agent"], []).append(value)
    if len(by_agent) < 2:
        return None
    every = [value for values in by_agent.values() for value in values]
    thresholds = np.linspace(min(0.0, *every), max(every), POINTS)
    canvas = Canvas(figsize=(7.5, 4), layout="constrained")
    ax = canvas.subplots()
    for agent, values in by_agent.items():
        ax.plot(thresholds, performance_profile(values, thresholds), linewidth=1.2, label=agent)
    ax.set_xlabel(metric.label + (f" ({metric.unit})" if metric.unit else ""))
    ax.set_ylabel("share of runs above")
    ax.set_ylim(0, 1.02)
    ax.grid(alpha=0.25)
    ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return canvas
