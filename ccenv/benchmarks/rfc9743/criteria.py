"""Criteria as data: questions of a document, cells of a suite that answer them, thresholds; verdicts from the cells of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ccenv.attacks.scenes import PATHS
from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError, did_you_mean
from ccenv.base.foreign import read_yaml
from ccenv.benchmarks.run.runner import as_suite
from ccenv.benchmarks.suite.base import CellData, Finite, Name, Quantity, once
from ccenv.benchmarks.suite.packet import PacketSuite
from ccenv.benchmarks.suite.references import compute_interval, compute_quantity, matches, select_cells

CONFIGS = "ccenv.configs.report"
TOPICS = {
    "throughput": "Throughput (RFC 5166 s.2.1)",
    "delay": "Delay (RFC 5166 s.2.1)",
    "loss": "Packet loss (RFC 5166 s.2.1)",
    "response": "Response to changes and oscillations (RFC 5166 s.2.2)",
    "fairness": "Fairness and convergence (RFC 5166 s.2.3)",
    "robustness": "Robustness in challenging environments (RFC 5166 s.2.4)",
}
"""Kinds of metrics of RFC 5166."""
Topic = Literal["throughput", "delay", "loss", "response", "fairness", "robustness"]
Samples = Annotated[int, Field(ge=1, le=64, strict=True)]


class Measure(StrictModel):
    """One number of a criterion.

    Attributes:
        quantity: a metric over cells of the suite.
        unit: overrides the metric's unit.
        topic: class of metric in RFC 5166.
        at_least, at_most: thresholds.
        at_most_baseline: threshold as a multiple of the baseline's value in the same cells.
        source: of the threshold; a measure without threshold is only reported.
    """

    quantity: Quantity
    label: str = Field(min_length=1)
    unit: str | None = None
    topic: Topic
    at_least: Finite | None = None
    at_most: Finite | None = None
    at_most_baseline: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    source: str = ""

    @model_validator(mode="after")
    def _with_source(self) -> Measure:
        if self.bounded != bool(self.source):
            raise ValueError(f"measure {self.label!r}: a threshold needs its source, and a source its threshold")
        return self

    @property
    def bounded(self) -> bool:
        return any(bound is not None for bound in (self.at_least, self.at_most, self.at_most_baseline))


class Criterion(StrictModel):
    """What a document asks of a sender."""

    id: Name  # short name
    title: str
    source: str = Field(min_length=1)  # section
    asks: str  # the question in one line
    measures: tuple[Measure, ...] = Field(min_length=1)
    pictures: tuple[str, ...] = ()  # cases of the suite whose rates over time are drawn


class WorstCase(StrictModel):
    """An attack on the legal networks of CCAC: an attack scenario of ``ccenv attack``, and the budget in flow-steps."""

    scene: str
    flow_steps: int = Field(ge=1, le=10**9, strict=True)

    @model_validator(mode="after")
    def _known(self) -> WorstCase:
        if self.scene not in PATHS:
            raise ValueError(f"unknown scene {self.scene!r}.{did_you_mean(self.scene, PATHS)}")
        return self


class Proof(StrictModel):
    """A question to the solver, as ``ccenv verify property`` takes it."""

    claim: str
    model: str = "ccac"
    buffer: str = "infinite"
    at_least: str | None = None
    samples: Samples = 7


class Criteria(StrictModel):
    """The criteria of a document."""

    format: Literal["ccenv-criteria"]
    format_version: Literal[1]
    name: Name
    title: str  # heading of the page
    suite: str  # a packet suite without senders: shipped name or YAML file
    baseline: str  # sender that plays the same cells, for comparison
    worst_cases: tuple[WorstCase, ...] = ()
    proofs: tuple[Proof, ...] = ()  # questions to the solver, for senders that have an encoding
    proof_limit_s: float = Field(default=20.0, gt=0, le=3600)  # time of each solver call
    criteria: tuple[Criterion, ...] = Field(min_length=1)  # in the order of the page

    @model_validator(mode="after")
    def _once(self) -> Criteria:
        once("criteria", [criterion.id for criterion in self.criteria])
        return self

    def only(self, names: tuple[str, ...]) -> Criteria:
        """Return some of the criteria. Raises InputError for an unknown one."""
        ids = [criterion.id for criterion in self.criteria]
        for name in names:
            if name not in ids:
                raise InputError(f"unknown criterion {name!r}.{did_you_mean(name, ids)} Known: {', '.join(ids)}")
        kept = tuple(criterion for criterion in self.criteria if criterion.id in names)
        return self.model_copy(update={"criteria": kept}) if names else self


def load_criteria(name: str) -> tuple[Criteria, PacketSuite]:
    """Load shipped criteria or a YAML file, and their suite, which may be a path from the file's folder.

    Raises:
        InputError: one line with the key, the value seen and what is allowed; for measures that the suite does not have.
        UnknownNameError: with the nearest names.
    """
    file = find_data(CONFIGS, name, ".yaml", "criteria")
    criteria = validate(Criteria, read_yaml(file), FilePath(file).name)
    suite_file = FilePath(file).parent / criteria.suite
    suite = as_suite(str(suite_file) if criteria.suite.endswith((".yaml", ".yml")) else criteria.suite)
    if not isinstance(suite, PacketSuite) or suite.agents:
        raise InputError(f"{name}: suite {criteria.suite!r} must be one of the packet engine that names no agents")
    cases = {case.name for case in suite.cases}
    families = {scenario.name for scenario in suite.scenarios}
    for criterion in criteria.criteria:
        for measure in criterion.measures:
            quantity = measure.quantity
            for metric in (quantity.metric, quantity.divided_by):
                if metric is not None and metric not in suite.metrics:
                    raise InputError(
                        f"{name}: {criterion.id}: {metric!r} is no metric of the suite.{did_you_mean(metric, suite.metrics)}"
                    )
            if not isinstance(quantity.scenario, str) or not {quantity.scenario, quantity.scenario.partition("[")[0]} & (
                cases | families
            ):
                raise InputError(
                    f"{name}: {criterion.id}: scenario {quantity.scenario!r} is none of the suite: {', '.join(families)}"
                )
        for picture in criterion.pictures:
            if picture not in cases:
                raise InputError(
                    f"{name}: {criterion.id}: picture {picture!r} is no case of the suite.{did_you_mean(picture, cases)}"
                )
    return criteria, suite


MEETS, FAILS, REPORTED, NOT_MEASURED = "meets", "does not meet", "reported", "not measured"


def judge_criteria(
    criteria: Criteria, suite: PacketSuite, records: list[CellData], sender: str, missing: Mapping[str, str]
) -> list[dict[str, Any]]:
    judged = []
    for criterion in criteria.criteria:
        measures = [_measure(m, criteria, suite, records, sender, missing) for m in criterion.measures]
        description = {name: getattr(criterion, name) for name in ("id", "title", "source", "asks")}
        verdict = combine_verdicts([measure["verdict"] for measure in measures])
        judged.append({**description, "verdict": verdict, "measures": measures})
    return judged


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
        "metric": measure.quantity.metric + (f" / {measure.quantity.divided_by}" if measure.quantity.divided_by else ""),
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
