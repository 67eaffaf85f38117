"""Suites of the packet engine (networks with parameters, for every grid point, named case and seed) and of the real TCP stack."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from ccenv.base.config import StrictModel
from ccenv.base.errors import InputError, did_you_mean
from ccenv.base.random import uniform
from ccenv.benchmarks.suite.base import Finite, Name, Score, SuiteBase, check_grid, once
from ccenv.benchmarks.suite.game import SolvedRows
from ccenv.benchmarks.suite.template import AGENT, find_parameters
from ccenv.network.metrics.table import Metric, run_metric
from ccenv.simulation.ranges import in_half

NETWORK = "network"  # stands where other suites name an adversary
METRIC = re.compile(r"(?P<name>\w+)(?:\[(?P<group>[^\]]+)\])?(?:@(?P<window>[\w-]+))?")
WHOLE = "run"  # the window from warm-up to end

Value = Finite | str


class Drawn(StrictModel):
    """A parameter that each seed draws: log-uniform between low and high (both > 0), or one of equally likely choices.

    ``half`` takes one half of the range only (``ccenv.simulation.ranges``); empty: all of it.
    """

    low: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    high: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    choice: tuple[Value, ...] = ()
    half: Literal["", "train", "report"] = ""

    @model_serializer(mode="wrap")
    def _without_whole(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave ``half`` out where it is empty, so that the identities of older suites stay what they were."""
        data: dict[str, Any] = dump(self)
        if not self.half:
            data.pop("half", None)
        return data

    @model_validator(mode="after")
    def _one_form(self) -> Drawn:
        if (self.low is None) != (self.high is None) or (self.low is None) != bool(self.choice):
            raise ValueError("a drawn parameter is {low, high} or {choice: [...]}")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}")
        return self

    def draw(self, share: float) -> Value:
        """Return the value at a share in [0, 1); numbers of a range have six significant digits."""
        if self.low is None or self.high is None:
            return self.choice[int(share * len(self.choice))]
        if self.half:
            share = float(in_half(np.array(share), self.half))
        return float(f"{self.low * (self.high / self.low) ** share:.6g}")


