"""Senders of live runs, belief programs exported and compiled for a run, and the recordings of these programs."""

from __future__ import annotations

import base64
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.agents import make_sender
from ccenv.agents.programs import Program
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import CcenvError
from ccenv.engine.packet.beliefs import STEPS_PER_RTT
from ccenv.engine.packet.spec import FlowSpec
from ccenv.live.emulator.build import fastest_Bps
from ccenv.live.export import export_bpf
from ccenv.live.export.bpf import COMPILED, LONGEST_NAME, POSITION_BITS, USER, Exported, compile_bpf, load_exported
from ccenv.live.export.twin import ACK_DTYPE, STATE_DTYPE, UNBOUNDED, Twin
from ccenv.live.requirements import bpf_needs, require_bpf
from ccenv.live.scenario import LiveError, LiveScenario, kernel_cca
from ccenv.live.system.sockets import available_controls, has_congestion_control

MOST_RECORDS = 4_000_000
LEAST_BUFFER_PACKETS = 8  # from which on a loss proves a busy link


@dataclass(frozen=True)
class LiveSender:
    """The sender of a flow."""

    name: str  # of its congestion control in the kernel
    program: Program | None = None  # the program, if this run loads it
    rtt_s: float | None = None  # Rm, known to an oracle; None: measured
    jitter_s: float = 0.0  # D that it assumes
    chooser: str | PolicySender | None = None  # of a shield, see `export_bpf`
    spec: str | None = None  # sender whose shield is served by a process

    def twin(self) -> Twin:
        """Return the integer reference of the program."""
        if self.program is None:
            raise LiveError(f"{self.name} is no program that the run loaded: it has no twin")
        return Twin(self.program, rtt_s=self.rtt_s, jitter_s=self.jitter_s, chooser=self.chooser)


def make_senders(scenario: LiveScenario) -> list[LiveSender]:
    """Return the senders of a scenario's flows.

    Raises LiveError if the kernel does not have a congestion control, or a program cannot be loaded here; ExportError if a sender
    is no program, or it cannot be exported.
    """
    senders = []
    for index, flow in enumerate(scenario.flows):
        name = kernel_cca(flow.sender)
        if name is not None:
            if not has_congestion_control(name):
                raise LiveError(
                    f"flow {index}: the kernel has no congestion control {name!r}; it has {', '.join(available_controls())}"
                )
            senders.append(LiveSender(name))
        else:
            senders.append(_load_program(index, flow, scenario))
    return senders


def _step_delay_s(scenario: LiveScenario) -> float:
    """Return the delay of packets by the emulator's steps: in ccac arrivals of a step are served at its end."""
    return min(flow.rtt_s for flow in scenario.flows) / scenario.steps_per_rtt if scenario.model == "ccac" else 0.0


def load_flow(flow: FlowSpec, scenario: LiveScenario) -> Exported:
    """Return the program of a flow; ``chooser: kernel`` compiles a shield's policy in. Raises as ``load_exported``."""
    exported = load_exported(flow.sender)
    policy = exported.shield.policy if scenario.chooser == "kernel" and exported.shield is not None else None
    return exported if policy is None else exported._replace(chooser=policy)


def _load_program(index: int, flow: FlowSpec, scenario: LiveScenario) -> LiveSender:
    try:
        if isinstance(make_sender(flow.sender), PolicySender):
            raise CcenvError("a learned policy decides for a kernel in virtual time, --virtual")
        program, chooser, _ = load_flow(flow, scenario)
    except CcenvError as error:
        raise LiveError(f"flow {index}: {error}; senders of the kernel are named kernel:NAME") from None
    missing = [need for need in bpf_needs() if not need.ok]
    if missing and missing[0].name == "BPF privileges":
        if program.name in available_controls():
            return LiveSender(program.name)
        raise LiveError(
            f"flow {index}: loading {program.name} needs CAP_BPF and CAP_PERFMON; run `sudo ccenv live load {program.name}` in "
            "another terminal, or as root"
        )
    require_bpf()
    # A name for this run, because others may load the same program meanwhile.
    name = f"live{os.getpid()}_{index}"[-LONGEST_NAME:]
    spec = flow.sender if chooser == USER else None
    return LiveSender(
        name, program, flow.sender_rtt_s if flow.rtt_known else None, flow.jitter_s + _step_delay_s(scenario), chooser, spec
    )


def compile_programs(scenario: LiveScenario, senders: list[LiveSender]) -> list[dict[str, Any] | None]:
    """Export and compile the programs of a run; return per flow the object for the worker, None for other senders."""
    packets = 1.5 * fastest_Bps(scenario) * scenario.duration_s / scenario.mss_bytes + 10_000
    records = int(min(MOST_RECORDS, packets))
    out: list[dict[str, Any] | None] = []
    for sender in senders:
        if sender.program is None:
            out.append(None)
            continue
        text = export_bpf(sender.program, name=sender.name, rtt_s=sender.rtt_s, jitter_s=sender.jitter_s, chooser=sender.chooser)
        content = compile_bpf(text, record=True)
        out.append({"object": base64.b64encode(content).decode("ascii"), "records": records, "chooser": sender.spec})
    return out


