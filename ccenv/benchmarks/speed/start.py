"""Cold and warm start: a fresh process from nothing to the first step of an environment."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from ccenv.errors import CcenvError

FIRST_STEP = """
import gymnasium, ccenv
env = gymnasium.make("ccenv/Sender-v0")
env.reset(seed=0)
env.step(env.action_space.sample())
"""
WARM_REPETITIONS = 5


def measure() -> dict[str, float]:
    """Return ``cold_start_s`` (empty kernel cache) and ``warm_start_s`` (median of WARM_REPETITIONS processes after it)."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        cold = _seconds(environment)
        warm = statistics.median(_seconds(environment) for _ in range(WARM_REPETITIONS))
    return {"cold_start_s": round(cold, 3), "warm_start_s": round(warm, 3)}


def _seconds(environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", FIRST_STEP], env=environment, capture_output=True, text=True, check=False)
    took = time.perf_counter() - begin
    if run.returncode != 0:
        reason = (run.stderr.strip().splitlines() or ["no output"])[-1]
        raise CcenvError(f"the first step of a fresh process failed: {reason}")
    return took
