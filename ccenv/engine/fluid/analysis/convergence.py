"""How much the step of the method of steps matters, and phase portraits of the reduced models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.base.errors import InputError, unknown_name
from ccenv.engine.fluid.analysis.equilibria import Bottleneck, Model, derivatives, equilibrium, limited
from ccenv.engine.fluid.sweep import Sweep
from ccenv.network.metrics.table import FLUID_METRICS

# What a step of 0.05 ms should stay within against 0.01 ms: Jain, loss in points, occupancy in points.
TOLERANCES = {"jain": 0.01, "loss_pct": 0.13, "occupancy_pct": 1.6}


def convergence(sweep: Sweep, steps_ms: Sequence[float], threads: int | None = None) -> list[dict[str, Any]]:
    """Compare coarse steps with the finest one over all cells of a sweep.

    Returns one row for each step but the finest: step_ms, reference_ms, and for each metric the largest absolute difference over
    all cells (`jain_largest`, ...) and the mean (`jain_mean`, ...); cells_within_pct: cells inside TOLERANCES. Raises InputError
    for fewer than two steps.
    """
    steps = sorted(set(steps_ms))
    if len(steps) < 2:
        raise InputError(f"a convergence table needs at least two different steps (got {list(steps_ms)})")
    runs = {}
    for step in steps:
        # model_copy would skip the checks, among them the step against the delays
        runs[step] = Sweep.model_validate(sweep.model_dump() | {"step_ms": step}).run(threads)
    finest = runs[steps[0]]
    rows = []
    for step in steps[1:]:
        row: dict[str, Any] = {"step_ms": step, "reference_ms": steps[0]}
        for metric in FLUID_METRICS:
            off = [abs(a[metric] - b[metric]) for a, b in zip(runs[step], finest, strict=True)]
            row |= {f"{metric}_largest": max(off), f"{metric}_mean": sum(off) / len(off)}
        inside = [
            all(abs(a[m] - b[m]) <= limit for m, limit in TOLERANCES.items()) for a, b in zip(runs[step], finest, strict=True)
        ]
        rows.append(row | {"cells_within_pct": 100.0 * sum(inside) / len(inside)})
    return rows


PLANES = ("queue", "shares")
_STEPS_PER_RTT = 10  # the queue moves within an RTT
_SHARES_STEP_S = 0.02  # estimates move within seconds (unit gain of eq. 38)
_MOST_STEPS = 200_000


@dataclass(frozen=True)
class Portrait:
    """A phase portrait in units of capacity and propagation RTT.

    Attributes:
        plane: `queue`: total x_btl over C against queueing delay over d, all flows alike; `shares`: x_btl of two flows
            over C each, queue held at its equilibrium.
        grid_x, grid_y: (G,) abscissae and ordinates.
        speed_x, speed_y: (G, G) their derivatives, 1/s; row = ordinate.
        trajectories: each (T, 2).
        rest: the equilibrium, (2,).
    """

    model: Model
    plane: str
    labels: tuple[str, str]
    grid_x: np.ndarray
    grid_y: np.ndarray
    speed_x: np.ndarray
    speed_y: np.ndarray
    trajectories: tuple[np.ndarray, ...]
    rest: np.ndarray


def phase_portrait(model: Model, path: Bottleneck, plane: str = "queue", grid: int = 21, duration_s: float = 20.0) -> Portrait:
    """Compute a phase portrait of flows with equal RTTs (two for plane `shares`) on a grid of at least 2 points per axis.

    Raises InputError for what the plane cannot show.
    """
    if plane not in PLANES:
        raise unknown_name("plane", plane, PLANES)
    if grid < 2:
        raise InputError(f"grid must be at least 2 (got {grid})")
    if plane == "shares" and path.flows != 2:
        raise InputError(f"plane 'shares' needs two flows (got {path.flows})")
    step_s = path.common_rtt_s / _STEPS_PER_RTT if plane == "queue" else _SHARES_STEP_S
    steps = round(duration_s / step_s)
    if not 1 <= steps <= _MOST_STEPS:
        raise InputError(f"duration_s must be in {step_s:g} to {_MOST_STEPS * step_s:g} here (got {duration_s:g})")
    point = equilibrium(model, path)
    c, d = path.capacity_Bps, path.common_rtt_s
    if plane == "queue":
        labels = ("total bandwidth estimate / C", "queueing delay / propagation delay")
        rest = np.array([sum(point.x_btl_Bps) / c, point.queue_bytes / (c * d)])
        ceiling = min(path.buffer_bytes / (c * d), max(2.0 * rest[1], 0.5))
        axes = np.linspace(0.5, 1.8, grid), np.linspace(0.0, ceiling, grid)
        starts = [(0.6, 0.0), (1.7, 0.0), (0.6, ceiling), (1.7, ceiling), (1.2, 0.5 * ceiling)]
    else:
        labels = ("bandwidth estimate of flow 1 / C", "bandwidth estimate of flow 2 / C")
        rest = np.array(point.x_btl_Bps) / c
        axes = np.linspace(0.02, 1.2, grid), np.linspace(0.02, 1.2, grid)
        starts = [(0.1, 0.3), (0.3, 0.1), (0.1, 1.0), (1.0, 0.1), (1.1, 0.9), (0.9, 1.1)]
    field = _field(model, path, plane, point.queue_bytes)
    speeds = np.array([[field(np.array([x, y])) for x in axes[0]] for y in axes[1]])
    top = path.buffer_bytes / (c * d) if plane == "queue" else np.inf
    paths = tuple(_follow(field, np.array(s), step_s, steps, top) for s in starts)
    return Portrait(model, plane, labels, *axes, speeds[:, :, 0], speeds[:, :, 1], paths, rest)


def _field(model: Model, path: Bottleneck, plane: str, queue: float) -> Callable[[np.ndarray], np.ndarray]:
    c, d, n = path.capacity_Bps, path.common_rtt_s, path.flows

    def alike(z: np.ndarray) -> np.ndarray:
        q = min(max(z[1], 0.0) * c * d, path.buffer_bytes)
        rates, growth, _ = derivatives(model, path, np.full(n, z[0] * c / n), q)
        return np.array([rates.sum() / c, limited(path, q, growth) / (c * d)])

    def pair(z: np.ndarray) -> np.ndarray:
        return derivatives(model, path, z * c, queue)[0] / c

    return alike if plane == "queue" else pair


def _follow(field: Callable[[np.ndarray], np.ndarray], start: np.ndarray, step_s: float, steps: int, top: float) -> np.ndarray:
    """Integrate by the classical Runge-Kutta method; keep every point, the ordinate within [0, top]."""
    out = np.empty((steps + 1, 2))
    z = out[0] = start
    for k in range(steps):
        a = field(z)
        b = field(z + 0.5 * step_s * a)
        c = field(z + 0.5 * step_s * b)
        z = z + step_s / 6.0 * (a + 2.0 * b + 2.0 * c + field(z + step_s * c))
        z[1] = min(max(z[1], 0.0), top)
        out[k + 1] = z
    return out
