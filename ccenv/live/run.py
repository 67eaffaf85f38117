"""Runs of a scenario on the real TCP stack of this machine: the call of a worker, and the run inside the worker."""

from __future__ import annotations

import base64
import io
import json
import os
import platform
import resource
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
from ccenv.live.emulator.build import (
    fill_polls,
    lead_s,
    lock_in_memory,
    make_memory,
    ring_size,
    socket_buffer_bytes,
    start_clock,
)
from ccenv.live.emulator.layout import FIRST_SINK_PORT, GIVEN
from ccenv.live.emulator.loop import run_until, serve
from ccenv.live.programs import LiveSender, Recording, compile_programs, make_senders
from ccenv.live.requirements import ONE_THREAD, Refused, require_live
from ccenv.live.result import LiveResult
from ccenv.live.scenario import LiveError, LiveScenario, load_live_scenario, read_live_scenario
from ccenv.live.system.loader import Program, count_time
from ccenv.live.system.sockets import Sockets, find_least_busy, open_schedule, pin_to_cores, read_core_times, request_short_slices
from ccenv.live.system.spaces import Ends

RUNS = Path("runs") / "live"
MOST_TRIES, TRYING_S = 12, 120.0  # limits on the repetitions of a run that the machine spoils
CONNECT_TRIES = 3  # a busy machine can lose the .3 s of the handshakes; nothing was sent yet
# The worker is tied to its parent before the imports, which take seconds on a busy machine.
_BOOT = (
    "import ctypes, os, runpy, sys\n"
    "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "os.getppid() == int(sys.argv[2]) or os._exit(1)\n"
    "runpy.run_module('ccenv.live.worker', run_name='__main__')\n"
)


def run_live(
    scenario: LiveScenario | Mapping[str, Any] | str | os.PathLike[str],
    *,
    duration_s: float | None = None,
    seed: int | None = None,
) -> LiveResult:
    """Run an experiment with real kernels' senders through an emulated network, in real time.

    Raises InputError if the scenario is not valid; LiveError for a part that is not emulated, a sender that the kernel does not
    have, a missing requirement, or handshakes that were lost three times.

    Args:
        scenario: a live scenario, a mapping with its fields, a shipped name or a YAML file.
        duration_s: instead of the scenario's.
        seed: of the emulator's random numbers, instead of the scenario's; the senders themselves have no seed.

    Returns:
        LiveResult: time series, summary, and whether the run is valid, that is, packets were written when due.
    """
    scenario = as_scenario(scenario, duration_s, seed)
    require_live()
    ring_size(scenario)
    senders = make_senders(scenario)
    header, arrays = _run_worker(scenario, senders)
    recordings = [
        Recording(sender, arrays.pop(f"records{index}"), header["cost_ns"][index]) if sender.program is not None else None
        for index, sender in enumerate(senders)
    ]
    return LiveResult.of(scenario, header, arrays, recordings)


def as_scenario(
    scenario: LiveScenario | Mapping[str, Any] | str | os.PathLike[str], duration_s: float | None, seed: int | None
) -> LiveScenario:
    if isinstance(scenario, Mapping):
        scenario = read_live_scenario(scenario)
    elif not isinstance(scenario, LiveScenario):
        scenario = load_live_scenario(os.fspath(scenario))
    changed = {name: value for name, value in (("seed", seed), ("duration_s", duration_s)) if value is not None}
    return read_live_scenario({**scenario.model_dump(), **changed}, scenario.name) if changed else scenario


def count_tries(scenario: LiveScenario) -> int:
    """Return the largest number of tries of a run: as many as fit into two minutes, at most twelve."""
    return min(MOST_TRIES, max(1, int(TRYING_S / scenario.duration_s)))


