"""Cold and warm start: fresh processes from nothing to the first result, and what commands take that compute next to nothing."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path as FilePath
from typing import NamedTuple

from ccenv.base.errors import CcenvError

FIRST_STEP = """
import gymnasium, ccenv
env = gymnasium.make("ccenv/Sender-v0")
env.reset(seed=0)
env.step(env.action_space.sample())
"""
CURVE = """
from ccenv.benchmarks.engine import build
build(1, 1, 1, None)
"""
PACKET = """
from ccenv.agents import make_sender
from ccenv.benchmarks.packet import packets_per_s
packets_per_s(("reno",), [make_sender("reno")], 0.1)
"""
FLUID = """
from ccenv.benchmarks.speed_fluid import mixed_flows
from ccenv.engine.fluid.simulate import simulate_batch
simulate_batch([mixed_flows(0.01)], threads=1)
"""
# keys of the record -> what a process with an empty and with a filled kernel cache runs
STARTS = {"start": FIRST_STEP, "curve_engine": CURVE, "packet_engine": PACKET, "fluid_engine": FLUID}
_CCENV = "from ccenv.cli.main import main; raise SystemExit(main({}))"
COMMANDS = {
    "import_ccenv": "import ccenv",
    "help": _CCENV.format(["--help"]),
    "list_agents": _CCENV.format(["list", "agents"]),
    "show_cubic": _CCENV.format(["show", "cubic"]),
    "verify_property": _CCENV.format(["verify", "property", "cc_qdel", "--property", "invariant", "--T", "7", "--fresh"]),
}
REPETITIONS = 5
TESTS = FilePath(".pytest_cache") / "v" / "ccenv" / "tests"


class Seconds(NamedTuple):
    """What a process took: wall and CPU seconds."""

    wall: float
    cpu: float


def measure() -> dict[str, float]:
    """Return wall and CPU seconds of STARTS, cold and warm, and of COMMANDS (medians), and those of the last whole test run here.

    Keys: ``cold_..._s``, ``cold_..._cpu_s``, ``warm_..._s``; ``..._s`` of each command; ``tests_cpu_s``, ``tests_wall_s`` and
    ``tests`` where the test command has passed in this folder.
    """
    out: dict[str, float] = {}
    for name, code in STARTS.items():
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            cold = _seconds(code, environment)
            warm = statistics.median(_seconds(code, environment).wall for _ in range(REPETITIONS))
        out |= {f"cold_{name}_s": cold.wall, f"cold_{name}_cpu_s": cold.cpu, f"warm_{name}_s": warm}
    for name, code in COMMANDS.items():
        out[f"{name}_s"] = statistics.median(_seconds(code, dict(os.environ)).wall for _ in range(REPETITIONS))
    if TESTS.is_file():
        run = json.loads(TESTS.read_text(encoding="utf-8"))
        out |= {"tests": run["tests"], "tests_cpu_s": run["cpu_s"], "tests_wall_s": run["wall_s"]}
    return {name: round(value, 3) for name, value in out.items()}


def _seconds(code: str, environment: dict[str, str]) -> Seconds:
    begin, before = time.perf_counter(), os.times()
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    wall_s, after = time.perf_counter() - begin, os.times()
    if run.returncode != 0:
        reason = (run.stderr.strip().splitlines() or ["no output"])[-1]
        raise CcenvError(f"a fresh process failed: {reason}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Seconds(wall_s, cpu_s)
