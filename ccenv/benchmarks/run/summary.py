"""The summary of a run per sender: nominal score with interval, metrics per adversary, and the worst case with its adversary."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ccenv.attacks.goals import goal_of
from ccenv.benchmarks.statistics import estimate
from ccenv.benchmarks.suite.base import CellData, SuiteBase
from ccenv.network.metrics.table import Metric


def summarise(suite: SuiteBase, records: list[CellData]) -> list[dict[str, Any]]:
    """Summarise the records of a suite, one entry per sender, best nominal score first.

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
                "score": _score(suite, agent_records),
                "against": {name: _means(suite, agent_records, name) for name in suite.opponents},
                "worst_case": _worst(suite.measure(suite.worst_case.metric), agent_records),
                **_by_goal(suite, agent_records),
            }
        )
    sign = suite.measure(suite.score.metric).sign
    return sorted(entries, key=lambda e: (e["score"] is None, -sign * e["score"]["iqm"] if e["score"] else 0.0, e["agent"]))


def _score(suite: SuiteBase, agent_records: list[CellData]) -> dict[str, Any] | None:
    tasks: dict[str, list[float]] = {}
    for record in agent_records:
        value = record["metrics"].get(suite.score.metric)
        if record["adversary"] == suite.score.adversary and value is not None:
            tasks.setdefault(record["scenario"], []).append(value)
    if not tasks:
        return None
    return {"metric": suite.score.metric, "adversary": suite.score.adversary, **asdict(estimate(list(tasks.values())))}


def _means(suite: SuiteBase, records: list[CellData], adversary: str) -> dict[str, float | None]:
    metrics = [record["metrics"] for record in records if record["adversary"] == adversary]
    return {name: _mean([values.get(name) for values in metrics]) for name in suite.metrics}


def _mean(values: list[float | None]) -> float | None:
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
