"""Runs until the score of each sender is known to a stated half-width, where they narrow its interval most.

The score is the interquartile mean over all runs with the same weight for each scenario, however many runs it has. Its variance
is that of the influence function of a trimmed mean (Huber, Ronchetti: Robust Statistics, 2nd edition, s.3.3): runs clipped to the
quartiles, over half of the mass. Its interval is Student's, with the degrees of freedom of Welch and Satterthwaite from the half
of the runs that are not clipped (Tukey, McLaughlin 1963). A plan that stops when its interval is narrow stops sooner where runs
happen to agree: with less than FEWEST_RUNS in all, two in three intervals of a bimodal score held what they should in 19 of 20.
Runs are drawn within scenarios in the order of their seeds, so a plan follows from finished runs alone, whatever made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count, islice
from typing import Any

import numpy as np

from ccenv.base.errors import InputError, shown, unknown_name
from ccenv.benchmarks.statistics import CONFIDENCE
from ccenv.benchmarks.suite.base import CellData, SuiteBase
from ccenv.benchmarks.suite.curve import Suite
from ccenv.benchmarks.suite.packet import PacketSuite

FIRST_RUNS, MOST_RUNS = 6, 128  # of a scenario
FEWEST_RUNS = 60  # of all scenarios, before an interval is believed
PRIOR_RUNS = 4  # a scenario's variance leans on the mean of all as if this many of its runs had shown that
STOPPING = 1.06  # intervals are wider by that: plans stop where they look narrow (docs/tables/record_adaptive.py simulated)
BY_INFLUENCE = "Student, from the influence of each run; the same weight for each scenario"
STEP = 0.1  # further runs of a round, of those that are there


@dataclass(frozen=True)
class Known:
    """What finished runs say about a score, or a difference of two: interquartile mean, half-width, variance by scenario."""

    iqm: float
    half_width: float
    variances: np.ndarray


def influences(tasks: Sequence[np.ndarray]) -> tuple[float, list[np.ndarray]]:
    """Return the interquartile mean in which each task has the same weight, and each run's influence on it up to a constant."""
    values = np.concatenate(tasks)
    order = np.argsort(values, kind="stable")
    weights = np.concatenate([np.full(len(runs), 1 / len(runs) / len(tasks)) for runs in tasks])[order]
    below, values = np.concatenate([[0.0], np.cumsum(weights)]), values[order]
    low, high = (values[min(int(np.searchsorted(below[1:], share)), len(values) - 1)] for share in (0.25, 0.75))
    inside = np.diff(np.clip(below, 0.25, 0.75))
    return float(values @ inside / inside.sum()), [2 * np.clip(runs, low, high) for runs in tasks]


def estimate_known(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray] | None = None) -> Known:
    """Return what runs (one array a scenario, at least two values each) say; of a difference, runs are paired by place."""
    iqm, influence = influences(ours)
    if theirs is not None:
        other, beside = influences(theirs)
        iqm, influence = iqm - other, [a - b for a, b in zip(influence, beside, strict=True)]
    counts = np.array([len(runs) for runs in influence])
    variances = np.array([runs.var(ddof=1) for runs in influence])
    variances = (variances * (counts - 1) + variances.mean() * PRIOR_RUNS) / (counts - 1 + PRIOR_RUNS)
    parts = variances / counts / len(counts) ** 2
    if not parts.sum() > 0:
        return Known(iqm, 0.0, variances)
    freedom = parts.sum() ** 2 / (parts**2 / (counts / 2 - 0.5)).sum()
    return Known(iqm, STOPPING * _quantile(freedom) * float(np.sqrt(parts.sum())), variances)


