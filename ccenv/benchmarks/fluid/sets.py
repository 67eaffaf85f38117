"""Parameter sets beside each other: the 18 statements for each set and packet by packet, distances to the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccenv.benchmarks.fluid.statements import judge
from ccenv.engine.fluid.parameters import PARAMETER_SETS
from ccenv.engine.fluid.sweep import Sweep
from ccenv.base.errors import InputError
from ccenv.base.foreign import read_json

# What a cell may be off the published simulator's: Jain, points of loss, points of occupancy.
PUBLISHED_BANDS = {"jain": 0.12, "loss_pct": 3.0, "occupancy_pct": 12.0}
PACKETS = "packets"


def cells_of_sets(sweep: Sweep, threads: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return the cells of a sweep under every parameter set. Raises InputError for constants that a sweep overrides."""
    if sweep.overrides:
        raise InputError("sets beside each other need a sweep without overrides of its own")
    return {name: sweep.model_copy(update={"params": name}).run(threads) for name in PARAMETER_SETS}


def statements_table(columns: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Judge the statements of the paper for several lists of cells.

    Args:
        columns: cells by the column's name; each list has all cells of the sweep `validation`.

    Returns:
        One row for each statement: source, text, criterion, and for each column ``{"holds": ..., "measured": ...}``.

    Raises:
        InputError: if cells are missing.
    """
    try:
        judged = {name: judge(cells) for name, cells in columns.items()}
    except KeyError as error:
        raise InputError(f"the statements need all cells of the sweep validation; {error} is missing") from error
    rows = []
    for found in zip(*judged.values(), strict=True):
        row = {key: found[0][key] for key in ("source", "text", "criterion")}
        row |= {name: {key: one[key] for key in ("holds", "measured")} for name, one in zip(judged, found, strict=True)}
        rows.append(row)
    return rows


def read_packets(record: Path) -> list[dict[str, Any]]:
    """Return the packet cells of a record that ``ccenv ode statements -o`` wrote. Raises InputError for another file."""
    data = read_json(record)
    cells = data.get(PACKETS) if isinstance(data, dict) else None
    if not isinstance(cells, list) or not all(
        isinstance(cell, dict) and {"mix", "discipline", "buffer_bdp"} <= set(cell) for cell in cells
    ):
        raise InputError(f"{record} holds no packet cells under {PACKETS!r}")
    return cells


def published_distance(cells: Sequence[dict[str, Any]], published: Path, sweep_name: str) -> dict[str, Any]:
    """Compare cells with recorded numbers of the published simulator.

    Returns:
        cells, within (cells in all PUBLISHED_BANDS), beyond (their names), and the largest difference of each metric.

    Raises:
        InputError: for another file, or one without these cells.
    """
    data = read_json(published)
    try:
        rows = [row for row in data["cells"] if row["sweep"] == sweep_name]
        known = {(row["mix"], row["discipline"], float(row["buffer_bdp"])): row for row in rows}
        apart = [
            {name: abs(cell[name] - float(known[_key(cell)][name])) for name in (*PUBLISHED_BANDS, "utilisation_pct")}
            for cell in cells
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{published} lacks published numbers of the sweep {sweep_name!r}: {type(error).__name__} {error}"
        ) from error
    beyond = [
        "{}, {}, {:g} BDP".format(*_key(cell))
        for cell, off in zip(cells, apart, strict=True)
        if any(off[name] > band for name, band in PUBLISHED_BANDS.items())
    ]
    return {
        "cells": len(cells),
        "within": len(cells) - len(beyond),
        "beyond": beyond,
        "largest": {name: max(off[name] for off in apart) for name in apart[0]} if apart else {},
    }


def _key(cell: dict[str, Any]) -> tuple[str, str, float]:
    return cell["mix"], cell["discipline"], float(cell["buffer_bdp"])
