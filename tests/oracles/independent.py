"""A simulator of its own: flows of Reno and CUBIC over one FIFO link, written from the RFCs. It shares no code with ccenv.

Windows are in segments. A packet's fate at the link is decided when it is sent, so the only events are ACKs and time-outs.
RFC 5681 (Reno), RFC 9438 (CUBIC), RFC 9406 (HyStart++), RFC 6675 (what is lost, when recovery ends), RFC 6298 (RTO, smallest
0.2 s); initial window RFC 6928. The receiver acknowledges every packet, with SACK.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass
from itertools import count


class Reno:
    """RFC 5681: windows as signals come."""

    keeps = 0.5

    def __init__(self, hystart: bool = False) -> None:
        self.cwnd, self.ssthresh = 10.0, float("inf")
        self.hystart = HyStart() if hystart else None

    def acked(self, n: int, now: float, rtt: float, una: int, nxt: int) -> None:
        """Grow by n segments that were acknowledged outside of recovery."""
        left = float(n)
        if self.cwnd < self.ssthresh:
            share = self.hystart.share(rtt, una, nxt) if self.hystart else 1.0
            if share == 0.0:
                self.ssthresh = self.cwnd
            else:
                step = min(left * share, self.ssthresh - self.cwnd)
                self.cwnd += step
                left -= step / share
        if left > 1e-9 and self.cwnd >= self.ssthresh:
            self.avoid(left, now, rtt)

    def avoid(self, n: float, now: float, rtt: float) -> None:
        """RFC 5681 eq. (3)."""
        self.cwnd += n / self.cwnd

    def lost(self, flight: float) -> None:
        """Begin a recovery."""
        self.cwnd = self.ssthresh = max(2.0, self.keeps * flight)

    def timed_out(self) -> None:
        """Begin slow start."""
        self.cwnd = 1.0


class Cubic(Reno):
    """RFC 9438."""

    keeps = 0.7

    def __init__(self, hystart: bool = False) -> None:
        super().__init__(hystart)
        self.w_max = self.prior = self.srtt = 0.0
        self.begun: float | None = None
        self.fresh = False

    def acked(self, n: int, now: float, rtt: float, una: int, nxt: int) -> None:
        """Grow."""
        self.srtt = rtt if self.srtt == 0.0 else self.srtt + 0.125 * min(1.0, n / self.cwnd) * (rtt - self.srtt)
        super().acked(n, now, rtt, una, nxt)

    def avoid(self, n: float, now: float, rtt: float) -> None:
        """Eqs. (1) to (4)."""
        if self.begun is None:
            self.begun, self.estimate = now, self.cwnd
            above = self.w_max > self.cwnd and not self.fresh
            self.origin = self.w_max if above else self.cwnd
            self.k = ((self.origin - self.cwnd) / 0.4) ** (1 / 3)
            self.fresh = False
        self.estimate += (1.0 if self.estimate >= self.prior else 3 * 0.3 / 1.7) * n / self.cwnd
        t = now - self.begun
        if 0.4 * (t - self.k) ** 3 + self.origin < self.estimate:
            self.cwnd = max(self.cwnd, self.estimate)
        else:
            target = 0.4 * (t + self.srtt - self.k) ** 3 + self.origin
            self.cwnd += (min(max(target, self.cwnd), 1.5 * self.cwnd) - self.cwnd) * min(1.0, n / self.cwnd)

    def lost(self, flight: float) -> None:
        """S.4.6 and fast convergence (s.4.7)."""
        self.w_max = self.cwnd * (0.85 if self.cwnd < self.w_max else 1.0)
        self.prior, self.begun = self.cwnd, None
        super().lost(flight)

    def timed_out(self) -> None:
        """S.4.8."""
        super().timed_out()
        self.begun, self.fresh = None, True


class HyStart:
    """RFC 9406 s.4.2."""

    def __init__(self) -> None:
        self.window_end = self.samples = self.rounds = 0
        self.last = self.current = self.baseline = float("inf")

    def share(self, rtt: float, una: int, nxt: int) -> float:
        """Return by how much of an acknowledged segment the window grows; 0: slow start ends."""
        if una > self.window_end:
            self.window_end, self.last, self.current, self.samples = nxt, self.current, float("inf"), 0
            self.rounds += self.rounds > 0
            if self.rounds > 5:
                return 0.0
        self.current, self.samples = min(self.current, rtt), self.samples + 1
        if self.samples >= 8:
            if self.rounds and self.current < self.baseline:
                self.rounds = 0
            elif not self.rounds and self.last < 1e9 and self.current >= self.last + max(0.004, min(self.last / 8, 0.016)):
                self.baseline, self.rounds = self.current, 1
        return 0.25 if self.rounds else 1.0


@dataclass
class Sent:
    """A transmission: its segment, when it was sent, and whether it counts as in flight."""

    segment: int
    at: float
    flying: bool = True


class Flow:
    """A sender and its path; ``go`` sends what the window allows."""

    def __init__(self, rule: Reno, rtt: float, start: float) -> None:
        self.rule, self.rtt, self.start = rule, rtt, start
        self.una = self.nxt = self.point = self.pipe = self.delivered = 0
        self.arrived: set[int] = set()  # beyond una
        self.sent: list[Sent] = []
        self.scan = 0  # transmissions below it are settled
        self.acked: deque[int] = deque(maxlen=3)  # the newest three transmissions that were acknowledged
        self.again: deque[int] = deque()
        self.fast = False
        self.srtt = self.var = 0.0
        self.backoff = 1.0
        self.deadline = float("inf")
        self.last_delivery = 0.0

    def rto(self) -> float:
        """RFC 6298."""
        return self.backoff * (max(0.2, self.srtt + 4 * self.var) if self.srtt else 1.0)

    def next_segment(self) -> int:
        """Return a lost segment, or a new one."""
        while self.again:
            segment = self.again.popleft()
            if segment >= self.una and segment not in self.arrived:
                return segment
        self.nxt += 1
        return self.nxt - 1

    def hear(self, number: int, now: float) -> None:
        """Take the ACK of a transmission."""
        one = self.sent[number]
        sample = now - one.at
        self.var = 0.75 * self.var + 0.25 * abs(self.srtt - sample) if self.srtt else sample / 2
        self.srtt = 0.875 * self.srtt + 0.125 * sample if self.srtt else sample
        self.backoff = 1.0
        self.pipe -= one.flying
        one.flying = False
        self.acked.append(number)
        new = one.segment >= self.una and one.segment not in self.arrived
        if new:
            self.arrived.add(one.segment)
            while self.una in self.arrived:
                self.arrived.remove(self.una)
                self.una += 1
            self.delivered += 1
        self.deadline = now + self.rto() if self.pipe else float("inf")
        if new and not (self.fast and self.una < self.point):
            self.rule.acked(1, now, sample, self.una, self.nxt)
        if len(self.acked) == 3:
            self._lose(self.acked[0], now)

    def _lose(self, below: int, now: float) -> None:
        """RFC 6675: lost is what three later transmissions have overtaken; one reduction until the recovery point."""
        pipe, highest = self.pipe, -1
        while self.scan < below:
            one = self.sent[self.scan]
            if one.flying:
                one.flying = False
                self.pipe -= 1
                self.again.append(one.segment)
                highest = max(highest, one.segment)
            self.scan += 1
        if highest >= self.point:
            self.rule.lost(pipe)
            self.point, self.fast = self.nxt, True
        if not self.pipe:
            self.deadline = float("inf")

    def time_out(self, now: float) -> None:
        """RFC 6298 (5.4 to 5.6): everything outstanding is lost."""
        if any(one.flying and one.segment >= self.point for one in self.sent[self.scan :]) or not self.fast:
            self.rule.lost(self.pipe)
        for one in self.sent[self.scan :]:
            if one.flying:
                one.flying = False
                self.again.append(one.segment)
        self.scan, self.pipe, self.backoff = len(self.sent), 0, 2 * self.backoff
        self.rule.timed_out()
        self.point, self.fast, self.deadline = self.nxt, False, float("inf")


def run(
    flows: list[tuple[str, float, float]], rate: float, buffer: int, duration: float, warm_up: float, jitter: float, seed: int
) -> dict[str, list[float] | float]:
    """Return utilisation, mean queue in packets (waiting, without the one in service), loss and the flows' shares.

    ``flows`` have rule (reno, cubic, hystart), RTT and start; ``rate`` is in packets per second, ``buffer`` in packets; each
    packet reaches its receiver late by U[0, ``jitter``), in order.
    """
    draw = random.Random(seed).random
    made = [Flow(Reno() if name == "reno" else Cubic(name == "hystart"), rtt, start) for name, rtt, start in flows]
    starts: deque[float] = deque()  # of service, of packets that wait
    free = waited = served = dropped = arrived = 0.0
    before = [0] * len(made)
    order = count()
    events = [(flow.start, next(order), index, -1) for index, flow in enumerate(made)]
    heapq.heapify(events)
    while events:
        now, _, index, number = heapq.heappop(events)
        if now > duration:
            break
        flow = made[index]
        if now < warm_up:
            before[index] = flow.delivered
        if number >= 0:
            flow.hear(number, now)
        elif number == -2:
            if flow.deadline > now:
                if flow.deadline < float("inf"):
                    heapq.heappush(events, (flow.deadline, next(order), index, -2))
                continue
            flow.time_out(now)
        timer = flow.deadline == float("inf")
        while flow.pipe == 0 or flow.pipe + 1 <= flow.rule.cwnd + 1e-9:
            flow.sent.append(Sent(flow.next_segment(), now))
            flow.pipe += 1
            while starts and starts[0] <= now:
                starts.popleft()
            inside = now >= warm_up
            arrived += inside
            if len(starts) >= buffer:
                dropped += inside
                continue
            begin = max(now, free)
            free = begin + 1 / rate
            if begin > now:
                starts.append(begin)
            waited += max(0.0, min(begin, duration) - max(now, warm_up))
            served += warm_up <= free <= duration
            flow.last_delivery = max(flow.last_delivery, free + jitter * draw())
            heapq.heappush(events, (flow.last_delivery + flow.rtt, next(order), index, len(flow.sent) - 1))
        if timer and flow.pipe:
            flow.deadline = now + flow.rto()
            heapq.heappush(events, (flow.deadline, next(order), index, -2))
    got = [flow.delivered - start for flow, start in zip(made, before, strict=True)]
    seconds = duration - warm_up
    return {
        "utilisation": served / rate / seconds,
        "queue": waited / seconds,
        "loss": dropped / max(1.0, arrived),
        "shares": [one / max(1, sum(got)) for one in got],
    }
