"""Packets and links of the plain packet reference (``oracles.packet``)."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ccenv.base.random import uniform
from ccenv.engine.packet.layout import LINK_KEY
from ccenv.engine.packet.spec import LinkSpec
from oracles.packet_aqm import Bucket, DualPi2, FqCodel, Pie, drawn
from oracles.packet_trace import reference_trace

NEVER = math.inf
LogRow = tuple[float, str, int, int, int, int]  # time, event, flow, link, transmission, segment


def new_record(dtype: np.dtype, **values: float) -> Any:
    """Return one record with these fields set."""
    made = np.zeros(1, dtype).view(np.recarray)[0]
    for name, value in values.items():
        made[name] = value
    return made


@dataclass
class Packet:
    flow: Any  # a ReferenceFlow
    tx: int
    segment: int
    sent_s: float
    delivered_bytes: float
    delivered_s: float
    first_sent_s: float
    app_limited: bool
    inflight_bytes: float  # with it
    lost_bytes: float  # found lost before it was sent
    hop: int = 0
    marked: bool = False
    enqueued_s: float = 0.0
    link_delay_s: float = 0.0
    is_ack: bool = False
    acked: bool = False
    lost: bool = False

    @property
    def size_bytes(self) -> float:
        """Its size on a link."""
        return self.flow.spec.ack_path.ack_bytes if self.is_ack else self.flow.mss

    @property
    def can_be_marked(self) -> bool:
        """Whether it is ECN-capable; ACKs are not."""
        return self.flow.spec.codepoint != "none" and not self.is_ack


@dataclass
class ReferenceLink:
    """A link with its queue."""

    spec: LinkSpec
    index: int
    mss_bytes: float
    seed: int
    log: list[LogRow]
    rate_Bps: float = 0.0
    queue: deque[Packet] = field(default_factory=deque)
    serving: Packet | None = None
    finish_s: float = NEVER
    idle_since_s: float = 0.0
    average: float = 0.0
    since_drop: float = -1.0
    draws: int = 0
    above_since_s: float = 0.0
    next_drop_s: float = 0.0
    drop_count: float = 0.0
    last_drop_count: float = 0.0
    dropping: bool = False
    dropped_bytes: float = 0.0
    marked_bytes: float = 0.0
    served_bytes: float = 0.0
    mixed: bool = False
    largest_bytes: float = 0.0

    def __post_init__(self) -> None:
        """Build what its discipline needs."""
        kinds = {"fq_codel": FqCodel, "dualpi2": DualPi2}
        self.classes: Any = kinds[self.spec.discipline](self) if self.spec.discipline in kinds else None
        self.pie = Pie(self) if self.spec.discipline == "pie" else None
        self.trace = reference_trace(self.spec, self.seed, self.index)
        self.last_arrival_s = 0.0
        self.bucket = Bucket(self.spec.policer) if self.spec.policer else None

    def enqueue(self, packet: Packet, now_s: float) -> None:
        """Drop, mark, queue or serve an arriving packet."""
        able = packet.can_be_marked
        if self.bucket and not self.bucket.lets(packet.size_bytes, now_s):
            self.drop(packet, now_s)
            return
        drop, mark = self._red(now_s) if self.spec.discipline == "red" else (False, False)
        if self.pie and self.pie.hits(now_s):
            mark = self.spec.pie.ecn and able and self.pie.p <= 0.1
            drop = not mark
        waiting = len(self.classes) if self.classes is not None else len(self.queue)
        in_bytes = self.waiting_bytes + packet.size_bytes
        isolates = self.spec.discipline == "fq_codel"
        if self.mixed and self.serving is not None and in_bytes > self.spec.buffer_bytes + 1e-6 and not isolates:
            drop = True
        if not self.mixed and self.serving is not None and waiting >= self.room and self.spec.discipline != "fq_codel":
            drop = True
        mark = mark or (self.spec.discipline == "ecn" and len(self.queue) >= self.spec.threshold_packets)
        if drop or (mark and not able):
            self.drop(packet, now_s)
            return
        self._note("enqueue", packet, now_s)
        if mark:
            self.mark(packet)
        packet.enqueued_s = now_s
        if self.classes is not None:
            self.classes.put(packet, now_s)
            if self.serving is None:
                self._serve_class(now_s)
        elif self.serving is not None:
            self.queue.append(packet)
        else:
            self._serve(packet, now_s)

    def _note(self, event: str, packet: Packet, now_s: float) -> None:
        if not packet.is_ack:
            self.log.append((now_s, event, packet.flow.index, self.index, packet.tx, packet.segment))

    @property
    def waiting_bytes(self) -> float:
        return sum(p.size_bytes for p in (self.queue if self.classes is None else self.classes))

    def over(self) -> bool:
        """Tell whether more waits than its buffer holds."""
        return self.waiting_bytes > self.spec.buffer_bytes + 1e-6 if self.mixed else len(self.classes) > self.room

    def few(self, packets: Any) -> bool:
        """Tell whether so little stays behind the head that CoDel leaves it alone."""
        if not self.mixed:
            return len(packets) <= 2
        return sum(p.size_bytes for p in packets) - packets[0].size_bytes <= self.largest_bytes + 1e-6 if packets else True

    @property
    def room(self) -> float:
        """Packets that may wait."""
        return math.floor(self.spec.buffer_bytes / self.mss_bytes + 1e-9) if self.spec.buffer_bytes < NEVER else NEVER

    def mark(self, packet: Packet) -> None:
        packet.marked = True
        self.marked_bytes += packet.size_bytes

    def draw(self) -> float:
        self.draws += 1
        return drawn(self.seed, self.index, self.draws - 1)

    def _serve_class(self, now_s: float) -> None:
        packet = self.classes.take(now_s)
        if packet is not None:
            self._serve(packet, now_s)

    def drop(self, packet: Packet, now_s: float) -> None:
        self._note("drop", packet, now_s)
        self.dropped_bytes += packet.size_bytes
        if packet.is_ack:
            packet.flow.acks_lost += 1
            return
        packet.flow.dropped_bytes += packet.size_bytes
        packet.flow.in_network.discard(packet.tx)

    def _serve(self, packet: Packet, now_s: float) -> None:
        self.serving = packet
        if self.trace is not None:
            self.finish_s = self.trace.served_s(now_s, packet.size_bytes)
            packet.link_delay_s = self.spec.delay_s + self.trace.delay_s
        else:
            self.finish_s = now_s + packet.size_bytes / self.rate_Bps if self.rate_Bps > 0 else NEVER

    def set_rate(self, rate_Bps: float, now_s: float) -> None:
        """Change the rate; a packet that was begun at rate 0 is begun again."""
        self.rate_Bps = rate_Bps
        if self.serving is not None and self.finish_s == NEVER and rate_Bps > 0:
            self._serve(self.serving, now_s)

    def arrival_s(self, packet: Packet, now_s: float) -> float:
        """Return when a packet that leaves now is behind the link."""
        if self.trace is None:
            return now_s + self.spec.delay_s
        self.last_arrival_s = max(self.last_arrival_s, now_s + packet.link_delay_s)
        return self.last_arrival_s

    def _red(self, now_s: float) -> tuple[bool, bool]:
        red = self.spec.red
        if self.serving is None:
            self.average *= (1.0 - red.weight) ** ((now_s - self.idle_since_s) * self.rate_Bps / self.mss_bytes)
        else:
            self.average += red.weight * (len(self.queue) - self.average)
        if self.average >= red.max_packets:
            self.since_drop = 0.0
            return True, False
        if self.average < red.min_packets:
            self.since_drop = -1.0
            return False, False
        self.since_drop += 1.0
        base = red.max_probability * (self.average - red.min_packets) / (red.max_packets - red.min_packets)
        left = 1.0 - self.since_drop * base
        chance = base / left if left > base else 1.0
        hit = uniform(float(self.seed), 0.0, LINK_KEY + self.index, float(self.draws)) < chance
        self.draws += 1
        if hit:
            self.since_drop = 0.0
        return (hit and not red.ecn), (hit and red.ecn)

    def finish(self, now_s: float) -> Packet:
        """End a service, begin the next; return the packet that leaves."""
        packet, self.serving, self.finish_s = self.serving, None, NEVER
        if packet is None:
            raise RuntimeError("a link without service has finished one")
        self.served_bytes += packet.size_bytes
        self._note("depart", packet, now_s)
        if self.pie:
            self.pie.catch_up(now_s)
        if self.spec.discipline == "codel":
            first = True
            while self._codel_drops(now_s, first):
                first = False
                if self.spec.codel.ecn and self.queue[0].can_be_marked:
                    self.mark(self.queue[0])
                    break
                self.drop(self.queue.popleft(), now_s)
        if self.classes is not None:
            self._serve_class(now_s)
        elif self.queue:
            self._serve(self.queue.popleft(), now_s)
        else:
            self.idle_since_s = now_s
        return packet

    def _codel_drops(self, now_s: float, first: bool) -> bool:
        codel = self.spec.codel
        above = False
        if self.few(self.queue) or now_s - self.queue[0].enqueued_s < codel.target_s:
            self.above_since_s = 0.0
        elif self.above_since_s == 0.0:
            self.above_since_s = now_s + codel.interval_s
        else:
            above = now_s >= self.above_since_s
        if self.dropping:
            self.dropping = above
            if not above or now_s < self.next_drop_s:
                return False
            self.drop_count += 1.0
            self.next_drop_s += codel.interval_s / math.sqrt(self.drop_count)
            return True
        if not (above and first):
            return False
        self.dropping = True
        grown = self.drop_count - self.last_drop_count
        recent = now_s - self.next_drop_s < 16.0 * codel.interval_s
        self.drop_count = grown if grown > 1.0 and recent else 1.0
        self.next_drop_s = now_s + codel.interval_s / math.sqrt(self.drop_count)
        self.last_drop_count = self.drop_count
        return True
