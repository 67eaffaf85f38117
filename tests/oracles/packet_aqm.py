"""Queue disciplines of the plain packet reference: PIE, FQ-CoDel and DualPI2 as lists of packets."""

import math
from collections import deque
from typing import Any

from ccenv.base.random import uniform
from ccenv.engine.packet.layout import LINK_KEY

SCALES = {1e-6: 2048, 1e-5: 512, 1e-4: 128, 1e-3: 32, 1e-2: 8, 1e-1: 2}


class Pie:
    """RFC 8033, with the link as owner of queue, rate and random numbers."""

    def __init__(self, link: Any) -> None:
        self.link, self.spec = link, link.spec.pie
        self.p = self.old_s = self.sum = 0.0
        self.next_s, self.burst_s = self.spec.update_s, self.spec.burst_s

    def catch_up(self, now_s: float) -> None:
        spec = self.spec
        while self.next_s <= now_s:
            delay_s = self.link.waiting_bytes / self.link.rate_Bps
            step = spec.alpha * (delay_s - spec.target_s) + spec.beta * (delay_s - self.old_s)
            step /= next((divisor for bound, divisor in SCALES.items() if self.p < bound), 1)
            self.p += min(step, 0.02) if self.p >= 0.1 else step
            if delay_s == self.old_s == 0.0:
                self.p *= 0.98
            self.p = min(1.0, max(0.0, self.p))
            self.old_s = delay_s
            self.burst_s = max(0.0, self.burst_s - spec.update_s)
            if self.p == 0.0 and delay_s < 0.5 * spec.target_s:
                self.burst_s = spec.burst_s
            self.next_s += spec.update_s

    def hits(self, now_s: float) -> bool:
        """Tell whether an arriving packet is to be dropped or marked."""
        self.catch_up(now_s)
        calm = self.old_s < 0.5 * self.spec.target_s and self.p < 0.2
        few = self.link.waiting_bytes <= 2 * self.link.mss_bytes if self.link.mixed else len(self.link.queue) <= 2
        if self.burst_s > 0.0 or calm or few:
            return False
        self.sum = self.sum + self.p if self.p > 0.0 else 0.0
        if self.sum < 0.85:
            return False
        draw = self.link.draw()
        if self.sum < 8.5 and draw >= self.p:
            return False
        self.sum = 0.0
        return True


class OneQueue:
    """A flow's queue with its CoDel."""

    def __init__(self) -> None:
        self.packets: deque[Any] = deque()
        self.deficit = 0.0
        self.above_s = self.next_s = 0.0
        self.count = self.last = 0.0
        self.dropping = False

    def hits(self, now_s: float, target_s: float, interval_s: float, first: bool, few: bool) -> bool:
        above = False
        if now_s - self.packets[0].enqueued_s < target_s or few:
            self.above_s = 0.0
        elif self.above_s == 0.0:
            self.above_s = now_s + interval_s
        else:
            above = now_s >= self.above_s
        if self.dropping:
            self.dropping = above
            if not above or now_s < self.next_s:
                return False
            self.count += 1.0
            self.next_s += interval_s / math.sqrt(self.count)
            return True
        if not (above and first):
            return False
        grown = self.count - self.last
        recent = now_s - self.next_s < 16.0 * interval_s
        self.dropping = True
        self.count = self.last = grown if grown > 1.0 and recent else 1.0
        self.next_s = now_s + interval_s / math.sqrt(self.count)
        return True


