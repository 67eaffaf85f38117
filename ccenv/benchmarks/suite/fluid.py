"""Suites of the fluid model of [BBR-fluid]: every mix of a sweep under every discipline with every buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel
from ccenv.base.errors import unknown_name
from ccenv.benchmarks.suite.base import Name, Score, SuiteBase, WorstCase, check_scenarios
from ccenv.benchmarks.suite.packet import NETWORK
from ccenv.engine.fluid.scenario import Scenario
from ccenv.engine.fluid.sweep import Sweep, load_sweep
from ccenv.network.metrics.table import METRICS, MIX_METRICS, Metric


class FluidScenario(StrictModel):
    """A sweep, shipped or a YAML file; None: of the scenario's name. ``changes`` are of its fields, e.g. ``params``."""

    name: Name
    sweep: str | None = None
    summary: str = ""
    changes: dict[str, Any] = Field(default_factory=dict)

    @property
    def data(self) -> Sweep:
        """The sweep. Raises InputError for one that there is not."""
        return load_sweep(self.sweep or self.name, **self.changes)


@dataclass(frozen=True)
class FluidCase:
    """A cell of a sweep; ``parameters`` are mix, discipline and buffer_bdp."""

    name: str
    parameters: dict[str, Any]
    data: Scenario


class FluidSuite(SuiteBase):
    """A suite of sweeps of the fluid model; the model is deterministic: one seed."""

    engine: Literal["fluid"]
    seeds: tuple[Literal[1]] = (1,)
    scenarios: tuple[FluidScenario, ...] = Field(min_length=1)
    score: Score = Score(metric="utilisation_pct", adversary=NETWORK)
    worst_case: WorstCase = WorstCase(metric="utilisation_pct")

    @model_validator(mode="after")
    def _consistent(self) -> FluidSuite:
        if self.agents:
            raise ValueError("agents: the senders of the fluid model are the mixes of its sweeps")
        check_scenarios(self.scenarios)
        self.check_names()
        return self

    @classmethod
    def measure(cls, name: str) -> Metric:
        """Return the metric of a name. Raises UnknownNameError."""
        if name not in MIX_METRICS:
            raise unknown_name("metric of the fluid model", name, MIX_METRICS)
        return METRICS[name]

    @property
    def opponents(self) -> tuple[str, ...]:
        return (NETWORK,)

    @property
    def cases(self) -> list[FluidCase]:
        """All cells of all sweeps, in order."""
        out = []
        for one in self.scenarios:
            sweep = one.data
            for mix, discipline, buffer_bdp in sweep.cells():
                values = {"mix": mix, "discipline": discipline, "buffer_bdp": buffer_bdp}
                name = f"{one.name}[{','.join(f'{key}={value}' for key, value in values.items())}]"
                out.append(FluidCase(name, values, sweep.scenario(mix, discipline, buffer_bdp)))
        return out