def valid_run(scenario: LiveScenario, tries: int | None = None) -> LiveResult:
    """Repeat a run while packets are written late; return the last run, with the outcomes of the earlier ones.

    A run that is not valid for another reason is not repeated, so that chance cannot hide it. ``tries`` is the largest number of
    runs, at least 1 (None: ``count_tries``).
    """
    tries = count_tries(scenario) if tries is None else tries
    if tries < 1:
        raise InputError(f"tries must be at least 1, not {tries}")
    earlier: list[dict[str, Any]] = []
    while True:
        result = replace(run_live(scenario), tries=tries, earlier=tuple(earlier))
        if result.punctual or len(earlier) == tries - 1:
            return result
        earlier.append({"why_not_valid": list(result.why_not_valid), **result.punctuality()})


def _run_worker(scenario: LiveScenario, senders: list[LiveSender]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    request = {
        "scenario": scenario.model_dump(mode="json"),
        "congestion_controls": [sender.name for sender in senders],
        "programs": compile_programs(scenario, senders),
        "buffer_bytes": socket_buffer_bytes(scenario),
    }
    for _ in range(CONNECT_TRIES):
        content = _ask_worker(request)
        failure = json.loads(content) if content.startswith(b"{") else {}
        if not failure.get("not_connected"):
            break
    if failure:
        raise _make_error(failure)
    with np.load(io.BytesIO(content)) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


def _ask_worker(request: dict[str, Any]) -> bytes:
    answer = os.memfd_create("ccenv-live")
    command = [sys.executable, "-c", _BOOT, str(answer), str(os.getpid())]
    try:
        worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(answer,), env={**os.environ, **ONE_THREAD}
        )
        try:
            _, stderr = worker.communicate(json.dumps(request).encode() + b"\n")
        finally:
            worker.kill()
            worker.wait()
        with open(answer, "rb", closefd=False) as file:
            file.seek(0)
            content = file.read()
    finally:
        os.close(answer)
    if not content:
        last = stderr.decode(errors="replace").strip().splitlines()
        raise LiveError(f"the worker ended with code {worker.returncode}: {last[-1] if last else 'it was killed'}")
    return content


def _make_error(answer: dict[str, Any]) -> LiveError:
    """Return the worker's error; the verifier's full log goes into a file."""
    if not answer.get("log"):
        return LiveError(answer["error"])
    folder = RUNS / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "verifier.txt", answer["log"].encode(errors="replace"))
    return LiveError(f"{answer['error']}; the log is in {folder / 'verifier.txt'}")


def warm_up() -> None:
    """Compile the emulator in advance, for real and for virtual time. Needs no devices."""
    from numba import typeof, types

    flow = {"sender": "cubic", "rtt_ms": 20}
    scenario = read_live_scenario({"duration_s": 1, "links": [{"rate_mbps": 10}], "flows": [flow]})
    memory = make_memory(scenario, -1, -1, 0, GIVEN)
    run_until(memory, -1e7)
    serve.compile((typeof(memory), types.int64, types.int64))


PRIORITY = 50  # of SCHED_FIFO
# A real-time loop needs one core; another loop gets the choice of two.
REALTIME_CORES, CORES = 1, 2
ACCEPT_S = 0.06  # before time 0: connections are accepted, applications wait


