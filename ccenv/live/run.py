"""Run a scenario on the real TCP stack of this machine."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.files import write_atomic
from ccenv.live.emulator.build import most_in_flight_bytes, ring_of
from ccenv.live.needs import require_live
from ccenv.live.programs import LiveSender, Recording, objects_of, senders_of
from ccenv.live.result import LiveResult
from ccenv.live.scenario import LiveError, LiveScenario, load_live_scenario, read_live_scenario

RUNS = Path("runs") / "live"
MOST_TRIES, TRYING_S = 12, 120.0  # of a run that the machine spoils: so many, as far as they fit into so long
SMALLEST_BUFFER_BYTES = 1 << 20
# Before the imports, which take seconds on a busy machine: it ends with its parent.
_BOOT = (
    "import ctypes, os, runpy, sys\n"
    "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "os.getppid() == int(sys.argv[2]) or os._exit(1)\n"
    "runpy.run_module('ccenv.live.worker', run_name='__main__')\n"
)
# One thread until the worker is in its namespaces: a process of several cannot make a user namespace.
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def run_live(
    scenario: LiveScenario | Mapping[str, Any] | str | os.PathLike[str],
    *,
    duration_s: float | None = None,
    seed: int | None = None,
) -> LiveResult:
    """Run an experiment with real kernels' senders through an emulated network, in real time.

    Args:
        scenario: a live scenario, a mapping with its fields, a shipped name or a YAML file.
        duration_s: instead of the scenario's.
        seed: of the emulator's random numbers, instead of the scenario's. The senders' behaviour has none.

    Returns:
        LiveResult: time series, summary, and whether the run is valid: packets were written when they were due.

    Raises:
        InputError: if the scenario is not valid.
        LiveError: for a part that is not emulated, a sender that the kernel does not have, or what this machine lacks.
    """
    if isinstance(scenario, Mapping):
        scenario = read_live_scenario(scenario)
    elif not isinstance(scenario, LiveScenario):
        scenario = load_live_scenario(os.fspath(scenario))
    changed = {name: value for name, value in (("seed", seed), ("duration_s", duration_s)) if value is not None}
    if changed:
        scenario = read_live_scenario({**scenario.model_dump(), **changed}, scenario.name)
    require_live()
    ring_of(scenario)
    senders = senders_of(scenario)
    header, arrays = _work(scenario, senders)
    recordings = [
        Recording(sender, arrays.pop(f"records{index}"), header["cost_ns"][index]) if sender.program is not None else None
        for index, sender in enumerate(senders)
    ]
    return LiveResult.of(scenario, header, arrays, recordings)


def tries_of(scenario: LiveScenario) -> int:
    """Return how often a run that the machine spoils is made: as often as fits into two minutes, twelve times at most."""
    return min(MOST_TRIES, max(1, int(TRYING_S / scenario.duration_s)))


def valid_run(scenario: LiveScenario, tries: int | None = None) -> LiveResult:
    """Run a scenario again while packets are written late; return the last run, which knows the earlier ones.

    A run that is not valid for another reason is not repeated: chance must not hide it.

    Args:
        scenario: a live scenario.
        tries: at most, from 1 on; None: ``tries_of``.
    """
    tries = tries_of(scenario) if tries is None else tries
    if tries < 1:
        raise InputError(f"tries must be at least 1, not {tries}")
    earlier: list[dict[str, Any]] = []
    while True:
        result = replace(run_live(scenario), tries=tries, earlier=tuple(earlier))
        if result.punctual or len(earlier) == tries - 1:
            return result
        earlier.append({"why_not_valid": list(result.why_not_valid), **result.punctuality()})


def _work(scenario: LiveScenario, senders: list[LiveSender]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Let a worker make the run; return its header and arrays."""
    request = {
        "scenario": scenario.model_dump(mode="json"),
        "congestion_controls": [sender.name for sender in senders],
        "programs": objects_of(scenario, senders),
        "buffer_bytes": int(max(SMALLEST_BUFFER_BYTES, 4 * most_in_flight_bytes(scenario))),
    }
    answer = os.memfd_create("ccenv-live")
    command = [sys.executable, "-c", _BOOT, str(answer), str(os.getpid())]
    try:
        worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(answer,), env={**os.environ, **_ONE_THREAD}
        )
        try:
            _, told = worker.communicate(json.dumps(request).encode() + b"\n")
        finally:
            worker.kill()
            worker.wait()
        content = _content(answer)
    finally:
        os.close(answer)
    if not content:
        last = told.decode(errors="replace").strip().splitlines()
        raise LiveError(f"the worker ended with code {worker.returncode}: {last[-1] if last else 'it was killed'}")
    if content.startswith(b"{"):
        raise _error(json.loads(content))
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


def _content(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return file.read()


def _error(answer: dict[str, str]) -> LiveError:
    """Return the worker's error; what the verifier said at length goes into a file."""
    if "log" not in answer:
        return LiveError(answer["error"])
    folder = RUNS / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "verifier.txt", answer["log"].encode(errors="replace"))
    return LiveError(f"{answer['error']}; the log is in {folder / 'verifier.txt'}")


def warm_up() -> None:
    """Compile the emulator, so that no run waits for it. Needs no devices."""
    from ccenv.live.emulator.build import memory_for
    from ccenv.live.emulator.loop import run_until

    flow = {"sender": "cubic", "rtt_ms": 20}
    scenario = read_live_scenario({"duration_s": 1, "links": [{"rate_mbps": 10}], "flows": [flow]})
    run_until(memory_for(scenario, -1, -1, 0, virtual=True), -1e7)
