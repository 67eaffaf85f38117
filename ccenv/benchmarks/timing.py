"""How times are taken: a warm-up, then repetitions of a fixed amount of work; median and best."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

REPETITIONS = 7
MIN_SECONDS = 0.25


def rates(work: Callable[[], None], units: float) -> tuple[float, float]:
    """Time a piece of work that is done over and over.

    Args:
        work: done once to warm up, then as often as fits into MIN_SECONDS per repetition.
        units: what one call does.

    Returns:
        tuple: median and best units per second over REPETITIONS.
    """
    work()
    calls, once = 1, _seconds(work, 1)
    calls = max(1, round(MIN_SECONDS / max(once, 1e-9)))
    found = [calls * units / _seconds(work, calls) for _ in range(REPETITIONS)]
    return statistics.median(found), max(found)


def _seconds(work: Callable[[], None], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    return time.perf_counter() - begin
