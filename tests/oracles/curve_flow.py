"""One flow of the plain reference engine: its history, transport, beliefs and sender. See ``oracles.curve``."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.agents.callbacks import ACK, LOSS, TICK
from ccenv.agents.sender import ClassicSender, HeldSender, PolicySender, ProgramSender, Sender, ShieldSender
from ccenv.engine.compiled.beliefs import TIE
from ccenv.engine.compiled.policies import has_belief_interface
from ccenv.network.path import FlowPath
from oracles.beliefs import ReferenceBeliefs
from oracles.decision import Interval
from oracles.monitor import ReferenceMonitor
from oracles.plain import PlainRecord, plain_sender

if TYPE_CHECKING:
    from oracles.curve import ReferenceCurveEngine

LOSS_DETECTION_SEGMENTS = 3
CRUMB_TIES = 2


def new_record(dtype: np.dtype) -> Any:
    return np.zeros(1, dtype).view(np.recarray)[0]


class ReferenceFlow:
    """One flow's history and its sender's state. Lists are indexed by step; entry 0 is the start."""

    def __init__(self, index: int, flow: FlowPath, sender: Sender, engine: ReferenceCurveEngine) -> None:
        self.index, self.path, self.sender, self.engine = index, flow, sender, engine
        self.rtt = self.lag = round(flow.rtt_s / engine.dt_s)
        self.proxy = sender if isinstance(sender, HeldSender) else None
        if self.proxy:
            self.sender = sender = self.proxy.inner
            self.hold = max(1, round(self.proxy.target_s / engine.dt_s))
            self.target, self.lag = self.hold, self.rtt + self.hold
            self.rtt = max(self.rtt, self.hold) if self.proxy.mode == "lambda" else self.lag
            self.held_rtts: list[Any] = []
        self.heard = 0
        self.jitter = round(flow.jitter_s / engine.dt_s) if engine.model.has_jitter else 0
        self.start = math.ceil(flow.start_s / engine.dt_s - 1e-9)
        self.hold_change = self.start + round(self.proxy.window_s / engine.dt_s) if self.proxy and self._moves else math.inf
        self.stop = math.inf if math.isinf(flow.stop_s) else math.floor(flow.stop_s / engine.dt_s + 1e-9)
        self.A: list[Any] = [0]
        self.E: list[Any] = [0]
        self.L: list[Any] = [0]
        self.S: list[Any] = [0]
        self.P: list[Any] = [0]
        self.free: list[Any] = [0]
        self.cwnd: Any = math.inf
        self.receive_window: Any = math.inf
        self.acked: Any = 0
        self.found_lost: Any = 0
        self.loss_step = self.ack_sent_step = 0
        self.recovery_step = -1
        self.last_ack_step = self.start
        self.round_end: Any = 0
        self.round_inflight: Any = 0
        self.round_found_lost: Any = 0
        self.limited = 0.0
        self.rtt_steps: Any = self.rtt
        self.min_rtt_steps: Any = math.inf
        self.srtt = self.rttvar = 0.0
        self.delay_floor = 0
        self.q_U: Any = 0
        self.interval = Interval()
        self.utilised = False
        self.next_decision = self.start
        program = sender.program if isinstance(sender, (ProgramSender, ShieldSender)) else None
        self.beliefs = ReferenceBeliefs(
            rtt_steps=self.rtt,
            jitter_steps=self.jitter,
            dt_s=engine.dt_s,
            mss_bytes=engine.path.mss_bytes,
            settings=engine.settings,
            probe_window_steps=(program.probe_window_rtts if program else 1) * self.rtt,
            window_steps=engine.settings.window_rtts * self.rtt,
            initial_C_L_Bps=engine.initial_C_L_Bps,
            loss_proves=engine.path.red is None and all(f.loss_budget == 0 for f in engine.path.flows),
            start_step=self.start,
        )
        self.rate = self.beliefs.C_L
        self.state: Any = None
        watched = isinstance(sender, PolicySender) and not has_belief_interface(sender)
        self.monitor = ReferenceMonitor(self, sender) if watched else None
        self.cca = sender if isinstance(sender, ClassicSender) else getattr(sender, "inner", None)
        self.python = plain_sender(self.cca) if self.cca else None

    @property
    def floor_Bps(self) -> Any:
        """One segment per propagation RTT."""
        return self.engine.path.mss_bytes / (self.rtt * self.engine.dt_s)

    @property
    def inflight(self) -> Any:
        """Bytes sent and neither acknowledged nor found lost."""
        return max(0, self.A[-1] - self.acked - self.found_lost)

    @property
    def _moves(self) -> bool:
        return self.proxy is not None and self.proxy.mode == "lambda"

    def offered(self, k: int) -> Any:
        """Bytes that the application has ready for step k."""
        work, dt = self.path.workload, self.engine.dt_s
        if not self.start < k <= self.stop:
            return 0
        if work.kind == "rate":
            return max(0, work.rate_Bps * (k - self.start) * dt + self.found_lost - self.A[-1])
        if work.kind == "on_off":
            return math.inf if ((k - 1 - self.start + 1e-9) * dt) % (work.on_s + work.off_s) < work.on_s else 0
        if work.kind == "finite":
            return max(0, work.size_bytes + self.found_lost - self.A[-1])
        return math.inf

    def begin(self) -> None:
        engine = self.engine
        if self.cca:
            self.state = PlainRecord(self.cca.state, **self.cca.parameters)
            self.state.mss_bytes, self.state.seed = engine.path.mss_bytes, engine.seed
            self.state.env, self.state.flow = engine.env, self.index
            self.python.init(self.state)
            self.cwnd, self.rate = float(self.state.cwnd_bytes), float(self.state.pacing_rate_Bps)
            self.next_decision = self.start + self.rtt
        if self.monitor:
            self.monitor.start()
        if self.cca is not self.sender:
            self.decide(self.start)

    def decide(self, k: int) -> None:
        """Choose the rate for the next interval."""
        hold = 1
        if self.monitor:
            self.next_decision = k + 1 if self.monitor.waits(k) else self.monitor.decide(k)
            return
        if isinstance(self.sender, (ProgramSender, PolicySender, ShieldSender)):
            b, rtt_s = self.beliefs, self.rtt * self.engine.dt_s
            inputs = {
                "C_L": b.C_L,
                "C_U": b.C_U,
                "C_L_lambda": b.C_L_lambda,
                "MSS/Rm": self.floor_Bps,
                "rate": self.rate,
                "q_U/Rm": self.q_U / rtt_s,
                "qdel_L": max(0, self.delay_floor - self.jitter) * self.engine.dt_s,
                "qdel_U": max(0, self.rtt_steps - self.lag) * self.engine.dt_s,
                "Rm": rtt_s,
                "q_U": self.q_U,
                "MSS": self.engine.path.mss_bytes,
                "utilised": self.utilised,
            }
            keys = (self.engine.seed, self.engine.env, self.index, k)
            self.rate, hold = self.interval.close(self.sender, inputs, self.A[-1], self.inflight, keys)
        self.next_decision = k + hold * self.rtt

    def find_losses(self, n: int, k: int) -> tuple[Any, int, bool]:
        """Return newly found lost bytes, the newest step with one, and whether the RTO found them."""
        engine, reach, timeout = self.engine, self.loss_step, False
        if engine.oracle:
            reach = n
        else:
            three = LOSS_DETECTION_SEGMENTS * engine.path.mss_bytes
            while reach < n and (self.ack_sent_step - reach > self.rtt or self.E[reach + 1] + three <= self.acked):
                reach += 1
            outstanding = self.A[-1] - self.acked - self.found_lost
            rto = max(engine.rto_min_s / engine.dt_s, self.srtt + 4 * self.rttvar)
            if outstanding > TIE * self.A[-1] and k - self.last_ack_step > rto and n > reach:
                timeout, reach, self.last_ack_step = True, n, k
        lost, newest = 0, -1
        if reach > self.loss_step:
            lost = self.L[reach] - self.found_lost
            if lost > 0:
                newest = max(x for x in range(self.loss_step, reach + 1) if x == self.loss_step or self.L[x] > self.L[x - 1])
                self.found_lost = self.L[reach]
            self.loss_step = reach
        return max(lost, 0), newest, timeout

    def feedback(self, k: int) -> None:
        """Take in what is known at step k: acknowledgements, losses, beliefs; then let the sender react."""
        engine = self.engine
        n = self.heard = max(self.heard, k - self.lag + engine.early_feedback)
        newly = lost = 0
        newest_loss, timeout = -1, False
        if n >= 1:
            newly = self.S[n] - self.acked
            if newly <= self.beliefs.tie_bytes:
                newly = 0
            if newly > 0:
                self._acknowledge(n, k)
                if self.monitor:
                    self.monitor.acks.append((k, newly, self.rtt_steps))
                if self._moves:
                    self._hold_anew(k)
            lost, newest_loss, timeout = self.find_losses(n, k)
            self.interval.lost_bytes += lost
            if n > self.start:
                self.beliefs.update(self.E[: n + 1], self.L[: n + 1], self.S[: n + 1])
                x = n - self.jitter
                self.utilised = x > self.start and self.beliefs.is_utilised(self.E, self.L, self.S, x)
        sent = self.A[k] - self.A[k - 1]
        self.q_U = min(max(0, self.q_U + sent - self.beliefs.C_L_lambda * engine.dt_s), self.inflight)
        if self.cca:
            self._react(self.python, k, n, newly, lost, newest_loss, timeout)
        if k >= self.next_decision:
            self.decide(k)

    def _acknowledge(self, n: int, k: int) -> None:
        served = self.S[n]
        p = min(n, bisect_left(self.E, served - self.beliefs.tie_bytes, 1))
        sent_at: Any = p
        if self.E[p] > served and self.E[p] > self.E[p - 1]:
            sent_at = p - 1 + max(0, (served - self.E[p - 1]) / (self.E[p] - self.E[p - 1]))
        rtt = n - sent_at + self.lag
        if self.srtt == 0:
            self.srtt, self.rttvar = rtt, rtt / 2
        else:
            self.rttvar += (abs(self.srtt - rtt) - self.rttvar) / 4
            self.srtt += (rtt - self.srtt) / 8
        self.acked, self.last_ack_step, self.ack_sent_step = served, k, p
        self.rtt_steps, self.min_rtt_steps, self.delay_floor = rtt, min(self.min_rtt_steps, rtt), n - p

    def _hold_anew(self, k: int) -> None:
        """[Delta] Algorithm 1, in whole steps."""
        self.held_rtts.append(self.rtt_steps)
        if k >= self.hold_change and self.proxy:
            propagation = min(self.held_rtts) - self.hold
            hold = math.floor(max(0, self.target - propagation) + 0.5)
            self.lag, self.hold, self.held_rtts = self.lag - self.hold + hold, hold, []
            self.hold_change = k + round(self.proxy.window_s / self.engine.dt_s)

    def _react(self, sender: ClassicSender, k: int, n: int, newly: Any, lost: Any, newest_loss: int, timeout: bool) -> None:
        engine, mss = self.engine, self.engine.path.mss_bytes
        if newly > 0:
            ack = PlainRecord(ACK)
            ack.now_s, ack.acked_bytes, ack.delivered_bytes = k * engine.dt_s, newly, self.acked
            ack.rtt_s, ack.min_rtt_s = self.rtt_steps * engine.dt_s, self.min_rtt_steps * engine.dt_s
            earlier = self.ack_sent_step - self.lag + engine.early_feedback
            known = self.S[earlier] if earlier > 0 else 0
            ack.delivery_rate_Bps = (self.acked - known) / (max(1, n - earlier) * engine.dt_s)
            ack.inflight_bytes, ack.mss_bytes = self.inflight, mss
            if self.acked >= self.round_end:
                ack.round_start, self.round_end = 1.0, self.E[k]
                self.round_inflight, self.round_found_lost = self.inflight, self.found_lost
            sent = self.A[k] - self.A[k - 1]
            limited = sent < min(self.rate * engine.dt_s, self.cwnd - self.inflight)
            ack.app_limited = self.limited = float(self.path.workload.kind != "bulk" and limited)
            ack.prior_delivered_bytes, ack.tx_inflight_bytes = known, self.round_inflight
            ack.lost_since_bytes = self.found_lost - self.round_found_lost
            sender.on_ack(self.state, ack)
        if lost > 0:
            loss = PlainRecord(LOSS)
            loss.now_s, loss.lost_bytes, loss.inflight_bytes = k * engine.dt_s, lost, self.inflight
            loss.delivered_bytes, loss.timeout, loss.mss_bytes = self.acked, float(timeout), mss
            loss.new_episode = float(newest_loss > self.recovery_step)
            if newest_loss > self.recovery_step:
                self.recovery_step = k
            loss.tx_inflight_bytes, loss.app_limited = self.round_inflight, self.limited
            loss.lost_since_bytes = self.found_lost - self.round_found_lost
            sender.on_loss(self.state, loss)
        tick = PlainRecord(TICK)
        tick.now_s, tick.dt_s, tick.inflight_bytes = k * engine.dt_s, engine.dt_s, self.inflight
        tick.delivered_bytes, tick.min_rtt_s, tick.mss_bytes = self.acked, self.min_rtt_steps * engine.dt_s, mss
        sender.on_tick(self.state, tick)
        self.cwnd, self.rate = float(self.state.cwnd_bytes), float(self.state.pacing_rate_Bps)
