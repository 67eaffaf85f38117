"""The common part of all suites: names, versions, seeds, scores, published values and figures."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ccenv.base.config import StrictModel
from ccenv.base.errors import InputError, did_you_mean, shown
from ccenv.base.files import hash_value
from ccenv.network.metrics.table import Direction, Metric

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
MAX_SEED = 2**31
MOST_CASES = 2_000

CellData = dict[str, Any]
"""The record of a finished cell, as JSON has it."""

Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Aggregate = Literal["mean", "median", "iqm", "min", "max", "std", "sum", "delta_sensitivity", "slope", "range"]


class Quantity(StrictModel):
    """An aggregate of a metric over the matching cells of a run.

    Attributes:
        metric: one of the suite's.
        aggregate: ``slope`` is the least-squares slope over the parameter ``over``; ``range`` the largest difference between
            cells that differ in nothing else; ``delta_sensitivity`` log2(max/min) of a seed's cells, the mean over the seeds.
        over: for ``slope`` and ``range``: a parameter.
        divided_by: another metric; each cell then counts with the ratio of the two.
        scenario: pattern with ``*``, or a list of them; None: all.
        agent, adversary: None: all.
        where: parameter -> value, list of values, or {low, high}.
    """

    metric: str
    aggregate: Aggregate = "mean"
    over: str | None = None
    divided_by: str | None = None
    scenario: str | tuple[str, ...] | None = None
    agent: str | None = None
    adversary: str | None = None
    where: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _slope_over(self) -> Quantity:
        if (self.aggregate in ("slope", "range")) != (self.over is not None):
            raise ValueError("'over' names the parameter of aggregates 'slope' and 'range', and only of them")
        return self


class Switch(StrictModel):
    """The same cells measured again with something changed (``docs/tables/causes.py`` repeats it).

    Attributes:
        change: path in the suite's file, or in the reference after ``reference/``, -> value.
        measured: the quantity then.
        published: what it is then compared with, where that is a quantity of the run too.
    """

    change: dict[str, Any] = Field(min_length=1)
    measured: Finite
    published: Finite | None = None


class Reference(Quantity):
    """A published value or statement to compare with; exactly one of value, theory, at_least, at_most, above and below is set.

    Attributes:
        name: the statement in words.
        value: number that the source reports.
        theory: prediction of the source: a ``function`` of ``ccenv.benchmarks.suite.theory``, its arguments, and a
            factor ``times``.
        at_least, at_most: bound that the source claims.
        above, below: quantity of the same run that this one must exceed, or stay below.
        tolerance: a value counts as reproduced if ours is within this factor of it.
        neutral: value of no effect; a value on the same side of it as the source, but outside the tolerance, is "same direction".
        source: paper, section, figure or table.
        why: the cause of a difference.
        cause: the changes that show it.
    """

    name: str = ""
    value: Finite | None = None
    theory: dict[str, Any] | None = None
    at_least: Finite | None = None
    at_most: Finite | None = None
    above: Quantity | None = None
    below: Quantity | None = None
    tolerance: float = Field(default=1.5, ge=1, allow_inf_nan=False)
    neutral: Finite | None = None
    source: str = Field(min_length=1)
    why: str = ""
    cause: tuple[Switch, ...] = ()

    @model_validator(mode="after")
    def _one_claim(self) -> Reference:
        claims = [n for n in ("value", "theory", "at_least", "at_most", "above", "below") if getattr(self, n) is not None]
        if len(claims) != 1:
            listed = " and ".join(claims) or "none"
            raise ValueError(f"one of value, theory, at_least, at_most, above and below is needed, not {listed}")
        return self

    @property
    def published(self) -> float | None:
        """The published or predicted number; None for a comparison within the run."""
        if self.theory is not None:
            from ccenv.benchmarks.suite.theory import evaluate

            value = evaluate(str(self.theory.get("function")), self.theory)
            return None if value is None else value * float(self.theory.get("times", 1.0))
        return next((v for v in (self.value, self.at_least, self.at_most) if v is not None), None)

    @property
    def quantities(self) -> list[Quantity]:
        """This quantity and the one that it is compared with."""
        return [self, *(q for q in (self.above, self.below) if q is not None)]


class Figure(StrictModel):
    """A figure of the report.

    Attributes:
        name: of its files.
        kind: ``lines`` (metric over x, a line per ``by``, a panel per ``panels``), ``bars`` (a bar per case and ``by``),
            ``heatmap`` (metric over x and y, a panel per ``panels``), ``delta_map`` (delta-sensitivity of the metric over all
            cells whose x and y lie between d_min and d_max: [Delta] figure 4), ``series`` (rates over time, a panel per case),
            ``ecdf`` (share of the cells whose metric is at most so much, a line per ``by``), ``slowdowns``
            (distribution of the slowdown of transfers that come and go, a line per sender).
        metric: of the vertical axis or colour.
        metrics: further lines or bars, instead of one metric.
        divided_by: another metric; the ratio is shown.
        aggregate: how cells of one point are put together.
        scenario: pattern; None: all.
        x, y, by, panels: parameters, or ``agent``, ``scenario``, ``adversary``.
        where: as in ``Quantity``.
        theory: name in ``ccenv.benchmarks.suite.theory`` and its constants: drawn under the points, over x.
        log_x, log_y: logarithmic axes.
        source: the figure of the paper that it re-draws.
    """

    name: Name
    title: str = ""
    kind: Literal["lines", "bars", "heatmap", "delta_map", "series", "ecdf", "slowdowns"]
    metric: str = ""
    metrics: tuple[str, ...] = ()
    divided_by: str | None = None
    aggregate: Aggregate = "mean"
    scenario: str | tuple[str, ...] | None = None
    x: str = ""
    y: str = ""
    by: str = ""
    panels: str = ""
    where: dict[str, Any] = Field(default_factory=dict)
    theory: dict[str, Any] = Field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    source: str = ""

    @property
    def shown(self) -> tuple[str, ...]:
        return self.metrics or ((self.metric,) if self.metric else ())

    def quantity(self, metric: str) -> Quantity:
        return Quantity(
            metric=metric, divided_by=self.divided_by, aggregate=self.aggregate, scenario=self.scenario, where=self.where
        )


class Score(StrictModel):
    """The nominal score: a metric against one adversary, aggregated over scenarios and seeds."""

    metric: str = "power"
    adversary: str = "kind"


class WorstCase(StrictModel):
    """The worst case: the worst value of a metric over all cells of a sender."""

    metric: str = "utilisation"


class SuiteBase(StrictModel):
    """The fields of every suite.

    Attributes:
        version: raised whenever a scenario changes; results of different versions are never mixed.
        notes: differences from the source, for the report.
        tags: free labels; the shipped suites use ``quick``, ``standard``, ``paper`` and ``adversarial``.
        seeds: one run each; a seed draws the parameters and keys all random moves.
        agents: specs of senders under test.
        metrics: name -> which way is better. A file lists names; the table of metrics holds the directions.
        references: published values.
        table: name -> quantity: the main numbers of each sender, as printed by ``ccenv bench run --json``.
        figures: of the report.
    """

    format: Literal["ccenv-suite"]
    format_version: Literal[1]
    name: Name
    version: int = Field(ge=1, strict=True)
    summary: str = ""
    notes: str = ""
    tags: tuple[Name, ...] = ()
    seeds: tuple[Annotated[int, Field(ge=0, lt=MAX_SEED, strict=True)], ...] = Field(min_length=1)
    agents: tuple[str, ...] = ()
    metrics: dict[str, Direction] = Field(min_length=1)
    score: Score = Score()
    worst_case: WorstCase = WorstCase()
    references: tuple[Reference, ...] = ()
    table: dict[Name, Quantity] = Field(default_factory=dict)
    figures: tuple[Figure, ...] = ()

    @field_validator("metrics", mode="before")
    @classmethod
    def _with_directions(cls, metrics: Any) -> Any:
        """Add the directions from the table of metrics; those of a recorded suite must agree."""
        if not isinstance(metrics, (list, tuple, dict)) or not all(isinstance(name, str) for name in metrics):
            return metrics
        once("metrics", list(metrics))
        try:
            directions = {name: cls.measure(name).direction for name in metrics}
        except InputError as error:
            raise ValueError(str(error)) from None
        for name, direction in metrics.items() if isinstance(metrics, dict) else ():
            if direction != directions[name]:
                raise ValueError(f"{name}: {directions[name]} is better, not {shown(direction)}")
        return directions

    @classmethod
    def measure(cls, name: str) -> Metric:
        """Return a metric of this suite by name. Raises UnknownNameError."""
        raise NotImplementedError

    @property
    def opponents(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def goals(self) -> dict[str, str]:
        """Objectives of searching adversaries by case; empty if all minimise the utilisation."""
        return {}

    @property
    def sha256(self) -> str:
        """Content hash of everything that affects runs and metrics; texts, published values and figures are left out."""
        return hash_value(self.model_dump(exclude={"summary", "notes", "tags", "references", "table", "figures", "solved"}))

    def run_key(self, case: str, seed: int) -> int:
        """Return the key of all random numbers of a run, in [0, 2**53): the same for every agent and adversary."""
        text = f"{self.name}/{self.version}/{case}/{seed}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11

    def check_names(self) -> None:
        """Check lists for duplicates and all uses of metrics. Raises ValueError, for validators."""
        for what, values in (("agents", self.agents), ("seeds", self.seeds), ("figures", [f.name for f in self.figures])):
            once(what, values)
        used = [("score", self.score.metric), ("worst_case", self.worst_case.metric)]
        quantities = [quantity for reference in self.references for quantity in reference.quantities]
        quantities += self.table.values()
        used += [("references", n) for q in quantities for n in (q.metric, q.divided_by) if n is not None]
        used += [
            (f"figure {figure.name}", name)
            for figure in self.figures
            for name in (*figure.shown, *filter(None, (figure.divided_by,)))
        ]
        for user, name in used:
            if name not in self.metrics:
                raise ValueError(f"{user}: metric {name!r} is not one of the suite's.{did_you_mean(name, self.metrics)}")
        for user, name in used[:2]:
            if self.measure(name).direction == "neither":
                raise ValueError(f"{user}: metric {name!r} has no better or worse value")
        if self.score.adversary not in self.opponents:
            hint = did_you_mean(self.score.adversary, self.opponents)
            raise ValueError(f"score: adversary {self.score.adversary!r} is not one of the suite's.{hint}")


def check_grid(lengths: Iterable[int]) -> None:
    """Refuse a grid of more than MOST_CASES cases. Raises ValueError, for validators."""
    count = math.prod(lengths)
    if count > MOST_CASES:
        raise ValueError(f"a grid of {count} cases; a scenario has at most {MOST_CASES}")


def once(what: str, values: Sequence[Any]) -> None:
    """Refuse repeated values. Raises ValueError, for validators."""
    twice = [value for value in values if list(values).count(value) > 1]
    if twice:
        raise ValueError(f"{what}: {twice[0]!r} is listed twice")


def check_scenarios(scenarios: Sequence[Any]) -> None:
    """Refuse repeated names, and scenarios whose ``data`` cannot be read. Raises ValueError, for validators."""
    once("scenarios", [scenario.name for scenario in scenarios])
    for scenario in scenarios:
        try:
            _ = scenario.data
        except InputError as error:
            raise ValueError(f"scenario {scenario.name}: {error}") from None
