"""Run senders of a QUIC stack through a legal network in virtual time, and judge network, program and beliefs."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import PolicySender, bare
from ccenv.base.errors import CcenvWarning, InputError, unknown_name
from ccenv.base.files import write_atomic
from ccenv.base.units import buffer_units, positive
from ccenv.engine.packet.batch.decisions import sets_window
from ccenv.network.adversary import load_moves
from ccenv.network.laws import check_trace
from ccenv.network.path import DEFAULT_MSS_BYTES, MBPS_IN_BPS, Path, make_grid, make_path
from ccenv.network.trace import Trace
from ccenv.quic.link import Queue, TokenLink, calm_moves, make_trace
from ccenv.quic.program import CompiledProgram, load_program
from ccenv.quic.stacks import get_stack
from ccenv.quic.stacks.stack import Flow, FlowSettings, QuicError, Stack

Control = str | CompiledProgram | PolicySender

STEPS_PER_RTT = 8
MOST_STEPS, FASTEST_BPS = 200_000, 1e9 / 8
BELIEF_SLACK_PACKETS = 1.0  # per Rm: whole packets


@dataclass(frozen=True)
class QuicResult:
    """The outcome of a run."""

    stack: Stack
    trace: Trace  # the run as the law checker judges it
    first_row: int  # after which utilisation is measured
    flows: tuple[Flow, ...]  # of the stack, with their records
    programs: tuple[CompiledProgram | None, ...]  # per flow, None for a control of the stack or a policy
    cpu_s: float
    bypass: bool = True  # the handshake bypassed the link

    @cached_property
    def utilisation(self) -> float:
        """Share of the link's capacity that was delivered in the measured window."""
        trace, first = self.trace, self.first_row
        steps = trace.n_steps - first
        return float((trace.S[-1] - trace.S[first]).sum()) / (trace.header.path.link_rate_Bps * trace.header.dt_s * steps)

    @cached_property
    def shares(self) -> list[float]:
        """Share of each flow in the measured window."""
        got = self.trace.S[-1] - self.trace.S[self.first_row]
        return [float(x) for x in got / max(1.0, float(got.sum()))]

    @property
    def losses(self) -> float:
        """Share of the bytes sent that were lost."""
        return float(self.trace.L[-1].sum() / max(1.0, self.trace.A[-1].sum()))

    @cached_property
    def violations(self) -> list[str]:
        """What the law checker says; empty for a legal network."""
        return [violation.message for violation in check_trace(self.trace, slack_bytes=slack_bytes(self.trace))]

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the trace and of what the programs decided."""
        digest = hashlib.sha256()
        for name in ("A", "L", "S", "G"):
            digest.update(getattr(self.trace, name).tobytes())
        for flow in self.flows:
            for array in flow.records():
                digest.update(array.tobytes())
        return digest.hexdigest()

    @property
    def records(self) -> list[tuple[CompiledProgram, np.ndarray, np.ndarray]]:
        """Each flow's program, with what it saw (ACK_DTYPE) and decided (STATE_DTYPE)."""
        flows = zip(self.programs, self.flows, strict=True)
        return [(program, *flow.records()) for program, flow in flows if program is not None]

    def difference(self) -> str | None:
        """Return the first difference of a program's C and its twin over all ACKs; None if they are equal."""
        return next((found for program, *run in self.records if (found := program.difference(*run)) is not None), None)

    def beliefs(self) -> list[dict[str, Any]]:
        """Return of each program the extreme bounds as shares of the link's rate, and of a flow alone whether they hold."""
        return [_extremes(*record, self.trace.header.path) for record in self.records]

    def save(self, file: FilePath) -> None:
        """Write the trace (.npz) or the first sender's log (.qlog). Raises QuicError for another ending, or without a log."""
        if file.suffix == ".npz":
            self.trace.save(file)
        elif file.suffix == ".qlog":
            write_atomic(file, self.flows[0].qlog())
        else:
            raise QuicError(f"{file}: give a file that ends with .npz (trace) or .qlog (log of the sender)")

    def summary(self) -> dict[str, Any]:
        path, head = self.trace.header.path, self.trace.header
        packets = sum(flow.packets for flow in self.flows)
        out: dict[str, Any] = {
            "stack": self.stack.name,
            "senders": list(head.senders),
            "network": head.adversary,
            "rate_mbps": path.link_rate_Bps / MBPS_IN_BPS,
            "rtt_ms": [1e3 * flow.rtt_s for flow in path.flows],
            "jitter_ms": 1e3 * path.flows[0].jitter_s,
            "buffer_bdp": path.buffer_bytes / path.bdp_bytes,
            "duration_s": self.trace.n_steps * head.dt_s,
            "handshake": "bypasses the link" if self.bypass else "passes through the link",
            "utilisation": self.utilisation,
            "losses": self.losses,
            "legal": not self.violations,
            "hash": self.hash,
            "packets": packets,
            "packets_per_cpu_s": round(packets / max(self.cpu_s, 1e-9)),
        }
        if len(path.flows) > 1:
            out["shares"] = self.shares
        if self.violations:
            out["violations"] = self.violations
        if self.records:
            difference = self.difference()
            out |= {
                "twin": difference is None,
                **({"difference": difference} if difference else {}),
                "paced_by": self.stack.pacer,
                "assumed_jitter_ms": 1e3 * self.records[0][0].jitter_s,
                "beliefs": self.beliefs(),
            }
        return out


