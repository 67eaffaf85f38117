"""How much the step of the method of steps matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ccenv.engine.fluid.sweep import Sweep
from ccenv.base.errors import InputError
from ccenv.network.metrics.table import FLUID_METRICS

# What a step of 0.05 ms should stay within against 0.01 ms: Jain, loss in points, occupancy in points.
TOLERANCES = {"jain": 0.01, "loss_pct": 0.13, "occupancy_pct": 1.6}


def convergence(sweep: Sweep, steps_ms: Sequence[float], threads: int | None = None) -> list[dict[str, Any]]:
    """Compare coarse steps with the finest one over all cells of a sweep.

    Args:
        sweep: what to run.
        steps_ms: at least two different steps, ms.
        threads: as Sweep.run.

    Returns:
        One row for each step but the finest: step_ms, reference_ms, and for each metric the largest absolute difference over
        all cells (`jain_largest`, ...) and the mean (`jain_mean`, ...); cells_within_pct: cells inside TOLERANCES.

    Raises:
        InputError: for fewer than two steps.
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
