"""Refute candidates by simulation: find traces that break many, and replay each against all that remain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.synthesis.query.objectives import Objectives
from ccenv.proofs.synthesis.query.records import GOAL, condition_records, rate_records
from ccenv.proofs.synthesis.query.template import Space
from ccenv.proofs.synthesis.query.timeouts import mislead
from ccenv.proofs.synthesis.search.adversary import repertoire

SAMPLE = 256
"""Candidates that a fresh batch of traces is tried on."""

BATCH = 3000
"""Traces per batch."""

QUIET_BATCHES = 2
"""So many batches without a hit end the search."""

MOST_BATCHES = 40


@dataclass
class Simulator:
    """Candidates of one query in the simulator.

    Attributes:
        setting: the network.
        objectives: what solutions must achieve.
        space: conditions and rates that rows speak of.
        rows: (n, 2*rates - 1) int16, all classes.
        any_start: beliefs may be wrong at the start.
        alive: numbers of the classes that no trace has broken.
    """

    setting: Setting
    objectives: Objectives
    space: Space
    rows: np.ndarray
    any_start: bool = False
    alive: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Start with every class alive."""
        self.alive = np.arange(len(self.rows))

    @cached_property
    def conditions(self) -> np.ndarray:
        """Conditions as records."""
        return condition_records(self.space.conditions)

    @cached_property
    def rates(self) -> np.ndarray:
        """Rates as records."""
        return rate_records(self.space.rates)

    @property
    def probes(self) -> bool:
        """Whether the template reads C_L_lambda or q_U."""
        return bool(self.space.template.inputs() & {"C_L_lambda", "q_U/Rm"})

    def goal(self, trace: np.ndarray) -> np.ndarray:
        """Return the objectives in a trace's units."""
        return self.objectives.goal(self.setting, int(trace["link"]), int(trace["alpha"]), int(trace["beta"]))

    def apply(self, trace: np.ndarray) -> np.ndarray:
        """Replay a trace against all remaining classes and drop those that it breaks.

        Returns:
            np.ndarray: numbers of the classes dropped.
        """
        from ccenv.proofs.synthesis.search.kernel import ILLEGAL, SURVIVES, replay

        out = np.zeros(len(self.alive), dtype=np.int8)
        replay(trace, self.goal(trace), self.space.template.rates, self.rows[self.alive], self.conditions, self.rates, out)
        broken = (out != SURVIVES) & (out != ILLEGAL)
        dropped: np.ndarray = self.alive[broken]
        self.alive = self.alive[~broken]
        return dropped

    def attack(self, seed: int, found: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """Search the repertoire until it breaks nothing more.

        Args:
            seed: of the repertoire.
            found: called with each trace that was kept and the classes that it broke.
        """
        quiet = batch = 0
        moving = (
            0.5
            if self.probes or self.setting.beliefs.timeout or (self.objectives.transient != "none" and self.setting.has_loss)
            else 0.0
        )
        while len(self.alive) and quiet < QUIET_BATCHES and batch < MOST_BATCHES:
            rng = np.random.default_rng((seed, batch))
            batch += 1
            traces = repertoire(self.setting, BATCH, rng, moving, self.probes)
            if self.any_start:
                mislead(traces, rng)
            hits = self._tried(traces, rng)
            quiet = 0 if hits.any() else quiet + 1
            while hits.any():
                best = int(hits.sum(axis=1).argmax())
                found(traces[best], self.apply(traces[best]))
                hits &= ~hits[best]

    def _tried(self, traces: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        from ccenv.proofs.synthesis.search.kernel import ILLEGAL, SURVIVES, score

        sample = self.alive if len(self.alive) <= SAMPLE else np.sort(rng.choice(self.alive, SAMPLE, replace=False))
        reads = ["link", "alpha"] + (["beta"] if self.objectives.transient_buffer else [])
        _, first, which = np.unique(traces[reads], return_index=True, return_inverse=True)
        goals = np.array([self.goal(traces[i]) for i in first], dtype=GOAL)[which]
        out = np.zeros((len(traces), len(sample)), dtype=np.int8)
        score(traces, goals, self.space.template.rates, self.rows[sample], self.conditions, self.rates, out)
        broken: np.ndarray = (out != SURVIVES) & (out != ILLEGAL)
        return broken
