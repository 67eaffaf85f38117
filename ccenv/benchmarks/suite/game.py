"""Suites of solved games: senders on exact belief sets against networks whose best play is known; exact rows for others."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel
from ccenv.base.errors import unknown_name
from ccenv.benchmarks.suite.base import Name, Score, SuiteBase, WorstCase, check_scenarios, once
from ccenv.network.metrics.table import Metric
from ccenv.proofs.games.game import Game, load_game
from ccenv.proofs.games.players import NETWORKS
from ccenv.proofs.games.values import rows_of

_METRICS = (
    Metric("regret", "regret", "packets", "lower", "C_U H - S after the game's horizon, its mean where somebody draws"),
    Metric("exploitability", "exploitability", "packets", "lower", "regret against the sender's worst network less the value"),
    Metric("optimal_share", "best decisions", "", "higher", "share of the boards in reach on which the decision is a best one"),
    Metric("first_error_step", "first error", "steps", "higher", "step of the first decision that is not a best one"),
    Metric("value", "value of the game", "packets", "neither", "regret under best play of both sides"),
)
METRICS = {metric.name: metric for metric in _METRICS}
"""What a cell of a game measures."""


class GameScenario(StrictModel):
    """A game of a suite, shipped or a YAML file; None: of the scenario's name, which is unique in the suite."""

    name: Name
    game: str | None = None
    summary: str = ""

    @property
    def data(self) -> Game:
        """The game. Raises InputError for one that there is not."""
        return load_game(self.game or self.name)


class GameSuite(SuiteBase):
    """A suite of solved games.

    Attributes:
        engine: ``game``.
        networks: who answers: ``optimal``, ``worst`` (the best response to each sender) and ``random``.
        scenarios: the games.
    """

    engine: Literal["game"]
    networks: tuple[str, ...] = ("optimal", "worst", "random")
    scenarios: tuple[GameScenario, ...] = Field(min_length=1)
    score: Score = Score(metric="regret", adversary="optimal")
    worst_case: WorstCase = WorstCase(metric="regret")

    @model_validator(mode="after")
    def _consistent(self) -> GameSuite:
        for name in self.networks:
            if name not in NETWORKS:
                raise ValueError(f"networks: {unknown_name('network', name, NETWORKS)}")
        once("networks", self.networks)
        check_scenarios(self.scenarios)
        self.check_names()
        return self

    @classmethod
    def measure(cls, name: str) -> Metric:
        """Return the metric of a name. Raises UnknownNameError."""
        if name not in METRICS:
            raise unknown_name("metric of a game", name, METRICS)
        return METRICS[name]

    @property
    def opponents(self) -> tuple[str, ...]:
        return self.networks

    @property
    def cases(self) -> list[GameScenario]:
        """The games, in order."""
        return list(self.scenarios)


class SolvedRows(StrictModel):
    """Exact steps of convergence of a game (with other fields: ``changes``), put beside what a suite measures."""

    game: str
    changes: dict[str, Any] = Field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """Return per rate the fewest steps until all smaller rates are excluded, and F^-1 of theorem 6.1. Raises InputError."""
        return rows_of(load_game(self.game).changed(**self.changes))
