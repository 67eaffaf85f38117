"""Criteria as data: the questions of a document, the cells of a suite that answer them, and thresholds."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ccenv.attacks.scenes import PATHS
from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError, did_you_mean
from ccenv.base.foreign import read_yaml
from ccenv.benchmarks.run.runner import as_suite
from ccenv.benchmarks.suite.base import Finite, Name, Quantity, once
from ccenv.benchmarks.suite.packet import PacketSuite

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
        """Whether it has a threshold."""
        return any(bound is not None for bound in (self.at_least, self.at_most, self.at_most_baseline))


class Criterion(StrictModel):
    """What a document asks of a sender.

    Attributes:
        id: short name.
        source: section.
        asks: the question in one line.
        pictures: cases of the suite whose rates over time are drawn.
    """

    id: Name
    title: str
    source: str = Field(min_length=1)
    asks: str
    measures: tuple[Measure, ...] = Field(min_length=1)
    pictures: tuple[str, ...] = ()


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
    """The criteria of a document.

    Attributes:
        title: heading of the page.
        suite: a packet suite without senders: shipped name or YAML file.
        baseline: sender that plays the same cells, for comparison.
        proofs: questions to the solver, for senders that have an encoding.
        proof_limit_s: time of each solver call.
        criteria: in the order of the page.
    """

    format: Literal["ccenv-criteria"]
    format_version: Literal[1]
    name: Name
    title: str
    suite: str
    baseline: str
    worst_cases: tuple[WorstCase, ...] = ()
    proofs: tuple[Proof, ...] = ()
    proof_limit_s: float = Field(default=20.0, gt=0, le=3600)
    criteria: tuple[Criterion, ...] = Field(min_length=1)

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
