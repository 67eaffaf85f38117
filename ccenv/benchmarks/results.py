"""Results of a suite: manifest and records with ``to_frame``, commands that rerun them, Parquet files, a summary per sender."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from pydantic import Field

from ccenv.attacks.goals import goal_of
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import CcenvError, InputError, require_extra
from ccenv.base.results import TableResult
from ccenv.benchmarks.statistics import estimate
from ccenv.benchmarks.suite.base import CellData, SuiteBase
from ccenv.benchmarks.suite.curve import validate_suite
from ccenv.network.metrics.table import METRICS, Direction, Metric, add_metric, own_metric, run_metric, trace_metric
from ccenv.network.metrics.user import OwnMetric

USER_METRICS = "own_metrics"
ASKED = "asked"
"""Key of a manifest: suite, adversaries and metrics as the user named them."""
RUNS = FilePath("runs") / "bench"
"""Where results of suites go by default."""


class UserMetricDescription(StrictModel):
    """A manifest's description of a user's metric, so that results can be read without its code."""

    name: str = Field(pattern=r"^[A-Za-z_]\w{0,63}$")
    label: str = Field(max_length=80)
    unit: str = Field(max_length=20)
    direction: Direction
    meaning: str = Field(max_length=300)
    spec: str = Field(max_length=400)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(TableResult, dict[str, Any]):
    """The manifest of a run: what was played, by which code, and the summary of each sender."""

    row_name = "sender"

    def _rows(self) -> list[dict[str, Any]]:
        return [{"sender": entry["agent"], **self._row(entry)} for entry in self["summary"]]

    def _row(self, entry: dict[str, Any]) -> dict[str, Any]:
        score, worst = entry["score"] or {}, entry["worst_case"] or {}
        row = {"score": score.get("iqm"), "score_low": score.get("low"), "score_high": score.get("high")}
        row |= {f"{name}, {player}": value for player, means in entry["against"].items() for name, value in means.items()}
        return row | {"worst": worst.get("value"), "worst_in": worst.get("scenario"), "cells": entry["n_cells"]}

    def __repr__(self) -> str:
        suite = self["suite"]
        return (
            f"Manifest(suite {suite['name']} version {suite['version']}, {len(self['summary'])} senders, {self['n_cells']} cells)"
        )


class Records(TableResult, list[dict[str, Any]]):
    """Records of cells, in the order of the suite."""

    shown = 20

    def _rows(self) -> list[dict[str, Any]]:
        names = ("scenario", "agent", "adversary", "seed", "model")
        return [{**{n: record[n] for n in names}, **record["metrics"]} for record in self]

    def __repr__(self) -> str:
        senders = ", ".join(dict.fromkeys(str(record["agent"]) for record in self))
        return f"Records({len(self)} cells of {senders or 'nobody'})"


def describe_user_metrics(metrics: Sequence[OwnMetric]) -> dict[str, Any]:
    """Return the manifest entry that describes a user's metrics; empty without any."""
    descriptions = []
    for user_metric in metrics:
        metric = _find_metric(user_metric.name)
        texts = {
            "label": metric.label[:80],
            "unit": metric.unit[:20],
            "direction": metric.direction,
            "meaning": metric.meaning[:300],
        }
        descriptions.append({"name": user_metric.name, **texts, "spec": user_metric.spec, "sha256": user_metric.sha256})
    return {USER_METRICS: descriptions} if descriptions else {}


def _find_metric(name: str) -> Metric:
    try:
        return trace_metric(name)
    except InputError:
        return run_metric(name)


def read_suite(manifest: dict[str, Any], where: str) -> SuiteBase:
    """Return the suite of a manifest, without running the user's code that it describes. Raises InputError."""
    for data in manifest.get(USER_METRICS, ()):
        description = validate(UserMetricDescription, data, f"{where}: {USER_METRICS}")
        if description.name not in METRICS and not own_metric(description.name):
            texts = (description.label, description.unit, description.direction, description.meaning)
            add_metric(Metric(description.name, *texts), description.sha256)
    return validate_suite(manifest["suite"], where)


def commands_to_rerun(suite: SuiteBase, manifest: dict[str, Any], folder: FilePath) -> list[str]:
    """Return the commands that run a suite again and write its report."""
    request = manifest.get(ASKED, {})
    words = ["ccenv", "bench", "run", str(request.get("suite", suite.name))]
    words += [word for agent in manifest["agents"] if agent["spec"] not in suite.agents for word in ("--agent", agent["spec"])]
    for option in ("adversary", "metric"):
        words += [word for spec in request.get(option, ()) for word in (f"--{option}", str(spec))]
    words += ["--out", str(folder)] if folder != RUNS / suite.name else []
    return [shlex.join(words), f"ccenv bench report {shlex.quote(str(folder))}"]


PARQUET = "cells.parquet"
_PLAIN = ("key", "scenario", "agent", "adversary", "seed", "engine_seed", "model", "code_sha256", "agent_sha256")


