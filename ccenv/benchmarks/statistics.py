"""Comparing two senders, and one sender with every threshold: definitions of RLiable (NeurIPS 2021), s.4.2 and 4.3.

Runs are resampled within each scenario, never across, as for the scores (``ccenv.benchmarks.intervals``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from ccenv.benchmarks.intervals import CONFIDENCE, REPLICATES

Tasks = Mapping[str, np.ndarray]
"""Scenario -> values of its runs."""


@cache
def _resampled(n: int, stream: int) -> np.ndarray:
    """Return how often each of n runs is drawn in each bootstrap sample, shape (REPLICATES, n)."""
    generator = np.random.Generator(np.random.Philox(stream))
    counts = generator.multinomial(n, np.full(n, 1 / n), size=REPLICATES)
    counts.flags.writeable = False
    return counts


def probability_of_improvement(ours: Tasks, theirs: Tasks, *, sign: float = 1.0) -> tuple[float, float, float] | None:
    """Return the probability that a run of ours beats a run of theirs in a scenario drawn at random, with its 95 % interval.

    The mean over scenarios of the Mann-Whitney statistic, ties counted half; percentile bootstrap of both sides.

    Args:
        ours: values per scenario.
        theirs: the same of the other; only scenarios that both have count.
        sign: 1 where higher is better, -1 where lower is.

    Returns:
        tuple: probability, low and high; None if no scenario is common.
    """
    common = [name for name in ours if name in theirs and len(ours[name]) and len(theirs[name])]
    if not common:
        return None
    point, samples = 0.0, np.zeros(REPLICATES)
    for index, name in enumerate(common):
        a, b = sign * ours[name][:, None], sign * theirs[name][None, :]
        wins = (a > b) + 0.5 * (a == b)
        point += float(wins.mean())
        drawn = (_resampled(len(a), 2 * index) @ wins) * _resampled(b.shape[1], 2 * index + 1)
        samples += drawn.sum(axis=1) / wins.size
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples / len(common), [tail, 1 - tail])
    return point / len(common), float(low), float(high)


def performance_profile(tasks: Tasks, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the share of runs above each threshold, with its pointwise 95 % interval.

    Args:
        tasks: values per scenario.
        thresholds: shape (T,).

    Returns:
        tuple: share, low and high, each of shape (T,).
    """
    total = sum(len(values) for values in tasks.values())
    samples = np.zeros((REPLICATES, len(thresholds)))
    point = np.zeros(len(thresholds))
    for index, values in enumerate(tasks.values()):
        above = values[:, None] > thresholds[None, :]
        point += above.sum(axis=0)
        samples += _resampled(len(values), index) @ above
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples / total, [tail, 1 - tail], axis=0)
    return point / total, low, high
