"""Statistics over runs: interquartile mean, probability of improvement and performance profiles, with bootstrap intervals.

Definitions of Agarwal, Schwarzer, Castro, Courville, Bellemare, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice", NeurIPS 2021 (RLiable), s.4 to 4.3: runs are resampled with replacement within each task (scenario), never across
tasks, and the statistic is taken over all runs of all tasks together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ccenv.base.errors import InputError

REPLICATES = 2000
CONFIDENCE = 0.95
SEED = 0


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of finite values (..., n), n >= 1, over the last axis. Raises InputError.

    floor(n/4) values at each end are left out, as in ``scipy.stats.trim_mean``, which RLiable uses.
    """
    n = values.shape[-1]
    if n == 0 or not np.isfinite(values).all():
        raise InputError("an interquartile mean needs at least one value, and finite ones")
    cut = n // 4
    return np.asarray(np.sort(values, axis=-1)[..., cut : n - cut].mean(axis=-1))


@dataclass(frozen=True)
class Estimate:
    """An interquartile mean with the ends of its interval, and the number of values."""

    iqm: float
    low: float
    high: float
    n_runs: int


def estimate(
    tasks: Sequence[Sequence[float]], *, replicates: int = REPLICATES, confidence: float = CONFIDENCE, seed: int = SEED
) -> Estimate:
    """Return the interquartile mean over all runs of all tasks and its interval (:func:`bootstrap`)."""
    low, high = bootstrap(tasks, interquartile_mean, replicates=replicates, confidence=confidence, seed=seed)
    pooled = np.concatenate([np.asarray(runs, dtype=np.float64) for runs in tasks])
    return Estimate(float(interquartile_mean(pooled)), low, high, len(pooled))


def bootstrap(
    tasks: Sequence[Sequence[float]],
    statistic: Callable[[np.ndarray], np.ndarray],
    *,
    replicates: int = REPLICATES,
    confidence: float = CONFIDENCE,
    seed: int = SEED,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic over all runs of all tasks, stratified by task.

    ``tasks`` are the values of each task's runs, at least one; ``statistic`` takes (replicates, n) values to (replicates,);
    ``confidence`` is the share of the samples inside the interval. Raises InputError if a task has no run or a value is not
    finite.
    """
    strata = [np.asarray(runs, dtype=np.float64) for runs in tasks]
    if not strata or any(runs.ndim != 1 or len(runs) == 0 for runs in strata):
        raise InputError("a bootstrap needs at least one task, and at least one run of each")
    generator = np.random.Generator(np.random.Philox(seed))
    resampled = [runs[generator.integers(0, len(runs), (replicates, len(runs)))] for runs in strata]
    tail = (1 - confidence) / 2
    low, high = np.quantile(statistic(np.concatenate(resampled, axis=1)), [tail, 1 - tail])
    return float(low), float(high)


Tasks = Mapping[str, np.ndarray]
"""Scenario -> values of its runs."""


@cache
def _draw_counts(n: int, stream: int) -> np.ndarray:
    """Return how often each of n runs is drawn in each bootstrap sample, shape (REPLICATES, n)."""
    generator = np.random.Generator(np.random.Philox(stream))
    counts = generator.multinomial(n, np.full(n, 1 / n), size=REPLICATES)
    counts.flags.writeable = False
    return counts


def probability_of_improvement(ours: Tasks, theirs: Tasks, *, sign: float = 1.0) -> tuple[float, float, float] | None:
    """Return the probability that a run of ours beats a run of theirs in a scenario drawn at random, with its 95 % interval.

    The mean over common scenarios of the Mann-Whitney statistic, ties counted half; percentile bootstrap of both sides. ``sign``
    is 1 where higher is better, -1 where lower is. None if no scenario is common.
    """
    common = [name for name in ours if name in theirs and len(ours[name]) and len(theirs[name])]
    if not common:
        return None
    point, samples = 0.0, np.zeros(REPLICATES)
    for index, name in enumerate(common):
        a, b = sign * ours[name][:, None], sign * theirs[name][None, :]
        wins = (a > b) + 0.5 * (a == b)
        point += float(wins.mean())
        drawn = (_draw_counts(len(a), 2 * index) @ wins) * _draw_counts(b.shape[1], 2 * index + 1)
        samples += drawn.sum(axis=1) / wins.size
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples / len(common), [tail, 1 - tail])
    return point / len(common), float(low), float(high)


def performance_profile(tasks: Tasks, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the share of runs above each of (T,) thresholds, with its pointwise 95 % interval: share, low, high, each (T,)."""
    total = sum(len(values) for values in tasks.values())
    samples = np.zeros((REPLICATES, len(thresholds)))
    point = np.zeros(len(thresholds))
    for index, values in enumerate(tasks.values()):
        above = values[:, None] > thresholds[None, :]
        point += above.sum(axis=0)
        samples += _draw_counts(len(values), index) @ above
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples / total, [tail, 1 - tail], axis=0)
    return point / total, low, high