def make_columns(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of a table of cells.

    These are what each cell was; ``parameter.NAME`` and ``metric.NAME``, None where a cell has none; ``path``, ``series`` and
    ``preconditions`` as JSON text.
    """
    columns: dict[str, list[Any]] = {name: [record[name] for record in records] for name in _PLAIN}
    for prefix, part in (("parameter.", "parameters"), ("metric.", "metrics")):
        names = dict.fromkeys(name for record in records for name in record.get(part, {}))
        for name in names:
            column = [record.get(part, {}).get(name) for record in records]
            types = {type(value) for value in column if value is not None}
            if str in types and len(types) > 1:
                column = [None if value is None else str(value) for value in column]
            elif types <= {int, float}:
                column = [None if value is None else float(value) for value in column]
            columns[prefix + name] = column
    for part in ("path", "series", "preconditions"):
        columns[part] = [json.dumps(record[part], sort_keys=True) if part in record else None for record in records]
    return columns


def write_parquet(records: list[dict[str, Any]], file: FilePath) -> None:
    """Write cells atomically as Parquet; equal cells make equal bytes. Raises CcenvError; MissingExtraError without pyarrow."""
    require_extra("pyarrow", "bench")
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({name: pyarrow.array(column) for name, column in make_columns(records).items()})
    part = file.with_name(file.name + f".{os.getpid()}.part")
    try:
        parquet.write_table(table, part, compression="zstd")
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CcenvError(f"{file}: cannot be written ({error.strerror})") from None


def summarise(
    suite: SuiteBase, records: list[CellData], intervals: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Summarise the records of a suite, one entry per sender, best nominal score first; ``intervals`` replaces that of the score.

    Entries have ``agent``, ``agent_sha256``, ``n_cells``, ``score`` (or None without nominal cells), ``against`` (adversary ->
    metric -> mean over its cells, None where it is undefined in all) and ``worst_case``; where adversaries have several goals
    also ``worst_by_goal`` (goal -> as ``worst_case``, over the scenarios of that goal).
    """
    entries = []
    for agent in dict.fromkeys(record["agent"] for record in records):
        agent_records = [record for record in records if record["agent"] == agent]
        entries.append(
            {
                "agent": agent,
                "agent_sha256": agent_records[0]["agent_sha256"],
                "n_cells": len(agent_records),
                "score": _score(suite, agent_records, intervals.get(agent)),
                "against": {
                    opponent: {
                        name: mean_defined(r["metrics"].get(name) for r in agent_records if r["adversary"] == opponent)
                        for name in suite.metrics
                    }
                    for opponent in suite.opponents
                },
                "worst_case": _worst(suite.measure(suite.worst_case.metric), agent_records),
                **_by_goal(suite, agent_records),
            }
        )
    sign = suite.measure(suite.score.metric).sign
    return sorted(entries, key=lambda e: (e["score"] is None, -sign * e["score"]["iqm"] if e["score"] else 0.0, e["agent"]))


def equal_seeds(records: Iterable[CellData]) -> list[str]:
    """Return scenario and sender, ``deep/reno``, where several seeds give one result: nothing is random there."""
    seen: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        seen.setdefault(f"{record['scenario']}/{record['agent']}/{record['adversary']}", []).append(record["metrics"])
    same = (name for name, runs in seen.items() if len(runs) > 1 and all(run == runs[0] for run in runs))
    return list(dict.fromkeys(name.rpartition("/")[0] for name in same))


def _score(suite: SuiteBase, agent_records: list[CellData], interval: Mapping[str, Any] | None) -> dict[str, Any] | None:
    tasks: dict[str, list[float]] = {}
    for record in agent_records:
        value = record["metrics"].get(suite.score.metric)
        if record["adversary"] == suite.score.adversary and value is not None:
            tasks.setdefault(record["scenario"], []).append(value)
    if not tasks:
        return None
    score = asdict(estimate(list(tasks.values())))
    if interval is not None and interval["beside"] is None:
        score |= {name: interval[name] for name in ("iqm", "low", "high")}
    return {"metric": suite.score.metric, "adversary": suite.score.adversary, **score}


def mean_defined(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without any."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def _by_goal(suite: SuiteBase, records: list[CellData]) -> dict[str, Any]:
    cases: dict[str, set[str]] = {}
    for case, goal in suite.goals.items():
        cases.setdefault(goal, set()).add(case)
    worst_cases = {
        goal: _worst(suite.measure(goal_of(goal).metric), [record for record in records if record["scenario"] in names])
        for goal, names in cases.items()
    }
    return {"worst_by_goal": worst_cases} if worst_cases else {}


def _worst(metric: Metric, records: list[CellData]) -> dict[str, Any] | None:
    worst: CellData | None = None
    for record in records:
        value = record["metrics"].get(metric.name)
        if value is not None and (worst is None or metric.worse(value, worst["metrics"][metric.name])):
            worst = record
    if worst is None:
        return None
    identity = {name: worst[name] for name in ("scenario", "adversary", "seed", "key")}
    return {"metric": metric.name, "value": worst["metrics"][metric.name], **identity}
