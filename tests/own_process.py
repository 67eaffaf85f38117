"""Run a function in a process of its own that begins with modules imported: as a command, without what imports cost."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

# What most commands import and load. The processes are copies of one that imported this and did nothing else.
IMPORTED = [
    *("matplotlib.pyplot", "ccenv.leaderboard.site.exchange"),
    *("ccenv.benchmarks.run.runner", "ccenv.benchmarks.compare", "ccenv.envs.clients.sb3", "ccenv.training.run"),
    *("torch._dynamo", "pandas"),  # which a first step of training imports
    "tests.ready_engines",  # found from the root of the repository; where tests start elsewhere, each process loads them
]


class Ended(NamedTuple):
    """How a process ended: its exit code and what it said."""

    returncode: int | None
    stdout: str
    stderr: str


def ready_processes() -> ForkServerContext:
    """Return the context whose processes begin with IMPORTED."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def run_apart(function: Callable[..., int | None], *arguments: Any, folder: Path, limit_s: float) -> Ended:
    """Run a function in a folder; what it returns is the exit code. A process that takes longer than the limit is killed."""
    context = ready_processes()
    with TemporaryDirectory() as said:
        files = [Path(said) / name for name in ("stdout", "stderr")]
        process = context.Process(target=_run, args=(function, arguments, folder, files))
        process.start()
        process.join(limit_s)
        process.kill()
        process.join()
        return Ended(process.exitcode, *(file.read_text(errors="replace") if file.exists() else "" for file in files))


def _run(function: Callable[..., int | None], arguments: tuple[Any, ...], folder: Path, files: list[Path]) -> None:
    os.chdir(folder)
    for stream, file in enumerate(files, start=1):
        with file.open("wb") as out:
            os.dup2(out.fileno(), stream)
    sys.exit(function(*arguments))
