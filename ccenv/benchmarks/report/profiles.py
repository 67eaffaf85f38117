"""Performance profiles of a report: whole distributions beside aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.benchmarks.statistics import performance_profile
from ccenv.benchmarks.suite.base import SuiteBase

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

POINTS = 200


def draw_profiles(suite: SuiteBase, records: list[dict[str, Any]]) -> Canvas | None:
    """Draw the performance profile of each sender's nominal score with its 95 % interval; None with fewer than two senders."""
    from matplotlib.figure import Figure as Canvas

    metric = suite.measure(suite.score.metric)
    by_agent: dict[str, dict[str, list[float]]] = {}
    for record in records:
        value = record["metrics"].get(metric.name)
        if value is not None and record["adversary"] == suite.score.adversary:
            by_agent.setdefault(record["agent"], {}).setdefault(record["scenario"], []).append(value)
    if len(by_agent) < 2:
        return None
    every = [value for tasks in by_agent.values() for values in tasks.values() for value in values]
    thresholds = np.linspace(min(0.0, *every), max(every), POINTS)
    canvas = Canvas(figsize=(7.5, 4), layout="constrained")
    ax = canvas.subplots()
    for agent, tasks in by_agent.items():
        share, low, high = performance_profile({name: np.array(values) for name, values in tasks.items()}, thresholds)
        (line,) = ax.plot(thresholds, share, linewidth=1.2, label=agent)
        ax.fill_between(thresholds, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    ax.set_xlabel(metric.label + (f" ({metric.unit})" if metric.unit else ""))
    ax.set_ylabel("share of runs above")
    ax.set_ylim(0, 1.02)
    ax.grid(alpha=0.25)
    ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return canvas
