"""A learned policy inside a stack that Python reaches: the packet engine's own monitor measures, asks it and sets its window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from aioquic.quic.congestion.base import register_congestion_control

from ccenv.agents.interface.signals import MEASURES, UNKNOWN_RTT_S
from ccenv.agents.sender import PolicySender
from ccenv.engine.packet.batch.form import flow_record, link_record
from ccenv.engine.packet.batch.players import decider_of
from ccenv.engine.packet.beliefs import BELIEFS_DTYPE
from ccenv.engine.packet.layout import RTO_MIN_S, RUN_DTYPE, STATE_DTYPE
from ccenv.engine.packet.monitor import (
    SHARE_STRIDE,
    ask_monitor,
    begin_interval,
    count_ack,
    next_decision_s,
    take_decision,
)
from ccenv.engine.packet.spec import FlowSpec, LinkSpec
from ccenv.engine.packet.transport import take_rtt
from ccenv.quic.adapters.aioquic_control import ProgramControl


class Arrays(NamedTuple):
    """What a monitor reads of a network: one row each, of a link that nobody knows."""

    flows: np.ndarray
    links: np.ndarray
    beliefs: np.ndarray
    monitors: np.ndarray
    measures: np.ndarray


class Decisions:
    """A policy at its own times, over counts that somebody else keeps in ``flow`` (FLOW_DTYPE).

    Args:
        policy: with signals that a sender can measure without beliefs, and an action that sets a window.
        mss_bytes: of a packet.
    """

    def __init__(self, policy: PolicySender, mss_bytes: float) -> None:
        decider = decider_of(policy)
        self.keep = decider, np.array(decider.record), np.zeros(SHARE_STRIDE)
        flow = flow_record(FlowSpec(sender=policy.name, rtt_s=UNKNOWN_RTT_S), 0, 1, 0)
        flow["mss_bytes"], flow["started"], flow["monitor"] = mss_bytes, 1, 0
        link = link_record(LinkSpec(rate_Bps=1.0), 0)
        monitors, measures = decider.monitor(0), np.zeros(1, MEASURES)
        monitors["policy_at"], monitors["shares_at"] = (array.ctypes.data for array in self.keep[1:])
        monitors["measures_at"] = measures.ctypes.data
        self._arrays = Arrays(flow, link, np.zeros(1, BELIEFS_DTYPE), monitors, measures)
        run = np.zeros(1, RUN_DTYPE)
        run["n_flows"], run["n_monitors"], run["mss_bytes"], run["monitors_at"] = 1, 1, mss_bytes, monitors.ctypes.data
        self._run, self._state, self._next_s = run, np.zeros(1, STATE_DTYPE), -np.inf
        self.flow, self._monitor = flow[0], monitors[0]

    def take_ack(self, now_s: float, rtt_s: float) -> None:
        """Take an ACK's RTT sample; the first one is what the policy is told of Rm."""
        if self._monitor["decisions"] == 0:
            self.flow["told_rtt_s"] = rtt_s
        take_rtt(self.flow, rtt_s)
        count_ack(self._monitor, self.flow, now_s)

    def decide(self, now_s: float) -> bool:
        """Decide if it is time to; then ``flow`` has another window and rate (infinite: not paced)."""
        if now_s < self._next_s:
            return False
        flow, monitor = self.flow, self._monitor
        ask_monitor(self._arrays, self._run[0], 0, now_s)
        take_decision(monitor, flow, self._state[0], self._arrays.measures[0], now_s)
        flow["cwnd_bytes"], flow["rate_Bps"] = self._state["cwnd_bytes"][0], self._state["pacing_rate_Bps"][0]
        monitor["due"], monitor["decisions"] = 0, monitor["decisions"] + 1
        begin_interval(self._arrays, monitor, now_s)
        self._next_s = next_decision_s(monitor, flow, now_s, RTO_MIN_S)
        return True


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
