"""Settings of every test run: no display, no network, one thread per numeric library, the same examples every time.

Lies at the root of the tests so that those in sub-folders can import the shared helpers (legal_traces, broken_traces).
"""

import gc
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "docs"))  # for docs/tables

# Before anything imports matplotlib, wandb or torch.
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# A shell's background job ignores Ctrl-C, and so would every command that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import settings

from ccenv.base.kernels import announce
from ccenv.cli import output
from ccenv.cli.main import main

# What is imported and collected stays: no search for garbage in it, now or later (pytest_collection_finish).
gc.disable()

# A slow machine says no more than a fast one: tests count lines.
output.EVERY_S = math.inf
announce.AFTER_S = 1e6

# No deadline: the first example compiles kernels. Derandomized: a green run stays green. To look further:
# pytest --hypothesis-profile=explore
settings.register_profile("ccenv", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("ccenv")

# Files that compile large kernels, those of different kernels side by side: two processes that want the same one at the same time
# would both compile it. Then the longest files: what begins last should be short.
FIRST = (
    "engine/test_curve_engine.py", "engine/packet/test_packet_engine.py", "engine/fluid/test_ode_simulate.py",
    "proofs/synthesis/test_synth_limits.py", "live/test_live_emulator.py", "training/test_kernel_rollouts.py",
    "docs/test_docs_examples.py",
)  # fmt: skip


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], Any]:
    """Run a command of ccenv in this process, with exit code 0. Return the JSON that it prints."""

    def run(arguments: list[str]) -> Any:
        capsys.readouterr()
        assert main(arguments) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Run a command that ends with exit code 2 and one line of error, in which the words stand."""

    def run(arguments: list[str], words: str = "") -> None:
        capsys.readouterr()
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.startswith("ccenv: error: ") and error.count("\n") == 1

    return run


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine's kernel cannot do, and say what is missing."""
    if item.get_closest_marker("live"):
        from ccenv.live import live_needs

        for need in live_needs(bpf=item.get_closest_marker("live_bpf") is not None):
            if not need.ok:
                pytest.skip(f"{need.name}: {need.found}; {need.advice}")


BEGIN: pytest.StashKey[float] = pytest.StashKey()
WORKERS: pytest.StashKey[list[float]] = pytest.StashKey()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of FIRST, in this order."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(FIRST)))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # a tenth of the CPU seconds of proofs and boards, which make many objects without cycles
    gc.enable()


def used_cpu_s() -> float:
    """Return the CPU seconds of this process, of children that ended, and of those that still run (Linux)."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ticks = 0
    for file in Path("/proc/self/task").glob("*/children"):
        for child in file.read_text().split():
            ticks += sum(int(field) for field in Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:15])
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + ticks / os.sysconf("SC_CLK_TCK")


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[BEGIN] = time.monotonic()
    session.config.stash[WORKERS] = []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Keep what a process of pytest-xdist has used."""
    node.config.stash[WORKERS].append(node.workeroutput["cpu_s"] if error is None else math.nan)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the CPU seconds to the first process; of a whole run it keeps them for ``ccenv bench speed``."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["cpu_s"] = used_cpu_s()
        return
    # Processes of pytest-xdist have ended by now, or not: their seconds come from themselves.
    cpu_s = sum(config.stash[WORKERS]) or used_cpu_s()
    whole = config.args == config.getini("testpaths") and config.option.markexpr == "not slow" and not config.option.collectonly
    if session.exitstatus == 0 and whole and hasattr(config, "cache"):
        run = {"tests": session.testscollected, "cpu_s": round(cpu_s), "wall_s": round(time.monotonic() - config.stash[BEGIN])}
        config.cache.set("ccenv/tests", run)
