"""Cells of the fluid model, one configuration each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.base.files import plain
from ccenv.benchmarks.cells.cell import NO_ADDITIONS, Cell, Player, UserAdditions, nan_to_none
from ccenv.benchmarks.cells.packet import FIXED
from ccenv.benchmarks.suite.fluid import FluidSuite
from ccenv.engine.fluid.scenario import Scenario
from ccenv.engine.fluid.simulate import simulate_batch
from ccenv.engine.fluid.sweep import cell


@dataclass(frozen=True, kw_only=True)
class FluidCell(Cell):
    """A configuration of the fluid model as data, and what it is called in its sweep."""

    parameters: dict[str, Any]
    network: dict[str, Any]

    @property
    def opponent(self) -> str:
        return FIXED.label

    def run(self) -> dict[str, Any]:
        """Integrate the model and return the record. Raises EngineError if it diverges."""
        scenario = validate(Scenario, self.network, self.name)
        values = cell(**self.parameters, metrics=simulate_batch([scenario], 1)[0])
        metrics = nan_to_none({name: values[name] for name in self.metrics})
        link = scenario.links[0]
        buffer_bytes = link.buffer_bytes(scenario.mss_bytes)
        path = {"link_rate_Bps": link.capacity_Bps, "buffer_bytes": buffer_bytes, "flows": [{"rtt_s": self._rtt_s(scenario)}]}
        return self.record("fluid", path, parameters=self.parameters, metrics=metrics)

    @staticmethod
    def _rtt_s(scenario: Scenario) -> float:
        """Return the smallest propagation RTT: access and bottleneck, there and back."""
        return 2e-3 * (min(flow.access_delay_ms for flow in scenario.flows) + scenario.links[0].delay_ms)


def make_fluid_cells(suite: FluidSuite, agents: list[Player], additions: UserAdditions = NO_ADDITIONS) -> list[FluidCell]:
    """Return all cells of a suite, in its order. Raises InputError for senders, adversaries or metrics of a user."""
    if agents or additions.adversaries or additions.metrics:
        raise InputError(f"suite {suite.name!r} integrates fluid models: it takes no --agent, --adversary and --metric")
    return [
        FluidCell(
            suite=f"{suite.name}/{suite.version}",
            suite_sha256=suite.sha256,
            scenario=case.name,
            seed=suite.seeds[0],
            engine_seed=suite.run_key(case.name, suite.seeds[0]),
            agent=FIXED,
            metrics=(*suite.metrics,),
            parameters=case.parameters,
            network=plain(case.data.model_dump()),
        )
        for case in suite.cases
    ]
