"""Cells in which the adversary searches: one attack of one adversary on one sender and path."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ccenv.attack import SEARCHES, attack, make_search
from ccenv.attack.run import Finding
from ccenv.benchmarks.cells.players import Player, adversary_player, sender_of
from ccenv.benchmarks.suite.curve import Suite
from ccenv.document import hash_of
from ccenv.errors import CcenvError, EngineError
from ccenv.metrics.table import OF_TRACE, measure
from ccenv.metrics.trace import Window
from ccenv.network.path import Path
from ccenv.provenance import code_hash

ATTACK_SEEDS = 1_000_000  # searches take seeds below it


@dataclass(frozen=True)
class AttackCell:
    """Everything that decides one attack.

    Attributes:
        suite: name and version of the suite, and its hash.
        scenario: name of the case.
        seed: the suite's seed.
        engine_seed: keys search and sender; follows from suite, case and seed.
        model: network model.
        path: the path of the attacked flow as data.
        steps_per_rtt: K.
        warm_up_rtts: Rm before the measured window; the attack runs already.
        window_rtts: Rm measured.
        budget_flow_steps: what a search may spend; constructions and scripted adversaries need what they need.
        agent: the sender under attack.
        adversary: who attacks.
        metrics: names.
    """

    suite: str
    suite_sha256: str
    scenario: str
    seed: int
    engine_seed: int
    model: str
    path: dict[str, Any]
    steps_per_rtt: int
    warm_up_rtts: int
    window_rtts: int
    budget_flow_steps: int
    agent: Player
    adversary: Player
    metrics: tuple[str, ...]

    per_task = 1

    @property
    def name(self) -> str:
        """What ``--only`` matches: scenario/agent/adversary/seed."""
        return f"{self.scenario}/{self.agent.label}/{self.adversary.label}/{self.seed}"

    @cached_property
    def key(self) -> str:
        """Hash of the cell and of the code that plays it: results of anything else are never taken for it."""
        data = asdict(self)
        for player in (data["agent"], data["adversary"]):
            del player["spec"]
        return hash_of({**data, "code": code_hash()})[:32]

    def find(self) -> Finding:
        """Attack.

        Raises:
            InputError: if the sender's file changed since the cell was made, or the adversary does not fit.
            EngineError: if the worst trace breaks a law of its model: such a number would mean nothing.
        """
        sender = sender_of(self.agent)
        try:
            result = attack(
                sender,
                path=Path.from_dict(self.path),
                model=self.model,
                adversaries=[self.adversary.spec],
                budget_flow_steps=self.budget_flow_steps,
                seed=self.engine_seed,
                steps_per_rtt=self.steps_per_rtt,
                warmup_rtts=self.warm_up_rtts,
                window_rtts=self.window_rtts,
            )
        except CcenvError as error:
            raise type(error)(f"cell {self.name}: {error}") from None
        if not result.legal:
            raise EngineError(f"cell {self.name}: the trace is not legal: {result.worst.violations[0]}")
        return result.worst

    def run(self) -> dict[str, Any]:
        """Attack and return the record: what it was, the metrics of the worst trace, and which conditions of a proof held."""
        finding = self.find()
        record = {
            "key": self.key,
            "code_sha256": code_hash(),
            "agent_sha256": self.agent.sha256,
            "scenario": self.scenario,
            "agent": self.agent.label,
            "adversary": self.adversary.label,
            "seed": self.seed,
            "engine_seed": self.engine_seed,
            "model": self.model,
            "path": self.path,
            "metrics": self.values(finding),
        }
        if finding.preconditions:
            record["preconditions"] = finding.preconditions
        return record

    def values(self, finding: Finding) -> dict[str, float | None]:
        """Return the metrics of a finding's trace after the warm-up, None where one is undefined.

        A construction that chooses its own, shorter time is measured over all of it.
        """
        first = self.warm_up_rtts * self.steps_per_rtt
        window = Window(finding.trace, first if first < finding.trace.n_steps else 0, finding.trace.n_steps)
        values = measure(window, self.metrics)
        return {name: None if math.isnan(value) else value for name, value in values.items()}


def search_player(spec: str) -> Player:
    """Return the player of an adversary that searches, or of a scripted one. Raises UnknownNameError or InputError."""
    make_search(spec)  # raises for an unknown name or parameter
    if spec.partition(":")[0] not in SEARCHES:
        return adversary_player(spec)
    return Player(spec, "search", spec, hash_of({"kind": "search", "spec": spec}))


def attack_cells_of(suite: Suite, agents: list[Player]) -> list[AttackCell]:
    """Return all attacks of a suite for some agents, in its order. Raises InputError for unknown agents or adversaries."""
    adversaries = [search_player(spec) for spec in suite.adversaries]
    warm_up = round(suite.warm_up_rtts or 0)
    out = []
    for case in suite.cases:
        for agent in agents:
            for adversary in adversaries:
                for seed in suite.seeds:
                    key = suite.run_key(case.name, seed) % ATTACK_SEEDS
                    out.append(
                        AttackCell(
                            suite=f"{suite.name}/{suite.version}",
                            suite_sha256=suite.sha256,
                            scenario=case.name,
                            seed=seed,
                            engine_seed=key,
                            model=case.scenario.model,
                            path=case.path(key).to_dict(),
                            steps_per_rtt=suite.steps_per_rtt,
                            warm_up_rtts=warm_up,
                            window_rtts=round(suite.duration_rtts or 0) - warm_up,
                            budget_flow_steps=suite.budget_flow_steps or 0,
                            agent=agent,
                            adversary=adversary,
                            metrics=tuple(name for name in OF_TRACE if name in suite.metrics),
                        )
                    )
    return out
