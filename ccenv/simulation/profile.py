"""Profiles of scenarios: what hosts do beyond the bare CCA. ``plain`` adds nothing; ``linux`` is a Linux host of today."""

from __future__ import annotations

from typing import Any, Literal, get_args

from ccenv.base.random import uniform
from ccenv.engine.packet.spec import FlowSpec, JitterSpec
from ccenv.base.errors import unknown_name
from ccenv.simulation.scenario import Scenario

Profile = Literal["plain", "linux"]
BURST_S = 0.001  # tcp_tso_autosize: sk_pacing_shift 10, a burst is 2**-10 s at the pacing rate
ACK_EVERY, ACK_TIMEOUT_S = 2, 0.04  # tcp_ack_snd_check: every second full segment; TCP_DELACK_MIN
NOISE_S = 0.0005  # of a host that wakes late: fitted to docs/data/kernel.jsonl as a whole (docs/packet-engine.md)
HEADERS_BYTES = 52.0  # IPv4 20, TCP 20, time stamps 12: 1448 of 1500 bytes are payload
PHASE_COUNTER = 2.0**44  # random numbers of start phases

# Parameters that senders of the kernel have.
PARAMETERS = {
    "cubic": {"hystart": "1"},
    "bbr1": {"pacing_margin": "0.01", "extra_acked": "1", "even_windows": "1"},
}


def as_run(scenario: Scenario) -> Scenario:
    """Return the plain scenario that is run for one with a profile.

    The profile ``linux`` completes what the scenario leaves open: senders have the parameters of the kernel's, paced senders
    send the bursts of TSO, receivers delay ACKs, packets reach a busy host late (a jitter box of kind ``batch``), and flows start
    at a phase within one RTT that the seed draws.
    """
    if scenario.profile == "plain":
        return scenario
    flows = tuple(_linux_flow(flow, index, scenario.seed) for index, flow in enumerate(scenario.flows))
    return scenario.model_copy(update={"flows": flows, "profile": "plain"})


def check_profile(name: str) -> Profile:
    """Return a profile's name. Raises UnknownNameError for another one."""
    for known in get_args(Profile):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise unknown_name("profile", name, get_args(Profile))


def payload_share(profile: str, packet_bytes: float) -> float:
    """Return the share of a packet that applications see: under ``linux`` packets have headers."""
    return 1.0 if profile == "plain" else max(0.0, packet_bytes - HEADERS_BYTES) / packet_bytes


def _linux_flow(flow: FlowSpec, index: int, seed: int) -> FlowSpec:
    given = flow.model_fields_set
    phase_s = flow.rtt_s * uniform(float(seed), 0.0, float(index), PHASE_COUNTER)
    update: dict[str, Any] = {
        "name": flow.name or flow.sender,
        "sender": _with_parameters(flow.sender),
        "start_s": flow.start_s + phase_s if flow.start_s + phase_s < flow.stop_s else flow.start_s,
    }
    if "burst_s" not in given:
        update["burst_s"] = BURST_S
    if "jitter" not in given:
        update["jitter"] = JitterSpec(kind="batch", max_s=NOISE_S)
    if "ack_every" not in flow.receiver.model_fields_set:
        changed: dict[str, Any] = {"ack_every": ACK_EVERY}
        if "ack_timeout_s" not in flow.receiver.model_fields_set:
            changed["ack_timeout_s"] = ACK_TIMEOUT_S
        update["receiver"] = flow.receiver.model_copy(update=changed)
    return flow.model_copy(update=update)


def _with_parameters(sender: str) -> str:
    name, _, own = sender.partition(":")
    given = {part.partition("=")[0].strip() for part in own.split(",")}
    added = [f"{key}={value}" for key, value in PARAMETERS.get(name, {}).items() if key not in given]
    return f"{name}:{','.join([*filter(None, [own]), *added])}" if added else sender
