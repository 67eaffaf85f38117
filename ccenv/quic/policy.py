"""A learned policy behind aioquic's callbacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from aioquic.quic.congestion.base import register_congestion_control

from ccenv.agents.sender import PolicySender
from ccenv.engine.packet.batch.decisions import Decisions
from ccenv.quic.adapters.aioquic_control import ProgramControl


class PolicyControl(ProgramControl):
    """A policy behind aioquic's callbacks; between its decisions packets leave at the rate that it has set."""

    policy: Any = None

    def __init__(self, *, max_datagram_size: int) -> None:
        """Begin with aioquic's initial window; the first RTT sample begins the policy."""
        super().__init__(max_datagram_size=max_datagram_size)
        self.decisions = Decisions(self.policy, max_datagram_size)

    def on_packet_sent(self, *, packet: Any) -> None:
        super().on_packet_sent(packet=packet)
        self.decisions.flow["sent_bytes"] += packet.sent_bytes

    def on_rtt_measurement(self, *, now: float, rtt: float) -> None:
        """Take the sample, which comes once per ACK, and decide if it is time to."""
        flow = self.decisions.flow
        flow["delivered_bytes"], flow["found_lost_bytes"] = self.delivered, self.lost * self.size
        flow["inflight_bytes"] = self.bytes_in_flight
        self.decisions.take_ack(now, rtt)
        if self.decisions.decide(now):
            # below a packet one is in flight
            self.congestion_window = max(round(float(flow["cwnd_bytes"])), self.size)
            self.pacing_Bps = 0 if np.isinf(flow["rate_Bps"]) else max(1, round(float(flow["rate_Bps"])))


def register_policy(policy: PolicySender, name: str) -> None:
    """Let aioquic know a policy as a congestion control."""
    register_congestion_control(name, type("Learned", (PolicyControl,), {"policy": policy}))