@dataclass(frozen=True)
class Recording:
    """Inputs and decisions of an exported program in a run."""

    sender: LiveSender
    records: np.ndarray  # `ccenv.live.system.loader.RECORD_DTYPE`, one per ACK; the first one is the start of the flow
    cost_ns: dict[str, float]  # mean time per call of its hooks

    def difference(self) -> str | None:
        """Recompute everything with the integer reference (about 0.1 ms per ACK and window); return the first difference."""
        acks = np.zeros(len(self.records), ACK_DTYPE)
        for name in ACK_DTYPE.names or ():
            acks[name] = self.records[name]
        states = self.sender.twin().run(acks)
        for name in STATE_DTYPE.names or ():
            different = np.flatnonzero(states[name] != self.records[name])
            if len(different):
                row = int(different[0])
                return (
                    f"{name} differs first at ACK {row}: {self.records[name][row]} in the kernel, {states[name][row]} in the twin"
                )
        return None

    def bounds(self, link_rate_Bps: float, mss_bytes: float) -> dict[str, np.ndarray]:
        """Return C_L, C_U and the rate after each ACK as shares of the link's rate, and slack: one packet per Rm as a share."""
        unit = 1 << self.sender.twin().constants.fraction_bits
        rtt_s = np.maximum(self.records["shortest_rtt_us"], 1) * 1e-6
        link = link_rate_Bps / mss_bytes * rtt_s / STEPS_PER_RTT * unit
        upper = np.where(self.records["C_U"] == UNBOUNDED, math.inf, self.records["C_U"] / link)
        slack = unit / STEPS_PER_RTT / link
        return {"C_L": self.records["C_L"] / link, "C_U": upper, "rate": self.records["rate"] / link, "slack": slack}

    def summary(self, link_rate_Bps: float, mss_bytes: float) -> dict[str, Any]:
        if not len(self.records):
            return {"acks": 0}
        shares = self.bounds(link_rate_Bps, mss_bytes)
        upper = float(shares["C_U"].min())
        return {
            "acks": len(self.records) - 1,
            "C_L_max_share": float(shares["C_L"].max()),
            "C_U_min_share": None if math.isinf(upper) else upper,
            "cost_ns": {name: round(value, 1) for name, value in self.cost_ns.items()},
            **({"chooser": self.choices()} if self.sender.chooser is not None else {}),
        }

    def choices(self) -> dict[str, Any]:
        """Return the positions in a shield's interval, and the latency of a chooser outside the kernel.

        ``delay_us`` is from the decision to the answer, ``taken_us`` to the ACK at which the rate changed.
        """
        chooser_type = self.sender.chooser if isinstance(self.sender.chooser, str) else COMPILED
        decided = self.records[self.records["asked"] > 0]
        positions = decided["position"] / (1 << POSITION_BITS)
        out: dict[str, Any] = {"kind": chooser_type, "decisions": int(decided["asked"].max(initial=0))}
        if len(decided):
            out["position"] = {"mean": float(positions.mean()), "least": float(positions.min()), "most": float(positions.max())}
        if self.sender.chooser == USER and len(decided):
            asked, first = np.unique(decided["asked"], return_index=True)
            asked_us = dict(zip(asked.tolist(), decided["now_us"][first].tolist(), strict=True))
            is_answer = (decided["answer"] >> 32) == np.concatenate([[0], decided["asked"][:-1]])
            numbers, rows = np.unique(np.where(is_answer, decided["answer"] >> 32, 0), return_index=True)
            rows, numbers = rows[numbers > 0], numbers[numbers > 0]
            begun_us = np.array([asked_us[int(number)] for number in numbers], np.int64)
            out["answered"] = len(numbers)
            for name, column in (("delay_us", "answered_us"), ("taken_us", "now_us")):
                latency_us = decided[column][rows].astype(np.int64) - begun_us
                percentiles = {f"p{p}": float(np.percentile(latency_us, p)) for p in (50, 99)} if len(latency_us) else {}
                out[name] = {**percentiles, "max": float(latency_us.max(initial=0))}
        return out

    def broken_bound(self, link_rate_Bps: float, mss_bytes: float) -> str | None:
        """Return which bound excludes the link's rate by more than a packet per Rm; None if both hold."""
        if not len(self.records):
            return None
        shares = self.bounds(link_rate_Bps, mss_bytes)
        over, under = shares["C_L"] - shares["slack"], shares["C_U"] + shares["slack"]
        if over.max() > 1.0:
            return f"C_L came to {shares['C_L'].max():.4g} of the link's rate"
        if under.min() < 1.0:
            return f"C_U came to {shares['C_U'].min():.4g} of the link's rate"
        return None


def premises_hold(scenario: LiveScenario) -> bool:
    """Tell whether a scenario meets the premises of a program's bounds: one flow, constant link, losses only by a full queue."""
    link, flow = scenario.links[0], scenario.flows[0]
    deep = link.buffer_bytes >= LEAST_BUFFER_PACKETS * scenario.mss_bytes
    return len(scenario.flows) == 1 and not link.rate_steps and flow.loss_rate == 0 and deep and flow.told_rtt_s is None
