"""Pictures and traces of a run: utilisation against delay, scores as bars, and the worst case of each sender as a trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ccenv.benchmarks.cells.cell import TraceCell
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.base.errors import EngineError
from ccenv.base.files import make_folder, write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE, TRACES = "summary.png", "traces"
_MARKERS = "os^Dv<>P*X"
_DPI = 120


def write_worst_traces(
    out: FilePath, cells: Sequence[TraceCell], records: list[dict[str, Any]], summary: list[dict[str, Any]]
) -> None:
    """Play the worst case of each sender again, compare, and keep its trace and a picture of it.

    Adds ``trace`` and ``plot``, file names relative to the run folder, to the worst cases.

    Args:
        out: the run folder.
        cells: all cells of the run.
        records: finished cells.
        summary: of ``summarise``; changed in place.

    Raises:
        EngineError: if a cell, played again, has other metrics than its record.
        CcenvError: if a file cannot be written.
    """
    by_key = {cell.key: cell for cell in cells}
    metrics_of = {record["key"]: record["metrics"] for record in records}
    make_folder(out / TRACES)
    for entry in summary:
        worst = entry["worst_case"]
        if worst is None:
            continue
        stem = f"{TRACES}/{re.sub('[^A-Za-z0-9_.-]', '-', entry['agent'])}-{worst['key'][:12]}"
        worst["trace"], worst["plot"] = f"{stem}.npz", f"{stem}.png"
        cell = by_key.get(worst["key"])  # None: of an agent that only an earlier run had, whose files are there
        if cell is not None and not ((out / worst["trace"]).exists() and (out / worst["plot"]).exists()):
            _write_trace(out, cell, metrics_of[cell.key], worst)


def _write_trace(out: FilePath, cell: TraceCell, metrics: dict[str, Any], worst: dict[str, Any]) -> None:
    from ccenv.network.figure import plot_trace

    trace = cell.trace()
    again = cell.values(trace)
    if again != metrics:
        raise EngineError(f"cell {cell.name}: played again it has metrics {again}, its record says {metrics}")
    trace.save(out / worst["trace"])
    plot_trace(trace, out / worst["plot"])


def write_picture(suite: SuiteBase, records: list[dict[str, Any]], summary: list[dict[str, Any]], file: FilePath) -> None:
    """Draw utilisation against queueing delay per sender and adversary, and the nominal scores with their intervals.

    Args:
        suite: what was run.
        records: finished cells.
        summary: of ``summarise``.
        file: a .png.

    Raises:
        CcenvError: if the file cannot be written.
    """
    from matplotlib.figure import Figure

    from ccenv.network.figure import picture

    figure = Figure(figsize=(12, 5.2), dpi=_DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    _scatter(suite, records, [entry["agent"] for entry in summary], left)
    _bars(suite, summary, right)
    figure.suptitle(f"suite {suite.name}, version {suite.version}")
    write_atomic(file, picture(figure, ".png", _DPI))


def _scatter(suite: SuiteBase, records: list[dict[str, Any]], agents: list[str], ax: Axes) -> None:
    """One point per sender and adversary: means over scenarios and seeds, delay in units of Rm; up and left is better."""
    for colour, agent in enumerate(agents):
        for marker, adversary in zip(_MARKERS, suite.opponents, strict=False):
            points = [p for r in records if r["agent"] == agent and r["adversary"] == adversary and (p := _point(r))]
            if points:
                x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
                ax.plot(x, y, marker, color=f"C{colour % 10}", markersize=7, linestyle="none")
    ax.set_xlabel("mean queueing delay (Rm)")
    ax.set_ylabel("utilisation")
    ax.grid(alpha=0.25)
    ax.set_xlim(left=0)
    handles = [ax.plot([], [], "o", color=f"C{i % 10}", label=agent)[0] for i, agent in enumerate(agents)]
    handles += [
        ax.plot([], [], marker, color="grey", label=f"against {adversary}", linestyle="none")[0]
        for marker, adversary in zip(_MARKERS, suite.opponents, strict=False)
    ]
    ax.legend(handles=handles, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False)


def _point(record: dict[str, Any]) -> tuple[float, float] | None:
    delay_s, utilised = record["metrics"].get("queueing_delay_mean_s"), record["metrics"].get("utilisation")
    if delay_s is None or utilised is None:
        return None
    return delay_s / min(flow["rtt_s"] for flow in record["path"]["flows"]), utilised


def _bars(suite: SuiteBase, summary: list[dict[str, Any]], ax: Axes) -> None:
    """Nominal score with its interval, and the worst case beside it."""
    from matplotlib.patches import Patch

    entries = [entry for entry in summary if entry["score"] is not None][::-1]
    for row, entry in enumerate(entries):
        score = entry["score"]
        ax.barh(row + 0.18, score["iqm"], 0.34, color="C0")
        ax.plot([score["low"], score["high"]], [row + 0.18] * 2, color="black", linewidth=1.5)
        if entry["worst_case"] is not None:
            ax.barh(row - 0.18, entry["worst_case"]["value"], 0.34, color="C1")
    ax.set_yticks(range(len(entries)), [entry["agent"] for entry in entries])
    score, worst = suite.measure(suite.score.metric), suite.measure(suite.worst_case.metric)
    handles = [
        Patch(color="C0", label=f"{score.label} against {suite.score.adversary}: IQM, 95 % interval"),
        Patch(color="C1", label=f"worst {worst.label} found"),
    ]
    ax.legend(handles=handles, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    ax.grid(alpha=0.25, axis="x")
