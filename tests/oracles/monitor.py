"""What is measured of a flow of the plain curve reference between its decisions; the kernel: ``ccenv.engine.curve.monitor``."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from ccenv.agents.interface.actions import ACTION_NUMBERS, START_SEGMENTS, set_by_action
from ccenv.agents.interface.signals import MEASURES
from ccenv.agents.learned.convert import PolicyReference
from ccenv.agents.sender import PolicySender
from oracles.probing import ReferenceProbes
from oracles.signals import signals_of

if TYPE_CHECKING:
    from oracles.curve_flow import ReferenceFlow

_SEGMENT = 1 - 1e-9


class ReferenceMonitor:
    """The measures of one flow, from lists of all that happened.

    Attributes:
        acks: (step, bytes, RTT in steps) of every step with newly acknowledged bytes.
        measured: the newest measures, by name.
    """

    def __init__(self, flow: ReferenceFlow, policy: PolicySender) -> None:
        """Begin before the flow's first decision."""
        self.flow, self.policy, self.memory = flow, policy, PolicyReference(policy)
        self.acks: list[tuple[int, float, float]] = []
        self.starts: list[tuple[int, float, float, float]] = []
        self.means: list[float] = []
        self.rates: list[float] = []
        self.last = (0.0, 0.0)
        self.pending = 0.0
        self.probes = ReferenceProbes()
        self.measured: dict[str, float] = {}
        self.due = (0.0, math.inf)

    def start(self) -> None:
        """Set what holds before the first decision."""
        flow, action = self.flow, self.policy.interface.action
        if action in {"rate_log2", "cwnd_exp2_over", "rate_exp2_over"}:
            return
        rate = max(flow.beliefs.C_L, START_SEGMENTS * flow.floor_Bps)
        if action.startswith("cwnd"):
            flow.cwnd, flow.rate = rate * flow.rtt * flow.engine.dt_s, math.inf
        else:
            flow.rate = rate

    def measure(self, k: int) -> dict[str, float]:
        """Return the measures at a decision at step k; what only the network knows is left at 0."""
        flow, dt, mss = self.flow, self.flow.engine.dt_s, self.flow.engine.path.mss_bytes
        b = flow.beliefs
        now = (k, float(flow.A[-1]), float(flow.acked), float(flow.found_lost))
        first = not self.starts
        since, sent, acked, lost = now if first else self.starts[-1]
        interval_s = flow.rtt * dt if first or k == since else (k - since) * dt
        m = dict.fromkeys(MEASURES.names or (), 0.0)
        m |= {"now_s": k * dt, "interval_s": interval_s, "sent_bytes": now[1] - sent, "acked_bytes": now[2] - acked}
        m |= {"lost_bytes": now[3] - lost, "mss_bytes": mss, "app_left_bytes": math.inf}
        own = [ack for ack in self.acks if ack[0] > since]
        m["rtt_mean_before_s"] = self.means[-1] if self.means else 0.0
        if own:
            weights, times, rtts = (np.array(column) for column in zip(*((n / mss, t, r) for t, n, r in own), strict=True))
            mean, middle = np.average(rtts, weights=weights), np.average(times, weights=weights)
            spread = float((weights * (times - middle) ** 2).sum())
            m["rtt_samples"] = float(weights.sum())
            if len(own) > 1:
                m["rtt_slope"] = float((weights * (times - middle) * (rtts - mean)).sum()) / spread
            self.last = (min(rtts) * dt, rtts[-1] * dt)
            self.means.append(mean * dt)
            if len(self.means) == 1:
                m["rtt_mean_before_s"] = mean * dt
        m["rtt_mean_s"] = self.means[-1] if self.means else 0.0
        m["rtt_least_mean_s"] = min(self.means, default=0.0)
        m["rtt_min_s"], m["rtt_last_s"] = self.last
        m["ack_gap_mean_s"], m["ack_gap_std_s"] = self._gaps(own, mss, dt)
        m["min_rtt_s"] = flow.min_rtt_steps * dt if math.isfinite(flow.min_rtt_steps) else 0.0
        m["srtt_s"] = flow.srtt * dt
        self.rates.append(m["acked_bytes"] / interval_s)
        m |= {"throughput_most_Bps": max(self.rates), "inflight_bytes": float(flow.inflight), "action": self.memory.action}
        m |= {"cwnd_bytes": flow.cwnd, "rate_Bps": flow.rate, "told_rtt_s": flow.rtt * dt, "inner_cwnd_bytes": flow.cwnd}
        m |= {"C_L_Bps": b.C_L, "C_U_Bps": b.C_U, "C_L_lambda_Bps": b.C_L_lambda, "q_U_bytes": flow.q_U}
        m["qdel_L_s"] = max(0, flow.delay_floor - flow.jitter) * dt
        m["qdel_U_s"] = max(0, flow.rtt_steps - flow.lag) * dt
        m["utilised"] = float(flow.utilised)
        m |= self.probes.follow(m)
        self.starts.append(now)
        return m

    def _gaps(self, own: list[tuple[int, float, float]], mss: float, dt: float) -> tuple[float, float]:
        """Return mean and standard deviation of the gaps: an ACK for each segment, evenly spread since the ACKs before."""
        gaps, before = [], None
        for step, newly, _ in own:
            self.pending += newly
            if self.pending >= _SEGMENT * mss:
                if before is not None:
                    gaps.append((self.pending / mss, (step - before) * dt))
                before, self.pending = step, 0.0
        acks = sum(n for n, _ in gaps)
        if not acks:
            return 0.0, 0.0
        mean = sum(time for _, time in gaps) / acks
        return mean, math.sqrt(sum(n * (time / n - mean) ** 2 for n, time in gaps) / acks)

    def waits(self, k: int) -> bool:
        """Tell whether a clock of ACKs waits on, at step k."""
        if self.policy.interface.clock.every != "acks" or not self.starts:
            return False
        return self.flow.acked < self.due[0] * (1 - 1e-12) and k < self.due[1]

    def decide(self, k: int) -> int:
        """Let the policy set rate and window; return the step of the next decision."""
        flow, policy = self.flow, self.policy
        m = self.measured = self.measure(k)
        a = self.memory.decide(np.array(signals_of(m)))
        number, first, second = policy.interface.action_row
        assert number == ACTION_NUMBERS[policy.interface.action]
        rate, cwnd = set_by_action.py_func(number, first, second, a, SimpleNamespace(**m))
        flow.rate, flow.cwnd = float(rate), float(cwnd)
        if flow.state is not None:
            flow.state.cwnd_bytes, flow.state.pacing_rate_Bps = cwnd, rate
        clock, dt = policy.interface.clock, flow.engine.dt_s
        if clock.every == "acks":
            rto = max(flow.engine.rto_min_s / dt, flow.srtt + 4 * flow.rttvar)
            self.due = flow.acked + clock.count * m["mss_bytes"], k + int(rto)
            return k + 1
        smallest = flow.min_rtt_steps if math.isfinite(flow.min_rtt_steps) else 0.1 / dt
        unit = {"rtt": flow.rtt, "srtt": flow.srtt or flow.rtt, "seconds": 1 / dt, "min_rtt": smallest}[clock.every]
        known = flow.min_rtt_steps if math.isfinite(flow.min_rtt_steps) else 0.0
        wait = max(clock.count * unit, clock.least_rtts * known)
        if policy.interface.action in ("cwnd_exp2_even", "cwnd_exp2_pull") and m["starting"] == 1:
            wait = flow.srtt or flow.rtt
        return k + max(1, math.floor(wait + 0.5))
