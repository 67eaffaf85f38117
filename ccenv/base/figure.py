"""Figures: panels, their labels and files, with matplotlib; line charts and tables for notebooks, without it.

Drawn without a display and without pyplot's global state; equal figures make equal files.
"""

from __future__ import annotations

import html
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.files import write_atomic
from ccenv.base.foreign import as_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 100
SUFFIXES = (".png", ".svg")
_STAMPS = {".png": ("Software",), ".svg": ("Date",), ".pdf": ("CreationDate", "Producer", "Creator")}  # what would differ
MOST_POINTS = 600  # per curve; a longer series is averaged
GRID = 0.25  # its opacity


def require_picture(path: str | os.PathLike[str], allowed: Sequence[str] = SUFFIXES) -> FilePath:
    """Return the file of a picture. Raises InputError unless its ending is allowed."""
    target = as_path("picture", path)
    if target.suffix not in allowed:
        raise InputError(f"picture {str(target)!r} ends in {target.suffix!r}; allowed: {', '.join(allowed)}")
    return target


def panels(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, np.ndarray]:
    """Return a figure of a size in inches, and the axes of its panels row by row, (rows * columns,).

    ``shared`` is what ``Figure.subplots`` takes besides.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared).ravel()


def finish(ax: Axes, x: str = "", y: str = "", *, zero: bool = False, size: Any = None, **legend: Any) -> None:
    """Give a panel its labels, a grid, and a legend if one is described.

    Args:
        ax: of the panel.
        x: label; empty: as it is.
        y: label; empty: as it is.
        zero: the vertical axis begins at 0.
        size: of the letters of labels.
        legend: what ``Axes.legend`` takes, at least its ``loc``.
    """
    letters = {} if size is None else {"fontsize": size}
    if x:
        ax.set_xlabel(x, **letters)
    if y:
        ax.set_ylabel(y, **letters)
    if zero:
        ax.set_ylim(bottom=0)
    ax.grid(alpha=GRID)
    if legend and ("handles" in legend or ax.get_legend_handles_labels()[0]):
        ax.legend(**{"fontsize": "small", **legend})


def picture(figure: Figure, suffix: str, dpi: float = DPI) -> bytes:
    """Return a figure as the bytes of a ``.png``, ``.svg`` or ``.pdf``; equal figures make equal bytes."""
    from matplotlib import rc_context

    out = io.BytesIO()
    metadata: dict[str, Any] = dict.fromkeys(_STAMPS[suffix])
    with rc_context({"svg.hashsalt": "ccenv"}):
        figure.savefig(out, format=suffix.removeprefix("."), dpi=dpi, metadata=metadata)
    return out.getvalue()


def save(figure: Figure, path: str | os.PathLike[str], dpi: float = DPI, allowed: Sequence[str] = SUFFIXES) -> None:
    """Write a figure. Raises InputError for another ending, CcenvError if it cannot be written."""
    target = require_picture(path, allowed)
    write_atomic(target, picture(figure, target.suffix, dpi))


def thin(time_s: np.ndarray, values: np.ndarray, points: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Average a series down to at most ``points`` points."""
    group = -(-len(values) // points)
    if group <= 1:
        return time_s, values
    covered = len(values) // group * group
    return time_s[:covered].reshape(-1, group).mean(axis=1), values[:covered].reshape(-1, group).mean(axis=1)


WIDTH_PX, HEIGHT_PX, LEFT_PX, BELOW_PX = 480, 110, 56, 18
POINTS = 240  # per line; of a longer series every n-th value is drawn
_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")


def line_picture(times_s: np.ndarray, lines: Mapping[str, np.ndarray], label: str) -> str:
    """Return an SVG of series by name over ascending times, (T,) each, from zero upwards.

    Values that are not finite are left out; ``label`` is that of the vertical axis, with its unit.
    """
    step = max(1, len(times_s) // POINTS)
    x = np.asarray(times_s, np.float64)[::step]
    drawn = {name: np.asarray(values, np.float64)[::step] for name, values in lines.items()}
    finite = [values[np.isfinite(values)] for values in drawn.values()]
    top = max((float(values.max()) for values in finite if values.size), default=0.0) or 1.0
    end = float(x[-1]) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{HEIGHT_PX}" font-size="9" font-family="sans-serif">'
    ]
    floor = HEIGHT_PX - BELOW_PX
    for k, (name, values) in enumerate(drawn.items()):
        points = " ".join(
            f"{LEFT_PX + (WIDTH_PX - LEFT_PX - 4) * a / end:.1f},{floor - (floor - 14) * max(b, 0.0) / top:.1f}"
            for a, b in zip(x, values, strict=True)
            if np.isfinite(b)
        )
        colour = _COLOURS[k % len(_COLOURS)]
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{points}"><title>{html.escape(name)}</title></polyline>')
        parts.append(f'<text x="{LEFT_PX + 90 * k}" y="9" fill="{colour}">{html.escape(name[:16])}</text>')
    parts.append(f'<text x="2" y="18">{top:.3g}</text><text x="2" y="{floor}">0</text>')
    parts.append(f'<text x="2" y="{HEIGHT_PX // 2}">{html.escape(label)}</text>')
    parts.append(f'<text x="{WIDTH_PX - 40}" y="{HEIGHT_PX - 4}">{end:.4g} s</text></svg>')
    return "".join(parts)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table; numbers with four digits, nothing for None."""

    def cell(value: Any) -> str:
        return "" if value is None else f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))

    body = "".join("<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    return f"<table><caption>{html.escape(caption)}</caption><tr>{names}</tr>{body}</table>"


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of equal columns as a table in Markdown."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(rows[0])} |", f"|{' --- |' * len(rows[0])}"]
    return "\n".join([*lines, *(f"| {' | '.join(row.values())} |" for row in rows)])
