"""What senders are compared on, and what each of them did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ccenv.network.path import MBPS_IN_BPS

WARMUP_SHARE = 0.25  # of the run, left out of the averages
# Columns of the table: key, heading.
COLUMNS = (
    ("throughput_mbps", "throughput (Mbit/s)"),
    ("utilisation", "utilisation"),
    ("rtt_ms", "mean RTT (ms)"),
    ("queue_p95_ms", "queue, 95 % (ms)"),
    ("loss", "loss"),
    ("jain", "Jain"),
    ("share", "share of fair"),
    ("worst_utilisation", "worst case"),
)


@dataclass(frozen=True)
class Setting:
    """The network on which senders are compared.

    Attributes:
        rate_Bps: of the link.
        rtt_s: propagation RTT of all flows.
        buffer_bytes: of the link, drop-tail; infinite: nothing is dropped.
        flows: of the sender that is measured.
        against: one more flow of this sender; empty: none.
        loss_rate: share of packets lost at random.
        duration_s: length of a run; its first quarter is left out of the averages.
        seed: of all random numbers.
        network: adversary that holds packets behind the link, for at most jitter_s; empty: none.
        jitter_s: D of its jitter box.
    """

    rate_Bps: float
    rtt_s: float
    buffer_bytes: float
    flows: int = 1
    against: str = ""
    loss_rate: float = 0.0
    duration_s: float = 30.0
    seed: int = 0
    network: str = ""
    jitter_s: float = 0.0

    def scenario(self, spec: str) -> dict[str, Any]:
        """Return the scenario (``ccenv.simulation.read_scenario``) in which a sender runs."""
        flow: dict[str, Any] = {"rtt_s": self.rtt_s, "loss_rate": self.loss_rate}
        if self.network:
            flow["jitter"] = {"kind": "adversary", "adversary": self.network, "max_s": self.jitter_s}
        flows = [{**flow, "sender": spec} for _ in range(self.flows)]
        flows += [{**flow, "sender": self.against, "name": f"against {self.against}"}] if self.against else []
        link = {"rate_Bps": self.rate_Bps, "buffer_bytes": self.buffer_bytes}
        run = {"duration_s": self.duration_s, "warmup_s": WARMUP_SHARE * self.duration_s, "seed": self.seed}
        return {"name": spec, "links": [link], "flows": flows, **run}

    def __str__(self) -> str:
        """Describe the network in one line."""
        bdp = self.buffer_bytes / (self.rate_Bps * self.rtt_s)
        parts = [f"{self.rate_Bps / MBPS_IN_BPS:g} Mbit/s", f"{1e3 * self.rtt_s:g} ms", f"buffer {bdp:.3g} BDP"]
        parts += [f"{self.flows} flows each"] if self.flows > 1 else []
        parts += [f"against {self.against}"] if self.against else []
        parts += [f"{100 * self.loss_rate:g} % loss"] if self.loss_rate else []
        parts += [f"network {self.network}, D {1e3 * self.jitter_s:g} ms"] if self.network else []
        return ", ".join([*parts, f"{self.duration_s:g} s"])


@dataclass(frozen=True)
class Row:
    """What one sender did.

    Attributes:
        sender: its name.
        throughput_mbps: of all its flows together.
        utilisation: of the link, by all flows.
        rtt_ms: mean over its ACKs.
        queue_p95_ms: 95th percentile over time of the time that a new packet waits.
        loss: share of its packets that were lost.
        jain: Jain's index of its flows; None for one flow.
        share: its throughput per flow over the fair share of a flow; None without ``against``.
        worst_utilisation: the lowest that an attack on the legal networks of CCAC found; None: not asked for.
        metrics: further metrics by name; None: undefined.
        error: why it could not be run; the other fields are None then.
    """

    sender: str
    throughput_mbps: float | None = None
    utilisation: float | None = None
    rtt_ms: float | None = None
    queue_p95_ms: float | None = None
    loss: float | None = None
    jain: float | None = None
    share: float | None = None
    worst_utilisation: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    error: str = ""

    def value(self, key: str) -> float | None:
        """Return what a column of the table shows: a field or a further metric."""
        value: float | None = self.metrics[key] if key in self.metrics else getattr(self, key, None)
        return value
