"""Suites of the curve engine (docs/benchmarks.md): typed, versioned, hashed YAML, and its scenarios as paths."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from ccenv.attacks.goals import UTILISATION, goal_of
from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError, did_you_mean
from ccenv.base.foreign import read_yaml
from ccenv.base.random import uniform
from ccenv.benchmarks.suite.base import Name, SuiteBase, check_grid, once
from ccenv.benchmarks.suite.fluid import FluidSuite
from ccenv.benchmarks.suite.game import GameSuite
from ccenv.benchmarks.suite.packet import LiveSuite, PacketSuite
from ccenv.network.metrics.table import Metric, trace_metric
from ccenv.network.path import MAX_FLOWS, Path, get_model, make_path

PACKAGE = "ccenv.benchmarks.suites"


class Values(StrictModel):
    """Values of a scenario's parameter: one number, a list (a grid: one case each), or a range that each seed draws from.

    Draws from a range [low, high] are log-uniform; ``values`` is then empty.
    """

    values: tuple[float, ...] = ()
    low: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    high: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        if isinstance(data, list):
            return {"values": data}
        return data if isinstance(data, (dict, Values)) else {"values": [data]}

    @model_validator(mode="after")
    def _one_form(self) -> Values:
        is_range = self.low is not None and self.high is not None
        if is_range == bool(self.values) or (self.low is None) != (self.high is None):
            raise ValueError("give a number, a list of numbers, or a range {low, high}")
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"a value is listed twice in {list(self.values)}")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        return self

    @property
    def choices(self) -> tuple[float | None, ...]:
        """The values of the grid, or (None,) for a range."""
        return self.values or (None,)

    def draw(self, share: float) -> float:
        """Return the value of a range at a share in [0, 1), rounded to six significant digits."""
        if self.low is None or self.high is None:
            raise InputError("only a range is drawn from")
        return float(f"{self.low * (self.high / self.low) ** share:.6g}")


class CurveScenario(StrictModel):
    """A family of paths.

    Attributes:
        link_rate_mbps: C in Mbit/s.
        rtt_ms: Rm in ms.
        jitter_rtts: D in units of Rm; a whole number of steps.
        buffer_bdp: buffer in units of C*Rm; ``inf`` allowed.
        n_flows: flows of the agent under test.
        competitors: agents of further flows.
        stagger_rtts: flow i starts i * stagger_rtts * Rm after flow 0.
        goal: of searching adversaries, a name of ``ccenv.attacks.goals.GOALS``.
    """

    name: Name
    summary: str = ""
    model: str
    link_rate_mbps: Values
    rtt_ms: Values
    jitter_rtts: Values = Values(values=(0.0,))
    buffer_bdp: Values = Values(values=(math.inf,))
    stagger_rtts: Values = Values(values=(0.0,))
    n_flows: int = Field(1, ge=1, le=MAX_FLOWS, strict=True)
    competitors: tuple[str, ...] = ()
    goal: str = UTILISATION

    @model_serializer(mode="wrap")
    def _without_default_goal(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the default goal, so that the hash of suites without goals is stable."""
        data: dict[str, Any] = dump(self)
        if data.get("goal") == UTILISATION:
            del data["goal"]
        return data

    @field_validator("goal")
    @classmethod
    def _known_goal(cls, name: str) -> str:
        try:
            return goal_of(name).name
        except InputError as error:
            raise ValueError(str(error)) from None

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        try:
            return get_model(name).name
        except InputError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _possible(self) -> CurveScenario:
        if not self.jitter_rtts.values:
            raise ValueError("jitter_rtts cannot be a range: D must be a whole number of steps")
        check_grid(len(getattr(self, name).choices) for name in _GRID)
        for name in _GRID:
            for value in getattr(self, name).values:
                good = value >= 0 if name in _MAY_BE_ZERO else value > 0
                if not good or (math.isinf(value) and name != "buffer_bdp"):
                    allowed = "at least 0" if name in _MAY_BE_ZERO else "above 0"
                    raise ValueError(
                        f"{name} is {value:g}; it must be {allowed}" + ("" if name == "buffer_bdp" else " and finite")
                    )
        return self

    @property
    def cases(self) -> list[Case]:
        """One case per point of the grid; a scenario without lists is one case of the same name."""
        parameters = {name: getattr(self, name) for name in _GRID}
        out = []
        for point in itertools.product(*(values.choices for values in parameters.values())):
            chosen = dict(zip(parameters, point, strict=True))
            varied = [
                f"{name}={value:g}" for name, value in chosen.items() if value is not None and len(parameters[name].values) > 1
            ]
            out.append(Case(f"{self.name}[{','.join(varied)}]" if varied else self.name, self, chosen))
        return out


