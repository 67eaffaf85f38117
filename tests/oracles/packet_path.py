"""Paths of the plain packet reference beside queueing: jitter boxes, losses in bursts, lost ACKs, packets that are overtaken."""

import math
from collections import deque
from typing import Any

from ccenv.base.random import uniform
from ccenv.engine.packet.layout import ACK_LOSS_COUNTER, BURST_COUNTER, JITTER_COUNTER, LATE_COUNTER
from ccenv.engine.packet.receiver import MULTIPLE_TOLERANCE
from ccenv.engine.packet.spec import FlowSpec
from oracles.packet_link import NEVER, Packet


class ReferencePath:
    """The path of one flow; what a flow is beside it, ``oracles.packet_flow`` adds."""

    spec: FlowSpec
    seed: int
    index: int
    deliver: Any

    def begin_path(self) -> None:
        """Set up what it remembers."""
        self.late: deque[tuple[float, Packet]] = deque()
        self.outgoing: deque[tuple[float, Packet]] = deque()
        self.bad, self.ack_bad = False, False
        self.acks_sent = self.acks_lost = 0
        self.last_release_s = self.batch_end_s = self.jitter_draws = 0.0
        self.early_at_s = self.spec.jitter.at_s

    def release_s(self, at_s: float) -> float:
        """Return when the jitter box lets a packet go."""
        jitter = self.spec.jitter
        wanted = at_s
        if jitter.kind == "constant":
            wanted = at_s + jitter.max_s
        elif jitter.kind == "batch":
            while self.batch_end_s < at_s:
                draw = uniform(float(self.seed), 0.0, float(self.index), JITTER_COUNTER + self.jitter_draws)
                self.batch_end_s += jitter.max_s * draw
                self.jitter_draws += 1.0
            wanted = self.batch_end_s
        elif jitter.kind == "uniform":
            wanted = at_s + jitter.max_s * self._draw(JITTER_COUNTER + self.jitter_draws)
            self.jitter_draws += 1.0
        elif jitter.kind == "interval":
            wanted = math.ceil(at_s / jitter.interval_s - MULTIPLE_TOLERANCE) * jitter.interval_s
        elif jitter.kind == "replay":
            wanted = at_s + jitter.delays_s[math.floor(at_s / jitter.interval_s + MULTIPLE_TOLERANCE) % len(jitter.delays_s)]
        elif jitter.kind == "early" and at_s < self.early_at_s:
            wanted = at_s + jitter.max_s
        elif jitter.kind == "early":
            self.early_at_s = self.early_at_s + jitter.every_s if jitter.every_s > 0.0 else NEVER
        self.last_release_s = max(at_s, min(wanted, at_s + jitter.max_s), self.last_release_s)
        return self.last_release_s

    def _draw(self, counter: float) -> float:
        return uniform(float(self.seed), 0.0, float(self.index), counter)

    def loses(self, packet: Packet) -> bool:
        """Tell whether a burst of losses takes a packet; the chain takes a step."""
        bursts = self.spec.loss_bursts
        if bursts is None:
            return False
        lost = self._draw(BURST_COUNTER + 2 * packet.tx) < (bursts.loss if self.bad else bursts.loss_between)
        self.bad ^= self._draw(BURST_COUNTER + 2 * packet.tx + 1) < (bursts.leave if self.bad else bursts.enter)
        return lost

    def loses_ack(self) -> bool:
        path, at = self.spec.ack_path, ACK_LOSS_COUNTER + 3 * self.acks_sent
        self.acks_sent += 1
        lost = self._draw(at) < path.loss_rate
        if path.loss_bursts:
            bursts = path.loss_bursts
            lost |= self._draw(at + 1) < (bursts.loss if self.ack_bad else bursts.loss_between)
            self.ack_bad ^= self._draw(at + 2) < (bursts.leave if self.ack_bad else bursts.enter)
        self.acks_lost += lost
        return lost

    def reach(self, packet: Packet, at_s: float) -> None:
        """Deliver a packet, or let it take the longer way; those on it that are due come first."""
        ways = self.spec.reordering
        if ways and self._draw(LATE_COUNTER + packet.tx) < ways.share:
            self.late.append((at_s + ways.extra_s, packet))
            return
        while self.late and self.late[0][0] <= at_s:
            due_s, before = self.late.popleft()
            self.deliver(before, due_s)
        self.deliver(packet, at_s)
