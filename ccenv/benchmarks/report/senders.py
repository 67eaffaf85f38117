"""Senders over the suites of varying links: a record of their means, and its tables on a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.benchmarks.run.store import cells_of, read_manifest
from ccenv.document import json_bytes
from ccenv.files import write_atomic
from ccenv.foreign import read_json
from ccenv.page_tables import Place, markdown

PLACE = Place("<!-- table of the record: ccenv.benchmarks.report.senders.write_tables -->")
BESIDE = "beside"  # scenarios with another sender
OWN = "[own]"
DIGITS = 3
# Column -> metric, factor, whether of scenarios with another sender.
COLUMNS = {
    "utilisation": ("utilisation", 1.0, False),
    "p50 delay (ms)": (f"queueing_delay_p50_s{OWN}", 1e3, False),
    "p95": (f"queueing_delay_p95_s{OWN}", 1e3, False),
    "p99": (f"queueing_delay_p99_s{OWN}", 1e3, False),
    "loss (%)": (f"loss_fraction{OWN}", 1e2, False),
    "power": ("power", 1.0, False),
    "beside CUBIC (Mbit/s)": (f"throughput_mbps{OWN}", 1.0, True),
}


def recorded(folders: Sequence[FilePath]) -> dict[str, Any]:
    """Return the means of each sender over the cells of finished runs of suites, best power first.

    Args:
        folders: of ``ccenv bench run SUITE -o FOLDER``, one per suite.

    Raises:
        InputError: for a folder without such a run.
    """
    suites = {}
    for folder in folders:
        cells, manifest = cells_of(folder), read_manifest(folder)
        by_agent: dict[str, list[dict[str, Any]]] = {}
        for cell in cells:
            by_agent.setdefault(cell["agent"], []).append(cell)
        senders = {agent: _means(own) for agent, own in by_agent.items()}
        ranked = sorted(senders.items(), key=lambda item: -(item[1]["power"] or 0.0))
        suites[manifest["suite"]["name"]] = {
            "suite_sha256": manifest["suite_sha256"],
            "code_sha256": manifest["code_sha256"],
            "cells": len(cells),
            "senders": dict(ranked),
        }
    return {"suites": suites}


def _means(cells: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for column, (metric, factor, beside) in COLUMNS.items():
        values = [cell["metrics"][metric] for cell in cells if cell["scenario"].startswith(BESIDE) == beside]
        known = [value for value in values if value is not None]
        found[column] = float(f"{factor * sum(known) / len(known):.{DIGITS}g}") if known else None
    return found


def tables(record: dict[str, Any]) -> str:
    """Return a record as tables in Markdown, one per suite and a row per sender."""
    out = []
    for suite, found in record["suites"].items():
        rows = [
            {suite: f"`{sender}`", **{name: "-" if value is None else f"{value:g}" for name, value in means.items()}}
            for sender, means in found["senders"].items()
        ]
        out.append(markdown(rows))
    return "\n\n".join(out)


def write_record(folders: Sequence[FilePath], file: FilePath) -> None:
    """Write the record of finished runs. Raises InputError as :func:`recorded`."""
    write_atomic(file, json_bytes(recorded(folders)))


def write_tables(file: FilePath, page: FilePath) -> None:
    """Write the tables of a record into a page. Raises InputError if one of them cannot be read, or the page has no place."""
    PLACE.write(page, tables(read_json(file)))
