"""Line charts and tables for notebooks, as plain SVG and HTML without a plotting library."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

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