class PacketScenario(StrictModel):
    """A family of networks.

    Attributes:
        name: unique in the suite.
        summary: one line for reports.
        parameters: name -> a value, a list (a grid: one case each), or a ``Drawn``.
        cases: named cases: parameters that belong together; every point of the grid is played for each.
        network: links, flows and mss_bytes as in a scenario of the packet engine (docs/simulation.md), with ``$name`` for a
            parameter, ``$agent`` for the sender under test and the additions of ``ccenv.benchmarks.suite.template``.
        duration_s, warm_up_s: override the suite's.
        windows: name -> spans (from, to) in seconds, for metrics ``name@window``.
    """

    name: Name
    summary: str = ""
    parameters: dict[Name, Value | tuple[Value, ...] | Drawn] = Field(default_factory=dict)
    cases: tuple[dict[str, Value], ...] = ()
    network: dict[str, Any]
    duration_s: float | None = Field(default=None, gt=0, le=1e6)
    warm_up_s: float | None = Field(default=None, ge=0)
    windows: dict[Name, tuple[tuple[Finite, Finite], ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> PacketScenario:
        names_allowed = {*self.parameters, "agent"}
        if self.cases:
            names = [name for name in self.cases[0] if name != "case"]
            for case in self.cases:
                if {name for name in case if name != "case"} != set(names):
                    raise ValueError(f"cases: all must give the same parameters, {', '.join(names)}")
            clash = set(names) & set(self.parameters)
            if clash:
                raise ValueError(f"cases: {sorted(clash)[0]!r} is a parameter of the grid too")
            names_allowed |= set(names)
        used = find_parameters(self.network)
        for name in sorted(used - names_allowed):
            raise ValueError(f"network: ${name} is no parameter.{did_you_mean(name, names_allowed)}")
        for name, value in self.parameters.items():
            if isinstance(value, tuple):
                once(f"parameters.{name}", value)
                if not value:
                    raise ValueError(f"parameters.{name}: an empty list")
        grids = [len(value) for value in self.parameters.values() if isinstance(value, tuple)]
        check_grid([len(self.cases) or 1, *grids])
        return self

    @property
    def uses_agent(self) -> bool:
        """Whether it has a flow of the sender under test."""
        return AGENT.removeprefix("$") in find_parameters(self.network)

    @property
    def points(self) -> list[PacketCase]:
        """One case per point of the grid and named case."""
        grids = {name: value for name, value in self.parameters.items() if isinstance(value, tuple)}
        fixed = {name: value for name, value in self.parameters.items() if isinstance(value, (int, float, str))}
        out = []
        for named in self.cases or ({},):
            for point in itertools.product(*grids.values()):
                chosen = dict(zip(grids, point, strict=True))
                label = [str(named["case"])] if "case" in named else [_format_parameter(n, v) for n, v in named.items()]
                label += [_format_parameter(n, v) for n, v in chosen.items()]
                values = {**fixed, **{n: v for n, v in named.items() if n != "case"}, **chosen}
                out.append(PacketCase(f"{self.name}[{','.join(label)}]" if label else self.name, self, values))
        return out


def _format_parameter(name: str, value: Value) -> str:
    return f"{name}={value:g}" if isinstance(value, (int, float)) else f"{name}={value}"


@dataclass(frozen=True)
class PacketCase:
    """A point of a family: parameter -> value, without the drawn ones."""

    name: str
    scenario: PacketScenario
    chosen: dict[str, Value]

    def values(self, key: int) -> dict[str, Value]:
        """Return all parameters; the drawn ones with counter-based random numbers from the run's key."""
        drawn = {name: value for name, value in self.scenario.parameters.items() if isinstance(value, Drawn)}
        shares = {name: uniform(float(key), 0.0, 0.0, float(i)) for i, name in enumerate(sorted(drawn))}
        return {**self.chosen, **{name: value.draw(shares[name]) for name, value in drawn.items()}}


class PacketSuite(SuiteBase):
    """A benchmark suite of the packet engine.

    Metrics are ``name``, ``name[flows]`` for the flows of one name, and ``name@window`` for a scenario's window; cells omit
    metrics of flows or windows that their scenario does not have.

    Attributes:
        warm_up_s: start of a run that metrics leave out.
        log_s: interval of the log from which metrics are computed.
        series_s: interval of the rates over time that are kept of the first seed; 0: none.
        rules: 1: as shipped records were made, without phase jitter, fast recovery ends with what was in flight, and a packet in
            service waits; 2: as ``ccenv.simulation.Scenario`` has it.
        solved: games whose exact steps of convergence are put beside what is measured.
    """

    engine: Literal["packet"]
    duration_s: float = Field(gt=0, le=1e6)
    warm_up_s: float = Field(default=0.0, ge=0)
    log_s: float = Field(default=0.01, ge=1e-3, le=1)
    series_s: float = Field(default=0.0, ge=0)
    scenarios: tuple[PacketScenario, ...] = Field(min_length=1)
    rules: Literal[1, 2] = 1
    solved: tuple[SolvedRows, ...] = ()
    score: Score = Score(metric="utilisation", adversary=NETWORK)

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out ``solved`` where there is none, and the first rules, so that records of such suites stay what they were."""
        data: dict[str, Any] = dump(self)
        return {key: value for key, value in data.items() if (key, value) not in (("solved", ()), ("solved", []), ("rules", 1))}

    @model_validator(mode="after")
    def _consistent(self) -> PacketSuite:
        once("scenarios", [scenario.name for scenario in self.scenarios])
        for scenario in self.scenarios:
            duration, warm_up = self.times(scenario)
            if warm_up >= duration:
                raise ValueError(f"scenario {scenario.name}: warm_up_s {warm_up:g} is not below duration_s {duration:g}")
        if self.agents and not any(scenario.uses_agent for scenario in self.scenarios):
            raise ValueError("agents are given but no scenario has a flow with sender: $agent")
        self.check_names()
        return self

    def times(self, scenario: PacketScenario) -> tuple[float, float]:
        """Return duration and warm-up of a scenario, in seconds."""
        duration_s = self.duration_s if scenario.duration_s is None else scenario.duration_s
        return duration_s, self.warm_up_s if scenario.warm_up_s is None else scenario.warm_up_s

    @classmethod
    def measure(cls, name: str) -> Metric:
        """Return the metric of a name with its flows and window (``ccenv.network.metrics.table``). Raises InputError."""
        plain, group, window = parse_metric(name)
        metric = run_metric(plain)
        label = metric.label + (f", {group}" if group else "") + (f" ({window})" if window != WHOLE else "")
        return replace(metric, name=name, label=label)

    @property
    def opponents(self) -> tuple[str, ...]:
        return (NETWORK,)

    @property
    def cases(self) -> list[PacketCase]:
        """All points of all scenarios, in order."""
        return [case for scenario in self.scenarios for case in scenario.points]


def parse_metric(text: str) -> tuple[str, str | None, str]:
    """Split ``name[flows]@window``. Raises InputError."""
    match = METRIC.fullmatch(text)
    if match is None:
        raise InputError(f"metric {text!r} is not of the form name, name[flows] or name[flows]@window")
    return match["name"], match["group"], match["window"] or WHOLE


class LiveScenario(StrictModel):
    """A stored attack on a sender.

    Attributes:
        sender: ``kernel:NAME``, or a belief program.
        moves: the sender whose shipped moves these are, or a file of ``ccenv attack``.
        calm: also run the same path without the moves.
    """

    name: Name
    summary: str = ""
    sender: str
    moves: str
    calm: bool = True


@dataclass(frozen=True)
class LiveCase:
    """A run of a live suite; ``calm``: without the moves."""

    name: str
    scenario: LiveScenario
    calm: bool


class LiveSuite(SuiteBase):
    """A suite of live runs, one after the other. Numbers hold for the machine that made them; invalid runs give none."""

    engine: Literal["live"]
    scenarios: tuple[LiveScenario, ...] = Field(min_length=1)
    score: Score = Score(metric="utilisation", adversary=NETWORK)

    @model_validator(mode="after")
    def _consistent(self) -> LiveSuite:
        once("scenarios", [scenario.name for scenario in self.scenarios])
        if self.agents:
            raise ValueError("agents: a live suite names the sender of each scenario")
        self.check_names()
        return self

    @classmethod
    def measure(cls, name: str) -> Metric:
        """Return the metric of a name (``ccenv.network.metrics.table``). Raises InputError."""
        return run_metric(name)

    @property
    def opponents(self) -> tuple[str, ...]:
        return (NETWORK,)

    @property
    def cases(self) -> list[LiveCase]:
        """All runs, in order: of each scenario the calm one first."""
        return [
            LiveCase(f"{scenario.name}[{'calm' if calm else 'attacked'}]", scenario, calm)
            for scenario in self.scenarios
            for calm in ((True, False) if scenario.calm else (False,))
        ]
