"""Runs until the score of each sender is known to a stated half-width, where they narrow its interval most.

The score is the interquartile mean over all runs with the same weight for each scenario, however many runs it has. Its variance
is that of the influence function of a trimmed mean (Huber, Ronchetti: Robust Statistics, 2nd edition, s.3.3): runs clipped to the
quartiles, over half of the mass. Its interval is Student's, with the degrees of freedom of Welch and Satterthwaite from the half
of the runs that are not clipped (Tukey, McLaughlin 1963). A plan that stops when its interval is narrow stops sooner where runs
happen to agree: with less than FEWEST_RUNS in all, two in three intervals of a bimodal score held what they should in 19 of 20.
Runs are drawn within scenarios in an order of seeds, so a plan follows from finished runs alone, whatever made them.

What a seed draws is known before it is played. The order of a packet suite's seeds is such that draws are spread evenly, along an
additive sequence (Niederreiter: Random number generation and quasi-Monte Carlo methods, 1992), and what a polynomial of the draws
explains of the influences is then no noise: a scenario's variance is that of the residuals (Cochran: Sampling techniques, ch. 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count, islice, product
from typing import Any

import numpy as np

from ccenv.base.errors import InputError, shown, unknown_name
from ccenv.base.random import uniform
from ccenv.benchmarks.statistics import CONFIDENCE
from ccenv.benchmarks.suite.base import CellData, SuiteBase
from ccenv.benchmarks.suite.curve import Suite
from ccenv.benchmarks.suite.packet import Drawn, PacketSuite

FIRST_RUNS, MOST_RUNS = 3, 128  # of a scenario
POOL = 512  # seeds among which those of a scenario are chosen
DEGREE = 3  # of the polynomials of what seeds draw
RUNS_PER_TERM = 2  # of a polynomial, after the first ones
LEFT_BY_TERMS = 0.4  # (terms)^-that of a variance was left in standard-v2 and company; for forecasts alone
FEWEST_RUNS = 64  # of all scenarios, before an interval is believed
PRIOR_RUNS = 2  # a scenario's variance leans on the mean of all as if this many of its runs had shown that
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


def polynomials(shares: np.ndarray) -> np.ndarray:
    """Return the terms (n, terms) up to DEGREE of shares in [0, 1), (n, parameters): of mean 0 where shares are even."""
    degrees = [d for d in product(range(DEGREE + 1), repeat=shares.shape[1]) if 0 < sum(d) <= DEGREE]
    values = np.polynomial.legendre.legvander(2 * shares - 1, DEGREE)  # (n, parameters, degrees)
    terms = [values[:, range(len(d)), d].prod(axis=1) for d in sorted(degrees, key=lambda d: (sum(d), max(d)))]
    return np.stack(terms, axis=1) if terms else np.zeros((len(shares), 0))


def spread(shares: np.ndarray, n: int) -> list[int]:
    """Return n rows of shares (pool, parameters), the first one first, each nearest to the next point of an additive sequence."""
    root, free, rows = 2.0, np.ones(len(shares), bool), list[int]()
    for _ in range(64):
        root = (1 + root) ** (1 / (shares.shape[1] + 1))
    steps = root ** -np.arange(1.0, shares.shape[1] + 1)
    for place in range(n):
        away = ((shares - (shares[0] + place * steps) % 1) ** 2).sum(axis=1)
        rows.append(int(np.where(free, away, np.inf).argmin()))
        free[rows[-1]] = False
    return rows


def count_terms(runs: int | np.ndarray, most: int | np.ndarray) -> np.ndarray:
    """Return how many of a polynomial's terms are fitted to so many runs."""
    return np.asarray(np.clip((np.asarray(runs) - FIRST_RUNS + 1) // RUNS_PER_TERM, 0, most))


def regress(influence: np.ndarray, terms: np.ndarray) -> tuple[float, float, int]:
    """Return how far influences lie from where even draws would put them, squares of what terms leave, and their freedom."""
    n_terms = int(count_terms(len(influence), terms.shape[1]))
    known = np.column_stack([np.ones(len(influence)), terms[:, :n_terms]])
    factors = np.linalg.lstsq(known, influence, rcond=None)[0]
    left = influence - known @ factors
    return float(influence.mean() - factors[0]), float(left @ left), len(influence) - 1 - n_terms


def estimate_known(
    ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray] | None = None, terms: Sequence[np.ndarray] | None = None
) -> Known:
    """Return what runs (one array a scenario, at least two values each) say; of a difference, runs are paired by place.

    ``terms`` are those of :func:`polynomials` of the runs of each scenario, whose seeds :func:`spread` has ordered.
    """
    iqm, influence = influences(ours)
    if theirs is not None:
        other, beside = influences(theirs)
        iqm, influence = iqm - other, [a - b for a, b in zip(influence, beside, strict=True)]
    counts = np.array([len(runs) for runs in influence])
    terms = [np.zeros((n, 0)) for n in counts] if terms is None else terms
    uneven, squares, freedoms = np.array([regress(*pair) for pair in zip(influence, terms, strict=True)]).T
    iqm -= float(uneven.mean())
    variances = (squares + (squares / freedoms).mean() * PRIOR_RUNS) / (freedoms + PRIOR_RUNS)
    parts = variances / counts / len(counts) ** 2
    if not parts.sum() > 0:
        return Known(iqm, 0.0, variances)
    freedom = parts.sum() ** 2 / (parts**2 / (freedoms / 2)).sum()
    return Known(iqm, STOPPING * _quantile(freedom) * float(np.sqrt(parts.sum())), variances)


@cache
def _quantile(freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def forecast_runs(known: Known, counts: np.ndarray, half_width: float, n_terms: np.ndarray) -> int:
    """Return how many runs in all the half-width takes: those that are there, then by standard deviation.

    What ``n_terms`` (those that there are, by scenario) leave of the variances falls as more of them are fitted.
    """
    from scipy.special import ndtri

    standard_error = half_width / (STOPPING * ndtri((1 + CONFIDENCE) / 2)) * len(counts)
    needed, fitted = counts, np.maximum(count_terms(counts, n_terms), 1)
    for _ in range(20):
        falls = (np.maximum(count_terms(needed, n_terms), 1) / fitted) ** -LEFT_BY_TERMS
        deviations = np.sqrt(known.variances * falls)
        further = np.minimum(deviations * deviations.sum() / standard_error**2, MOST_RUNS)
        needed = (needed + np.maximum(further, counts)) / 2
    return int(np.ceil(needed.sum()))


Runs = Callable[[str, int], "list[float | None] | None"]
"""Scenario and number of seeds -> the values of these runs, None where undefined; None while one of them is not finished."""


@dataclass
class Plan:
    """The runs of a sender: how many seeds of each scenario, round after round."""

    scenarios: Sequence[str]
    half_width: float
    runs: Runs
    beside: Runs | None = None
    # of what the seeds of a scenario draw: scenario and number of seeds -> (n, terms)
    terms: Callable[[str, int], np.ndarray] | None = None
    rounds: list[dict[str, float]] = field(default_factory=list)  # number of runs, half-width and forecast of each round
    known: Known | None = None
    finished: bool = False

    def __post_init__(self) -> None:
        self.counts = np.full(len(self.scenarios), max(FIRST_RUNS, -(-FEWEST_RUNS // len(self.scenarios))))

    def advance(self) -> None:
        """Follow finished runs as far as they go."""
        while not self.finished and (pair := self._finished_runs()) is not None:
            places, ours, theirs, terms = pair
            if not places:
                self.finished = True  # no scenario defines the score
                return
            self.known = known = estimate_known(ours, theirs, terms)
            counts = self.counts[places]
            self.rounds.append(
                {
                    "runs": int(self.counts.sum()),
                    "half_width": known.half_width,
                    "forecast": forecast_runs(known, counts, self.half_width, np.array([one.shape[1] for one in terms])),
                }
            )
            self.finished = known.half_width <= self.half_width or bool((counts >= MOST_RUNS).all())
            for _ in range(0 if self.finished else max(1, int(STEP * counts.sum()))):
                gains = np.where(counts < MOST_RUNS, known.variances / counts / (counts + 1), -1.0)
                if gains.max() >= 0:
                    counts[gains.argmax()] += 1
            self.counts[places] = counts

    def _finished_runs(self) -> tuple[list[int], list[np.ndarray], list[np.ndarray] | None, list[np.ndarray]] | None:
        places, ours, theirs, terms = [], [], [], []
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
                drawn = self.terms(scenario, n) if self.terms else np.zeros((n, 0))
                terms.append(drawn if len(pairs) == n else np.zeros((len(pairs), 0)))  # what is left out may not be even
        return places, ours, theirs if self.beside else None, terms


def _shares(suite: SuiteBase, case: Any, seeds: Sequence[int]) -> np.ndarray:
    """Return what seeds draw in a case, as shares of its parameters' ranges, (seeds, parameters); a curve suite tells none."""
    n = sum(isinstance(value, Drawn) for value in case.scenario.parameters.values()) if isinstance(suite, PacketSuite) else 0
    keys = [suite.run_key(case.name, seed) for seed in seeds]
    return np.array([[uniform(float(key), 0.0, 0.0, float(i)) for i in range(n)] for key in keys]).reshape(len(seeds), n)


class Plans:
    """The plans of all senders of a run of a suite.

    Args:
        suite: with seeds of its own; ``suite`` of the plans has POOL.
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
        pool = suite.seeds + tuple(islice(further, max(0, POOL - len(suite.seeds))))
        self.suite, self.beside = suite.model_copy(update={"seeds": pool}), beside
        self.first_seeds = suite.seeds[:1] if isinstance(suite, PacketSuite) else suite.seeds
        cases = [case for case in suite.cases if getattr(case.scenario, "uses_agent", True)]
        shares = {case.name: _shares(suite, case, pool) for case in cases}
        rows = {name: spread(drawn, MOST_RUNS) if drawn.size else list(range(MOST_RUNS)) for name, drawn in shares.items()}
        self._seeds = {name: [pool[row] for row in rows[name]] for name in rows}
        terms = {name: polynomials(shares[name][rows[name]]) for name in rows}
        self._values: dict[tuple[str, str, int], float | None] = {}
        others = partial(self._runs, beside) if beside else None
        self.plans = {
            label: Plan(list(rows), half_width, partial(self._runs, label), others, lambda name, n: terms[name][:n])
            for label in labels
            if label != beside
        }

    def _runs(self, label: str, scenario: str, n: int) -> list[float | None] | None:
        keys = [(label, scenario, seed) for seed in self._seeds[scenario][:n]]
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
                    yield from (key for seed in self._seeds[scenario][:n] if (key := (one, scenario, seed)) not in self._values)

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