_GRID = ("link_rate_mbps", "rtt_ms", "jitter_rtts", "buffer_bdp", "stagger_rtts")
_MAY_BE_ZERO = ("jitter_rtts", "stagger_rtts")


@dataclass(frozen=True)
class Case:
    """A point of a scenario's grid: ``point`` has a value per grid parameter, None where each seed draws."""

    name: str
    scenario: CurveScenario
    point: dict[str, float | None]

    def path(self, key: int) -> Path:
        """Return the path of a run; ranges are drawn with counter-based random numbers from the run's key."""
        drawn = {name: self._value(name, uniform(float(key), 0.0, 0.0, float(i))) for i, name in enumerate(_GRID)}
        path = make_path(
            link_rate_mbps=drawn["link_rate_mbps"],
            rtt_ms=drawn["rtt_ms"],
            jitter_ms=drawn["jitter_rtts"] * drawn["rtt_ms"],
            buffer_bdp=drawn["buffer_bdp"],
            n_flows=self.scenario.n_flows + len(self.scenario.competitors),
        )
        if drawn["stagger_rtts"] == 0:
            return path
        late_s = drawn["stagger_rtts"] * drawn["rtt_ms"] / 1e3
        flows = tuple(flow.model_copy(update={"start_s": i * late_s}) for i, flow in enumerate(path.flows))
        return path.model_copy(update={"flows": flows})

    def _value(self, name: str, share: float) -> float:
        chosen = self.point[name]
        values: Values = getattr(self.scenario, name)
        return values.draw(share) if chosen is None else chosen


