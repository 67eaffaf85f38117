"""A policy over counts that somebody else keeps: the engine's own monitor measures, asks it and sets its window."""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import numpy as np

from ccenv.agents.interface.actions import action
from ccenv.agents.interface.signals import MEASURES, PACKET, UNKNOWN_RTT_S
from ccenv.agents.sender import PolicySender
from ccenv.engine.compiled.policies import require_signals
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


def sets_window(sender: object) -> TypeGuard[PolicySender]:
    """Tell whether a sender is a policy that sets a window by itself."""
    return isinstance(sender, PolicySender) and action(sender.interface.action).sets == "cwnd" and sender.inner is None


class MonitorArrays(NamedTuple):
    """What a monitor reads of a network: one row each, of a link that nobody knows."""

    flows: np.ndarray
    links: np.ndarray
    beliefs: np.ndarray
    monitors: np.ndarray
    measures: np.ndarray


class Decisions:
    """A policy at its own times, over counts that somebody else keeps in ``flow`` (FLOW_DTYPE).

    Raises InputError for a policy that sees beliefs, or how much is left to send.

    Attributes:
        next_s: when it decides next.

    Args:
        policy: one that sets a window (``sets_window``).
        mss_bytes: of a packet.
    """

    def __init__(self, policy: PolicySender, mss_bytes: float) -> None:
        require_signals(policy, PACKET, finite=False, beliefs=False)
        decider = decider_of(policy)
        self.keep = decider, np.array(decider.record), np.zeros(SHARE_STRIDE)
        flow = flow_record(FlowSpec(sender=policy.name, rtt_s=UNKNOWN_RTT_S), 0, 1, 0)
        flow["mss_bytes"], flow["started"], flow["monitor"] = mss_bytes, 1, 0
        link = link_record(LinkSpec(rate_Bps=1.0), 0)
        monitors, measures = decider.monitor(0), np.zeros(1, MEASURES)
        monitors["policy_at"], monitors["shares_at"] = (array.ctypes.data for array in self.keep[1:])
        monitors["measures_at"] = measures.ctypes.data
        self._arrays = MonitorArrays(flow, link, np.zeros(1, BELIEFS_DTYPE), monitors, measures)
        run = np.zeros(1, RUN_DTYPE)
        run["n_flows"], run["n_monitors"], run["mss_bytes"], run["monitors_at"] = 1, 1, mss_bytes, monitors.ctypes.data
        self._run, self._state, self.next_s = run, np.zeros(1, STATE_DTYPE), -np.inf
        self.flow, self._monitor = flow[0], monitors[0]

    def take_ack(self, now_s: float, rtt_s: float) -> None:
        """Take an ACK's RTT sample; the first one is what the policy is told of Rm."""
        if self._monitor["decisions"] == 0:
            self.flow["told_rtt_s"] = rtt_s
        take_rtt(self.flow, rtt_s)
        count_ack(self._monitor, self.flow, now_s)

    def decide(self, now_s: float) -> bool:
        """Decide if it is time to; then ``flow`` has another window and rate (infinite: not paced)."""
        if now_s < self.next_s:
            return False
        flow, monitor = self.flow, self._monitor
        ask_monitor(self._arrays, self._run[0], 0, now_s)
        take_decision(monitor, flow, self._state[0], self._arrays.measures[0], now_s)
        flow["cwnd_bytes"], flow["rate_Bps"] = self._state["cwnd_bytes"][0], self._state["pacing_rate_Bps"][0]
        monitor["due"], monitor["decisions"] = 0, monitor["decisions"] + 1
        begin_interval(self._arrays, monitor, now_s)
        self.next_s = next_decision_s(monitor, flow, now_s, RTO_MIN_S)
        return True
