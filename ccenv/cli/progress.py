"""Progress on stderr: a bar where a person watches, a line now and then where the output goes into a file or a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ccenv.base.kernels.announce import spent_s

EVERY_S = 15.0


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to be called with the number of finished and of all items."""
    if not sys.stderr.isatty():
        yield progress_lines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def progress_lines(what: str) -> Callable[[int, int], None]:
    """Return a function that prints a line every EVERY_S seconds; what ends sooner prints none."""
    begin = last = _working_s()
    first: int | None = None

    def show(done: int, total: int) -> None:
        nonlocal last, first
        first = done if first is None else first
        now = _working_s()
        if now - last < EVERY_S or done >= total:
            return
        last = now
        left_s = (now - begin) / (done - first) * (total - done) if done > first else None
        left = "" if left_s is None else f", about {_time(left_s)} left"
        print(f"ccenv: {what}: {done} of {total}{left}", file=sys.stderr, flush=True)

    return show


def _working_s() -> float:
    """Return a time that stands still while kernels are compiled: the rate of work does not count it."""
    return time.monotonic() - spent_s()


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
