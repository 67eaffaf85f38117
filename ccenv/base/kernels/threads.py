"""Kernels on several threads, each with a range of independent items: the result is that of one thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache


def most_threads() -> int:
    """Return how many threads kernels may use: NUMBA_NUM_THREADS, or the cores."""
    from numba import config

    return int(config.NUMBA_NUM_THREADS)


@cache
def _pool(threads: int, _process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "ccenv-kernels")


def share(run: Callable[[int, int], None], n: int, threads: int, parts: int = 0) -> None:
    """Call run(first, last) on up to ``threads`` threads for ``parts`` ranges of n items; 0 parts: one range a thread.

    Kernels called by ``run`` release the interpreter lock (``nogil``).
    """
    threads = min(threads, n, most_threads())
    if threads <= 1:
        run(0, n)
        return
    parts = min(parts or threads, n)
    ranges = [(part * n // parts, (part + 1) * n // parts) for part in range(parts)]
    for result in [_pool(threads, os.getpid()).submit(run, *limits) for limits in ranges]:
        result.result()
