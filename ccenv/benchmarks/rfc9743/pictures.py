"""Pictures of a report: rates over time, and numbers beside the baseline's; all as wide as a phone's page."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.benchmarks.suite.base import CellData
from ccenv.network.figure import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 160
WIDTH_IN = 4.6  # letters of 8 points are then readable on a phone
LONGEST = 68  # characters of a line of words
MOST_LINES = 6
DASHES = ("-", "--", ":", "-.")
_BETTER = {"higher": " (more is better)", "lower": " (less is better)", "neither": ""}
_VERDICTS = {"meets": ("^", "#0a6b2d"), "does not meet": ("X", "#a11212")}
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
    canvas = Figure(figsize=(WIDTH_IN, 2.6 * len(shown)), layout="constrained")
    axes = canvas.subplots(len(shown), 1, squeeze=False)[:, 0]
    for ax, case in zip(axes, shown, strict=True):
        if baseline != sender and (case, baseline) in kept:
            _lines(ax, kept[case, baseline], f"all of {baseline}'s run")
        _lines(ax, kept[case, sender], "")
        ax.set_title(case, fontsize=9)
        ax.set_xlabel("time (s)", fontsize=9)
        ax.set_ylabel("throughput (Mbit/s)", fontsize=9)
        ax.set_ylim(bottom=0)
        ax.grid(alpha=0.25)
        ax.tick_params(labelsize=8)
        ax.legend(fontsize=8, loc="best")
    return picture(canvas, ".png", DPI)


def _lines(ax: Axes, series: dict[str, Any], together: str) -> None:
    rates = {name: np.asarray(values) for name, values in series["throughput_mbps"].items()}
    if together or len(rates) > MOST_LINES:
        rates = {together or f"all {len(rates)} flows": sum(rates.values(), np.zeros(1))}
    style: dict[str, Any] = {"color": "0.7", "linewidth": 2.5} if together else {"linewidth": 1.1}
    for (name, values), dashes in zip(rates.items(), itertools.cycle(DASHES), strict=False):
        ax.plot((np.arange(len(values)) + 0.5) * series["every_s"], values, dashes, label=name, **style)


def draw_beside(measures: Sequence[Mapping[str, Any]], sender: str, baseline: str) -> bytes | None:
    """Draw the measures of a criterion beside the baseline's: those with a better side on one axis, all others on a second one.

    Returns:
        bytes: a PNG as wide as a phone's page; None where there is nothing to compare.
    """
    from matplotlib.figure import Figure

    panels: dict[str, list[tuple[str, float, str]]] = {}
    for measure in measures:
        value, other = measure["value"], measure["baseline"]
        if value is not None and other is not None and value > 0 and other > 0:
            better = measure["better"]
            ratio = other / value if better == "lower" else value / other
            title = f"{sender} over {baseline}" if better == "neither" else f"times better than {baseline}"
            panels.setdefault(title, []).append((measure["label"] + _BETTER[better], ratio, measure["verdict"]))
    if not panels or sender == baseline:
        return None
    heights = [len(rows) + 1.5 for rows in panels.values()]
    canvas = Figure(figsize=(WIDTH_IN, 0.4 * sum(heights)), layout="constrained")
    axes = canvas.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (title, rows) in zip(axes, panels.items(), strict=True):
        _beside(ax, rows)
        ax.set_xlabel(title, fontsize=9)
    return picture(canvas, ".png", DPI)


def _beside(ax: Axes, rows: Sequence[tuple[str, float, str]]) -> None:
    """Draw a line per measure, from the baseline at 1; its words stand above the line, its verdict in shape and words."""
    from matplotlib.ticker import LogLocator, NullFormatter

    shown = [min(WIDEST, max(1 / WIDEST, ratio)) for _, ratio, _ in rows]
    reach = max(2.0, *(max(ratio, 1 / ratio) for ratio in shown)) * 1.3
    for y, ((label, ratio, verdict), at) in enumerate(zip(reversed(rows), reversed(shown), strict=True)):
        marker, colour = _VERDICTS.get(verdict, ("o", "#33507a"))
        ax.plot([1, at], [y, y], color="0.75", linewidth=1.5)
        ax.plot([at], [y], marker, color=colour, markersize=6)
        words = f"{ratio:.3g}{f', {verdict}' if verdict in _VERDICTS else ''}: {label}"
        ax.text(
            0.01, y + 0.22, textwrap.shorten(words, LONGEST, placeholder=" ..."), fontsize=8, transform=ax.get_yaxis_transform()
        )
    ax.axvline(1, color="0.4", linewidth=0.8)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if reach < 30 else (1,)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(1 / reach, reach)
    ax.set_ylim(-0.5, len(rows))
    ax.set_yticks([])
    ax.tick_params(labelsize=8)
    ax.grid(alpha=0.25, axis="x")