class FqCodel:
    """RFC 8290 with a queue per flow."""

    def __init__(self, link: Any) -> None:
        self.link, self.spec = link, link.spec.fq_codel
        self.queues: dict[int, OneQueue] = {}
        self.new: deque[int] = deque()
        self.old: deque[int] = deque()

    def __len__(self) -> int:
        return sum(len(queue.packets) for queue in self.queues.values())

    def __iter__(self) -> Any:
        return (packet for queue in self.queues.values() for packet in queue.packets)

    def _size(self, queue: OneQueue) -> float:
        return sum(p.size_bytes for p in queue.packets) if self.link.mixed else len(queue.packets)

    def put(self, packet: Any, now_s: float) -> None:
        flow = packet.flow.index
        queue = self.queues.setdefault(flow, OneQueue())
        queue.packets.append(packet)
        if flow not in self.new and flow not in self.old:
            queue.deficit = self.spec.quantum_bytes
            self.new.append(flow)
        while self.link.over():
            most = max(self._size(q) for q in self.queues.values())
            fullest = min(i for i, q in self.queues.items() if self._size(q) == most)
            self.link.drop(self.queues[fullest].packets.popleft(), now_s)

    def take(self, now_s: float) -> Any:
        while self.new or self.old:
            line = self.new or self.old
            queue = self.queues[line[0]]
            if queue.deficit <= 0:
                queue.deficit += self.spec.quantum_bytes
                self.old.append(line.popleft())
                continue
            packet = self._after_codel(queue, now_s)
            if packet is not None:
                queue.deficit -= packet.size_bytes
                return packet
            was_new = line is self.new
            flow = line.popleft()
            if was_new:
                self.old.append(flow)
        return None

    def _after_codel(self, queue: OneQueue, now_s: float) -> Any:
        first = True
        while queue.packets:
            few = self.link.few(queue.packets)
            hit = self.spec.codel and queue.hits(now_s, self.spec.target_s, self.spec.interval_s, first, few)
            packet = queue.packets.popleft()
            if not hit:
                return packet
            if self.spec.ecn and packet.can_be_marked:
                self.link.mark(packet)
                return packet
            self.link.drop(packet, now_s)
            first = False
        queue.above_s, queue.dropping = 0.0, False
        return None


class DualPi2:
    """RFC 9332 appendix A; the queue of an L4S packet is True."""

    def __init__(self, link: Any) -> None:
        self.link, self.spec = link, link.spec.dualpi2
        self.queues: dict[bool, deque[Any]] = {False: deque(), True: deque()}
        self.p = self.old_s = self.credit = 0.0
        self.next_s = self.spec.update_s

    def __len__(self) -> int:
        return len(self.queues[False]) + len(self.queues[True])

    def __iter__(self) -> Any:
        return (packet for queue in self.queues.values() for packet in queue)

    def catch_up(self, now_s: float) -> None:
        spec = self.spec
        while self.next_s <= now_s:
            delay_s = max((self.next_s - queue[0].enqueued_s for queue in self.queues.values() if queue), default=0.0)
            self.p += spec.alpha * (delay_s - spec.target_s) + spec.beta * (delay_s - self.old_s)
            self.p = min(1.0, max(0.0, self.p))
            self.old_s = delay_s
            self.next_s += spec.update_s

    def put(self, packet: Any, now_s: float) -> None:
        self.catch_up(now_s)
        self.queues[packet.flow.spec.codepoint == "l4s" and not packet.is_ack].append(packet)

    def take(self, now_s: float) -> Any:
        spec = self.spec
        self.catch_up(now_s)
        p2 = self.p * self.p
        while len(self):
            classic, l4s = self.queues[False], self.queues[True]
            alone = len(self) == 1
            if l4s and (not classic or self.credit <= 0.0):
                self.credit += spec.classic_share * l4s[0].size_bytes if classic else 0.0
                waited_s = now_s - l4s[0].enqueued_s
                own = 0.0
                if len(l4s) > 1:
                    over_s = waited_s - spec.ramp_start_s
                    own = 1.0 if waited_s >= spec.ramp_start_s + spec.ramp_s else max(0.0, over_s / spec.ramp_s)
                packet = l4s.popleft()
                if p2 >= spec.overload and not alone and self.link.draw() < p2:
                    self.link.drop(packet, now_s)
                    continue
                if self.link.draw() < max(own, min(1.0, spec.coupling * self.p)):
                    self.link.mark(packet)
                return packet
            self.credit -= (1.0 - spec.classic_share) * classic[0].size_bytes if l4s else 0.0
            packet = classic.popleft()
            if alone or self.link.draw() >= p2:
                return packet
            if packet.can_be_marked and p2 < spec.overload:
                self.link.mark(packet)
                return packet
            self.link.drop(packet, now_s)
        return None


class Bucket:
    """A policer."""

    def __init__(self, spec: Any) -> None:
        self.spec, self.tokens, self.at_s = spec, spec.burst_bytes, 0.0

    def lets(self, size_bytes: float, now_s: float) -> bool:
        self.tokens = min(self.spec.burst_bytes, self.tokens + (now_s - self.at_s) * self.spec.rate_Bps)
        self.at_s = now_s
        if self.tokens < size_bytes - 1e-6:
            return False
        self.tokens -= size_bytes
        return True


def drawn(seed: int, index: int, draws: int) -> float:
    """Return the n-th random number of a link."""
    return float(uniform(float(seed), 0.0, LINK_KEY + index, float(draws)))
