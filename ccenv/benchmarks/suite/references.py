"""Quantities over the cells of a run, and their agreement with published values."""

from __future__ import annotations

import math
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np

from ccenv.base.files import canonical_json
from ccenv.benchmarks.statistics import bootstrap, interquartile_mean
from ccenv.benchmarks.suite.base import CellData, Quantity, Reference, SuiteBase
from ccenv.network.metrics import measures

REPRODUCED, SAME_DIRECTION, NOT_REPRODUCED, NOT_MEASURED = "reproduced", "same direction", "not reproduced", "not measured"


def select_cells(records: list[CellData], quantity: Any) -> list[CellData]:
    """Return the records that match the scenario pattern, agent, adversary and parameters of a quantity or figure."""
    out = []
    for record in records:
        agent, adversary = getattr(quantity, "agent", None), getattr(quantity, "adversary", None)
        if not matches(record["scenario"], quantity.scenario):
            continue
        if (agent is not None and record["agent"] != agent) or (adversary is not None and record["adversary"] != adversary):
            continue
        if all(_meets_condition(parameter(record, name), condition) for name, condition in quantity.where.items()):
            out.append(record)
    return out


def matches(scenario: str, pattern: str | tuple[str, ...] | None) -> bool:
    """Tell whether a case matches a pattern, or any of several: the name of a scenario or case, with ``*`` allowed."""
    if pattern is None or isinstance(pattern, tuple):
        return pattern is None or any(matches(scenario, one) for one in pattern)
    return scenario == pattern or scenario.partition("[")[0] == pattern or fnmatchcase(scenario, pattern.replace("[", "[[]"))


def parameter(record: CellData, name: str) -> Any:
    """Return a record's parameter, or its agent, scenario, case, adversary or seed; None if it has none of this name."""
    if name in ("agent", "adversary", "seed"):
        return record[name]
    if name == "scenario":
        return record["scenario"].partition("[")[0]
    if name == "case":
        return record["scenario"].partition("[")[2].removesuffix("]") or record["scenario"]
    return record.get("parameters", {}).get(name)


def _meets_condition(value: Any, condition: Any) -> bool:
    if isinstance(condition, dict):
        return value is not None and condition.get("low", -math.inf) <= value <= condition.get("high", math.inf)
    return value in condition if isinstance(condition, list) else value == condition


def compute_quantity(records: list[CellData], quantity: Quantity) -> float | None:
    """Return a quantity of a run; None if no cell defines it."""
    cells = [(record, value) for record in select_cells(records, quantity) if (value := _value(record, quantity)) is not None]
    if not cells:
        return None
    values = np.array([value for _, value in cells], dtype=np.float64)
    if quantity.aggregate == "slope":
        result = measures.slope([parameter(record, quantity.over or "") for record, _ in cells], list(values))
    elif quantity.aggregate == "delta_sensitivity":  # a set of delays is measured once: a seed each
        result = float(np.mean([measures.delta_sensitivity(group) for group in _groups(cells, lambda record: record["seed"])]))
    elif quantity.aggregate == "range":
        result = max(float(np.ptp(group)) for group in _groups(cells, partial(_all_but, over=quantity.over or "")))
    else:
        result = float(_statistic(quantity)(values))
    return result if math.isfinite(result) else None


def _groups(cells: list[tuple[CellData, float]], key: Callable[[CellData], Any]) -> list[list[float]]:
    """Return the values of cells whose records have the same key, a list per key."""
    groups: dict[Any, list[float]] = {}
    for record, value in cells:
        groups.setdefault(key(record), []).append(value)
    return list(groups.values())


def _all_but(record: CellData, over: str) -> str:
    """Return what a cell is, less one parameter."""
    names = ("scenario", "agent", "adversary", "seed", *sorted(record.get("parameters", {})))
    return canonical_json({name: parameter(record, name) for name in names if name != over})


def _statistic(quantity: Quantity) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function of an aggregate that needs values alone, over their last axis."""
    return interquartile_mean if quantity.aggregate == "iqm" else partial(getattr(np, quantity.aggregate), axis=-1)


def _value(record: CellData, quantity: Quantity) -> float | None:
    value = record["metrics"].get(quantity.metric)
    if quantity.divided_by is None or value is None:
        return None if value is None else float(value)
    other = record["metrics"].get(quantity.divided_by)
    return float(value) / other if other else None


def compute_interval(records: list[CellData], quantity: Quantity) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the quantity's aggregate, stratified by case; None where no case has two runs."""
    tasks: dict[str, list[float]] = {}
    for record in select_cells(records, quantity):
        value = _value(record, quantity)
        if value is not None:
            tasks.setdefault(record["scenario"], []).append(value)
    if max(map(len, tasks.values()), default=0) < 2 or quantity.aggregate in ("slope", "range", "delta_sensitivity", "std"):
        return None
    return bootstrap(list(tasks.values()), _statistic(quantity))


