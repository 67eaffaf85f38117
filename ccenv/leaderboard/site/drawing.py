"""Coordinates and SVG paths of the pages' pictures, rounded so that builds are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ccenv.benchmarks.statistics import Tasks, performance_profile

WIDTH = 640.0
THRESHOLDS = np.linspace(0.0, 1.0, 41)


def interval_path(low: float, high: float) -> str:
    """Return the line of an interval in a 100 x 12 picture of [0, 1]."""
    return f"M{_clip(low) * 100:.1f} 6H{_clip(high) * 100:.1f}"


def interval_point(value: float) -> str:
    """Return the position of the middle of an interval in the same picture."""
    return f"{_clip(value) * 100:.1f}"


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))


def line(xs: Sequence[float] | np.ndarray, ys: Sequence[float] | np.ndarray) -> str:
    points = [f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True)]
    return "M" + "L".join(points) if points else ""


def ticks(largest: float, most: int = 6) -> list[float]:
    """Return round numbers from 0 to at most largest."""
    if not largest > 0:
        return [0.0]
    raw = largest / most
    scale = 10.0 ** np.floor(np.log10(raw))
    step = next(scale * nice for nice in (1, 2, 5, 10) if scale * nice >= raw * (1 - 1e-9))
    return [round(float(i * step), 10) for i in range(int(largest / step + 1e-9) + 1)]


def scatter(points: Sequence[tuple[int, str, float, float]]) -> dict[str, Any]:
    """Place (number, label, delay in Rm, utilisation) in a 640 x 320 picture; up and left is better."""
    widest = max([1.0, *(delay for _, _, delay, _ in points)])
    lowest = min([0.9, *(used for _, _, _, used in points)])
    low = max(0.0, int(lowest * 10) / 10)

    def x(delay: float) -> float:
        return round(56 + 560 * delay / (widest * 1.05), 1)

    def y(used: float) -> float:
        return round(16 + 256 * (1.02 - used) / (1.02 - low), 1)

    step = 0.02 if low >= 0.9 else 0.1 if low >= 0.5 else 0.2
    placed = [{"number": n, "label": name, "x": x(d), "y": y(u), "delay": d, "used": u} for n, name, d, u in points]
    return {
        "points": place_names(placed),
        "x_ticks": [(x(value), f"{value:g}") for value in ticks(widest)],
        "y_ticks": [(y(1 - i * step), f"{1 - i * step:.2f}") for i in range(int((1 - low) / step + 1e-9) + 1)],
    }


def overview(points: Sequence[tuple[int, str, float, float, float | None]]) -> dict[str, Any]:
    """Place (number, label, nominal score, worst case, proved bound or None) in a 640 x 320 picture; up and right is better."""
    right = max([1e-9, *(score for _, _, score, _, _ in points)])
    left = min([right, *(score for _, _, score, _, _ in points)])
    left = max(0.0, left - 0.1 * (right - left)) if right - left < 0.5 * right else min(0.0, left)
    top = max([1e-9, *(max(worst, bound or 0.0) for _, _, _, worst, bound in points)])

    def x(score: float) -> float:
        return round(56 + 560 * (score - left) / (1.08 * (right - left) or 1.0), 1)

    def y(value: float) -> float:
        return round(16 + 256 * (1 - max(0.0, value) / (1.05 * top)), 1)

    placed = [
        {
            "number": n,
            "label": name,
            "x": x(s),
            "y": y(w),
            "score": s,
            "worst": w,
            "bound": b,
            "proved": None if b is None else y(b),
        }
        for n, name, s, w, b in points
    ]
    return {
        "points": place_names(placed, radius=5),
        "x_ticks": [(x(value), f"{value:g}") for value in ticks(right, 8) if value >= left],
        "y_ticks": [(y(value), f"{value:g}") for value in ticks(top)],
    }


def place_names(points: list[dict[str, Any]], radius: float = 10) -> list[dict[str, Any]]:
    """Add label positions ``name`` (x, y, text-anchor) to points: beside, above or below, without overlaps; None without room."""
    height = 12.0
    taken = [(p["x"] - radius, p["y"] - radius, p["x"] + radius, p["y"] + radius) for p in points]
    for point in points:
        width, gap = 6.6 * len(point["label"]), radius + 3
        candidates = (
            (point["x"] + gap, point["y"] + 4, "start", point["x"] + gap),
            (point["x"] - gap, point["y"] + 4, "end", point["x"] - gap - width),
            (point["x"], point["y"] - gap, "middle", point["x"] - width / 2),
            (point["x"], point["y"] + gap + 9, "middle", point["x"] - width / 2),
        )
        point["name"] = None
        for x, y, anchor, left in candidates:
            box = (left, y - height + 2, left + width, y + 2)
            inside = box[0] >= 50 and box[2] <= WIDTH - 2 and box[1] >= 0 and box[3] <= 274
            free = all(box[0] >= x1 or x0 >= box[2] or box[1] >= y1 or y0 >= box[3] for x0, y0, x1, y1 in taken)
            if inside and free:
                point["name"] = (round(x, 1), round(y, 1), anchor)
                taken.append(box)
                break
    return points


def profile(curves: Mapping[str, Tasks]) -> dict[str, Any]:
    """Place performance profiles, share of runs above each threshold, in a 640 x 320 picture."""

    def x(values: np.ndarray) -> np.ndarray:
        return 56 + 560 * values

    def y(values: np.ndarray) -> np.ndarray:
        return 16 + 256 * (1 - values)

    lines = []
    for index, (label, tasks) in enumerate(curves.items()):
        share, low, high = performance_profile(tasks, THRESHOLDS)
        band = line(np.concatenate((x(THRESHOLDS), x(THRESHOLDS)[::-1])), np.concatenate((y(high), y(low)[::-1])))
        lines.append({"label": label, "colour": index % 8, "path": line(x(THRESHOLDS), y(share)), "band": band + "Z"})
    axis = np.linspace(0, 1, 6)
    return {
        "lines": lines,
        "x_ticks": [(float(a), f"{v:.1f}") for a, v in zip(x(axis), axis, strict=True)],
        "y_ticks": [(float(a), f"{v:.1f}") for a, v in zip(y(axis), axis, strict=True)],
    }


def strips(tasks: Tasks, reference: Tasks) -> dict[str, Any]:
    """Place the runs of each scenario as points on one line, with the span of a reference's runs behind them."""
    everything = [*tasks.values(), *reference.values()]
    high = max([1e-9, *(float(values.max()) for values in everything if len(values))])
    low = min([0.0, *(float(values.min()) for values in everything if len(values))])

    def x(value: float) -> float:
        return round(190 + 430 * (value - low) / (high - low), 1)

    rows = []
    for index, (name, values) in enumerate(tasks.items()):
        other = reference.get(name)
        rows.append(
            {
                "name": name,
                "y": 14 + 22 * index,
                "points": [x(float(value)) for value in np.sort(values)],
                "median": x(float(np.median(values))),
                "span": None if other is None or not len(other) else (x(float(other.min())), x(float(other.max()))),
            }
        )
    height = 22 * len(rows) + 30
    marks = [(x(value), f"{value:g}") for value in ticks(high)]
    return {"rows": rows, "height": height, "ticks": marks, "bottom": 22 * len(rows) + 6}
