"""Suites of the real TCP stack: stored attacks, each against a sender of this machine's kernel or a program that it loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from ccenv.benchmarks.suite.base import Name, Score, SuiteBase, once
from ccenv.base.config import StrictModel
from ccenv.network.metrics.table import Metric, run_metric

NETWORK = "network"  # stands where other suites name an adversary


class LiveScenario(StrictModel):
    """A sender and the moves that are played against it.

    Attributes:
        name: unique in the suite.
        summary: one line for reports.
        sender: ``kernel:NAME``, or a belief program.
        moves: the sender whose shipped moves these are, or a file of ``ccenv attack``.
        calm: the same path without the moves, too.
    """

    name: Name
    summary: str = ""
    sender: str
    moves: str
    calm: bool = True


@dataclass(frozen=True)
class LiveCase:
    """A run of a suite.

    Attributes:
        name: unique in the suite.
        scenario: where it belongs.
        calm: without the moves.
    """

    name: str
    scenario: LiveScenario
    calm: bool


class LiveSuite(SuiteBase):
    """A suite of live runs. Its numbers are those of the machine that made them; runs that are not valid give none.

    Attributes:
        engine: ``live``.
        scenarios: what is run, one after the other.
    """

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
        """Only the network itself."""
        return (NETWORK,)

    @property
    def cases(self) -> list[LiveCase]:
        """All runs, in order: of each scenario the calm one first."""
        return [
            LiveCase(f"{scenario.name}[{'calm' if calm else 'attacked'}]", scenario, calm)
            for scenario in self.scenarios
            for calm in ((True, False) if scenario.calm else (False,))
        ]
