"""Figures of a suite's report, drawn from the records of a run: lines, bars, heat maps, rates over time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.base.figure import finish, panels
from ccenv.benchmarks.suite.base import CellData, Figure, SuiteBase
from ccenv.benchmarks.suite.references import compute_quantity, parameter, select_cells
from ccenv.benchmarks.suite.theory import THEORY, evaluate
from ccenv.network.metrics.measures import delta_sensitivity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

MAX_PANELS, MAX_LINES = 16, 12
DPI = 80
KEPT = {"series": "series", "slowdowns": "slowdowns"}  # type of figure -> key that its cells need
_MARKERS = "os^Dv<>P*XhH"
_THEORY_POINTS = 60


def draw(suite: SuiteBase, records: list[CellData], figure: Figure) -> Canvas | None:
    """Draw one figure; None if no cell matches it."""
    chosen = [record for record in select_cells(records, figure) if figure.kind not in KEPT or KEPT[figure.kind] in record]
    if not chosen:
        return None
    groups = _panels(chosen, figure)[:MAX_PANELS]
    columns = min(len(groups), 3)
    rows = -(-len(groups) // columns)
    width = 4.4 * columns if len(groups) > 1 else 7.5
    canvas, axes = panels(rows, columns, (width, 3.3 * rows + 0.6))
    drawers: dict[str, Callable[[SuiteBase, list[CellData], Figure, Axes], None]] = {
        "lines": _lines, "bars": _bars, "heatmap": _heatmap, "delta_map": _delta_map, "series": _series,
        "ecdf": _ecdf, "slowdowns": _slowdowns,
    }  # fmt: skip
    for ax, (title, cells) in zip(axes, groups, strict=False):
        drawers[figure.kind](suite, cells, figure, ax)
        ax.set_title(title, fontsize="small")
    for ax in axes[len(groups) :]:
        ax.set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    if handles and figure.kind != "series":
        canvas.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), fontsize="small", frameon=False)
    return canvas


def table(suite: SuiteBase, records: list[CellData], figure: Figure) -> list[list[Any]]:
    """Return the numbers behind a figure, header first: one row per cell."""
    chosen = select_cells(records, figure)
    names = [n for n in dict.fromkeys((*figure.panels.split(","), figure.x, figure.y, figure.by)) if n]
    metrics = [*figure.shown, *([figure.divided_by] if figure.divided_by else [])] or list(suite.metrics)
    rows: list[list[Any]] = [["scenario", "agent", "seed", *(n for n in names if n not in ("scenario", "agent")), *metrics]]
    for record in chosen:
        values = [parameter(record, name) for name in names if name not in ("scenario", "agent")]
        rows.append([record["scenario"], record["agent"], record["seed"], *values, *(record["metrics"].get(m) for m in metrics)])
    return rows


def _panels(records: list[CellData], figure: Figure) -> list[tuple[str, list[CellData]]]:
    if figure.kind == "series":
        return [(f"{r['scenario']} {'' if r['agent'] == 'network' else r['agent']}".strip(), [r]) for r in records]
    names = [name for name in figure.panels.split(",") if name]
    groups: dict[tuple[Any, ...], list[CellData]] = {}
    for record in records:
        groups.setdefault(tuple(parameter(record, name) for name in names), []).append(record)
    return [(", ".join(f"{n} {_text(v)}" for n, v in zip(names, key, strict=True)), cells) for key, cells in groups.items()]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _lines(suite: SuiteBase, cells: list[CellData], figure: Figure, ax: Axes) -> None:
    groups = list(dict.fromkeys(parameter(cell, figure.by) for cell in cells)) if figure.by else [None]
    colour = 0
    for group in groups[:MAX_LINES]:
        group_cells = [cell for cell in cells if not figure.by or parameter(cell, figure.by) == group]
        for metric in figure.shown:
            points = _points(group_cells, figure, metric)
            label = " ".join(filter(None, [_text(group) if group is not None else "", _short(suite, metric, figure)]))
            style: dict[str, Any] = {"color": f"C{colour % 10}", "markersize": 4}
            ax.plot(
                *zip(*points, strict=True), _MARKERS[colour % len(_MARKERS)], linestyle="-", linewidth=1, label=label, **style
            )
            colour += 1
        if figure.theory:
            _theory(group_cells, figure, ax, f"C{(colour - 1) % 10}" if figure.by else "black", first=group == groups[0])
    _finish(suite, figure, ax)


def _ecdf(suite: SuiteBase, cells: list[CellData], figure: Figure, ax: Axes) -> None:
    measure = suite.measure(figure.shown[0])
    for group in dict.fromkeys(parameter(cell, figure.by) if figure.by else None for cell in cells):
        group_cells = [cell for cell in cells if not figure.by or parameter(cell, figure.by) == group]
        values = sorted(float(value) for cell in group_cells if (value := cell["metrics"].get(figure.shown[0])) is not None)
        if values:
            shares = np.arange(1, len(values) + 1) / len(values)
            ax.step(
                [values[0], *values], [0.0, *shares], where="post", linewidth=1.2, label=None if group is None else _text(group)
            )
    finish(ax, measure.axis, "share of the cells", size="small")
    ax.set_ylim(0, 1.02)
    if figure.log_x:
        ax.set_xscale("log")
    ax.tick_params(labelsize="small")


def _points(cells: list[CellData], figure: Figure, metric: str) -> list[tuple[float, float]]:
    out = []
    for x in sorted({value for cell in cells if isinstance(value := parameter(cell, figure.x), (int, float))}):
        value = compute_quantity([cell for cell in cells if parameter(cell, figure.x) == x], figure.quantity(metric))
        out.append((float(x), math.nan if value is None else value))
    return out or [(math.nan, math.nan)]


def _theory(cells: list[CellData], figure: Figure, ax: Axes, colour: str, *, first: bool) -> None:
    name = str(figure.theory.get("function"))
    constants = {**cells[0].get("parameters", {}), **figure.theory}
    xs = [value for cell in cells if isinstance(value := parameter(cell, figure.x), (int, float))]
    if not xs:
        return
    # Parameters that vary with x (m and n with a constant sum) allow predictions at the cases only.
    others = [{k: v for k, v in c.get("parameters", {}).items() if k not in ("case", figure.x)} for c in cells]
    if all(other == others[0] for other in others):
        space = np.geomspace if figure.log_x else np.linspace
        grid = space(min(xs), max(xs), _THEORY_POINTS)
        pairs = [(float(x), evaluate(name, {**constants, figure.x: float(x)})) for x in grid]
    else:
        arguments_by_x = {float(parameter(c, figure.x)): {**c.get("parameters", {}), **figure.theory} for c in cells}
        pairs = [(x, evaluate(name, arguments)) for x, arguments in sorted(arguments_by_x.items())]
    label = THEORY[name][0] if first else "_"
    ax.plot(
        [x for x, _ in pairs], [math.nan if y is None else y for _, y in pairs], "--", color=colour, linewidth=1.2, label=label
    )


def _bars(suite: SuiteBase, cells: list[CellData], figure: Figure, ax: Axes) -> None:
    groups = list(dict.fromkeys(parameter(cell, figure.x) for cell in cells))
    bars = [
        (by, m) for by in (dict.fromkeys(parameter(c, figure.by) for c in cells) if figure.by else [None]) for m in figure.shown
    ]
    for i, (by, metric) in enumerate(bars):
        values = []
        for group in groups:
            bar_cells = [c for c in cells if parameter(c, figure.x) == group and (not figure.by or parameter(c, figure.by) == by)]
            value = compute_quantity(bar_cells, figure.quantity(metric))
            values.append(math.nan if value is None else value)
        label = " ".join(filter(None, ["" if by is None else _text(by), _short(suite, metric, figure)]))
        ax.bar(
            np.arange(len(groups)) + (i + 0.5) / len(bars) * 0.8 - 0.4, values, 0.8 / len(bars), label=label, color=f"C{i % 10}"
        )
    ax.set_xticks(range(len(groups)), [_text(group) for group in groups], rotation=30, ha="right", fontsize="small")
    _finish(suite, figure, ax)
    ax.set_xlabel("")


def _short(suite: SuiteBase, metric: str, figure: Figure) -> str:
    return suite.measure(metric).label if len(figure.shown) > 1 else ""


def _finish(suite: SuiteBase, figure: Figure, ax: Axes) -> None:
    measure = suite.measure(figure.shown[0])
    if figure.aggregate == "delta_sensitivity":
        label = "delta-sensitivity"
    elif figure.divided_by:
        label = f"{measure.label} / {suite.measure(figure.divided_by).label}"
    elif len(figure.shown) > 1 and len({suite.measure(name).label.partition(",")[0] for name in figure.shown}) > 1:
        label = measure.unit or measure.label
    else:
        label = measure.label.partition(",")[0] + (f" ({measure.unit})" if measure.unit else "")
    if figure.log_x:
        ax.set_xscale("log")
    if figure.log_y:
        ax.set_yscale("symlog" if "loss" in figure.shown[0] else "log")
    elif figure.kind != "bars":
        ax.set_ylim(bottom=0)
    finish(ax, figure.x, label, size="small")
    ax.tick_params(labelsize="small")


def _grid(cells: list[CellData], figure: Figure) -> tuple[list[float], list[float]]:
    xs = sorted({float(parameter(cell, figure.x)) for cell in cells})
    return xs, sorted({float(parameter(cell, figure.y)) for cell in cells})


def _heatmap(suite: SuiteBase, cells: list[CellData], figure: Figure, ax: Axes) -> None:
    xs, ys = _grid(cells, figure)
    values = np.full((len(ys), len(xs)), math.nan)
    for i, y in enumerate(ys):
        for j, x in enumerate(xs):
            point_cells = [c for c in cells if parameter(c, figure.x) == x and parameter(c, figure.y) == y]
            value = compute_quantity(point_cells, figure.quantity(figure.shown[0]))
            values[i, j] = math.nan if value is None else value
    _image(values, xs, ys, ax, figure.x, figure.y, suite.measure(figure.shown[0]).label)


def _delta_map(suite: SuiteBase, cells: list[CellData], figure: Figure, ax: Axes) -> None:
    """Draw the sensitivity over all delay vectors between d_min and d_max ([Delta] figure 4)."""
    del suite
    ticks = sorted(set(_grid(cells, figure)[0]) | set(_grid(cells, figure)[1]))
    values = np.full((len(ticks), len(ticks)), math.nan)
    points = [(float(parameter(c, figure.x)), float(parameter(c, figure.y)), c["metrics"].get(figure.shown[0])) for c in cells]
    for i, high in enumerate(ticks):
        for j, low in enumerate(ticks[: i + 1]):
            values_between = [v for x, y, v in points if low <= x <= high and low <= y <= high and v is not None]
            sensitivity = delta_sensitivity(values_between)
            values[i, j] = sensitivity if math.isfinite(sensitivity) else math.nan
    _image(values, ticks, ticks, ax, "d_min (ms)", "d_max (ms)", "delta")


def _image(values: np.ndarray, xs: list[float], ys: list[float], ax: Axes, x_label: str, y_label: str, label: str) -> None:
    image = ax.imshow(values, origin="lower", aspect="auto", cmap="viridis", vmin=0)
    ax.set_xticks(range(0, len(xs), 3), [_text(x) for x in xs[::3]], fontsize="small")
    ax.set_yticks(range(0, len(ys), 3), [_text(y) for y in ys[::3]], fontsize="small")
    ax.set_xlabel(x_label, fontsize="small")
    ax.set_ylabel(y_label, fontsize="small")
    canvas = ax.get_figure()
    if canvas is not None:
        canvas.colorbar(image, ax=ax, label=label)


def _slowdowns(suite: SuiteBase, cells: list[CellData], figure: Figure, ax: Axes) -> None:
    del suite, figure
    agents = list(dict.fromkeys(cell["agent"] for cell in cells))[:MAX_LINES]
    for colour, agent in enumerate(agents):
        for number, cell in enumerate(cell for cell in cells if cell["agent"] == agent):
            finished = [value for value in cell["slowdowns"] if value is not None]
            shares = np.arange(len(finished)) / (len(cell["slowdowns"]) - 1)
            ax.plot(finished, shares, linewidth=1, color=f"C{colour % 10}", label=agent if number == 0 else None)
    ax.set_xscale("log")
    ax.set_ylim(0, 1)
    finish(ax, "time of a transfer over the shortest possible", "share of the transfers", size="small")
    ax.tick_params(labelsize="small")


def _series(suite: SuiteBase, cells: list[CellData], figure: Figure, ax: Axes) -> None:
    del suite, figure
    series = cells[0]["series"]
    for name, rates in series["throughput_mbps"].items():
        ax.plot((np.arange(len(rates)) + 0.5) * series["every_s"], rates, linewidth=1, label=name)
    ax.tick_params(labelsize="small")
    finish(ax, "time (s)", "throughput (Mbit/s)", zero=True, size="small", loc="upper right", fontsize="x-small")