class Suite(SuiteBase):
    """A benchmark suite of the curve engine: every agent on every path against every adversary.

    Attributes:
        engine: ``curve``: registered adversaries; ``attack``: also searches and constructions of ``ccenv.attack``, against one
            flow per path or several of one sender.
        budget_flow_steps: of each search, for ``attack``.
        steps_per_rtt: K of the curve engine.
        duration_rtts, duration_s: length of a run, one of the two; RTTs are smallest Rm.
        warm_up_rtts, warm_up_s: start of a run that metrics leave out, one of the two or none.
    """

    engine: Literal["curve", "attack"] = "curve"
    budget_flow_steps: int | None = Field(default=None, ge=1, strict=True)
    steps_per_rtt: int = Field(8, ge=1, le=64, strict=True)
    duration_rtts: float | None = Field(default=None, gt=0, le=1e6)
    duration_s: float | None = Field(default=None, gt=0, le=1e6)
    warm_up_rtts: float | None = Field(default=None, ge=0)
    warm_up_s: float | None = Field(default=None, ge=0)
    agents: tuple[str, ...]
    adversaries: tuple[str, ...] = Field(min_length=1)
    scenarios: tuple[CurveScenario, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Suite:
        if (self.duration_rtts is None) == (self.duration_s is None):
            raise ValueError("give either duration_rtts or duration_s")
        if self.warm_up_rtts is not None and self.warm_up_s is not None:
            raise ValueError("give warm_up_rtts or warm_up_s, not both")
        for unit in ("rtts", "s"):
            duration, warm_up = getattr(self, f"duration_{unit}"), getattr(self, f"warm_up_{unit}")
            if duration is not None and warm_up is not None and warm_up >= duration:
                raise ValueError(f"warm_up_{unit} {warm_up:g} is not below duration_{unit} {duration:g}")
        if (self.engine == "attack") != (self.budget_flow_steps is not None):
            raise ValueError("budget_flow_steps belongs to engine 'attack', which needs it")
        if self.engine == "attack":
            self._check_attack()
        elif named := [scenario.name for scenario in self.scenarios if scenario.goal != UTILISATION]:
            raise ValueError(f"scenario {named[0]}: a goal is for engine 'attack'")
        once("adversaries", self.adversaries)
        once("scenarios", [scenario.name for scenario in self.scenarios])
        self.check_names()
        return self

    def _check_attack(self) -> None:
        for name in ("duration_rtts", "warm_up_rtts"):
            value = getattr(self, name)
            if value is None or value != int(value):
                raise ValueError(f"engine 'attack' needs {name} as a whole number")
        for scenario in self.scenarios:
            if scenario.competitors:
                raise ValueError(f"scenario {scenario.name}: engine 'attack' has flows of one sender, no competitors")
            least = goal_of(scenario.goal).least_flows
            if scenario.n_flows < least:
                raise ValueError(
                    f"scenario {scenario.name}: goal {scenario.goal!r} needs n_flows of at least {least}, not {scenario.n_flows}"
                )
            if (metric := goal_of(scenario.goal).metric) not in self.metrics:
                raise ValueError(f"scenario {scenario.name}: goal {scenario.goal!r} needs the metric {metric!r}")

    @classmethod
    def measure(cls, name: str) -> Metric:
        """Return the metric of a name (``ccenv.network.metrics.table``). Raises UnknownNameError."""
        return trace_metric(name)

    @property
    def opponents(self) -> tuple[str, ...]:
        return self.adversaries

    @property
    def goals(self) -> dict[str, str]:
        """Objectives of searching adversaries by case; empty if all minimise the utilisation."""
        goals = {case.name: case.scenario.goal for case in self.cases}
        return {} if set(goals.values()) == {UTILISATION} else goals

    @property
    def cases(self) -> list[Case]:
        """All points of all scenarios, in order."""
        return [case for scenario in self.scenarios for case in scenario.cases]

    def rows(self, dt_s: float) -> tuple[int, int]:
        """Return the steps of a run and the row at which the warm-up ends."""
        steps = _rows(self.duration_rtts, self.duration_s, self.steps_per_rtt, dt_s)
        first = _rows(self.warm_up_rtts or 0.0, self.warm_up_s, self.steps_per_rtt, dt_s)
        if first >= steps:
            raise InputError(f"suite {self.name!r}: the warm-up of {first} steps leaves nothing of a run of {steps} steps")
        return steps, first


def _rows(rtts: float | None, seconds: float | None, steps_per_rtt: int, dt_s: float) -> int:
    steps = seconds / dt_s if seconds is not None else (rtts or 0.0) * steps_per_rtt
    return math.ceil(steps - 1e-9)


OTHER_NAMES = {"coexistence": "company"}  # published records have the latter


def load_suite(name: str) -> SuiteBase:
    """Read a suite: a shipped name or the path of a YAML file.

    Raises UnknownNameError if there is neither; InputError with the key, the value seen and what is allowed.
    """
    file = find_data(PACKAGE, OTHER_NAMES.get(name, name), ".yaml", "suite")
    return validate_suite(read_yaml(file), file.name)


def validate_suite(data: Any, where: str) -> SuiteBase:
    """Validate a suite's data, of any engine, e.g. from a manifest. Raises InputError."""
    engine = data.get("engine", "curve") if isinstance(data, dict) else "curve"
    models: dict[str, type[SuiteBase]] = {"curve": Suite, "attack": Suite, "packet": PacketSuite, "live": LiveSuite}
    models |= {"game": GameSuite, "fluid": FluidSuite}
    if not isinstance(engine, str) or engine not in models:
        raise InputError(f"{where}: engine is {engine!r}.{did_you_mean(str(engine), models)}")
    return validate(models[engine], data, where)
