"""Sequences of ACKs for a program and its twin: by hand and random."""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccenv.agents.programs import BOOLEANS, UNIT_OF, Branch, Expression, Leaf, Program, Rule
from ccenv.engine.packet.layout import EVENTS
from ccenv.live.export import export_bpf
from ccenv.live.export.twin import ACK_DTYPE, STATE_DTYPE
from ccenv.simulation import simulate

HOST_FOLDER = Path(__file__).parents[3] / "ccenv" / "live" / "export"
DUPLICATES = 3  # a packet is found lost by so many later ones


def recorded_acks(scenario: dict[str, Any], flow: int = 0) -> np.ndarray:
    """Run a scenario packet by packet; return what a kernel would have seen at each ACK of a flow (ACK_DTYPE).

    The first record is the start of the flow, with Rm and a packet's time on the link as the handshake's RTT.
    """
    result = simulate(scenario, packet_log=True)
    log = result.packet_log
    assert log is not None
    log = log[log["flow"] == flow]
    event, time_us = log["event"], np.floor(log["time_s"] * 1e6 + 1e-6).astype(np.int64)
    sends = event == EVENTS.index("send")
    sent_us, segment = time_us[sends], log["segment"][sends]
    again = np.zeros(len(segment), bool)
    seen: set[int] = set()
    for i, number in enumerate(segment):
        again[i] = int(number) in seen
        seen.add(int(number))
    delivered_tx = np.sort(log["transmission"][event == EVENTS.index("deliver")])
    spec = result.scenario
    first_us = int(time_us[0])
    packet_s = spec.mss_bytes / spec.links[0].rate_Bps
    rows = [(first_us, round((spec.flows[flow].rtt_s + packet_s) * 1e6), 0, 0, 0, 0, 0, 0, 1448, 0)]
    last_tx = -1
    for at_us, tx in zip(time_us[event == EVENTS.index("ack")], log["transmission"][event == EVENTS.index("ack")], strict=True):
        if tx <= last_tx:
            continue
        last_tx = int(tx)
        delivered = int(np.searchsorted(delivered_tx, tx, "right"))
        sent = int(np.searchsorted(sent_us, at_us, "right"))
        lost = int(delivered_tx[delivered - DUPLICATES]) - (delivered - DUPLICATES) if delivered >= DUPLICATES else 0
        rtt_us = -1 if again[tx] else int(at_us - sent_us[tx])
        rows.append((int(at_us), rtt_us, delivered, lost, sent, max(0, sent - delivered - lost), 0, 0, 1448, 0))
    return np.array(rows, dtype=ACK_DTYPE)


def host_states(program: Program, acks: np.ndarray, **options: Any) -> np.ndarray:
    """Return what the exported C makes of ACKs, compiled for this machine; skip the test where there is no C compiler."""
    return states_of(export_bpf(program, name="host", **options), acks, STATE_DTYPE)


