"""Settings of every test run: no display, no network, one thread per numeric library, the same examples every time.

Lies at the root of the tests so that those in sub-folders can import the shared helpers (legal_traces, broken_traces).
"""

import math
import os
import signal
from pathlib import Path

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

from ccenv.cli import progress

# A slow machine says no more than a fast one: tests count lines.
progress.EVERY_S = math.inf

# No deadline: the first example compiles kernels. Derandomized: a green run stays green. To look further:
# pytest --hypothesis-profile=explore
settings.register_profile("ccenv", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("ccenv")

# Files that compile large kernels, those of different kernels side by side: two processes that want the same one at the same time
# would both compile it. Then the longest files: what begins last should be short.
FIRST = (
    "engine/test_curve_engine.py",
    "packet/test_packet_engine.py",
    "ode/test_ode_reference.py",
    "synth/test_synth_limits.py",
    "live/test_live_emulator.py",
    "training/test_kernel_rollouts.py",
    "docs/test_docs_examples.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of FIRST, in this order."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(FIRST)))