def play(request: dict[str, Any], ends: Ends, sockets: Sockets, privileges: str) -> bytes:
    scenario = LiveScenario.model_validate(request["scenario"])
    statistics_fd, times_before = count_time(), read_core_times()
    programs = [_load_program(index, request) for index in range(len(scenario.flows))]
    for index, name in enumerate(request["congestion_controls"]):
        _set_congestion_control(sockets, index, name)
        program = programs[index]
        if program is not None:
            program.record(sockets.senders[index].fileno())
    choosers = [_start_chooser(index, program, request) for index, program in enumerate(programs) if program is not None]
    memory = make_memory(scenario, ends.near, ends.far, ends.header_bytes)
    start_clock(memory, 1e6)
    run_until(memory, -1e7)  # compiled, or read from the cache
    memory.run["schedule_fd"] = open_schedule()
    realtime = scenario.realtime and _become_realtime()
    cores = find_least_busy(times_before, REALTIME_CORES if realtime else CORES)
    awake = pin_to_cores(cores)
    if not realtime:
        request_short_slices()
    locked = lock_in_memory() if realtime else False
    start_clock(memory, lead_s(scenario))
    sockets.connect(FIRST_SINK_PORT)  # as late as possible: the handshake gives the sender's first RTT
    begin = time.perf_counter()
    run_until(memory, -ACCEPT_S)
    try:
        sockets.accept()
    except OSError as error:
        raise Refused(f"the flows could not connect through the emulator ({error.strerror})", not_connected=True) from None
    fill_polls(memory, [end.fileno() for end in sockets.senders], [end.fileno() for end in sockets.sinks])
    usage_before, core_times = resource.getrusage(resource.RUSAGE_SELF), read_core_times()
    run_until(memory, scenario.duration_s)
    for helper in (*awake, *choosers):
        if helper is not None:
            helper.kill()
    wall_s = time.perf_counter() - begin
    usage = resource.getrusage(resource.RUSAGE_SELF)
    header = {
        "device": ends.kind,
        "privileges": privileges,
        "realtime": realtime,
        "locked_in_memory": locked,
        "kernel": platform.release(),
        "device_drops": ends.dropped(),
        "busy_share": (usage.ru_utime + usage.ru_stime - usage_before.ru_utime - usage_before.ru_stime) / scenario.duration_s,
        "preempted": usage.ru_nivcsw - usage_before.ru_nivcsw,
        "kept_awake": len(awake),
        "steal_s": _steal_s(cores, core_times, read_core_times()),
        "wall_s": wall_s,
    }
    header["cost_ns"] = [{} if program is None else program.cost_ns() for program in programs]
    records = {f"records{index}": program.written() for index, program in enumerate(programs) if program is not None}
    if statistics_fd >= 0:
        os.close(statistics_fd)
    arrays: dict[str, Any] = run_arrays(memory) | records
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    return buffer.getvalue()


def _load_program(index: int, request: dict[str, Any]) -> Program | None:
    compiled = request["programs"][index]
    if compiled is None:
        return None
    try:
        return Program(request["congestion_controls"][index], base64.b64decode(compiled["object"]), compiled["records"])
    except LiveError as error:
        raise Refused(str(error).removeprefix("live: "), log=getattr(error, "log", "")) from None


def _start_chooser(index: int, program: Program, request: dict[str, Any]) -> subprocess.Popen[bytes] | None:
    """Start the process that chooses inside a shield and wait until it is ready; None for programs without one."""
    spec = request["programs"][index]["chooser"]
    if spec is None:
        return None
    files = program.chooser_files()
    numbers = [str(number) for number in (*files, request["scenario"]["seed"], os.getpid())]
    process = subprocess.Popen(
        [sys.executable, "-m", "ccenv.live.system.chooser", spec, *numbers],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=files,
    )  # fmt: skip
    if process.stdout is None or process.stdout.readline() != b"ready\n":
        raise Refused(f"flow {index}: the chooser of {spec} did not start")
    return process


def _set_congestion_control(sockets: Sockets, index: int, name: str) -> None:
    try:
        sockets.choose(index, name)
    except OSError as error:
        raise Refused(f"flow {index}: the kernel did not take congestion control {name!r} ({error.strerror})") from None


def _steal_s(cores: list[int], before: dict[int, tuple[float, float]], now: dict[int, tuple[float, float]]) -> float | None:
    counted = [core for core in cores if core in before and core in now]
    return sum(now[core][1] - before[core][1] for core in counted) if counted else None


def _become_realtime() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
    except OSError:
        return False
    return True


def run_arrays(memory: Any) -> dict[str, np.ndarray]:
    """Return what a result is made of (``LiveResult.of``)."""
    run = memory.run[0]
    return {
        "run": memory.run,
        "flows": memory.flows,
        "flow_log": memory.flow_log,
        "link_log": memory.link_log,
        "events": memory.events[: min(int(run["event_rows"]), len(memory.events))],
        "errors": np.flatnonzero(memory.errors),
        "error_counts": memory.errors[memory.errors > 0],
        "stalls": memory.stalls,
        "tokens": memory.tokens[: int(run["steps"]) + 1],
    }
