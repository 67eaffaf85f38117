"""The grid of a belief program or policy in the plain packet reference: whole curves in lists, beliefs by plain loops."""

import math
from collections.abc import Callable
from typing import Any

from ccenv.agents.sender import HeldSender, PolicySender, ProgramSender, Sender, ShieldSender
from ccenv.engine.compiled.beliefs import BeliefSettings
from ccenv.engine.packet.beliefs import PACKET_STEPS, ROUNDING, STEPS_PER_RTT, rtt_shortfall_steps
from ccenv.engine.packet.spec import NetworkSpec
from oracles.beliefs import ReferenceBeliefs
from oracles.decision import Interval
from oracles.packet_flow import ReferenceFlow


class ReferenceGrid:
    """Steps the beliefs of one flow; its sender decides once per Rm, where it is a program or policy; else they are watched."""

    def __init__(
        self,
        flow: ReferenceFlow,
        sender: Sender,
        inner: ProgramSender | PolicySender | ShieldSender | None,
        network: NetworkSpec,
        seed: int = 0,
    ) -> None:
        self.flow, self.sender, self.seed = flow, inner, seed
        spec, mss = flow.spec, network.mss_bytes
        self.path_rtt_s = spec.sender_rtt_s
        self.rtt_s = sender.rtt_s(spec.rtt_s) if isinstance(sender, HeldSender) else self.path_rtt_s
        self.dt_s = self.rtt_s / STEPS_PER_RTT
        self.next_s = spec.start_s
        whole_steps = math.ceil(spec.jitter_s / self.dt_s - ROUNDING)
        self.jitter = max(PACKET_STEPS, whole_steps)
        self.rounding_steps = whole_steps + PACKET_STEPS - self.jitter
        probe_rtts = inner.program.probe_window_rtts if isinstance(inner, (ProgramSender, ShieldSender)) else 1
        settings = BeliefSettings()
        disciplines = {network.links[link].discipline for link in network.route_of(flow.index)}
        self.bounds = ReferenceBeliefs(
            rtt_steps=STEPS_PER_RTT, jitter_steps=self.jitter, dt_s=self.dt_s, mss_bytes=mss, settings=settings,
            probe_window_steps=probe_rtts * STEPS_PER_RTT, window_steps=settings.window_rtts * STEPS_PER_RTT,
            loss_proves=disciplines == {"drop_tail"} and spec.loss_rate == 0, tie_bytes=mss,
        )  # fmt: skip
        self.E: list[float] = []
        self.L: list[float] = []
        self.S: list[float] = [0.0]
        self.rate_Bps = self.bounds.C_L
        self.q_U = self.sent_bytes = self.known_lost_bytes = 0.0
        self.sent_step = self.floor_steps = 0
        self.delay_s = 0.0
        self.first_delay_steps: float | None = None
        self.shortfall_s = 0.0
        self.utilised = False
        self.decision_step = 0
        self.interval = Interval()

    def step(self, choose: Callable[[float, float], float] | None = None) -> float:
        """Take one step; return the rate in force after it, bytes/s. An external chooser is asked for its position."""
        flow, k = self.flow, len(self.E)
        lost = flow.dropped_bytes + flow.random_lost_bytes
        self.E.append(flow.sent_bytes - lost)
        self.L.append(lost)
        sent, self.sent_bytes = flow.sent_bytes - self.sent_bytes, flow.sent_bytes
        shift_s = self.path_rtt_s + self.shortfall_s + flow.hold_s - self.rtt_s
        self._hear(k - STEPS_PER_RTT - math.ceil(shift_s / self.dt_s - ROUNDING), shift_s)
        self.q_U = min(max(0.0, self.q_U + sent - self.bounds.C_L_lambda * self.dt_s), max(0.0, flow.inflight_bytes))
        if self.sender is not None and k >= self.decision_step:
            keys = (self.seed, 0, flow.index, k)
            self.rate_Bps, hold = self.interval.close(
                self.sender, self._inputs(), flow.sent_bytes, self._inflight_bytes(), keys, choose
            )
            self.decision_step = k + hold * STEPS_PER_RTT
        self.next_s = flow.spec.start_s + (k + 1) * self.dt_s
        return float(self.rate_Bps)

    def _hear(self, n: int, shift_s: float) -> None:
        flow, old = self.flow, len(self.S) - 1
        if n <= old:
            return
        served, before = flow.acked_count * flow.mss, self.S[-1]
        self.S += [before + (served - before) * (x - old) / (n - old) for x in range(old + 1, n)] + [served]
        if served > before:
            while self.sent_step < n and self.E[self.sent_step] < served:
                self.sent_step += 1
            self.floor_steps = max(0, n - self.sent_step - self.rounding_steps)
        if self.first_delay_steps is None and math.isfinite(flow.min_rtt_s):
            self.first_delay_steps = (flow.rtt_s - shift_s - self.rtt_s) / self.dt_s
            self.shortfall_s = rtt_shortfall_steps.py_func(self.first_delay_steps, self.jitter + self.rounding_steps) * self.dt_s
            if self.shortfall_s > 0:
                self.jitter *= 2
                self.bounds.jitter_steps = self.jitter
                self.bounds.forget(n)
                self.q_U = math.inf
        self.delay_s = max(0.0, flow.rtt_s - shift_s - self.rtt_s)
        self.interval.lost_bytes += self.L[n] - self.known_lost_bytes
        self.known_lost_bytes = self.L[n]
        self.bounds.update(self.E, self.L, self.S)
        x = n - self.jitter
        self.utilised = x > 0 and self.bounds.is_utilised(self.E, self.L, self.S, x)

    def _inflight_bytes(self) -> float:
        return self.flow.sent_bytes - self.flow.acked_count * self.flow.mss - self.known_lost_bytes

    def _inputs(self) -> dict[str, Any]:
        b, mss = self.bounds, self.flow.mss
        return {
            "C_L": b.C_L, "C_U": b.C_U, "C_L_lambda": b.C_L_lambda, "MSS/Rm": mss / self.rtt_s, "rate": self.rate_Bps,
            "q_U": self.q_U, "q_U/Rm": self.q_U / self.rtt_s, "qdel_L": max(0, self.floor_steps - self.jitter) * self.dt_s,
            "qdel_U": self.delay_s, "Rm": self.rtt_s, "MSS": mss, "utilised": self.utilised,
        }  # fmt: skip
