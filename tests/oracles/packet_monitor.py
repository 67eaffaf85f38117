"""Monitors of the plain packet reference: measures from lists of all that happened (``ccenv.engine.packet.monitor``)."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.agents.interface.actions import START_SEGMENTS, action, set_by_action
from ccenv.agents.interface.signals import MEASURES, SHARE_WEIGHT
from ccenv.engine.packet.monitor import Decider
from ccenv.engine.packet.spec import NetworkSpec
from oracles.packet_flow import ReferenceFlow
from oracles.packet_link import NEVER
from oracles.probing import ReferenceProbes

if TYPE_CHECKING:
    from oracles.packet import PacketReference


class ReferencePacketMonitor:
    """What is measured of one flow between its decisions, and when it decides."""

    def __init__(self, run: PacketReference, flow: ReferenceFlow, decider: Decider, network: NetworkSpec) -> None:
        self.run, self.flow, self.decider = run, flow, decider
        self.clock = decider.interface.clock if decider.interface else decider.clock
        self.bottleneck = min(flow.route, key=lambda link: network.links[link].rate_Bps)
        self.told_s = flow.spec.sender_rtt_s
        self.inside = decider.interface is not None and action(decider.interface.action).needs == "shield"
        self.next_s: float = NEVER if self.inside else flow.spec.start_s
        self.over = False
        self.acks: list[tuple[float, float]] = []  # time and RTT of every ACK
        self.marks: list[dict[str, float]] = []  # what had been counted at each decision
        self.means: list[float] = []
        self.last_rtts = (0.0, 0.0, 0.0)  # smallest, newest, slope, of the newest interval with ACKs
        self.rates: list[float] = []
        self.shares: dict[int, float] = {}
        self.actions = [0.0]
        self.acks_left = NEVER
        self.probes = ReferenceProbes()
        flow.monitor = self

    def hear(self, now_s: float) -> None:
        self.acks.append((now_s, self.flow.rtt_s))
        if self.clock.every == "acks" and self.marks and not self.over:
            self.acks_left -= 1
            if self.acks_left <= 0 and now_s > self.marks[-1]["now"] and self.run.leader in (None, self):
                self.next_s = now_s

    def _count(self, now_s: float) -> dict[str, float]:
        link = self.run.links[self.bottleneck]
        counted = {"now": now_s, "sent": self.flow.sent_bytes, "acked": self.flow.delivered_bytes}
        counted |= {"lost": self.flow.found_lost_bytes, "marked": self.flow.marked_bytes, "served": link.served_bytes}
        counted["carried"] = self._carried(now_s)
        return counted | {f"got {flow.index}": flow.delivered_bytes for flow in self.run.flows}

    def _carried(self, now_s: float) -> float:
        spec = self.run.network.links[self.bottleneck]
        steps = [(0.0, spec.rate_Bps), *((s.time_s, s.rate_Bps) for s in spec.rate_steps if s.time_s < now_s), (now_s, 0.0)]
        return sum(rate * (end - begin) for (begin, rate), (end, _) in itertools.pairwise(steps))

    def measure(self, now_s: float) -> dict[str, float]:
        """Return the measures at a decision."""
        flow, run, first = self.flow, self.run, not self.marks
        row = action(self.decider.interface.action) if self.decider.interface else None
        if first:
            start_Bps = (1.0 if row and row.needs == "beliefs" else START_SEGMENTS) * flow.mss / self.told_s
            if row and row.needs in ("inner", "shield"):
                pass
            elif row and row.sets == "rate":
                flow.state.cwnd_bytes, flow.state.pacing_rate_Bps = NEVER, start_Bps
            elif row:
                flow.state.cwnd_bytes, flow.state.pacing_rate_Bps = START_SEGMENTS * flow.mss, NEVER
        now, before = self._count(now_s), self._count(now_s) if first else self.marks[-1]
        gone = {name: now[name] - before[name] for name in now}
        length_s = self.told_s if first else gone["now"]
        self.marks.append(now)
        m = dict.fromkeys(MEASURES.names or (), 0.0)
        m |= {"now_s": now_s, "interval_s": length_s, "sent_bytes": gone["sent"], "acked_bytes": gone["acked"]}
        m |= {"lost_bytes": gone["lost"], "marked_bytes": gone["marked"], "mss_bytes": flow.mss, "told_rtt_s": self.told_s}
        m |= self._rtts([] if first else [ack for ack in self.acks if self._inside(ack, before["now"])], before["now"])
        self.rates.append(gone["acked"] / length_s)
        m |= {"throughput_most_Bps": max(self.rates), "inflight_bytes": flow.inflight_bytes, "action": self.actions[-1]}
        m |= {"cwnd_bytes": float(flow.state.cwnd_bytes), "rate_Bps": float(flow.state.pacing_rate_Bps)}
        m["app_left_bytes"] = (flow.offered - flow.next_segment) * flow.mss
        if row and row.needs == "inner":
            m["inner_cwnd_bytes"] = m["cwnd_bytes"]
        m |= self.probes.follow(m)
        grid = next((grid for grid in run.grids if grid.flow is flow), None)
        if grid is not None:
            b = grid.bounds
            m |= {"C_L_Bps": b.C_L, "C_U_Bps": b.C_U, "C_L_lambda_Bps": b.C_L_lambda, "q_U_bytes": grid.q_U}
            m |= {"qdel_L_s": max(0, grid.floor_steps - grid.jitter) * grid.dt_s, "qdel_U_s": grid.delay_s}
            m |= {"utilised": float(grid.utilised), "told_rtt_s": grid.rtt_s}
        link = run.links[self.bottleneck]
        m |= {"true_rtt_s": flow.spec.rtt_s, "true_served_Bps": gone["served"] / length_s}
        m["true_link_Bps"] = link.rate_Bps if first else gone["carried"] / length_s
        m["true_queue_bytes"] = len(link.queue) * flow.mss
        m["true_buffer_bytes"] = math.floor(link.spec.buffer_bytes / flow.mss + 1e-9) * flow.mss
        return m | self._fairness(now_s, gone, length_s, m["true_link_Bps"], first)

    def _inside(self, ack: tuple[float, float], since_s: float) -> bool:
        """ACKs at the very time of a decision come before it where the decision was a timer's, so they were counted by it."""
        return ack[0] > since_s

    def _rtts(self, own: list[tuple[float, float]], since_s: float) -> dict[str, float]:
        m = {"rtt_samples": float(len(own)), "rtt_mean_before_s": self.means[-1] if self.means else 0.0}
        m["ack_gap_mean_s"] = m["ack_gap_std_s"] = 0.0
        if own:
            times, rtts = (np.array(column) for column in zip(*own, strict=True))
            slope = float(np.polyfit(times - times.mean(), rtts, 1)[0]) if len(set(times.tolist())) > 1 else 0.0
            self.means.append(float(rtts.mean()))
            self.last_rtts = (float(rtts.min()), float(rtts[-1]), slope)
            if len(self.means) == 1:
                m["rtt_mean_before_s"] = self.means[0]
            if len(own) > 1:
                m["ack_gap_mean_s"], m["ack_gap_std_s"] = float(np.diff(times).mean()), float(np.diff(times).std())
        m["rtt_mean_s"] = self.means[-1] if self.means else 0.0
        m["rtt_least_mean_s"] = min(self.means, default=0.0)
        m["rtt_min_s"], m["rtt_last_s"], m["rtt_slope"] = self.last_rtts
        m["min_rtt_s"] = self.flow.min_rtt_s if self.flow.min_rtt_s < NEVER else 0.0
        return m | {"srtt_s": self.flow.srtt_s}

    def _fairness(self, now_s: float, gone: dict[str, float], length_s: float, link_Bps: float, first: bool) -> dict[str, float]:
        sending = [flow for flow in self.run.flows if may_send(flow, now_s)]
        controlled = {m.flow.index for m in self.run.monitors if m.decider.interface is not None}
        for flow in self.run.flows:
            old = self.shares.get(flow.index, 1.0)
            if flow not in sending:
                self.shares[flow.index] = 1.0
            elif not first:
                fair_Bps = link_Bps / len(sending)
                share = min(gone[f"got {flow.index}"] / length_s / fair_Bps, 16.0 * len(sending))  # at most 16 links
                self.shares[flow.index] = (1 - SHARE_WEIGHT) * old + SHARE_WEIGHT * share
            else:
                self.shares[flow.index] = 1.0
        now = [self.shares[flow.index] for flow in sending]
        own = [self.shares[flow.index] for flow in sending if flow.index in controlled]
        return {
            "true_flows": float(len(sending)),
            "true_others": float(sum(flow.index not in controlled for flow in sending)),
            "true_share": self.shares[self.flow.index],
            "true_own_share_mean": float(np.mean(own)) if own else 1.0,
            "true_jain": sum(now) ** 2 / (len(now) * sum(x * x for x in now)) if now else 1.0,
        }

    def choose(self, lo_Bps: float, hi_Bps: float, now_s: float) -> float:
        """Return where in the interval of its shield the flow is, when its grid asks."""
        if self.over:
            return 0.5 * (min(1.0, max(-1.0, self.actions[-1])) + 1.0)
        values = self.measure(now_s) | {"shield_low_Bps": lo_Bps, "shield_high_Bps": hi_Bps}
        asked = min(1.0, max(-1.0, self.run.decide(self.flow.index, len(self.actions) - 1)))
        self.run.decisions.append((self.flow.index, values))
        self.actions.append(asked)
        self.over = not may_send(self.flow, now_s)
        return 0.5 * (asked + 1.0)

    def take(self, asked: float, m: dict[str, float], now_s: float) -> None:
        """Take a decision; set when the next one is."""
        flow, interface, clock = self.flow, self.decider.interface, self.clock
        self.actions.append(asked)
        if interface is not None:
            rate, cwnd = set_by_action.py_func(*interface.action_row, asked, SimpleNamespace(**m))
            if flow.next_send_s > now_s and flow.state.pacing_rate_Bps < NEVER:
                flow.next_send_s = now_s + (flow.next_send_s - now_s) * (flow.state.pacing_rate_Bps / rate)
            flow.state.cwnd_bytes, flow.state.pacing_rate_Bps = cwnd, rate
        if not may_send(flow, now_s):
            self.over, self.next_s = True, NEVER
        elif clock.every == "acks":
            self.acks_left, self.next_s = clock.count, now_s + flow.rto_s()
        else:
            smallest = flow.min_rtt_s if flow.min_rtt_s < NEVER else 0.1
            unit = {"rtt": self.told_s, "srtt": flow.srtt_s or self.told_s, "seconds": 1.0, "min_rtt": smallest}[clock.every]
            wait = max(clock.count * unit, clock.least_rtts * flow.min_rtt_s if flow.min_rtt_s < NEVER else 0.0)
            if interface is not None and interface.action in ("cwnd_exp2_even", "cwnd_exp2_pull") and m["starting"] == 1:
                wait = flow.srtt_s or self.told_s
            self.next_s = now_s + wait


def may_send(flow: ReferenceFlow, now_s: float) -> bool:
    """Tell whether a flow may send."""
    return flow.started and now_s < flow.spec.stop_s and flow.finished_s == NEVER


def wake(run: PacketReference, monitor: ReferencePacketMonitor, now_s: float) -> list[ReferenceFlow]:
    """Let a monitor's flow decide, or all with a common clock; return the flows that may send then."""
    group: list[Any] = [monitor]
    if monitor.clock.common:
        if run.leader not in (None, monitor):
            monitor.next_s = NEVER
            return []
        run.leader = monitor
        group = [m for m in run.monitors if m.flow.started and not m.over]
    measured = [m.measure(now_s) for m in group]
    for m, values in zip(group, measured, strict=True):
        asked = run.decide(m.flow.index, len(m.actions) - 1)
        run.decisions.append((m.flow.index, values))
        m.take(asked, values, now_s)
    if monitor.clock.common:
        alive = [m for m in run.monitors if m.flow.started and not m.over]
        run.leader = alive[0] if alive else None
        for m in alive[1:]:
            m.next_s = NEVER
    flows = sorted(m.flow.index for m in group)
    return run.flows[flows[0] : flows[-1] + 1]