def check(records: list[CellData], reference: Reference) -> dict[str, Any]:
    """Compare a published value with ours.

    The keys are ``name``, ``source``, ``metric``, ``aggregate``, ``claim`` (in words), ``published`` (a number or None for a
    comparison of two of our own), ``measured``, ``ratio``, ``interval``, ``n_cells``, ``agreement``, ``why``, ``shown_by`` and
    ``cause``: a list of ``change``, ``measured`` and ``agreement``, empty where the value is reproduced.
    """
    measured = compute_quantity(records, reference)
    other = next((q for q in (reference.above, reference.below) if q is not None), None)
    published = compute_quantity(records, other) if other else reference.published
    claim, agreement = _verdict(reference, measured, published)
    ratio = measured / published if measured is not None and published else None
    return {
        "name": reference.name or f"{reference.aggregate} of {reference.metric}",
        "source": reference.source,
        "metric": reference.metric,
        "aggregate": reference.aggregate,
        "claim": claim,
        "published": published,
        "measured": measured,
        "ratio": ratio,
        "interval": compute_interval(records, reference) if measured is not None else None,
        "n_cells": len(select_cells(records, reference)),
        "agreement": agreement,
        **explain(reference, measured, published, agreement),
    }


SWITCHED, OPEN = "a switch that moves it to the published value", "settings that the source leaves open, on both sides of it"


def explain(reference: Reference, measured: float | None, published: float | None, agreement: str) -> dict[str, Any]:
    """Return why a value differs: in words, how the changes show it ("" where they do not), and the changes."""
    if agreement in (REPRODUCED, NOT_MEASURED) or measured is None or published is None:
        return {"why": "", "shown_by": "", "cause": []}
    cause: list[dict[str, Any]] = []
    for one in reference.cause:
        against = published if one.published is None else one.published
        cause.append({"change": one.change, "measured": one.measured, "agreement": _verdict(reference, one.measured, against)[1]})
    values = [measured, *(one["measured"] for one in cause)]
    switched = any(one["agreement"] == REPRODUCED for one in cause)
    shown_by = SWITCHED if switched else OPEN if min(values) <= published <= max(values) else ""
    return {"why": reference.why, "shown_by": shown_by, "cause": cause}


def _verdict(reference: Reference, measured: float | None, published: float | None) -> tuple[str, str]:
    if published is None or measured is None:
        return "", NOT_MEASURED
    if reference.value is not None or reference.theory is not None:
        claim = f"{published:g} within a factor of {reference.tolerance:g}"
        near = measured == published or (
            measured * published > 0 and max(measured / published, published / measured) <= reference.tolerance
        )
        if near:
            return claim, REPRODUCED
        neutral = reference.neutral
        same = neutral is not None and (measured - neutral) * (published - neutral) > 0
        return claim, SAME_DIRECTION if same else NOT_REPRODUCED
    if reference.at_least is not None or reference.above is not None:
        word = "at least" if reference.at_least is not None else "above our own"
        holds = measured >= published if reference.at_least is not None else measured > published
    else:
        word = "at most" if reference.at_most is not None else "below our own"
        holds = measured <= published if reference.at_most is not None else measured < published
    return f"{word} {published:.4g}", REPRODUCED if holds else NOT_REPRODUCED


def check_all(suite: SuiteBase, records: list[CellData]) -> list[dict[str, Any]]:
    return [check(records, reference) for reference in suite.references]


def compute_table(suite: SuiteBase, records: list[CellData]) -> dict[str, dict[str, float | None]]:
    """Return the numbers of the suite's table by sender, in the order of the records; None where no cell has one."""
    table: dict[str, dict[str, float | None]] = {}
    for agent in dict.fromkeys(record["agent"] for record in records) if suite.table else ():
        agent_records = [record for record in records if record["agent"] == agent]
        table[agent] = {name: compute_quantity(agent_records, quantity) for name, quantity in suite.table.items()}
    return table