@cache
def _quantile(freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def forecast_runs(known: Known, counts: np.ndarray, half_width: float) -> int:
    """Return how many runs in all the half-width takes, if variances stay: those that are there, then by standard deviation."""
    from scipy.special import ndtri

    standard_error = half_width / (STOPPING * ndtri((1 + CONFIDENCE) / 2)) * len(counts)
    deviations = np.sqrt(known.variances)
    needed = deviations * deviations.sum() / standard_error**2
    return int(np.ceil(np.maximum(np.minimum(needed, MOST_RUNS), counts).sum()))


Runs = Callable[[str, int], "list[float | None] | None"]
"""Scenario and number of seeds -> the values of these runs, None where undefined; None while one of them is not finished."""


@dataclass
class Plan:
    """The runs of a sender: how many seeds of each scenario, round after round.

    Attributes:
        rounds: number of runs, half-width and forecast of each round.
    """

    scenarios: Sequence[str]
    half_width: float
    runs: Runs
    beside: Runs | None = None
    rounds: list[dict[str, float]] = field(default_factory=list)
    known: Known | None = None
    finished: bool = False

    def __post_init__(self) -> None:
        self.counts = np.full(len(self.scenarios), max(FIRST_RUNS, -(-FEWEST_RUNS // len(self.scenarios))))

    def advance(self) -> None:
        """Follow finished runs as far as they go."""
        while not self.finished and (pair := self._finished_runs()) is not None:
            places, ours, theirs = pair
            if not places:
                self.finished = True  # no scenario defines the score
                return
            self.known = known = estimate_known(ours, theirs)
            counts = self.counts[places]
            self.rounds.append(
                {
                    "runs": int(self.counts.sum()),
                    "half_width": known.half_width,
                    "forecast": forecast_runs(known, counts, self.half_width),
                }
            )
            self.finished = known.half_width <= self.half_width or bool((counts >= MOST_RUNS).all())
            for _ in range(0 if self.finished else max(1, int(STEP * counts.sum()))):
                gains = np.where(counts < MOST_RUNS, known.variances / counts / (counts + 1), -1.0)
                if gains.max() >= 0:
                    counts[gains.argmax()] += 1
            self.counts[places] = counts

    def _finished_runs(self) -> tuple[list[int], list[np.ndarray], list[np.ndarray] | None] | None:
        places, ours, theirs = [], [], []
        for place, (scenario, n) in enumerate(zip(self.scenarios, self.counts.tolist(), strict=True)):
            runs = self.runs(scenario, n)
            others = self.beside(scenario, n) if self.beside else runs
            if runs is None or others is None:
                return None
            pairs = [(a, b) for a, b in zip(runs, others, strict=True) if a is not None and b is not None]
            if len(pairs) > 1:
                places.append(place)
                ours.append(np.array([a for a, _ in pairs]))
                theirs.append(np.array([b for _, b in pairs]))
        return places, ours, theirs if self.beside else None


class Plans:
    """The plans of all senders of a run of a suite.

    Args:
        suite: with seeds of its own; ``suite`` of the plans has MOST_RUNS.
        labels: of the senders.
        half_width: to reach, above 0.
        beside: label of the sender to whose score the difference counts.

    Raises InputError for a suite whose runs do not differ by seed, or numbers and names that cannot be.
    """

    def __init__(self, suite: SuiteBase, labels: Sequence[str], half_width: float | None, beside: str | None) -> None:
        if half_width is None or not 0 < half_width < np.inf:
            raise InputError(f"half_width is {shown(half_width)}; it must be above 0, in units of {suite.score.metric}")
        if beside is not None and beside not in labels:
            raise unknown_name("sender", beside, labels)
        if not isinstance(suite, (Suite, PacketSuite)) or suite.engine == "attack":
            raise InputError(f"suite {suite.name!r} has no seeds that could be added: leave out half_width")
        further = (seed for seed in count(1) if seed not in suite.seeds)
        seeds = (*suite.seeds, *islice(further, max(0, MOST_RUNS - len(suite.seeds))))
        self.suite, self.first_seeds, self.beside = suite.model_copy(update={"seeds": seeds}), suite.seeds, beside
        self._values: dict[tuple[str, str, int], float | None] = {}
        scenarios = [case.name for case in suite.cases if getattr(case.scenario, "uses_agent", True)]
        self.plans = {
            label: Plan(scenarios, half_width, partial(self._runs, label), partial(self._runs, beside) if beside else None)
            for label in labels
            if label != beside
        }

    def _runs(self, label: str, scenario: str, n: int) -> list[float | None] | None:
        keys = [(label, scenario, seed) for seed in self.suite.seeds[:n]]
        return [self._values[key] for key in keys] if all(key in self._values for key in keys) else None

    def next_runs(self, records: Iterable[CellData]) -> Iterator[tuple[str, str, int]]:
        """Follow the records and yield sender, scenario and seed of the runs that are to be played next."""
        score = self.suite.score
        for record in records:
            if record["adversary"] == score.adversary:
                key = (record["agent"], record["scenario"], record["seed"])
                self._values[key] = record["metrics"].get(score.metric)
        for label, plan in self.plans.items():
            plan.advance()
            for scenario, n in zip(plan.scenarios, plan.counts.tolist(), strict=True):
                for one in filter(None, (label, self.beside)):
                    yield from (key for seed in self.suite.seeds[:n] if (key := (one, scenario, seed)) not in self._values)

    @property
    def finished(self) -> bool:
        """Whether every plan is."""
        return all(plan.finished for plan in self.plans.values())

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return of each sender what is known: interval, runs by scenario, and the forecast of each round."""
        return {
            label: {
                "iqm": plan.known.iqm,
                "low": plan.known.iqm - plan.known.half_width,
                "high": plan.known.iqm + plan.known.half_width,
                "half_width": plan.known.half_width,
                "reached": plan.known.half_width <= plan.half_width,
                "beside": self.beside,
                "n_runs": plan.rounds[-1]["runs"],
                "forecast": plan.rounds[0]["forecast"],
                "runs": dict(zip(plan.scenarios, plan.counts.tolist(), strict=True)),
                "rounds": plan.rounds,
            }
            for label, plan in self.plans.items()
            if plan.known
        }