def states_of(text: str, acks: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return what a C file makes of ACKs, as ``host_states``."""
    library = host_library(text)
    acks = np.ascontiguousarray(acks, ACK_DTYPE)
    states = np.zeros(len(acks), dtype)
    sender = ctypes.create_string_buffer(library.ccenv_sender_bytes())
    for row in range(len(acks)):
        take = library.ccenv_ack if row else library.ccenv_begin
        take(sender, *(ctypes.c_void_p(a.ctypes.data + row * a.itemsize) for a in (acks, states)))
    return states


def equal_states(twin: np.ndarray, text: str, acks: np.ndarray) -> np.ndarray:
    """Compare what a C file makes of ACKs with the states of its twin; return them."""
    host = states_of(text, acks, twin.dtype)
    for name in twin.dtype.names or ():
        different = np.flatnonzero(twin[name] != host[name])
        assert different.size == 0, f"{name} differs first at ACK {different[0]}: {twin[different[0]]} {host[different[0]]}"
    return twin


@cache
def host_library(text: str) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    folder = Path(tempfile.mkdtemp(prefix="ccenv-export-"))
    source, library = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.c", folder / "host.so"
    source.write_text(text, encoding="ascii")
    options = ["-O1", "-DHOST", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = [compiler, *options, "-I", str(HOST_FOLDER), "-o", str(library), str(source)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    loaded = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    return loaded


def random_program(seed: int, shield: bool = False) -> Program:
    rng = np.random.default_rng(seed)
    rule = _rule(rng, int(rng.integers(0, 5)), shield)
    program = Program(f"random_{seed}", rule, "random", int(rng.integers(1, 4)))
    return random_program(seed + 10**7, shield) if shield and not program.is_shield else program


def _rule(rng: np.random.Generator, depth: int, shield: bool) -> Rule:
    if depth == 0:
        most = _expression(rng, "bytes/s") if shield and rng.random() < 0.8 else None
        return Leaf(_expression(rng, "bytes/s"), int(rng.integers(1, 4)), most)
    kind = str(rng.choice(["bytes/s", "bytes", "s", *BOOLEANS], p=[0.5, 0.1, 0.2, 0.1, 0.1]))
    condition = kind if kind in BOOLEANS else _expression(rng, kind)
    return Branch(condition, _rule(rng, depth - 1, shield), _rule(rng, depth - 1, shield))


def _expression(rng: np.random.Generator, unit: str) -> Expression:
    names = [name for name, of in UNIT_OF.items() if of == unit]
    chosen = rng.choice(names, int(rng.integers(1, 1 + min(3, len(names)))), replace=False)
    return Expression(tuple((str(n), Fraction(int(rng.choice([-1, 1]) * rng.integers(1, 60)), 20)) for n in chosen))


def random_acks(seed: int, count: int = 150) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rtt_us = int(10 ** rng.uniform(0, 5.5))
    gap_us = max(1.0, rtt_us * 10 ** rng.uniform(-2.5, 0.3))
    queue_us = rtt_us * 10 ** rng.uniform(-2, 1)
    acks = np.zeros(count, ACK_DTYPE)
    step_us = np.floor(rng.exponential(gap_us, count))
    step_us[rng.random(count) < 0.01] *= rng.choice([0, 100, 1000])
    time_us = np.cumsum(step_us.astype(np.int64)) + int(rng.choice([0, 10**6, 2**40]))
    back = rng.random(count) < 0.01
    acks["now_us"] = np.maximum(0, time_us - np.where(back, rng.integers(0, 3 * rtt_us + 1, count), 0))
    rtt = rtt_us + np.cumsum(rng.normal(0, queue_us / 20, count))
    rtt[rng.random(count) < 0.05] = -1
    rtt[rng.random(count) < rng.choice([0, 0.01])] = 0
    acks["rtt_us"] = np.clip(rtt, -1, 2**31 - 1)
    growth = rng.integers(0, int(rng.choice([2, 4, 50])), count)
    for name, near in (("delivered", growth), ("lost", (rng.random(count) < 0.1) * rng.integers(0, 4, count))):
        acks[name] = (np.cumsum(near) + int(rng.integers(0, 2**32)) * int(rng.integers(0, 2)) - 200) % 2**32
    acks["data_segs_out"] = (np.cumsum(rng.integers(0, 4, count)) + int(rng.choice([0, 2**32 - 300]))) % 2**32
    acks["in_flight"] = rng.integers(0, int(10 ** rng.uniform(0.5, 9)), count)
    acks["app_limited"] = rng.random(count) < 0.1
    acks["reord_seen"] = rng.random(count) < rng.choice([0, 0.3])
    acks["mss"] = int(rng.integers(1, 65_536))
    answers = np.cumsum(rng.random(count) < 0.2) + rng.integers(-1, 2, count)
    acks["answer"] = (np.maximum(0, answers) << 32) + rng.integers(0, 2**32, count) // rng.choice([1, 2**15], count)
    return acks
