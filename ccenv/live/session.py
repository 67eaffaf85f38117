"""One run in the worker: memory, connections, the loop, and what it found, as arrays."""

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
from typing import Any

import numpy as np

from ccenv.live.emulator.build import fill_polls, lead_s, lock_in_memory, memory_for, start_clock
from ccenv.live.emulator.layout import FIRST_SINK_PORT
from ccenv.live.emulator.loop import run_until
from ccenv.live.scenario import LiveError, LiveScenario
from ccenv.live.system.awake import ask_for_short_slices, least_busy, open_schedule, stay_on, times_of_cores
from ccenv.live.system.device import Ends
from ccenv.live.system.loader import Program, Refusal, count_time
from ccenv.live.refused import Refused
from ccenv.live.system.sockets import Sockets

PRIORITY = 50  # of SCHED_FIFO
# A real-time loop needs a core; another one goes where the other processes are not.
REALTIME_CORES, CORES = 1, 2
ACCEPT_S = 0.06  # before time 0: connections are taken, the applications wait


def play(request: dict[str, Any], ends: Ends, sockets: Sockets, privileges: str) -> bytes:
    """Make a run; return its arrays as an .npz with a JSON header."""
    scenario = LiveScenario.model_validate(request["scenario"])
    timed, before = count_time(), times_of_cores()
    programs = [_load(index, request) for index in range(len(scenario.flows))]
    for index, name in enumerate(request["congestion_controls"]):
        _choose(sockets, index, name)
        program = programs[index]
        if program is not None:
            program.record(sockets.senders[index].fileno())
    choosers = [_start_chooser(index, program, request) for index, program in enumerate(programs) if program is not None]
    memory = memory_for(scenario, ends.near, ends.far, ends.header_bytes)
    start_clock(memory, 1e6)
    run_until(memory, -1e7)  # compiled, or read from the cache
    memory.run["schedule_fd"] = open_schedule()
    realtime = scenario.realtime and _become_realtime()
    cores = least_busy(before, REALTIME_CORES if realtime else CORES)
    awake = stay_on(cores)
    if not realtime:
        ask_for_short_slices()
    locked = lock_in_memory() if realtime else False
    start_clock(memory, lead_s(scenario))
    sockets.connect(FIRST_SINK_PORT)  # at the last moment: the handshake's RTT is the first that a sender knows
    begin = time.perf_counter()
    run_until(memory, -ACCEPT_S)
    try:
        sockets.accept()
    except OSError as error:
        raise Refused(f"the flows could not connect through the emulator ({error.strerror})") from None
    fill_polls(memory, [end.fileno() for end in sockets.senders], [end.fileno() for end in sockets.sinks])
    used, taken = resource.getrusage(resource.RUSAGE_SELF), times_of_cores()
    run_until(memory, scenario.duration_s)
    for helper in (*awake, *choosers):
        if helper is not None:
            helper.kill()
    wall_s = time.perf_counter() - begin
    now = resource.getrusage(resource.RUSAGE_SELF)
    header = {
        "device": ends.kind,
        "privileges": privileges,
        "realtime": realtime,
        "locked_in_memory": locked,
        "kernel": platform.release(),
        "device_drops": ends.dropped(),
        "busy_share": (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime) / scenario.duration_s,
        "preempted": now.ru_nivcsw - used.ru_nivcsw,
        "kept_awake": len(awake),
        "steal_s": _steal_s(cores, taken, times_of_cores()),
        "wall_s": wall_s,
    }
    header["cost_ns"] = [{} if program is None else program.cost_ns() for program in programs]
    records = {f"records{index}": program.written() for index, program in enumerate(programs) if program is not None}
    if timed >= 0:
        os.close(timed)
    return _packed(header, memory, records)


def _load(index: int, request: dict[str, Any]) -> Program | None:
    given = request["programs"][index]
    if given is None:
        return None
    try:
        return Program(request["congestion_controls"][index], base64.b64decode(given["object"]), given["records"])
    except Refusal as error:
        raise Refused(str(error).removeprefix("live: "), error.log) from None
    except LiveError as error:
        raise Refused(str(error).removeprefix("live: ")) from None


def _start_chooser(index: int, program: Program, request: dict[str, Any]) -> subprocess.Popen[bytes] | None:
    """Start the process that chooses inside a contract, and wait until it is ready; None for a program that asks nobody."""
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


def _choose(sockets: Sockets, index: int, name: str) -> None:
    try:
        sockets.choose(index, name)
    except OSError as error:
        raise Refused(f"flow {index}: the kernel did not take congestion control {name!r} ({error.strerror})") from None


def _steal_s(cores: list[int], before: dict[int, tuple[float, float]], now: dict[int, tuple[float, float]]) -> float | None:
    known = [core for core in cores if core in before and core in now]
    return sum(now[core][1] - before[core][1] for core in known) if known else None


def _become_realtime() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
    except OSError:
        return False
    return True


def _packed(header: dict[str, Any], memory: Any, records: dict[str, np.ndarray]) -> bytes:
    run = memory.run[0]
    rows = min(int(run["event_rows"]), len(memory.events))
    arrays = {
        "run": memory.run,
        "flows": memory.flows,
        "flow_log": memory.flow_log,
        "link_log": memory.link_log,
        "events": memory.events[:rows],
        "errors": np.flatnonzero(memory.errors),
        "error_counts": memory.errors[memory.errors > 0],
        "stalls": memory.stalls,
        "tokens": memory.tokens[: int(run["steps"]) + 1],
        **records,
    }
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    return buffer.getvalue()
