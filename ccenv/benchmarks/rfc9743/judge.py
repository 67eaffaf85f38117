"""Measures and verdicts of criteria from the cells of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccenv.benchmarks.rfc9743.criteria import TOPICS, Criteria, Criterion, Measure
from ccenv.benchmarks.suite.base import CellData, Quantity
from ccenv.benchmarks.suite.packet import PacketSuite
from ccenv.benchmarks.suite.references import compute_interval, compute_quantity, matches, select_cells

MEETS, FAILS, REPORTED, NOT_MEASURED = "meets", "does not meet", "reported", "not measured"


def judge_criteria(
    criteria: Criteria, suite: PacketSuite, records: list[CellData], sender: str, missing: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return each criterion with its numbers and verdict."""
    return [_criterion(criterion, criteria, suite, records, sender, missing) for criterion in criteria.criteria]


def _criterion(
    criterion: Criterion, criteria: Criteria, suite: PacketSuite, records: list[CellData], sender: str, missing: Mapping[str, str]
) -> dict[str, Any]:
    measures = [_measure(m, criteria, suite, records, sender, missing) for m in criterion.measures]
    description = {name: getattr(criterion, name) for name in ("id", "title", "source", "asks")}
    return {**description, "verdict": combine_verdicts([measure["verdict"] for measure in measures]), "measures": measures}


def combine_verdicts(verdicts: list[str]) -> str:
    """Return the verdict on a criterion: fails before not measured before meets; ``reported`` if no measure has a threshold."""
    for verdict in (FAILS, NOT_MEASURED, MEETS):
        if verdict in verdicts:
            return verdict
    return REPORTED


def _measure(
    measure: Measure, criteria: Criteria, suite: PacketSuite, records: list[CellData], sender: str, missing: Mapping[str, str]
) -> dict[str, Any]:
    quantity = measure.quantity.model_copy(update={"agent": sender})
    value = compute_quantity(records, quantity)
    baseline = compute_quantity(records, measure.quantity.model_copy(update={"agent": criteria.baseline}))
    low, high = bounds(measure, baseline)
    cells = select_cells(records, quantity)
    unit = suite.measure(measure.quantity.metric).unit if measure.unit is None else measure.unit
    judgement: dict[str, Any] = {
        "label": measure.label,
        "metric": _metric(measure.quantity),
        "aggregate": measure.quantity.aggregate,
        "topic": TOPICS[measure.topic],
        "unit": unit,
        "better": "neither" if measure.quantity.divided_by else suite.measure(measure.quantity.metric).direction,
        "value": value,
        "interval": None if value is None else compute_interval(records, quantity),
        "baseline": baseline,
        "scenario": measure.quantity.scenario,
        "where": measure.quantity.where,
        "seeds": sorted({cell["seed"] for cell in cells}),
        "n_cells": len(cells),
        "threshold": {"at_least": low, "at_most": high, "source": measure.source} if measure.bounded else None,
        "verdict": _verdict(measure, value, low, high) if cells else NOT_MEASURED,
    }
    if value is None:
        reasons = [why for case, why in missing.items() if matches(case, measure.quantity.scenario)]
        judgement["why"] = "no cell defines it" if cells or not reasons else reasons[0]
    return judgement


def bounds(measure: Measure, baseline: float | None) -> tuple[float | None, float | None]:
    """Return the thresholds in the measure's unit; a multiple of the baseline only if the baseline was measured."""
    if measure.at_most_baseline is None:
        return measure.at_least, measure.at_most
    return measure.at_least, None if baseline is None else measure.at_most_baseline * baseline


def _verdict(measure: Measure, value: float | None, low: float | None, high: float | None) -> str:
    if not measure.bounded:
        return REPORTED
    if value is None or (low is None and high is None):
        return NOT_MEASURED
    return MEETS if (low is None or value >= low) and (high is None or value <= high) else FAILS


def _metric(quantity: Quantity) -> str:
    return quantity.metric + (f" / {quantity.divided_by}" if quantity.divided_by else "")
