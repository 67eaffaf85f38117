"""Means of senders over the suites of varying links and of transfers, as a record and as tables on a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path as FilePath
from statistics import fmean, geometric_mean
from typing import Any, NamedTuple

from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.foreign import read_json
from ccenv.base.pages import Place, markdown
from ccenv.benchmarks.store import load_cells, read_manifest

PLACE = Place("<!-- table of the record: ccenv.benchmarks.report.senders.write_tables -->")
BESIDE = "beside*"  # scenarios with another sender
OWN = "[own]"
DIGITS = 3


class Column(NamedTuple):
    """A column: the mean of a metric over the cells of some scenarios, times a factor.

    Attributes:
        factor: to the unit of the column.
        scenario: pattern of the scenarios that count.
        left_out: pattern of scenarios to exclude from them.
        whole: undefined if any of the cells is.
        ratio: use the geometric mean.
    """

    metric: str
    factor: float = 1.0
    scenario: str = "*"
    left_out: str = ""
    whole: bool = False
    ratio: bool = False


LINKS = {
    "utilisation": Column("utilisation", left_out=BESIDE),
    "p50 delay (ms)": Column(f"queueing_delay_p50_s{OWN}", 1e3, left_out=BESIDE),
    "p95": Column(f"queueing_delay_p95_s{OWN}", 1e3, left_out=BESIDE),
    "p99": Column(f"queueing_delay_p99_s{OWN}", 1e3, left_out=BESIDE),
    "loss (%)": Column(f"loss_fraction{OWN}", 1e2, left_out=BESIDE),
    "power": Column("power", left_out=BESIDE),
    "beside CUBIC (Mbit/s)": Column(f"throughput_mbps{OWN}", scenario=BESIDE),
}
TRANSFERS = {
    "p50": Column("fct_slowdown_p50", whole=True, ratio=True),
    "web search p50": Column("fct_slowdown_p50", scenario="web-search*", whole=True, ratio=True),
    "web search p99": Column("fct_slowdown_p99", scenario="web-search*", whole=True, ratio=True),
    "Hadoop p50": Column("fct_slowdown_p50", scenario="hadoop*", whole=True, ratio=True),
    "Hadoop p99": Column("fct_slowdown_p99", scenario="hadoop*", whole=True, ratio=True),
    "short p50": Column("fct_slowdown_p50", scenario="short", whole=True, ratio=True),
    "short p99": Column("fct_slowdown_p99", scenario="short", whole=True, ratio=True),
    "incast p50": Column("fct_slowdown_p50", scenario="incast*", whole=True, ratio=True),
    "incast p99": Column("fct_slowdown_p99", scenario="incast*", whole=True, ratio=True),
    "done (%)": Column("fct_done_share", 1e2),
}


def summarise_runs(folders: Sequence[FilePath]) -> dict[str, Any]:
    """Return the means of each sender over finished runs, one folder per suite; highest power or least median slowdown first.

    Raises:
        InputError: for a folder without such a run.
    """
    suites = {}
    for folder in folders:
        cells, manifest = load_cells(folder), read_manifest(folder)
        by_agent: dict[str, list[dict[str, Any]]] = {}
        for cell in cells:
            by_agent.setdefault(cell["agent"], []).append(cell)
        columns = select_columns(manifest["suite"]["name"])
        senders = {agent: _means(agent_cells, columns) for agent, agent_cells in by_agent.items()}
        ranked = sorted(senders.items(), key=lambda item: _rank(item[1]))
        suites[manifest["suite"]["name"]] = {
            "suite_sha256": manifest["suite_sha256"],
            "code_sha256": manifest["code_sha256"],
            "cells": len(cells),
            "senders": dict(ranked),
        }
    return {"suites": suites}


def select_columns(suite: str) -> dict[str, Column]:
    """Return the columns of a suite's table by their names."""
    return TRANSFERS if suite.startswith("fct-") else LINKS


def _rank(means: dict[str, float | None]) -> float:
    if "power" in means:
        return -(means["power"] or 0.0)
    return math.inf if means["p50"] is None else means["p50"]


def _means(cells: Sequence[dict[str, Any]], columns: dict[str, Column]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for name, column in columns.items():
        chosen = [cell for cell in cells if fnmatchcase(cell["scenario"], column.scenario)]
        values = [cell["metrics"][column.metric] for cell in chosen if not fnmatchcase(cell["scenario"], column.left_out)]
        defined = [value for value in values if value is not None]
        counts = defined and (len(defined) == len(values) or not column.whole)
        mean = geometric_mean if column.ratio else fmean
        means[name] = float(f"{column.factor * mean(defined):.{DIGITS}g}") if counts else None
    return means


def tables(record: dict[str, Any]) -> str:
    """Return a record as tables in Markdown, one per suite and a row per sender."""
    out = []
    for suite, suite_record in record["suites"].items():
        rows = [
            {suite: f"`{sender}`", **{name: "-" if value is None else f"{value:g}" for name, value in means.items()}}
            for sender, means in suite_record["senders"].items()
        ]
        out.append(markdown(rows))
    return "\n\n".join(out)


def write_record(folders: Sequence[FilePath], file: FilePath) -> None:
    """Write the record of finished runs. Raises InputError as :func:`summarise_runs`."""
    write_atomic(file, json_bytes(summarise_runs(folders)))


def write_tables(file: FilePath, page: FilePath) -> None:
    """Write the tables of a record into a page. Raises InputError if a file cannot be read or the page lacks the marker."""
    PLACE.write(page, tables(read_json(file)))
