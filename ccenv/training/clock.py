"""What a run costs: wall time and processor time, summed over its interruptions."""

from __future__ import annotations

import time


class Stopwatch:
    """Stands until it is started; goes on from what was spent before."""

    def __init__(self, seconds: float = 0.0, cpu_seconds: float = 0.0) -> None:
        self._before = (seconds, cpu_seconds)
        self._started: tuple[float, float] | None = None

    def start(self) -> None:
        """Let it run from now on."""
        self._started = _now()

    def read(self) -> tuple[float, float]:
        """Return wall seconds and this process's processor seconds (all its threads), each as a sum."""
        if self._started is None:
            return self._before
        wall, cpu = (now - start for now, start in zip(_now(), self._started, strict=True))
        return self._before[0] + wall, self._before[1] + cpu


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