def _extremes(program: CompiledProgram, acks: np.ndarray, states: np.ndarray, path: Path) -> dict[str, Any]:
    if not len(acks):
        return {"acks": 0}
    smallest_us = np.minimum.accumulate(np.where(acks["rtt_us"] > 0, acks["rtt_us"], 2**30))
    bounds = program.bounds(states, smallest_us, path.link_rate_Bps, path.mss_bytes)
    known = states["step"] > 0
    if not known.any():
        return {"acks": len(acks)}
    slack = BELIEF_SLACK_PACKETS * path.mss_bytes / path.link_rate_Bps / (smallest_us[known] * 1e-6)
    lower, upper = bounds["C_L"][known], bounds["C_U"][known]
    return {
        "acks": len(acks),
        "C_L_max_share": float(lower.max()),
        "C_U_min_share": None if np.isinf(upper.min()) else float(upper.min()),
        "hold": bool((lower - slack <= 1).all() and (upper + slack >= 1).all()) if len(path.flows) == 1 else None,
    }


def slack_bytes(trace: Trace) -> float:
    """Return by how many bytes whole packets may deviate from the fluid laws: one packet of each flow."""
    return trace.header.path.mss_bytes * trace.n_flows


def compile_sender(stack: Stack, sender: str, path: Path, step_s: float, jitter_s: float | None = None) -> Control:
    """Return a control of the stack as it is, and a program compiled with the D that the stack makes of the path's.

    The sender is one of its controls, a registered program or a program's file, or a learned policy that sees no beliefs and sets
    a window, where the stack plays them; ``jitter_s`` is a D to assume instead, and too small a one is unsound.

    Raises:
        UnknownNameError: for a name that neither knows.
        QuicError: if nobody paces the program, or the stack plays no policies.
        ExportError: if it cannot be exported.
    """
    if sender in stack.controls:
        return sender
    if sender.partition(":")[0] not in AGENTS.names() and not sender.endswith(".json"):
        raise unknown_name(f"sender of {stack.name}", sender, [*stack.controls, *AGENTS.names("synthesized")])
    policy = None if sender.endswith(".json") else bare(make_sender(sender))
    if sets_window(policy):
        if not stack.plays_policies:
            raise QuicError(f"{stack.name} plays no policies that set a window, such as {policy.name}; aioquic does")
        return policy
    program, chooser = load_program(sender)
    require_pacer(stack, program.name)
    widened_s = stack.widened_s(max(flow.jitter_s for flow in path.flows), step_s) if jitter_s is None else jitter_s
    return CompiledProgram(program, widened_s, chooser=chooser)


def require_pacer(stack: Stack, program: str) -> None:
    """Raise QuicError if nobody can pace a program on a stack."""
    if not stack.pacer:
        raise QuicError(
            f"{stack.name} cannot pace, and {program} is proved for a paced sender: without one it fills and overflows any queue"
        )


