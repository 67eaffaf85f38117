"""What all client scripts share: how many steps they run, and the line of JSON that they print."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from importlib.metadata import version

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: one core each, as the table in docs/environments.md


def main(client: str, package: str, run: Callable[[int], int], default_steps: int) -> None:
    """Run a client and print what it did as one line of JSON.

    Args:
        client: what is run, for the table.
        package: whose version is told.
        run: takes the number of environment steps that are wanted, returns the number that were taken.
        default_steps: without ``--steps``.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=default_steps, help="environment steps")
    steps = parser.parse_args().steps
    run(min(steps, max(steps // 20, 1)))  # compiles the kernels and imports what is imported late
    begin = time.perf_counter()
    taken = run(steps)
    seconds = time.perf_counter() - begin
    told = {
        "client": client,
        "package": package,
        "version": version(package),
        "steps": taken,
        "steps_per_s": round(taken / seconds),
    }
    print(json.dumps(told))
