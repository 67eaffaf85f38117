"""The adversaries' track: the degradation that a network adversary causes for a panel of senders, on legal traces only.

The degradation ("damage" in records) of a run is 1 - U / U0: utilisation against the adversary over utilisation against the
benign network ``kind`` on the same path with the same seed. Paths and seeds follow from the submission and the operator's secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel
from ccenv.base.errors import CcenvError
from ccenv.base.files import plain
from ccenv.base.provenance import machine, versions
from ccenv.benchmarks.cells.cell import agent_player, build_sender
from ccenv.benchmarks.cells.curve import CurveCell, make_curve_cells
from ccenv.benchmarks.cells.packet import cells_code
from ccenv.benchmarks.statistics import estimate
from ccenv.benchmarks.suite.curve import Suite
from ccenv.leaderboard.evaluate.stages import Content, Job, Progress, Work
from ccenv.leaderboard.evaluate.trace_view import view_json
from ccenv.leaderboard.store.records import Count, Label, MachineRecord, PlayedContent, Real, Sha256, Text
from ccenv.leaderboard.submission.identity import canonical_hash
from ccenv.leaderboard.submission.reader import parse_submission
from ccenv.network.adversary import Adversary

DAMAGE = "damage"
WORST_VIEW = "worst.view.json"


class Interval(StrictModel):
    """An aggregate with its 95 % interval."""

    iqm: Real
    low: Real
    high: Real
    n_runs: Count


class DamageCell(StrictModel):
    """The utilisation of a sender on one path, against the benign network and against the adversary."""

    sender: Label
    scenario: Label
    seed: int
    undisturbed: Annotated[float, Field(ge=0, le=2)]
    utilisation: Annotated[float, Field(ge=0, le=2)]
    sender_sha256: Sha256

    @property
    def damage(self) -> float:
        """Degradation: the lost share of the undisturbed utilisation."""
        return 1 - self.utilisation / self.undisturbed if self.undisturbed > 0 else 0.0


class Damage(PlayedContent):
    """The record of a network adversary; ``played`` is the panel with the seeds of the submission."""

    stage: Literal["panel"]
    played: dict[str, Any]
    code_sha256: Sha256
    versions: dict[str, Text]
    machine: MachineRecord
    cells: tuple[DamageCell, ...] = Field(min_length=1)
    score: Interval

    @model_validator(mode="after")
    def _check_runs(self) -> Self:
        if self.score.n_runs != len(self.cells):
            raise ValueError(f"score.n_runs is {self.score.n_runs}; its cells are {len(self.cells)}")
        return self

    @property
    def worst(self) -> DamageCell:
        """The run with the lowest utilisation."""
        return min(self.cells, key=lambda cell: (cell.utilisation, cell.sender, cell.scenario, cell.seed))


def undisturbed_cells(suite: Suite) -> list[CurveCell]:
    """Return the cells of a panel against its nominal adversary, in the order of the suite."""
    nominal = suite.model_copy(update={"adversaries": (suite.score.adversary,)})
    return make_curve_cells(nominal, [agent_player(spec, spec) for spec in suite.agents])


def measure_damage(cell: CurveCell, adversary: Adversary) -> tuple[DamageCell, Any]:
    """Play a cell against its nominal adversary and another one; return the comparison and the second trace."""
    undisturbed = cell.values(cell.trace())["utilisation"]
    trace = cell.trace(adversary)
    used = cell.values(trace)["utilisation"]
    if undisturbed is None or used is None:
        raise CcenvError(f"cell {cell.name}: utilisation is not defined")
    return DamageCell(
        sender=cell.agent.label,
        scenario=cell.scenario,
        seed=cell.seed,
        undisturbed=undisturbed,
        utilisation=used,
        sender_sha256=canonical_hash(build_sender(cell.agent)),
    ), trace


def compute_score(cells: Sequence[DamageCell]) -> dict[str, Any]:
    """Return the interquartile mean of the degradation with its interval, stratified by sender and scenario."""
    by_case: dict[str, list[float]] = {}
    for cell in cells:
        by_case.setdefault(f"{cell.sender}/{cell.scenario}", []).append(cell.damage)
    return asdict(estimate(list(by_case.values())))


@dataclass(frozen=True)
class DamageStage:
    """An adversary against the panel."""

    suite: Suite
    name = "panel"
    kind = DAMAGE
    track = "adversary"

    def slots(self, submission: str) -> tuple[str, str]:
        """Once per version of the panel and of the code."""
        stem = f"{DAMAGE}/{submission}/{self.suite.sha256}/"
        return stem, stem + cells_code()

    def prepare(self, job: Job) -> Work:
        """Derive the seeds."""
        seeded, content = job.with_submission_seeds(self.suite)
        played = self.suite.model_copy(update={"seeds": seeded.seeds})  # with the senders of the panel
        content |= {
            "stage": self.name,
            "played": plain(played.model_dump()),
            "code_sha256": cells_code(),
            "versions": versions(),
            "machine": machine(),
        }
        return DamageWork(played, content, dict(job.entrant.files))


@dataclass(frozen=True)
class DamageWork:
    """A panel to be played."""

    played: Suite
    content: dict[str, Any]
    files: dict[str, bytes]
    cpu_s = 0.0

    def run(self, progress: Progress) -> Content:
        """Play all of it; it takes seconds, so nothing of it is kept when it is interrupted."""
        comparisons = list(self._play(progress))
        cells = [cell for cell, _ in comparisons]
        content = {**self.content, "cells": [cell.model_dump() for cell in cells], "score": compute_score(cells)}
        worst = min(range(len(cells)), key=lambda i: (cells[i].utilisation, cells[i].sender, cells[i].scenario, cells[i].seed))
        return content, {WORST_VIEW: view_json(comparisons[worst][1])}

    def _play(self, progress: Progress) -> Iterator[tuple[DamageCell, Any]]:
        adversary: Any = parse_submission(self.files, self.content["name"]).player
        cells = undisturbed_cells(self.played)
        for done, cell in enumerate(cells):
            progress(done, len(cells))
            yield measure_damage(cell, adversary)
        progress(len(cells), len(cells))
