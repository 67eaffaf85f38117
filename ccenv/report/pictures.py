"""Pictures of a report: rates over time, and every number beside the baseline's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.benchmarks.suite.base import CellData
from ccenv.network.plots import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 80
MOST_LINES = 6
WIDEST = 100.0  # ratios beyond are drawn at the edge


def draw_rates(cases: Sequence[str], records: list[CellData], sender: str, baseline: str) -> bytes | None:
    """Draw the throughput of the sender's run, flow by flow, with all flows of the baseline's run together in grey.

    Returns:
        bytes: a PNG; None if no cell of these cases kept its rates.
    """
    from matplotlib.figure import Figure

    kept = {(r["scenario"], r["agent"]): r["series"] for r in records if "series" in r}
    shown = [case for case in cases if (case, sender) in kept]
    if not shown:
        return None
    canvas = Figure(figsize=(4.2 * len(shown), 2.7), layout="constrained")
    axes = np.asarray(canvas.subplots(1, len(shown), squeeze=False)).ravel()
    for ax, case in zip(axes, shown, strict=True):
        if baseline != sender and (case, baseline) in kept:
            _lines(ax, kept[case, baseline], f"all of {baseline}'s run")
        _lines(ax, kept[case, sender], "")
        ax.set_title(case, fontsize="small")
        ax.set_xlabel("time (s)", fontsize="small")
        ax.set_ylabel("throughput (Mbit/s)", fontsize="small")
        ax.set_ylim(bottom=0)
        ax.grid(alpha=0.25)
        ax.tick_params(labelsize="small")
        ax.legend(fontsize="x-small", loc="best")
    return picture(canvas, ".png", DPI)


def _lines(ax: Axes, series: dict[str, Any], together: str) -> None:
    rates = {name: np.asarray(values) for name, values in series["throughput_mbps"].items()}
    if together or len(rates) > MOST_LINES:
        rates = {together or f"all {len(rates)} flows": sum(rates.values(), np.zeros(1))}
    style: dict[str, Any] = {"color": "0.7", "linewidth": 2.5} if together else {"linewidth": 1.1}
    for name, values in rates.items():
        ax.plot((np.arange(len(values)) + 0.5) * series["every_s"], values, label=name, **style)


def draw_beside(criteria: list[dict[str, Any]], sender: str, baseline: str) -> bytes | None:
    """Draw every measure as a multiple of the baseline's; None where there is nothing to compare."""
    from matplotlib.figure import Figure

    rows = []
    for criterion in criteria:
        for measure in criterion["measures"]:
            own, other = measure["value"], measure["baseline"]
            if own is not None and other is not None and own > 0 and other > 0:
                rows.append((f"{criterion['id']}: {measure['label']}", own / other, measure["verdict"]))
    if not rows or sender == baseline:
        return None
    colours = {"meets": "#0a6b2d", "does not meet": "#a11212"}
    canvas = Figure(figsize=(9, 0.24 * len(rows) + 0.9), layout="constrained")
    ax = canvas.subplots()
    for y, (_, ratio, verdict) in enumerate(reversed(rows)):
        at = min(WIDEST, max(1 / WIDEST, ratio))
        ax.plot([1, at], [y, y], color="0.8", linewidth=1)
        ax.plot([at], [y], "o", color=colours.get(verdict, "#33507a"), markersize=4.5)
    ax.axvline(1, color="0.4", linewidth=0.8)
    ax.set_xscale("log")
    reach = max(2.0, *(math.exp(abs(math.log(min(WIDEST, max(1 / WIDEST, ratio))))) for _, ratio, _ in rows)) * 1.15
    ax.set_xlim(1 / reach, reach)
    ax.set_yticks(range(len(rows)), [_short(text) for text, _, _ in reversed(rows)], fontsize="x-small")
    ax.set_xlabel(f"{sender} over {baseline}, same cells", fontsize="small")
    ax.grid(alpha=0.25, axis="x")
    return picture(canvas, ".png", DPI)


def _short(text: str) -> str:
    return text if len(text) <= 78 else f"{text[:75]}..."