def run_quic(
    stack: Stack,
    senders: Sequence[Control],
    path: Path,
    *,
    steps: int,
    moves: np.ndarray | None = None,
    first_row: int | None = None,
    adversary: str = "calm",
    steps_per_rtt: int = STEPS_PER_RTT,
    log: bool = False,
    bypass: bool = True,
) -> QuicResult:
    """Run senders of a stack, one per flow of the path, on packets of its ``mss_bytes``.

    ``moves``, (rows, 2 + 2 N), are those of an adversary, by default a calm one; a step lasts the smallest Rm / steps_per_rtt;
    utilisation is measured after ``first_row``, by default half of the run. ``log`` keeps the first sender's qlog; with
    ``bypass`` datagrams of the handshake bypass the link.

    Raises:
        QuicError: if the stack closes a connection.
        InputError: for a run that is too long or too fast.
    """
    if not 2 <= steps <= MOST_STEPS or path.link_rate_Bps > FASTEST_BPS:
        raise InputError(f"quic: {steps} steps at {path.link_rate_Bps / MBPS_IN_BPS:g} Mbit/s; at most {MOST_STEPS} at 1000")
    begun_s = time.process_time()
    n = len(path.flows)
    link = TokenLink(path, steps_per_rtt, calm_moves(n) if moves is None else moves)
    queue = Queue(link, n)
    flows = tuple(
        stack.flow(FlowSettings(sender, spec.rtt_s, spec.start_s, round(path.mss_bytes), index, log and index == 0, bypass))
        for index, (sender, spec) in enumerate(zip(senders, path.flows, strict=True))
    )
    for k in range(1, steps + 1):
        now_s = k * link.dt_s
        for flow, packets in zip(flows, queue.step([flow.advance(now_s) for flow in flows]), strict=True):
            if packets:
                flow.deliver(packets, now_s)
    names = [sender if isinstance(sender, str) else sender.name for sender in senders]
    trace = make_trace(queue, steps_per_rtt, [f"{stack.name}:{name}" for name in names], adversary)
    programs = tuple(sender if isinstance(sender, CompiledProgram) else None for sender in senders)
    return QuicResult(
        stack, trace, steps // 2 if first_row is None else first_row, flows, programs, time.process_time() - begun_s, bypass
    )


def make_run(
    stack: str,
    senders: Sequence[str],
    *,
    rate_mbps: float = 48.0,
    rtt_s: float = 0.04,
    jitter_s: float | None = None,
    buffer: str = "6bdp",
    duration_s: float = 4.8,
    moves: str | os.PathLike[str] | None = None,
    log: bool = False,
    bypass: bool = True,
) -> QuicResult:
    """Run senders of a stack by name: as :func:`run_quic`, with the options of ``ccenv quic run``.

    D is Rm by default, ``buffer`` has its unit, ``moves`` is a file of moves, whose path, buffer and length then hold.
    """
    chosen = get_stack(stack)
    if moves is not None:
        stored = load_moves(moves)
        path, steps_per_rtt = stored.header.path, stored.header.steps_per_rtt
        if len(path.flows) != len(senders) or stored.header.model != "ccac":
            raise InputError(f"quic: moves for {len(path.flows)} flows on {stored.header.model}; {len(senders)} on ccac are run")
        steps, first_row, rows, name = len(stored.moves), stored.header.first_row, stored.moves, str(stored.adversary.name)
    else:
        for option, given in (("--rate", rate_mbps), ("--rtt", rtt_s)):
            if not given > 0:
                raise InputError(f"{option} is {given:g}; it must be above 0")
        bdp_bytes = rate_mbps * MBPS_IN_BPS * rtt_s
        longest_s = rtt_s if jitter_s is None else jitter_s
        path = make_path(
            link_rate_mbps=rate_mbps, rtt_ms=1e3 * rtt_s, jitter_ms=1e3 * longest_s, n_flows=len(senders),
            buffer_bdp=positive("--buffer", buffer, buffer_units(bdp_bytes, DEFAULT_MSS_BYTES)) / bdp_bytes,
        )  # fmt: skip
        steps_per_rtt = STEPS_PER_RTT
        steps = round(duration_s / (rtt_s / steps_per_rtt))
        if steps < 2:
            step_ms = 1e3 * rtt_s / steps_per_rtt
            raise InputError(f"quic: a run of {duration_s:g} s has {steps} steps of {step_ms:g} ms; at least 2 are needed")
        first_row, rows, name = steps // 2, None, "calm"
    step_s = make_grid(path, steps_per_rtt).dt_s
    compiled = [compile_sender(chosen, sender, path, step_s) for sender in senders]
    held_s = path.buffer_bytes / path.link_rate_Bps
    for sender in compiled:
        if isinstance(sender, CompiledProgram) and sender.jitter_s >= held_s:
            warnings.warn(
                f"{sender.name} assumes D of {1e3 * sender.jitter_s:g} ms; the buffer holds {1e3 * held_s:g} ms, so it may "
                "never find C_U: expect losses",
                CcenvWarning,
                stacklevel=2,
            )
    return run_quic(
        chosen, compiled, path, steps=steps, moves=rows, first_row=first_row, adversary=name, steps_per_rtt=steps_per_rtt,
        log=log, bypass=bypass,
    )  # fmt: skip
