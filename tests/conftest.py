"""Settings of every test run: no display, no network, one thread per numeric library, the same examples every time.

Lies at the root of the tests so that those in sub-folders can import the shared helpers (legal_traces, broken_traces).
"""

import math
import os
import signal

# Before anything imports matplotlib, wandb or torch.
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# A shell's background job ignores Ctrl-C, and so would every command that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import settings

from ccenv.cli import progress

# A slow machine says no more than a fast one: tests count lines.
progress.EVERY_S = math.inf

# No deadline: the first example compiles kernels. Derandomized: a green run stays green. To look further:
# pytest --hypothesis-profile=explore
settings.register_profile("ccenv", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("ccenv")
